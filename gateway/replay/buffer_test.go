package replay

import (
	"bytes"
	"testing"

	"reseat/gateway/frame"
)

// big enough for every test that is not about exhausted memory.
const ampleLimit = 64 << 20

// take reads p into b, in as many reads as needed, and takes all of it.
func take(t testing.TB, b *Buffer, p []byte) {
	t.Helper()
	for len(p) > 0 {
		n := copy(mustRoom(t, b), p)
		b.Fill(n)
		b.Take(n)
		b.Settle()
		p = p[n:]
	}
}

func mustRoom(t testing.TB, b *Buffer) []byte {
	t.Helper()
	room := b.Room(true)
	if room == nil {
		t.Fatal("no room")
	}
	return room
}

// send takes a message of n bytes.
func send(t testing.TB, b *Buffer, n int) {
	t.Helper()
	take(t, b, frame.Append(nil, frame.Binary, noise[:n]))
	b.EndMessage(int64(n))
}

// A copied header may span two chunks, wherever it is split.
func TestHeaderSpanningChunksIsRead(t *testing.T) {
	for _, length := range []int{5, 125, 126, 300, 65535, 65536, 70000} {
		header := frame.AppendHeader(nil, frame.Binary, true, length)
		second := append(bytes.Clone(header), noise[:length]...)
		for cut := 1; cut < len(header); cut++ {
			b := New(NewStore(ampleLimit, nil))
			n := copy(mustRoom(t, b), second)
			b.Fill(n)
			first := frame.Append(nil, frame.Binary, noise[:smallChunk-cut-4])
			b.Insert(first) // all but cut bytes of a chunk
			b.EndMessage(int64(len(first) - 4))
			b.Take(n)
			b.Settle()
			take(t, b, second[n:])
			b.EndMessage(int64(length))
			send(t, b, 9)
			if b.head.n != smallChunk || b.head.next.off != smallChunk {
				t.Fatalf("the second header is not cut at %d", cut)
			}
			ends := []uint64{0, uint64(len(first)), uint64(len(first) + len(second)), uint64(len(first) + len(second) + 11)}
			for n, want := range ends {
				if got := b.After(uint64(n)); got != want {
					t.Errorf("length %d, cut at %d: message %d ends at %d, want %d", length, cut, n, got, want)
				}
			}
			if before, after := b.Around(Mark{}, ends[1]+1); before != (Mark{ends[1], 1}) || after != ends[2] {
				t.Errorf("length %d, cut at %d: around its second byte %v and %d", length, cut, before, after)
			}
			if !b.Ack(2, ends[3]) || b.Bytes() != 9 || b.Base() != (Mark{ends[2], 2}) {
				t.Errorf("length %d, cut at %d: %d bytes behind %v", length, cut, b.Bytes(), b.Base())
			}
		}
	}
}

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
