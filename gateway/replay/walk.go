package replay

import "reseat/gateway/frame"

// Ack releases the messages up to number n, n at most Last().N, and all of a run that contains it. It
// returns false, and changes nothing, if message n ends after the offset within.
func (b *Buffer) Ack(n, within uint64) bool {
	if n <= b.base.N {
		return true
	}
	if n == b.last.N && b.last.Off <= within {
		b.base, b.held, b.replaced = b.last, 0, nil
		b.trim()
		return true
	}
	var payload int64
	var gone, elements uint64
	m := b.base
	for p := b.find(m.Off); m.N < n; {
		size, replaced := b.next(&p, &m)
		payload += size
		if replaced > 0 {
			gone += replaced
			elements++
		}
	}
	if m.Off > within {
		return false
	}
	b.base = m
	b.held -= payload
	if gone > 0 {
		b.forget(gone, elements)
	}
	b.trim()
	return true
}

// After returns the offset of the end of message n, Base().N <= n <= Last().N, or of the run that contains it.
func (b *Buffer) After(n uint64) uint64 {
	if n == b.last.N {
		return b.last.Off
	}
	m := b.base
	for p := b.find(m.Off); m.N < n; {
		b.next(&p, &m)
	}
	return m.Off
}

// Around returns the ends of the messages, or runs, around off, walking from the mark m: the
// mark before off, and the offset of the end of the message that contains off. If off
// is the end of a message, both are that end. off must not be before Base.
func (b *Buffer) Around(m Mark, off uint64) (before Mark, after uint64) {
	if off == b.last.Off {
		return b.last, off
	}
	if m.Off < b.base.Off {
		m = b.base
	}
	p := b.find(m.Off)
	for {
		if p.off == off {
			return m, off
		}
		before = m
		if b.next(&p, &m); p.off > off {
			return before, p.off
		}
	}
}

// Slices appends to dst the stream between two offsets, without copying; Unpin or
// Abandon must follow.
func (b *Buffer) Slices(dst [][]byte, from, to uint64) [][]byte {
	if from >= to {
		return dst
	}
	if !b.pinned {
		b.pinned, b.pin = true, from
	}
	for c := b.find(from).c; from < to; c = c.next {
		stop := min(to, c.end())
		if from < stop {
			dst = append(dst, c.buf[from-c.off:stop-c.off])
			from = stop
		}
	}
	return dst
}

// Copy returns a copy of the stream between two offsets; from must not be before Base.
func (b *Buffer) Copy(from, to uint64) []byte {
	p := make([]byte, 0, to-from)
	for c := b.find(from).c; from < to; c = c.next {
		if stop := min(to, c.end()); from < stop {
			p = append(p, c.buf[from-c.off:stop-c.off]...)
			from = stop
		}
	}
	return p
}

// Unpin ends the use of the memory that Slices returned.
func (b *Buffer) Unpin() {
	b.pinned = false
	b.trim()
}

// Abandon is Unpin while another goroutine may still use that memory: it is left to
// the garbage collector, and never reused.
func (b *Buffer) Abandon() {
	if !b.pinned {
		return
	}
	for c := b.find(b.pin).c; c != nil; c = c.next {
		c.keep = true
	}
	b.Unpin()
}

// trim returns chunks that are no longer needed to the Store.
func (b *Buffer) trim() {
	need := b.base.Off
	if b.pinned {
		need = min(need, b.pin)
	}
	for b.head != nil && b.head != b.tail && b.head != b.src && b.head.end() <= need {
		c := b.head
		b.head = c.next
		b.store.put(c)
	}
	if b.head != nil && b.head == b.tail && b.head == b.src && !b.reserved && b.lo == b.hi && b.end <= need {
		b.store.put(b.head)
		b.head, b.tail, b.src = nil, nil, nil
		b.lo, b.hi = 0, 0
	}
}

// Truncate discards what follows Last: a message that is not complete, and the raw
// part. The memory that Room returned stays valid for a read in flight; Fill must not
// follow. What Slices returned stays valid: it ends before Last.
func (b *Buffer) Truncate() {
	if b.head == nil {
		return
	}
	last := b.find(b.last.Off).c
	for c := last.next; c != nil; {
		next := c.next
		c.keep = c.keep || b.reserved && next == nil
		b.store.put(c)
		c = next
	}
	last.keep = last.keep || b.reserved && last == b.tail
	last.next, last.n = nil, int(b.last.Off-last.off)
	b.tail, b.end = last, b.last.Off
	b.reserved, b.burst = false, false
	if last.keep { // the rest of it belongs to a read in flight, or to one before an earlier Truncate
		b.link(b.store.get(smallChunk))
	}
	b.src, b.lo, b.hi = b.tail, b.tail.n, b.tail.n
	b.trim()
}

// Release returns all memory. The Buffer is empty afterwards; what Slices or Room
// returned stays valid for a read or write in flight.
func (b *Buffer) Release() {
	for c := b.head; c != nil; {
		next := c.next
		c.keep = c.keep || b.pinned || b.reserved
		b.store.put(c)
		c = next
	}
	*b = Buffer{store: b.store, base: b.last, last: b.last, end: b.last.Off}
}

// A pos is a place in the stream.
type pos struct {
	c   *chunk
	off uint64
}

// find returns the chunk that contains off; between two chunks, the earlier one.
func (b *Buffer) find(off uint64) pos {
	c := b.head
	for c != nil && c.end() < off {
		c = c.next
	}
	return pos{c, off}
}

// message moves to the end of the message that begins here and returns its payload.
func (p *pos) message() (payload int64) {
	for {
		h := p.header()
		if h.Size == 0 {
			panic("replay: no message begins here") // instead of an endless loop
		}
		p.skip(uint64(h.Size) + uint64(h.Length))
		payload += h.Length
		if h.Fin {
			return payload
		}
	}
}

// header reads the frame header that begins here, even if it spans chunks.
func (p *pos) header() frame.Header {
	p.skip(0)
	if h, _ := frame.Parse(p.c.buf[p.off-p.c.off : p.c.n]); h.Size > 0 {
		return h
	}
	var b [frame.MaxHeader]byte
	h, _ := frame.Parse(p.peek(b[:]))
	return h
}

// peek copies the next bytes of the stream to b, as many as there are.
func (p *pos) peek(b []byte) []byte {
	n := 0
	for c, at := p.c, p.off-p.c.off; c != nil && n < len(b); c, at = c.next, 0 {
		n += copy(b[n:], c.buf[at:c.n])
	}
	return b[:n]
}

func (p *pos) skip(n uint64) {
	p.off += n
	for p.off >= p.c.end() && p.c.next != nil {
		p.c = p.c.next
	}
}
