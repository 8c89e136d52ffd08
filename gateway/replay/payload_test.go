package replay

import (
	"bytes"
	"testing"

	"reseat/gateway/frame"
)

// message appends a message in frames of these sizes, and returns its payload.
func (b *Buffer) message(sizes ...int) (payload []byte) {
	var all []byte
	for i, n := range sizes {
		op := byte(frame.Continuation)
		if i == 0 {
			op = frame.Text
		}
		p := bytes.Repeat([]byte{byte('a' + i%26)}, n)
		all = append(frame.AppendHeader(all, op, i == len(sizes)-1, n), p...)
		payload = append(payload, p...)
	}
	for rest := all; len(rest) > 0; {
		n := copy(b.Room(false), rest)
		b.Fill(n)
		b.Take(n)
		b.Settle()
		rest = rest[n:]
	}
	b.EndMessage(int64(len(payload)))
	return payload
}

func TestPayloadIsReadFromAnyPlaceInPieces(t *testing.T) {
	for _, sizes := range [][]int{{10}, {0}, {0, 0}, {5000}, {0, 3, 0, 0, 7, 0}, {100, 5000, 300}, {70000, 1, 70000}} {
		for _, piece := range []int{1, 7, 4096, 1 << 20} {
			b := New(NewStore(1<<30, nil))
			b.message(20)
			begin := b.Last().Off
			want := b.message(sizes...)
			end := b.Last().Off
			b.message(20)
			var got []byte
			for off := begin; off < end; {
				p := b.Payload(begin, off)
				if p.Left() != int64(len(want)-len(got)) || p.Op != frame.Text {
					t.Fatalf("%v: %d bytes left after %d, opcode %d", sizes, p.Left(), len(got), p.Op)
				}
				skipped := p
				n := min(piece, int(p.Left()))
				got = p.Append(got, n)
				if skipped.Skip(n); skipped.Off() != p.Off() || skipped.Left() != p.Left() || p.Left() != int64(len(want)-len(got)) {
					t.Fatalf("%v: at %d with %d left after Append, at %d with %d after Skip", sizes, p.Off(), p.Left(), skipped.Off(), skipped.Left())
				}
				off = p.Off()
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%v in pieces of %d: %d bytes, want %d", sizes, piece, len(got), len(want))
			}
		}
	}
}

func TestLargerFindsFirstLargeMessage(t *testing.T) {
	b := New(NewStore(1<<30, nil))
	var ends []uint64
	for _, sizes := range [][]int{{10}, {60, 40}, {0}, {101}, {99, 1, 1}, {5}} {
		b.message(sizes...)
		ends = append(ends, b.Last().Off)
	}
	last := b.Last().Off
	for _, tt := range []struct{ from, to, want uint64 }{
		{0, last, ends[2]}, {ends[2], last, ends[2]}, {ends[3], last, ends[3]}, {ends[4], last, last}, {0, ends[2], ends[2]}, {0, ends[2] + 1, ends[2]}, {0, ends[0], ends[0]}, {0, 0, 0},
	} {
		if got := b.Larger(tt.from, tt.to, 100); got != tt.want {
			t.Errorf("from %d to %d: %d, want %d", tt.from, tt.to, got, tt.want)
		}
	}
}
