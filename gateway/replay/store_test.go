package replay

import (
	"bytes"
	"sync"
	"testing"

	"reseat/gateway/frame"
)

// newBare returns a Store whose sessions have no reserve.
func newBare(limit int64, onExhausted func()) *Store {
	s := NewStore(limit, onExhausted)
	s.ShareReserve(0)
	return s
}

// readFull fills a room with a message's bytes, as a read does that finds more than enough.
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

func TestRoomIsNilWhileTheStoreIsExhausted(t *testing.T) {
	refused := 0
	s := newBare(3*smallChunk, func() { refused++ })
	b, other := New(s), New(s)
	for range 3 {
		send(t, b, smallChunk-4)
	}
	if b.Room(true) != nil || other.Room(false) != nil || refused != 2 {
		t.Fatalf("room beyond the limit, or not reported: %d", refused)
	}
	if s.Used() != s.Limit() || s.Limit() != 3*smallChunk {
		t.Fatalf("%d of %d bytes are used", s.Used(), s.Limit())
	}
	b.Ack(1, ampleLimit)
	if other.Room(false) == nil || b.Room(false) != nil || refused != 3 {
		t.Errorf("what one buffer gave back, the other does not get; refused %d times", refused)
	}
	other.Release()
	b.Release()
	if s.Used() != 0 {
		t.Errorf("%d bytes of memory are still held", s.Used())
	}
}

// One session that holds all there is does not keep another from its reserve.
func TestReserveIsGrantedWhileTheStoreIsExhausted(t *testing.T) {
	refused := 0
	s := NewStore(1<<20, func() { refused++ })
	full, other := New(s), New(s)
	for full.Room(true) != nil {
		readFull(t, full, true)
	}
	if s.Used()+smallChunk <= s.Limit() || refused == 0 {
		t.Fatalf("%d of %d bytes are used, refused %d times", s.Used(), s.Limit(), refused)
	}
	for _, sessions := range []int{1, 4, 10_000} {
		s.ShareReserve(sessions)
		want := max(s.Limit()/20/int64(sessions), smallChunk)
		for other.Room(true) != nil {
			readFull(t, other, true)
		}
		if got := other.Memory(); got > want || got+smallChunk <= want {
			t.Errorf("with %d sessions one that reads gets %d bytes, want %d", sessions, got, want)
		}
		other.Release()
		if held := int(want); !s.Grants(held) || s.Grants(held+1) {
			t.Errorf("with %d sessions one does not get %d bytes besides, or gets more", sessions, held)
		}
	}
	if s.ShareReserve(1); New(NewStore(1<<40, nil)).store.reserve.Load() != maxReserve {
		t.Error("the reserve of one session has no bound")
	}
}

// What is charged has no bound of its own, so that the one who lends hears of it.
func TestChargeBeyondTheLimitIsReported(t *testing.T) {
	refused := 0
	s := NewStore(smallChunk, func() { refused++ })
	s.Charge(smallChunk)
	s.Charge(-1)
	if refused > 0 {
		t.Error("within the limit, and reported")
	}
	s.Charge(2)
	if s.Charge(-1); refused != 1 {
		t.Errorf("beyond the limit, and reported %d times, want once", refused)
	}
}

// How long the oldest bytes have waited is known, whatever came after them.
func TestSinceIsWhenTheOldestMemoryWasFilled(t *testing.T) {
	b := New(NewStore(ampleLimit, nil))
	for i := range 10 {
		send(t, b, smallChunk/2)
		b.Stamp(int64(10 + i))
	}
	if at := b.Since(); at != 10 {
		t.Errorf("the oldest of ten messages is of %d, want 10", at)
	}
	b.Ack(6, ampleLimit)
	if at := b.Since(); at < 14 || at > 16 {
		t.Errorf("the oldest of messages 7 to 10 is of %d", at)
	}
	if b.Ack(10, ampleLimit); b.Since() != 0 || b.Memory() != 0 {
		t.Errorf("an empty buffer holds %d bytes since %d", b.Memory(), b.Since())
	}
}

func TestStoreServesManyBuffersAtOnce(t *testing.T) {
	s := NewStore(ampleLimit, nil)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			b := New(s)
			for round := range 300 {
				n := 1 + (i*7919+round*131)%9000
				want := frame.Append(nil, frame.Binary, noise[i*1000:][:n])
				for p := want; len(p) > 0; {
					room := b.Room(round&1 == 0)
					k := copy(room, p)
					b.Fill(k)
					b.Take(k)
					b.Settle()
					p = p[k:]
				}
				b.EndMessage(int64(n))
				got := bytes.Join(b.Slices(nil, b.Last().Off-uint64(len(want)), b.Last().Off), nil)
				if !bytes.Equal(got, want) {
					t.Errorf("buffer %d: message %d is another's", i, round)
					break
				}
				if b.Unpin(); round%3 == 0 {
					b.Ack(b.Last().N, b.Last().Off)
				}
			}
			b.Release()
		})
	}
	all.Wait()
	if s.Used() != 0 {
		t.Errorf("%d bytes of memory are still held", s.Used())
	}
}
