package replay

import (
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

func TestReleasedBufferKeepsItsNumbers(t *testing.T) {
	b := New(NewStore(ampleLimit, nil))
	send(t, b, 10)
	send(t, b, 20)
	take(t, b, []byte{0x82}) // and half a header
	b.Fill(copy(mustRoom(t, b), "raw"))
	b.Release()
	want := Mark{34, 2}
	if b.Base() != want || b.Last() != want || b.Bytes() != 0 || b.Messages() != 0 || len(b.Raw()) != 0 {
		t.Errorf("%v to %v, %d bytes, %d raw", b.Base(), b.Last(), b.Bytes(), len(b.Raw()))
	}
	b.Release() // idempotent
	b.Unpin()
	b.Abandon()
	if b.Base() != want || b.store.Used() != 0 {
		t.Errorf("%v and %d bytes of memory after a second release", b.Base(), b.store.Used())
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
