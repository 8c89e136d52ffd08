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
	Replaced   uint64 // messages that newer ones have replaced,
	Runs       int    // in so many runs
}

// Idle reports whether no memory that Room or Slices returned is in use.
func (b *Buffer) Idle() bool { return !b.reserved && !b.pinned }

// State returns all of an idle Buffer but its content. Nothing may be left for Compact to remove.
func (b *Buffer) State() State {
	st := State{Base: b.base, Last: b.last, End: b.end, Held: b.held, Raw: len(b.Raw()), Burst: b.burst}
	if b.replaced != nil {
		st.Replaced, st.Runs = b.replaced.n, b.replaced.runs
	}
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
		!holds(content[:st.Last.Off-st.Base.Off], &st) {
		return nil, fmt.Errorf("%w: %+v, %d bytes", errState, st, len(content))
	}
	if st.Replaced > 0 {
		b.replaced = &replaced{n: st.Replaced, runs: st.Runs}
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

// holds reports whether p is exactly the messages and runs of st.
func holds(p []byte, st *State) bool {
	messages, gone, runs, payload := st.Last.N-st.Base.N, st.Replaced, st.Runs, st.Held
	for len(p) > 0 {
		h, err := frame.Parse(p)
		if err != nil || h.Size == 0 || h.Length > int64(len(p)-h.Size) {
			return false
		}
		body := p[h.Size : h.Size+int(h.Length)]
		p = p[h.Size+int(h.Length):]
		if runs > 0 && isRun(h) {
			if n := parseRun(string(body)); n > 0 && n <= min(messages, gone) {
				messages, gone, runs = messages-n, gone-n, runs-1
				continue
			}
		}
		payload -= h.Length
		if h.Fin {
			messages--
		}
	}
	return messages == 0 && payload == 0 && gone == 0 && runs == 0
}
