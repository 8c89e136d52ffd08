package listen

import (
	"net"
	"net/http"
	"testing"
)

// A connection that was closed to make room is no longer tracked, whatever its http.Server
// still reports about it.
func TestConnectionClosedToMakeRoomIsForgotten(t *testing.T) {
	tracker := NewConnTracker(Options{})
	a, _ := net.Pipe()
	b, _ := net.Pipe()
	tracker.Track(a)
	tracker.Track(b)
	if !tracker.FreeOne() {
		t.Fatal("nobody waits")
	}
	if conns, waiting := tracker.Counts(); conns != 1 || waiting != 1 {
		t.Errorf("%d tracked and %d waiting, want the younger one", conns, waiting)
	}
	if _, err := a.Write(nil); err == nil {
		t.Error("the older one is open")
	}
	tracker.ConnState(a, http.StateIdle)
	if conns, waiting := tracker.Counts(); conns != 1 || waiting != 1 {
		t.Errorf("%d tracked and %d waiting: the closed one waits again", conns, waiting)
	}
	tracker.Forget(b)
	if tracker.FreeOne() {
		t.Error("there was one more to close")
	}
}
