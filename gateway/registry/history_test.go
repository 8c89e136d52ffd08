package registry

import (
	"fmt"
	"testing"

	"reseat/gateway/events"
)

func TestHistoryKeepsOldestAndNewestEntries(t *testing.T) {
	var h history
	h.note(Moment{Type: events.Created})
	for i := range 100 {
		h.note(Moment{Type: events.Detached, Reason: fmt.Sprint(i)})
	}
	if len(h.list) != maxMoments || cap(h.list) > 2*maxMoments || h.left != 101-maxMoments {
		t.Errorf("%d entries in room for %d, %d left out", len(h.list), cap(h.list), h.left)
	}
	if h.list[0].Type != events.Created || h.list[1].Reason != "69" || h.list[maxMoments-1].Reason != "99" {
		t.Errorf("%+v", h.list)
	}
}

// The control API may change a session before its first event is noted.
func TestHistoryBeginsWithCreation(t *testing.T) {
	var h history
	h.note(Moment{Type: GraceChanged})
	h.note(Moment{Type: events.Created})
	if h.list[0].Type != events.Created || h.list[1].Type != GraceChanged {
		t.Errorf("%+v", h.list)
	}
}

// T6: sending a superseded token over and over must not evict earlier entries.
func TestRepeatedReplaysShareOneEntry(t *testing.T) {
	var h history
	h.note(Moment{Type: events.Created})
	for range 1000 {
		h.note(Moment{Type: events.Replayed})
	}
	h.note(Moment{Type: events.Detached})
	h.note(Moment{Type: events.Replayed})
	if len(h.list) != 4 || h.list[1].Times != 1000 || h.list[3].Times != 1 || h.left != 0 {
		t.Errorf("%+v", h.list)
	}
}
