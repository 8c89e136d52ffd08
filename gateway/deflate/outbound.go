package deflate

import (
	"fmt"

	"reseat/gateway/frame"
)

const (
	// minCompressed is the min payload of a message that is compressed.
	minCompressed = 128
	// pieceSize is how much is compressed at once. A frame up to that size stays one
	// frame; a larger one becomes several, so that progress of a slow client shows.
	pieceSize = 16 << 10
)

// outbound converts a server's frames into compressed ones. The writing goroutine owns
// it. It keeps no compressor between calls: each piece is compressed by itself, and
// because each ends in an empty block together they are one DEFLATE stream, RFC 7692
// section 7.2.1.
type outbound struct {
	window int // max size of a piece that is compressed at once

	head    [frame.MaxHeader]byte // an incomplete header
	headLen int

	h          frame.Header // of the current frame
	left       int64        // bytes of its payload that are still to come
	compressed bool         // the current message is compressed
	op         byte         // of the next frame of a compressed message
	part       *[]byte      // of an incomplete piece; nil: nothing
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
	case h.Length == 0:
		dst = o.piece(dst, nil)
	}
	return dst, b, nil
}

// payload consumes payload of the current frame.
func (o *outbound) payload(dst, p []byte) []byte {
	switch {
	case !o.compressing():
		return append(dst, p...)
	case o.part == nil && (o.left == 0 || len(p) == pieceSize):
		return o.piece(dst, p)
	case o.part == nil:
		o.part = buffers.Get().(*[]byte)
	}
	*o.part = append(*o.part, p...)
	if o.left > 0 && len(*o.part) < pieceSize {
		return dst
	}
	dst = o.piece(dst, *o.part)
	putBuffer(o.part)
	o.part = nil
	return dst
}

// piece appends a frame with p compressed, or uncompressed if p is the whole message and
// compression would not make it shorter.
func (o *outbound) piece(dst, p []byte) []byte {
	c := compressors.Get().(*compressor)
	defer compressors.Put(c)
	z := c.compress(p, o.window)
	first, last := o.op != frame.Continuation, o.h.Fin && o.left == 0
	if last {
		z = z[:len(z)-len(tail)]
	}
	if first && last && len(z) >= len(p) {
		return frame.Append(dst, o.op&^rsv1, p)
	}
	dst = frame.AppendHeader(dst, o.op, last, len(z))
	o.op = frame.Continuation
	return append(dst, z...)
}
