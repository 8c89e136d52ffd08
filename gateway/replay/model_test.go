package replay

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"reseat/gateway/frame"
)

const dle = 0x10

// A script supplies the choices: the bytes of a fuzz input or of a seed.
type script struct {
	b     []byte
	trace []string // the last steps, for when one fails
}

func (s *script) next() int {
	if len(s.b) == 0 {
		return 0
	}
	v := s.b[0]
	s.b = s.b[1:]
	return int(v)
}

// upTo chooses a number from 0 to n, often one of the bounds.
func (s *script) upTo(n int) int {
	switch c := s.next(); c & 7 {
	case 0, 1:
		return 0
	case 2, 3, 4:
		return n
	default:
		return (c<<16 + s.next()<<8 + s.next()) % (n + 1)
	}
}

func (s *script) note(format string, args ...any) {
	s.trace = append(s.trace[max(0, len(s.trace)-30):], fmt.Sprintf(format, args...))
}

// A model is a Buffer, and in plain slices what it must contain: every byte and every
// message there ever was.
type model struct {
	t testing.TB
	*script
	b *Buffer

	stream []byte // the bytes taken
	msgs   []msg  // the messages in it, message 1 first
	base   int    // how many of them were released
	raw    []byte

	feed []byte // what the upstream sends next
	open bool   // feed ends within a message
	seed int    // where in noise its payload starts

	// State of the walk over the raw part, as a session's scanner does it.
	scanning bool
	rem      int
	fin      bool
	payload  int64

	room   []byte // handed out by Room
	burst  bool
	pinned bool
	pin    int
	pins   []hold // handed out by Slices
	kept   []hold // still in use after Abandon or Release
}

// A msg is a message, or a run of replaced ones, that ends at end in the stream.
type msg struct {
	end     int
	payload int64
	n       uint64 // its number, or that of the last of the run
	gone    uint64 // how many messages it is that newer ones have replaced
}

// A hold is memory in use, and what it must contain.
type hold struct {
	got, want []byte
	to        int // where it ends in the stream
}

func (m *model) failf(format string, args ...any) {
	m.t.Helper()
	m.t.Fatalf("%s\nafter %q", fmt.Sprintf(format, args...), m.trace)
}

// mark returns the end of the first n messages and runs.
func (m *model) mark(n int) Mark {
	if n == 0 {
		return Mark{}
	}
	return Mark{uint64(m.msgs[n-1].end), m.msgs[n-1].n}
}

func (m *model) baseOff() int { return int(m.mark(m.base).Off) }
func (m *model) lastOff() int { return int(m.mark(len(m.msgs)).Off) }

// need returns the offset from which on the bytes must be held.
func (m *model) need() int {
	if m.pinned {
		return min(m.baseOff(), m.pin)
	}
	return m.baseOff()
}

// check compares the Buffer with what it must contain.
func (m *model) check() {
	m.t.Helper()
	var held int64
	var gone uint64
	for _, x := range m.msgs[m.base:] {
		held += x.payload
		gone += x.gone
	}
	b, want := m.b, int(m.mark(len(m.msgs)).N-m.mark(m.base).N-gone)
	if b.Base() != m.mark(m.base) || b.Last() != m.mark(len(m.msgs)) || b.Messages() != want || b.Bytes() != held || b.Replaced() != gone {
		m.failf("base %v last %v messages %d bytes %d replaced %d, want %v %v %d %d %d", b.Base(), b.Last(), b.Messages(), b.Bytes(), b.Replaced(),
			m.mark(m.base), m.mark(len(m.msgs)), want, held, gone)
	}
	if !bytes.Equal(b.Raw(), m.raw) {
		m.failf("raw is %d bytes % .20x, want %d % .20x", len(b.Raw()), b.Raw(), len(m.raw), m.raw)
	}
	m.checkChain()
	for _, h := range append(m.pins, m.kept...) {
		if !bytes.Equal(h.got, h.want) {
			m.failf("%d bytes that are still used have changed", len(h.want))
		}
	}
}

// checkChain checks that the chunks hold what is needed, without gaps, and that there
// is no chunk more.
func (m *model) checkChain() {
	m.t.Helper()
	b, need := m.b, uint64(m.need())
	if b.head == nil {
		if b.tail != nil || b.src != nil || need != uint64(len(m.stream)) || m.room != nil || len(m.raw) > 0 {
			m.failf("no chunk, though offsets %d to %d are needed", need, len(m.stream))
		}
		return
	}
	off, last := b.head.off, b.head
	for c := b.head; c != nil; c = c.next {
		if c.off != off || !bytes.Equal(c.buf[:c.n], m.stream[c.off:c.end()]) {
			m.failf("the chunk at %d (want %d) holds other bytes than were stored", c.off, off)
		}
		off, last = c.end(), c
	}
	switch idle := !m.scanning && m.room == nil && len(m.raw) == 0; {
	case b.head.off > need, off != uint64(len(m.stream)), last != b.tail:
		m.failf("chunks from %d to %d, want %d to %d", b.head.off, off, need, len(m.stream))
	case b.head != b.tail && b.head != b.src && b.head.end() <= need:
		m.failf("the chunk up to %d is kept, though only bytes from %d on are needed", b.head.end(), need)
	case idle && need == uint64(len(m.stream)):
		m.failf("a chunk is kept, though nothing is needed")
	case !m.scanning && (b.src != b.tail || b.lo < b.tail.n):
		m.failf("the raw part does not lie behind the stream")
	}
}

// held returns the memory of the chunks.
func (m *model) held() (n int) {
	for c := m.b.head; c != nil; c = c.next {
		n += len(c.buf)
	}
	return n
}

// noise never repeats, so that no byte can pass for another; used is what memory looks
// like after another user.
var noise, used = func() (a, b [70000]byte) {
	r := rand.New(rand.NewPCG(3, 4))
	for i := range a {
		a[i], b[i] = byte(r.Uint32()), 0xDB
	}
	return a, b
}()

var sizes = [16]int{0, 0, 1, 2, 5, 20, 60, 125, 126, 130, 300, 700, 1500, 4200, 9000, 66000}

// nextFrame returns what the upstream sends next: control frames, and messages in one
// frame or many.
func (m *model) nextFrame() []byte {
	c := m.next()
	m.seed = (m.seed + 31) % 4001
	p := bytes.Clone(noise[m.seed:][:sizes[c>>4]])
	kind := c & 15
	if kind == 0 {
		return frame.Append(nil, frame.Ping, p[:min(len(p), frame.MaxControl)])
	}
	if len(p) > 0 && kind > 12 {
		p[0] = dle
	}
	op, fin := byte(frame.Binary), kind > 4
	if kind == 5 && !m.open { // data that looks like a run
		op, p = frame.Text, []byte(runText+"5")
	}
	if m.open {
		op = frame.Continuation
	}
	m.open = !fin
	return append(frame.AppendHeader(nil, op, fin, len(p)), p...)
}

// piece scans one more piece of the raw part, as a session's scanner does, and reports
// whether there may be another.
func (m *model) piece() bool {
	raw := m.b.Raw()
	if len(raw) == 0 {
		return false
	}
	if m.rem > 0 {
		n := max(1, m.upTo(min(m.rem, len(raw))))
		m.take(n)
		m.rem -= n
		m.endFrame()
		return true
	}
	h, err := frame.Parse(raw)
	end := h.Size + int(h.Length)
	switch {
	case err != nil:
		m.failf("the raw part begins % .14x: %v", raw, err)
	case h.Size == 0, h.Control() && len(raw) < end, h.Length > 0 && len(raw) == h.Size:
		return false
	case h.Control():
		m.skip(end)
		return true
	}
	m.fin, m.rem = h.Fin, int(h.Length)
	m.payload += h.Length
	if h.Length > 0 && raw[h.Size] == dle {
		m.payload++
		m.insert(append(frame.AppendHeader(nil, h.Op, h.Fin, int(h.Length)+1), dle))
		m.skip(h.Size)
	} else {
		m.take(h.Size)
	}
	m.endFrame()
	return true
}

func (m *model) take(n int) {
	m.b.Take(n)
	m.stream = append(m.stream, m.raw[:n]...)
	m.raw = m.raw[n:]
}

func (m *model) skip(n int) {
	m.b.Skip(n)
	m.raw = m.raw[n:]
}

func (m *model) insert(p []byte) {
	m.stream = append(m.stream, p...)
	m.b.Insert(p)
	clear(p) // it was copied
}

func (m *model) endFrame() {
	if m.rem > 0 || !m.fin {
		return
	}
	m.b.EndMessage(m.payload)
	m.msgs = append(m.msgs, msg{end: len(m.stream), payload: m.payload, n: m.mark(len(m.msgs)).N + 1})
	m.fin, m.payload = false, 0
}
