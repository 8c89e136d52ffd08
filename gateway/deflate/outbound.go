package deflate

import (
	"fmt"

	"reseat/gateway/frame"
	"reseat/gateway/wire"
)

const (
	// minCompressed is the min payload of a message that is compressed.
	minCompressed = 128
	// pieceSize bounds the part of a message that is compressed at once, in bytes.
	pieceSize = 16 << 10
	// Up to maxFrame compressed bytes of a message make one frame: some browsers fail on compressed messages
	// in several. Only larger messages have more.
	maxFrame = 1 << 20
)

// outbound converts a server's frames into compressed ones. The writing goroutine owns
// it. It keeps no compressor between calls: each piece is compressed by itself, after the
// window, and because each ends in an empty block together they are one DEFLATE stream,
// RFC 7692 section 7.2.1.
type outbound struct {
	reach  int // how far back the client's window lets bytes refer
	window window
	held   holding

	head    [frame.MaxHeader]byte // an incomplete header
	headLen int

	h          frame.Header // of the current frame
	left       int64        // bytes of its payload that are still to come
	compressed bool         // the current message is compressed
	op         byte         // of the next frame of a compressed message
	part       *[]byte      // of an incomplete piece; nil: nothing
	done       *[]byte      // compressed, not in a frame yet; nil: nothing
}

// convert appends the converted b to dst. It fails if b is not a frame.
func (o *outbound) convert(dst, b []byte) (_ []byte, err error) {
	for len(b) > 0 {
		if o.left == 0 {
			if dst, b, err = o.header(dst, b); err != nil {
				return nil, err
			}
			continue
		}
		n := int(min(int64(len(b)), o.left))
		if o.compressing() {
			n = min(n, pieceSize-o.pendingLen())
		}
		o.left -= int64(n)
		dst = o.payload(dst, b[:n])
		b = b[n:]
	}
	return dst, nil
}

// compressing reports whether the current frame gets compressed.
func (o *outbound) compressing() bool { return o.compressed && !o.h.Control() }

func (o *outbound) pendingLen() int {
	if o.part == nil {
		return 0
	}
	return len(*o.part)
}

// header consumes a header from b, or the available part of it.
func (o *outbound) header(dst, b []byte) (_, rest []byte, err error) {
	n := copy(o.head[o.headLen:], b)
	h, err := frame.Parse(o.head[:o.headLen+n])
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("compress a frame: %w", err)
	case h.Size == 0:
		o.headLen += n
		return dst, b[n:], nil
	}
	b = b[h.Size-o.headLen:]
	o.headLen = 0
	o.h, o.left = h, h.Length
	if h.Op == frame.Text || h.Op == frame.Binary {
		o.compressed = !h.Fin || h.Length >= minCompressed
		o.op = h.Op | rsv1
	}
	switch {
	case !o.compressing():
		dst = append(dst, o.head[:h.Size]...)
	case h.Length == 0 && h.Fin:
		dst = o.payload(dst, nil)
	}
	return dst, b, nil
}

// ends reports whether the current message ends with the bytes consumed so far.
func (o *outbound) ends() bool { return o.h.Fin && o.left == 0 }

// payload consumes payload of the current frame.
func (o *outbound) payload(dst, p []byte) []byte {
	switch {
	case !o.compressing():
		return append(dst, p...)
	case o.part == nil && (o.ends() || len(p) == pieceSize):
		return o.piece(dst, p)
	case o.part == nil:
		o.part = buffers.Get().(*[]byte)
	}
	*o.part = append(*o.part, p...)
	if !o.ends() && len(*o.part) < pieceSize {
		return dst
	}
	dst = o.piece(dst, *o.part)
	putBuffer(o.part)
	o.part = nil
	return dst
}

// piece compresses p. It appends a frame if p ends the message or if too much of it has been
// collected. The message remains uncompressed, and outside the window, if p is all of it and
// is a control message of the gateway or would not become shorter.
func (o *outbound) piece(dst, p []byte) []byte {
	last := o.ends()
	whole := last && o.done == nil && o.op != frame.Continuation
	if whole && isControl(o.op, p) {
		return frame.Append(dst, o.op&^rsv1, p)
	}
	c := compressors.Get().(*compressor)
	defer compressors.Put(c)
	z := c.compress(p, &o.window, o.reach)
	if last {
		z = z[:len(z)-len(tail)]
	}
	if whole && len(z) >= len(p) {
		return frame.Append(dst, o.op&^rsv1, p)
	}
	o.window.add(p)
	if last && o.done == nil {
		return o.frame(dst, z)
	}
	if o.done == nil {
		o.done = buffers.Get().(*[]byte)
	}
	*o.done = append(*o.done, z...)
	if last || len(*o.done) >= maxFrame {
		dst = o.frame(dst, *o.done)
		putBuffer(o.done)
		o.done = nil
	}
	o.held.set(o.memory())
	return dst
}

// frame appends the next frame of the current message.
func (o *outbound) frame(dst, z []byte) []byte {
	dst = frame.AppendHeader(dst, o.op, o.ends(), len(z))
	o.op = frame.Continuation
	return append(dst, z...)
}

// memory returns the memory that the current message holds, in bytes.
func (o *outbound) memory() int {
	if o.done == nil {
		return 0
	}
	return cap(*o.done)
}

// isControl reports whether a message of a resumable client's is a control message: protocol
// section 3. A plain client has none, and loses nothing but a few bytes.
func isControl(op byte, p []byte) bool {
	return op == frame.Text|rsv1 && len(p) > 1 && p[0] == wire.DLE && p[1] != wire.DLE
}
