// Package frames reads RFC 6455 frames in pieces, for the load generator and its game
// server.
package frames

import (
	"errors"

	"reseat/gateway/frame"
)

// Errors of a Reader, besides those of frame.Parse.
var (
	ErrMask  = errors.New("frame masked by a server, or not masked by a client")
	ErrOrder = errors.New("continuation frame out of place")
)

// A Sink receives what a Reader finds. Payload arrives in pieces.
type Sink interface {
	Begin(op byte) // a data message: Text or Binary
	Payload(b []byte)
	End()
	Control(op byte, payload []byte)
}

// A Reader parses a stream of frames in pieces of any size. It stores at most a header,
// a control frame and a compressed message, so that others of any size pass without a copy.
type Reader struct {
	Sink     Sink
	Masked   bool      // the input comes from a client
	Deflater *Deflater // if permessage-deflate was negotiated

	head   []byte // of the current frame, while incomplete
	h      frame.Header
	pos    int // payload of the current frame received so far
	inMsg  bool
	packed bool   // the current message is compressed,
	whole  []byte // and this is its payload so far
	small  []byte // a control frame's payload
}

// Feed parses the next bytes of the stream, and unmasks them in place.
func (r *Reader) Feed(b []byte) error {
	for len(b) > 0 {
		if r.h.Size == 0 {
			had := len(r.head)
			r.head = append(r.head, b[:min(len(b), frame.MaxHeader-had)]...)
			if err := r.begin(); err != nil || r.h.Size == 0 {
				return err
			}
			b, r.head = b[r.h.Size-had:], r.head[:0]
		}
		n := min(int(r.h.Length)-r.pos, len(b))
		r.payload(b[:n])
		b = b[n:]
		if r.pos == int(r.h.Length) {
			r.end()
		}
	}
	return nil
}

// begin parses the header, once it is complete.
func (r *Reader) begin() (err error) {
	first := r.head[0]
	if op := first & 0x0F; r.Deflater != nil && (op == frame.Text || op == frame.Binary) {
		r.head[0] &^= RSV1
	}
	r.h, err = frame.Parse(r.head)
	if r.head[0] = first; err != nil || r.h.Size == 0 {
		return err
	}
	r.pos, r.small = 0, r.small[:0]
	switch {
	case r.h.Masked != r.Masked:
		return ErrMask
	case r.h.Control():
	case (r.h.Op == frame.Continuation) != r.inMsg:
		return ErrOrder
	case !r.inMsg:
		r.inMsg, r.packed, r.whole = true, first&RSV1 != 0, r.whole[:0]
		r.Sink.Begin(r.h.Op)
	}
	return nil
}

func (r *Reader) payload(b []byte) {
	if r.Masked {
		var key [4]byte // turned to where b begins
		for i := range key {
			key[i] = r.h.Key[(r.pos+i)&3]
		}
		frame.XOR(b, key)
	}
	r.pos += len(b)
	switch {
	case r.h.Control():
		r.small = append(r.small, b...)
	case r.packed:
		r.whole = append(r.whole, b...)
	case len(b) > 0:
		r.Sink.Payload(b)
	}
}

func (r *Reader) end() {
	h := r.h
	r.h.Size = 0
	switch {
	case h.Control():
		r.Sink.Control(h.Op, r.small)
	case h.Fin:
		if r.inMsg = false; r.packed {
			r.Sink.Payload(r.Deflater.inflate(r.whole))
		}
		r.Sink.End()
	}
}
