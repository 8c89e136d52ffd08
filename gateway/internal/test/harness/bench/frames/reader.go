// Package frames reads RFC 6455 frames in pieces, for the load generator and its game
// server.
package frames

import (
	"errors"

	"reseat/gateway/frame"
)

// RSV1 is set with the opcode of a compressed message, RFC 7692 section 6.
const RSV1 = 0x40

// Errors of a Reader, besides those of frame.Parse.
var (
	ErrMask  = errors.New("frame masked by a server, or not masked by a client")
	ErrOrder = errors.New("continuation frame out of place")
)

// A Sink receives what a Reader finds. Payload arrives in pieces.
type Sink interface {
	Begin(op byte) // a data message: Text or Binary, with RSV1 if it is compressed
	Payload(b []byte)
	End()
	Control(op byte, payload []byte)
}

// A Reader parses a stream of frames in pieces of any size. It stores at most a header
// and a control frame, so that a message of any size passes without a copy.
type Reader struct {
	Sink    Sink
	Masked  bool // the input comes from a client
	Deflate bool // permessage-deflate was negotiated

	head  []byte // of the current frame, while incomplete
	h     frame.Header
	pos   int // payload of the current frame received so far
	inMsg bool
	small []byte // a control frame's payload
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
	rsv1 := byte(0)
	if op := r.head[0] & 0x0F; r.Deflate && (op == frame.Text || op == frame.Binary) {
		rsv1 = r.head[0] & RSV1
		r.head[0] &^= RSV1
	}
	if r.h, err = frame.Parse(r.head); err != nil || r.h.Size == 0 {
		r.head[0] |= rsv1
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
		r.inMsg = true
		r.Sink.Begin(r.h.Op | rsv1)
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
		r.inMsg = false
		r.Sink.End()
	}
}
