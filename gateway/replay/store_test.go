package replay

import (
	"bytes"
	"sync"
	"testing"

	"reseat/gateway/frame"
)

func TestRoomIsNilWhileTheStoreIsExhausted(t *testing.T) {
	refused := 0
	s := NewStore(3*smallChunk, func() { refused++ })
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

// The free end of a chunk is already charged.
func TestFreeEndOfAChunkIsNotRefused(t *testing.T) {
	s := NewStore(smallChunk, nil) // without a callback
	b := New(s)
	send(t, b, 100)
	if got := len(b.Room(false)); got != smallChunk-102 {
		t.Errorf("%d bytes of room", got)
	}
	b.Fill(smallChunk - 102)
	b.Take(smallChunk - 102)
	b.Settle()
	if b.Room(false) != nil {
		t.Error("room beyond the limit")
	}
}

func TestStoreSmallerThanAChunkRefusesEveryRoom(t *testing.T) {
	if New(NewStore(smallChunk-1, nil)).Room(true) != nil {
		t.Error("room beyond the limit")
	}
}

// Where a big chunk would exceed the limit, a burst goes on in small ones: what is left may be all that its message
// needs, and nothing else would free any memory.
func TestLimitIsExactForBothSizes(t *testing.T) {
	for limit, want := range map[int64]int{2*smallChunk - 1: 0, 2 * smallChunk: smallChunk, smallChunk + bigChunk - 1: smallChunk, smallChunk + bigChunk: bigChunk} {
		refused := 0
		b := New(NewStore(limit, func() { refused++ }))
		readFull(t, b, false)
		if got := len(b.Room(false)); got != want || refused > 0 != (want == 0) {
			t.Errorf("a limit of %d: room of %d bytes, want %d; refused %d times", limit, got, want, refused)
		}
	}
}

func TestOtherMemoryCountsToo(t *testing.T) {
	s := NewStore(2*smallChunk, nil)
	s.Charge(smallChunk + 1)
	if s.Used() != smallChunk+1 || New(s).Room(true) != nil {
		t.Errorf("%d bytes are used, and a chunk more fits into %d", s.Used(), s.Limit())
	}
	s.Charge(-1)
	b := New(s)
	if b.Room(true) == nil || s.Used() != 2*smallChunk {
		t.Errorf("%d bytes are used, and no chunk more", s.Used())
	}
	b.Release()
	s.Charge(-smallChunk)
	if s.Used() != 0 {
		t.Errorf("%d bytes are used", s.Used())
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
