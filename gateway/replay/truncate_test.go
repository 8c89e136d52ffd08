package replay

import (
	"testing"

	"reseat/gateway/frame"
)

// The read of the first upstream is still under way when the second has come,
// and gone: the third must not be given the same memory.
func TestLentRoomIsNotLentAgainAfterTwoTruncations(t *testing.T) {
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
