package netio

import (
	"testing"
	"unsafe"
)

// There are one session and two legs for each player: see the test of package session.
func TestSessionAndLegsFitIntoTheirSizeClass(t *testing.T) {
	const class = 208 // see runtime/sizeclasses.go
	for name, size := range map[string]uintptr{"a Session": unsafe.Sizeof(Session{}), "a leg": unsafe.Sizeof(leg{})} {
		if size > class {
			t.Errorf("%s takes %d bytes, want at most %d", name, size, class)
		}
	}
}
