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

// content returns the stream from one offset to another.
func content(b *Buffer, from, to uint64) []byte {
	p := bytes.Join(b.Slices(nil, from, to), nil)
	b.Unpin()
	return p
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

func TestMessageOfManyFramesIsOne(t *testing.T) {
	b := New(NewStore(ampleLimit, nil))
	var p []byte
	for i := range 1024 { // some of them empty
		op, fin := byte(frame.Continuation), i == 1023
		if i == 0 {
			op = frame.Text
		}
		n := i % 11
		p = append(frame.AppendHeader(p, op, fin, n), noise[:n]...)
	}
	total := len(p) - 2*1024
	take(t, b, p)
	b.EndMessage(int64(total))
	send(t, b, 3)
	if before, after := b.Around(Mark{}, 5); before != (Mark{}) || after != uint64(len(p)) {
		t.Errorf("around offset 5: %v and %d, want 0 and %d", before, after, len(p))
	}
	if !b.Ack(1, ampleLimit) || b.Bytes() != 3 || b.Messages() != 1 || b.Base().Off != uint64(len(p)) {
		t.Errorf("%d bytes in %d messages behind %v", b.Bytes(), b.Messages(), b.Base())
	}
}

// An incomplete message is neither counted nor discarded.
func TestIncompleteMessageIsNotCounted(t *testing.T) {
	s := NewStore(ampleLimit, nil)
	b := New(s)
	send(t, b, 10)
	whole := frame.Append(nil, frame.Binary, noise[:50000])
	take(t, b, whole[:30000])
	if b.Last() != (Mark{12, 1}) || b.Messages() != 1 || b.Bytes() != 10 {
		t.Fatalf("half a message counts: %v, %d bytes", b.Last(), b.Bytes())
	}
	if !b.Ack(1, 12) || b.Bytes() != 0 || s.Used() < 30000 {
		t.Fatalf("%d bytes and %d of memory are left of half a message", b.Bytes(), s.Used())
	}
	take(t, b, whole[30000:])
	b.EndMessage(50000)
	if got := content(b, 12, b.Last().Off); !bytes.Equal(got, whole) || b.Bytes() != 50000 {
		t.Errorf("the message has %d bytes, want %d", len(got), len(whole))
	}
}

func TestAckBeyondTheSentOffsetIsRefused(t *testing.T) {
	s := NewStore(ampleLimit, nil)
	b := New(s)
	for range 3 {
		send(t, b, 100) // each ends at a multiple of 102
	}
	for _, tt := range []struct {
		n, within uint64
		ok        bool
	}{{1, 0, false}, {1, 101, false}, {2, 203, false}, {3, 305, false}, {3, 102, false}, {0, 0, true}, {1, 102, true}, {1, 0, true}, {2, 1 << 60, true}, {3, 306, true}, {0, 0, true}} {
		base, bytes, used := b.Base(), b.Bytes(), s.Used()
		if ok := b.Ack(tt.n, tt.within); ok != tt.ok {
			t.Fatalf("ack %d with %d bytes sent: %t", tt.n, tt.within, ok)
		}
		if !tt.ok && (b.Base() != base || b.Bytes() != bytes || s.Used() != used) {
			t.Errorf("ack %d was refused and moved %v to %v", tt.n, base, b.Base())
		}
		if tt.ok && (b.Base().N < tt.n || b.Base().N < base.N) {
			t.Errorf("ack %d moved %v to %v", tt.n, base, b.Base())
		}
	}
	if b.Bytes() != 0 || s.Used() != 0 {
		t.Errorf("%d bytes and %d of memory are left", b.Bytes(), s.Used())
	}
}

func TestIdleBufferHoldsNoMemory(t *testing.T) {
	s := NewStore(ampleLimit, nil)
	b := New(s)
	for _, n := range []int{0, 1, 600, 5000, 65000} {
		send(t, b, n)
		if s.Used() == 0 {
			t.Fatalf("a message of %d bytes is held in no memory", n)
		}
		b.Ack(b.Last().N, b.Last().Off)
		if s.Used() != 0 {
			t.Errorf("%d bytes of memory are held for a message of %d that was acked", s.Used(), n)
		}
	}
	mustRoom(t, b)
	if b.Fill(0); s.Used() != 0 {
		t.Errorf("%d bytes of memory are held by a read that brought nothing", s.Used())
	}
}

// Chunks are freed one by one as they are acked, and not earlier.
func TestMemoryFollowsTheAcks(t *testing.T) {
	s := NewStore(ampleLimit, nil)
	b := New(s)
	for range 100 {
		send(t, b, 1020) // 1,024 with the header: four to a chunk
	}
	if s.Used() != 25*smallChunk {
		t.Fatalf("%d bytes of memory for 25 chunks", s.Used())
	}
	for n := uint64(1); n <= 100; n++ {
		b.Ack(n, ampleLimit)
		if want := int64(25-n/4) * smallChunk; s.Used() != want || b.Messages() != int(100-n) {
			t.Fatalf("%d bytes of memory after %d acks, want %d", s.Used(), n, want)
		}
	}
}

func TestPinnedMemoryOutlivesItsAck(t *testing.T) {
	s := NewStore(ampleLimit, nil)
	b := New(s)
	for range 10 {
		send(t, b, 3000)
	}
	slices := b.Slices(nil, 0, b.Last().Off)
	want := bytes.Join(slices, nil)
	if !b.Ack(10, b.Last().Off) || s.Used() == 0 {
		t.Fatal("memory was given back that somebody reads")
	}
	other := New(s)
	for range 20 {
		send(t, other, 4000)
	}
	if got := bytes.Join(slices, nil); !bytes.Equal(got, want) {
		t.Error("memory that somebody reads was used again")
	}
	b.Unpin()
	other.Release()
	if s.Used() != 0 {
		t.Errorf("%d bytes of memory are still held", s.Used())
	}
}

func TestAbandonedMemoryIsNeverReused(t *testing.T) {
	s := NewStore(ampleLimit, nil)
	for round := range 20 {
		b := New(s)
		for range 10 {
			send(t, b, 3000)
		}
		slices := b.Slices(nil, uint64(round*1000), b.Last().Off)
		want := bytes.Join(slices, nil)
		b.Abandon()
		b.Ack(10, b.Last().Off)
		if s.Used() != 0 {
			t.Fatalf("%d bytes are counted that the buffer has given up", s.Used())
		}
		other := New(s)
		for range 30 {
			send(t, other, 4000)
		}
		if got := bytes.Join(slices, nil); !bytes.Equal(got, want) {
			t.Fatal("abandoned memory was used again")
		}
		other.Release()
	}
}

// A read may be in flight when its session ends.
func TestRoomSurvivesRelease(t *testing.T) {
	s := NewStore(ampleLimit, nil)
	b := New(s)
	send(t, b, 10)
	room := mustRoom(t, b)
	b.Release()
	copy(room, noise[:])
	other := New(s)
	for range 50 {
		send(t, other, 4000)
	}
	if !bytes.Equal(room, noise[:len(room)]) {
		t.Error("memory that is read into was used again")
	}
	if other.Release(); s.Used() != 0 {
		t.Errorf("%d bytes of memory are still held", s.Used())
	}
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
