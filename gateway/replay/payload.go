package replay

// Larger returns where the first message begins that lies after from, which ends one, begins
// before to, and has more payload than size; to if there is none.
func (b *Buffer) Larger(from, to uint64, size int64) uint64 {
	for p := b.find(from); p.off < to; {
		begin := p.off
		if p.message() > size {
			return begin
		}
	}
	return to
}

// A Payload reads the payload of one message, frame by frame.
type Payload struct {
	Op   byte // of the message
	p    pos
	rest uint64 // of the present frame
	fin  bool   // it is the last
	left int64
}

// Payload returns the payload of the message that begins at begin, from the offset from on.
func (b *Buffer) Payload(begin, from uint64) Payload {
	r := Payload{p: b.find(begin)}
	r.Op = r.p.header().Op
	for r.next(); r.p.off+r.rest <= from && !r.fin; r.next() {
		r.p.skip(r.rest)
	}
	if from > r.p.off {
		r.rest -= from - r.p.off
		r.p.skip(from - r.p.off)
	}
	q := r
	for r.left = int64(r.rest); !q.fin; r.left += int64(q.rest) {
		q.p.skip(q.rest)
		q.next()
	}
	return r
}

// next reads the header of the next frame.
func (r *Payload) next() {
	h := r.p.header()
	r.p.skip(uint64(h.Size))
	r.rest, r.fin = uint64(h.Length), h.Fin
}

// Left returns how much payload is left.
func (r *Payload) Left() int64 { return r.left }

// Off returns the offset of what is left; at the end, that of the end of the message.
func (r *Payload) Off() uint64 { return r.p.off }

// Append appends the next n bytes to dst; n must be at most Left.
func (r *Payload) Append(dst []byte, n int) []byte {
	r.each(n, func(p []byte) { dst = append(dst, p...) })
	return dst
}

// Skip moves n bytes on; n must be at most Left.
func (r *Payload) Skip(n int) { r.each(n, func([]byte) {}) }

// each calls f with the next n bytes. It then moves over frames without payload.
func (r *Payload) each(n int, f func([]byte)) {
	r.left -= int64(n)
	for n > 0 || r.rest == 0 && !r.fin {
		if r.rest == 0 {
			r.next()
			continue
		}
		r.p.skip(0) // off may be the end of a chunk
		c := r.p.c
		p := c.buf[r.p.off-c.off : c.n]
		p = p[:min(len(p), n, int(r.rest))]
		f(p)
		r.p.skip(uint64(len(p)))
		r.rest -= uint64(len(p))
		n -= len(p)
	}
}
