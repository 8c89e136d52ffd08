package session

import (
	"testing"
	"unsafe"
)

// There are thousands of sessions: one field too many costs each the next size of the allocator, up to an eighth more.
func TestSessionFitsIntoItsSizeClass(t *testing.T) {
	const class = 1152 // see runtime/sizeclasses.go
	if size := unsafe.Sizeof(Session{}); size > class {
		t.Errorf("a Session takes %d bytes, want at most %d", size, class)
	}
	const ofClient = 576
	if size := unsafe.Sizeof(Attachment{}); size > ofClient {
		t.Errorf("an Attachment takes %d bytes, want at most %d", size, ofClient)
	}
}
