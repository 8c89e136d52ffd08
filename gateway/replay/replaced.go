package replay

import (
	"slices"
	"strconv"
	"strings"

	"reseat/gateway/frame"
)

// This file lets newer messages replace older ones: protocol section 3.2. A replaced message counts no more
// for Messages and Bytes, at once; Compact then removes its bytes. What is left of neighbouring ones is a
// run: a frame of the stream that stands for their numbers, and that goes to the client as it lies there.

// runText begins the payload of a run. Data that begins with DLE is stored escaped, so that it cannot be
// taken for one.
const runText = "\x10skip "

// maxRun is the max length of the payload of a run.
const maxRun = len(runText) + 16

// replaced are the messages between Base and Last that newer ones have replaced.
type replaced struct {
	n    uint64   // all of them
	runs int      // frames of the stream that stand for some of them
	dead []uint64 // the numbers of the others, ascending
	size int64    // of the dead ones, in bytes
}

// Replaced returns how many of the messages between Base and Last newer ones have replaced.
func (b *Buffer) Replaced() uint64 {
	if b.replaced == nil {
		return 0
	}
	return b.replaced.n
}

// ReplacedAfter is Replaced for those after message n alone.
func (b *Buffer) ReplacedAfter(n uint64) (count uint64) {
	if b.replaced == nil {
		return 0
	}
	p := b.find(b.base.Off)
	for m := b.base; m.N < b.last.N; {
		if _, gone := b.next(&p, &m); m.N > n {
			count += min(gone, m.N-n)
		}
	}
	return count
}

// Replace records that a newer message has replaced message n, which has that much payload, lies
// between Base and Last and was not replaced before.
func (b *Buffer) Replace(n uint64, payload int64) {
	if b.replaced == nil {
		b.replaced = new(replaced)
	}
	r := b.replaced
	i, _ := slices.BinarySearch(r.dead, n)
	r.dead = slices.Insert(r.dead, i, n)
	r.n++
	r.size += payload + 2
	b.held -= payload
}

// Compactable reports whether there is something for Compact to remove.
func (b *Buffer) Compactable() bool { return b.replaced != nil && len(b.replaced.dead) > 0 }

// maxDead bounds the list of replaced messages whose bytes are still in the stream.
const maxDead = 4096

// Wasteful reports whether replaced messages take up so much memory that Compact is worth its time.
func (b *Buffer) Wasteful() bool {
	r := b.replaced
	return r != nil && (r.size > smallChunk && r.size > b.held || len(r.dead) > maxDead)
}

// Oldest returns the end of the oldest message, or run, and whether newer messages have replaced it.
func (b *Buffer) Oldest() (Mark, bool) {
	p, m := b.find(b.base.Off), b.base
	_, gone := b.next(&p, &m)
	return m, gone > 0
}

// Boundary returns the first end of a message, or run, at or after off, walking from the mark m.
func (b *Buffer) Boundary(m Mark, off uint64) Mark {
	if m.Off < b.base.Off {
		m = b.base
	}
	for p := b.find(m.Off); m.Off < off && m.N < b.last.N; {
		b.next(&p, &m)
	}
	return m
}

// Each calls f with the messages after the mark m that no newer one has replaced: the offset where each
// begins, its end, and its payload. f may call Replace.
func (b *Buffer) Each(m Mark, f func(begin uint64, end Mark, payload int64)) {
	for p := b.find(m.Off); m.N < b.last.N; {
		begin := m.Off
		if payload, gone := b.next(&p, &m); gone == 0 {
			f(begin, m, payload)
		}
	}
}

// next moves m and p from the end of one message to that of the next, or of the run that follows. It returns its
// payload, and how many messages it stands for that newer ones have replaced.
func (b *Buffer) next(p *pos, m *Mark) (payload int64, gone uint64) {
	if r := b.replaced; r != nil {
		if r.runs > 0 {
			gone = p.run()
		}
		if _, dead := slices.BinarySearch(r.dead, m.N+1); dead {
			gone = 1
		}
	}
	payload = p.message()
	*m = Mark{p.off, m.N + max(gone, 1)}
	if gone > 0 {
		payload = 0
	}
	return payload, gone
}

// run returns for how many messages the run stands that begins here; zero: none does.
func (p *pos) run() uint64 {
	h := p.header()
	if !isRun(h) {
		return 0
	}
	var b [frame.MaxHeader + maxRun]byte
	return parseRun(string(p.peek(b[:h.Size+int(h.Length)])[h.Size:]))
}

// isRun reports whether a frame with that header can be a run.
func isRun(h frame.Header) bool {
	return h.Op == frame.Text && h.Fin && h.Length > int64(len(runText)) && h.Length <= int64(maxRun)
}

func parseRun(payload string) uint64 {
	digits, ok := strings.CutPrefix(payload, runText)
	if !ok {
		return 0
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// forget records that replaced messages are no longer behind Base: so many, in so many runs and dead ones.
func (b *Buffer) forget(gone, elements uint64) {
	r := b.replaced
	if r.n -= gone; r.n == 0 {
		b.replaced = nil
		return
	}
	dead, _ := slices.BinarySearch(r.dead, b.base.N+1)
	r.dead = slices.Delete(r.dead, 0, dead)
	r.runs -= int(elements) - dead
}

// A cut is a run that Compact has made: where what it stands for was, and how much shorter the stream is from there on.
type cut struct{ begin, end, shift uint64 }

// Compact removes the bytes of replaced messages that lie after the mark from, the end of a message, and joins them to
// runs. Offsets up to from stay valid, and what Slices returned up to there; moved returns what has become of a later one. Compact
// does nothing, and returns nil, if there is nothing to remove, or within a scan that has called Insert.
func (b *Buffer) Compact(from Mark) (moved func(off uint64) uint64) {
	r := b.replaced
	if !b.Compactable() || r.dead[len(r.dead)-1] <= from.N || b.src != b.tail {
		return nil
	}
	before, first := b.split(from.Off)
	_, after := b.split(b.last.Off)
	keep, _ := slices.BinarySearch(r.dead, from.N+1)
	c := compaction{to: Buffer{store: b.store, end: from.Off}}
	r.runs += len(r.dead) - keep // each of them is an element below, as each run is
	p := pos{first, from.Off}
	for m := from; m.N < b.last.N; {
		begin := p
		if _, gone := b.next(&p, &m); gone > 0 {
			r.runs--
			c.gone(begin.off, p.off, gone)
			continue
		}
		c.flush()
		c.copy(begin, p.off)
	}
	c.flush()
	r.dead, r.size, r.runs = r.dead[:keep], 0, r.runs+len(c.cuts)
	shift := b.last.Off - c.to.end
	for x := first; x != after; {
		next := x.next
		b.store.put(x)
		x = next
	}
	for x := after; x != nil; x = x.next {
		x.off -= shift
	}
	c.to.tail.next = after
	if before == nil {
		b.head = c.to.head
	} else {
		before.next = c.to.head
	}
	b.last.Off -= shift
	b.end -= shift
	b.trim()
	return c.moved
}

// split makes off, which is not before Base, the beginning of a chunk, and returns that chunk and the one before it.
func (b *Buffer) split(off uint64) (before, c *chunk) {
	for c = b.head; c.off < off; before, c = c, c.next {
		if c.end() > off || c.next == nil {
			break
		}
	}
	if c.off >= off {
		return before, c
	}
	k := int(off - c.off)
	rest := &chunk{buf: c.buf[k:], n: c.n - k, off: off, next: c.next, keep: true, at: c.at}
	c.buf, c.n, c.next, c.keep = c.buf[:k:k], k, rest, true // a part that waits for reuse would hold the memory of the whole
	if b.tail == c {
		b.tail, b.src = rest, rest
		b.lo -= k
		b.hi -= k
	}
	return c, rest
}

// A compaction is the new part of the stream.
type compaction struct {
	to   Buffer // only its chunks, and end
	open cut    // the run that has not been written yet,
	n    uint64 // and of how many messages; zero: there is none
	cuts []cut
}

// gone adds replaced messages, which lay between two offsets.
func (c *compaction) gone(begin, end, n uint64) {
	if c.n == 0 {
		c.open.begin = begin
	}
	c.open.end = end
	c.n += n
}

// flush writes the run.
func (c *compaction) flush() {
	if c.n == 0 {
		return
	}
	c.write(strconv.AppendUint(append(frame.AppendHeader(nil, frame.Text, true, len(runText)+digits(c.n)), runText...), c.n, 10), c.at())
	c.open.shift = c.open.end - c.to.end
	c.cuts = append(c.cuts, c.open)
	c.n = 0
}

func digits(n uint64) int { return len(strconv.FormatUint(n, 10)) }

func (c *compaction) at() int64 {
	if c.to.tail == nil {
		return 0
	}
	return c.to.tail.at
}

// copy copies the stream between a position and an offset.
func (c *compaction) copy(p pos, to uint64) {
	for p.off < to {
		p.skip(0)
		piece := p.c.buf[p.off-p.c.off : min(to, p.c.end())-p.c.off]
		c.write(piece, p.c.at)
		p.skip(uint64(len(piece)))
	}
}

// write appends p, which was read at that time, in small chunks: what is compacted again and again must not leave
// large ones that are held by few bytes.
func (c *compaction) write(p []byte, at int64) {
	b := &c.to
	for len(p) > 0 {
		if b.tail == nil || b.tail.n == len(b.tail.buf) {
			b.link(b.store.get(smallChunk))
			b.tail.at = at
		}
		n := copy(b.tail.buf[b.tail.n:], p)
		b.tail.n += n
		b.end += uint64(n)
		p = p[n:]
	}
}

// moved returns where an offset of before is now. What lay inside a run is at its end.
func (c *compaction) moved(off uint64) uint64 {
	shift := uint64(0)
	for _, x := range c.cuts {
		if off <= x.begin {
			break
		}
		if off < x.end {
			off = x.end
		}
		shift = x.shift
	}
	return off - shift
}
