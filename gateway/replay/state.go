package replay

import (
	"errors"
	"fmt"

	"reseat/gateway/frame"
)

// A State is a Buffer without its content.
type State struct {
	Base, Last Mark
	End        uint64 // of the bytes kept, complete messages or not
	Held       int64  // payload of the complete messages, in bytes
	Raw        int    // bytes of the raw part
	Free       int    // bytes that may be read behind it before more memory is needed
	Burst      bool
}

// Idle reports whether no memory that Room or Slices returned is in use.
func (b *Buffer) Idle() bool { return !b.reserved && !b.pinned }

// State returns all of an idle Buffer but its content.
func (b *Buffer) State() State {
	st := State{Base: b.base, Last: b.last, End: b.end, Held: b.held, Raw: len(b.Raw()), Burst: b.burst}
	if b.tail != nil {
		st.Free = min(len(b.tail.buf)-b.hi, maxFree)
	}
	return st
}

// Content returns the stream from Base on, and the raw part, without copying. The Buffer
// must not be used while that is.
func (b *Buffer) Content() (dst [][]byte) {
	for c := b.head; c != nil; c = c.next {
		from := uint64(0)
		if b.base.Off > c.off {
			from = b.base.Off - c.off
		}
		if from < uint64(c.n) {
			dst = append(dst, c.buf[from:c.n])
		}
	}
	if raw := b.Raw(); len(raw) > 0 {
		dst = append(dst, raw)
	}
	return dst
}

// maxFree bounds State.Free.
const maxFree = 16 << 20

// errState is returned by Restore.
var errState = errors.New("replay buffer: state and content do not fit")

// Restore makes a Buffer of a State and its content, which it copies. It takes the memory
// that it needs even where the Store is exhausted.
func Restore(s *Store, st State, content []byte) (*Buffer, error) {
	b := &Buffer{store: s, base: st.Base, last: st.Last, end: st.Base.Off, held: st.Held, burst: st.Burst}
	stream := st.End - st.Base.Off
	if st.Base.Off > st.Last.Off || st.Last.Off > st.End || st.Raw < 0 || st.Free < 0 || st.Free > maxFree || uint64(len(content)) != stream+uint64(st.Raw) ||
		!holds(content[:st.Last.Off-st.Base.Off], st.Last.N-st.Base.N, st.Held) {
		return nil, fmt.Errorf("%w: %+v, %d bytes", errState, st, len(content))
	}
	if len(content)+st.Free == 0 {
		return b, nil
	}
	for stream > bigChunk { // in pieces, so that the memory is freed as messages are acked
		b.link(s.get(bigChunk))
		b.append(content[:bigChunk])
		content, stream = content[bigChunk:], stream-bigChunk
	}
	c := &chunk{buf: make([]byte, len(content)+st.Free)} // of no size that the Store keeps
	s.used.Add(int64(len(c.buf)))
	b.link(c)
	b.append(content[:stream])
	b.src, b.lo = b.tail, b.tail.n
	b.hi = b.lo + copy(b.tail.buf[b.lo:], content[stream:])
	return b, nil
}

// holds reports whether p is exactly that number of whole messages, with that much payload.
func holds(p []byte, messages uint64, payload int64) bool {
	for len(p) > 0 {
		h, err := frame.Parse(p)
		if err != nil || h.Size == 0 || h.Length > int64(len(p)-h.Size) {
			return false
		}
		p = p[h.Size+int(h.Length):]
		payload -= h.Length
		if h.Fin {
			messages--
		}
	}
	return messages == 0 && payload == 0
}
