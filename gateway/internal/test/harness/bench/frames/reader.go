package frames

import (
	"encoding/binary"
	"errors"
)

// Errors of a Reader.
var (
	ErrMask    = errors.New("frame masked by a server, or not masked by a client")
	ErrBits    = errors.New("reserved bits or opcode set")
	ErrControl = errors.New("control frame fragmented or too long")
	ErrOrder   = errors.New("continuation frame out of place")
	ErrLength  = errors.New("frame length not in its shortest form")
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

	head  [maxHeader]byte
	have  int // bytes of the header
	rem   int // remaining payload of the current frame
	pos   int // payload of it received so far
	op    byte
	fin   bool
	key   [4]byte
	inMsg bool
	small []byte // a control frame's payload
}

// Feed parses the next bytes of the stream, and unmasks them in place.
func (r *Reader) Feed(b []byte) error {
	for len(b) > 0 {
		if r.rem == 0 {
			n, whole, err := r.header(b)
			if err != nil {
				return err
			}
			b = b[n:]
			if !whole {
				return nil
			}
			r.begin()
		} else {
			n := min(r.rem, len(b))
			r.payload(b[:n])
			b = b[n:]
		}
		if r.rem == 0 {
			r.end()
		}
	}
	return nil
}

// header collects the next header; n is how much of b it consumed.
func (r *Reader) header(b []byte) (n int, whole bool, err error) {
	for n < len(b) {
		want := r.want()
		if r.have == want {
			break
		}
		k := copy(r.head[r.have:want], b[n:])
		r.have += k
		n += k
	}
	if r.have < 2 || r.have < r.want() {
		return n, false, nil
	}
	return n, true, r.parse()
}

// want returns how long the header is, as far as known.
func (r *Reader) want() int {
	if r.have < 2 {
		return 2
	}
	n := 2
	switch r.head[1] & 0x7F {
	case 126:
		n += 2
	case 127:
		n += 8
	}
	if r.head[1]&0x80 != 0 {
		n += 4
	}
	return n
}

func (r *Reader) parse() error {
	h, size := r.head[:r.have], 2
	r.fin, r.op = h[0]&0x80 != 0, h[0]&0x0F
	r.rem = int(h[1] & 0x7F)
	short := -1
	switch r.rem {
	case 126:
		r.rem, size, short = int(binary.BigEndian.Uint16(h[2:])), 4, 125
	case 127:
		r.rem, size, short = int(binary.BigEndian.Uint64(h[2:])), 10, 1<<16-1
	}
	masked := h[1]&0x80 != 0
	if masked {
		r.key = [4]byte(h[size:])
	}
	r.have, r.pos = 0, 0
	return r.check(h[0], masked, short)
}

func (r *Reader) check(first byte, masked bool, short int) error {
	bits := first & 0x70
	if r.Deflate && (r.op == Text || r.op == Binary) {
		bits &^= RSV1
	}
	switch {
	case bits != 0 || r.op > Pong || r.op > Binary && r.op < Close:
		return ErrBits
	case masked != r.Masked:
		return ErrMask
	case r.rem <= short: // RFC 6455 forbids a negative length
		return ErrLength
	case r.op >= Close && (!r.fin || r.rem > 125):
		return ErrControl
	case r.op < Close && (r.op == Continuation) != r.inMsg:
		return ErrOrder
	}
	return nil
}

func (r *Reader) begin() {
	switch r.op {
	case Text, Binary:
		r.inMsg = true
		r.Sink.Begin(r.op | r.head[0]&RSV1)
	case Close, Ping, Pong:
		r.small = r.small[:0]
	}
}

func (r *Reader) payload(b []byte) {
	if r.Masked {
		XOR(b, r.key, r.pos)
	}
	r.rem -= len(b)
	r.pos += len(b)
	if r.op >= Close {
		r.small = append(r.small, b...)
		return
	}
	r.Sink.Payload(b)
}

func (r *Reader) end() {
	switch {
	case r.op >= Close:
		r.Sink.Control(r.op, r.small)
	case r.fin:
		r.inMsg = false
		r.Sink.End()
	}
}
