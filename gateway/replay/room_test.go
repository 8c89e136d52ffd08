package replay

import (
	"testing"

	"reseat/gateway/frame"
)

// readFull fills a room with a message's bytes, as a read does that finds more than
// enough.
func readFull(t *testing.T, b *Buffer, frugal bool) int {
	t.Helper()
	room := b.Room(frugal)
	if room == nil {
		t.Fatal("no room")
	}
	b.Fill(len(room))
	b.Take(len(room))
	b.Settle()
	return len(room)
}

func TestFullReadMakesTheNextChunkBig(t *testing.T) {
	b := New(NewStore(ampleLimit, nil))
	for i, want := range []int{smallChunk, bigChunk, bigChunk} {
		if got := readFull(t, b, false); got != want {
			t.Errorf("read %d has %d bytes of room, want %d", i, got, want)
		}
	}
	if got := len(b.Room(false)); got != bigChunk {
		t.Fatalf("%d bytes of room", got)
	}
	b.Fill(bigChunk - minRoom + 1) // not full, but too little is left
	b.Take(len(b.Raw()))
	b.Settle()
	if got := len(b.Room(false)); got != smallChunk {
		t.Errorf("%d bytes of room after a read that was not full, want %d", got, smallChunk)
	}
}

func TestFrugalRoomStaysSmall(t *testing.T) {
	b := New(NewStore(ampleLimit, nil))
	for range 5 {
		if got := readFull(t, b, true); got != smallChunk {
			t.Errorf("%d bytes of room, want %d", got, smallChunk)
		}
	}
}

// Room is never too small to be worth a read, or to hold a control frame in one piece.
func TestRoomHasAMinSize(t *testing.T) {
	for used := 1; used <= smallChunk; used++ {
		b := New(NewStore(ampleLimit, nil))
		b.Room(false)
		b.Fill(used)
		b.Take(used)
		b.Settle()
		want := smallChunk - used
		switch {
		case used == smallChunk:
			want = bigChunk
		case want < minRoom:
			want = smallChunk
		}
		if got := len(b.Room(false)); got != want {
			t.Fatalf("%d bytes of room behind %d, want %d", got, used, want)
		}
	}
	if minRoom < 2+8+4+frame.MaxControl {
		t.Error("a control frame may not find room in one piece")
	}
}
