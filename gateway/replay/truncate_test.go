package replay

import (
	"testing"

	"reseat/gateway/frame"
)

// The first upstream's read is still in flight when the second has come and
// disconnected: the third must not get the same memory.
func TestRoomInUseIsNotReusedAfterTwoTruncations(t *testing.T) {
	b := New(NewStore(1<<20, nil))
	n := copy(b.Room(true), frame.Append(nil, frame.Binary, []byte("held")))
	b.Fill(n)
	b.Take(n)
	b.EndMessage(4)
	b.Settle()
	first := b.Room(true)
	b.Truncate()
	b.Truncate()
	copy(b.Room(true), "of the third upstream")
	copy(first, "of the first one, late")
	b.Fill(len("of the third upstream"))
	if got := string(b.Raw()); got != "of the third upstream" {
		t.Errorf("raw is %q", got)
	}
}
