package registry

import (
	"testing"
	"unsafe"
)

// There is one for each session: see the session's own test.
func TestRecordFitsIntoItsSizeClass(t *testing.T) {
	const class = 480 // see runtime/sizeclasses.go
	if size := unsafe.Sizeof(Record{}); size > class {
		t.Errorf("a Record takes %d bytes, want at most %d", size, class)
	}
}
