//go:build !race

package replay

import (
	"fmt"
	"testing"

	"reseat/gateway/frame"
)

// relay takes messages from one read into b and hands them out.
func relay(b *Buffer, read []byte, messages int, bufs [][]byte) [][]byte {
	from := b.Last().Off
	b.Fill(copy(b.Room(false), read))
	one := len(read) / messages
	for range messages {
		b.Take(one)
		b.EndMessage(int64(one - 2))
	}
	b.Settle()
	bufs = b.Slices(bufs[:0], from, b.Last().Off)
	b.Unpin()
	return bufs
}

// Under the race detector sync.Pool drops items on purpose, hence the build tag.
func TestRelayingDoesNotAllocate(t *testing.T) {
	one := frame.Append(nil, frame.Binary, make([]byte, 120))
	bufs := make([][]byte, 0, 64)
	for _, messages := range []int{1, 30} {
		read := make([]byte, 0, messages*len(one))
		for range messages {
			read = append(read, one...)
		}
		for _, every := range []uint64{1, 8, 40} { // acks after every message, or now and then
			b, round := New(NewStore(ampleLimit, nil)), uint64(0)
			run := func() {
				bufs = relay(b, read, messages, bufs)
				if round++; round%every == 0 {
					b.Ack(b.Last().N, b.Last().Off)
				}
			}
			for range 100 {
				run()
			}
			if n := testing.AllocsPerRun(1000, run); n != 0 {
				t.Errorf("%d messages a read, an ack each %d reads: %v allocations", messages, every, n)
			}
		}
	}
}

// Reads that fill big chunks: those are reused as well.
func TestLargeChunksAreReused(t *testing.T) {
	one := frame.Append(nil, frame.Binary, make([]byte, 1020))
	var read []byte
	for range bigChunk / len(one) {
		read = append(read, one...)
	}
	s, bufs, most := NewStore(ampleLimit, nil), make([][]byte, 0, 64), int64(0)
	b := New(s)
	n := testing.AllocsPerRun(500, func() {
		for range 4 {
			bufs = relay(b, read[:len(b.Room(false))], 4, bufs)
		}
		most = max(most, s.Used())
		b.Ack(b.Last().N, b.Last().Off)
	})
	if n != 0 || most < 3*bigChunk {
		t.Errorf("%v allocations for %d bytes held at most", n, most)
	}
}

// A slow client acks a part: headers are walked, nothing is allocated.
func TestPartialAckDoesNotAllocate(t *testing.T) {
	b := New(NewStore(ampleLimit, nil))
	for range 100 {
		send(t, b, 300)
	}
	read := frame.Append(nil, frame.Binary, make([]byte, 120))
	bufs := make([][]byte, 0, 64)
	n := testing.AllocsPerRun(1000, func() {
		bufs = relay(b, read, 1, bufs)
		b.Ack(b.Base().N+1, b.Last().Off)
		b.After(b.Base().N + 50)
		b.Around(b.Base(), b.Base().Off+5000)
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkRelay(b *testing.B) {
	for _, messages := range []int{1, 30} {
		b.Run(fmt.Sprint(messages), func(b *testing.B) {
			one := frame.Append(nil, frame.Binary, make([]byte, 120))
			var read []byte
			for range messages {
				read = append(read, one...)
			}
			r, bufs := New(NewStore(ampleLimit, nil)), make([][]byte, 0, 64)
			b.ReportAllocs()
			for b.Loop() {
				bufs = relay(r, read, messages, bufs)
				r.Ack(r.Last().N, r.Last().Off)
			}
		})
	}
}
