package deflate

import (
	"fmt"

	"reseat/gateway/frame"
)

const (
	// leastCompressed is the payload from which on a message is compressed.
	leastCompressed = 128
	// pieceSize is how much is compressed at once. A frame up to that size stays
	// one frame; a larger one becomes several, so that a client that reads
	// slowly is seen to read.
	pieceSize = 16 << 10
)

// outbound turns the frames of a server into those of one that compresses. It is
// the writer's own. Of a message in progress it keeps no compressor: each piece
// is compressed by itself, and as the pieces end in an empty block they make up
// one DEFLATE stream, RFC 7692 section 7.2.1.
type outbound struct {
	window int // no piece that is compressed at once is larger

	head    [frame.MaxHeader]byte // cut short
	headLen int

	h          frame.Header // of the present frame,
	left       int64        // of whose payload so much is to come
	compressed bool         // the present message is
	op         byte         // of the next frame of a compressed message
	part       *[]byte      // of a piece that is not whole; nil: nothing
}

// convert appends to dst what b becomes. It fails where b is no frame.
func (o *outbound) convert(dst, b []byte) (_ []byte, err error) {
	for len(b) > 0 {
		if o.left == 0 {
			if dst, b, err = o.header(dst, b); err != nil {
				return nil, err
			}
			continue
		}
		n := int(min(int64(len(b)), o.left))
		if o.squeezes() {
			n = min(n, pieceSize-o.parted())
		}
		o.left -= int64(n)
		dst = o.payload(dst, b[:n])
		b = b[n:]
	}
	return dst, nil
}

// squeezes reports whether the present frame is compressed.
func (o *outbound) squeezes() bool { return o.compressed && !o.h.Control() }

func (o *outbound) parted() int {
	if o.part == nil {
		return 0
	}
	return len(*o.part)
}

// header takes a header off b, or what there is of it.
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
		o.compressed = !h.Fin || h.Length >= leastCompressed
		o.op = h.Op | rsv1
	}
	switch {
	case !o.squeezes():
		dst = append(dst, o.head[:h.Size]...)
	case h.Length == 0:
		dst = o.piece(dst, nil)
	}
	return dst, b, nil
}

// payload takes the next payload of the present frame.
func (o *outbound) payload(dst, p []byte) []byte {
	switch {
	case !o.squeezes():
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

// piece appends a frame that holds p compressed, or as it is where that is the
// whole message and no shorter.
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
