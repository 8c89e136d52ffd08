// Package frame reads and writes RFC 6455 frames on byte slices. It is pure:
// no I/O, no state, and no allocation unless a function says so.
package frame

import (
	"encoding/binary"
	"errors"
)

// Opcodes, RFC 6455 section 5.2.
const (
	Continuation = 0x0
	Text         = 0x1
	Binary       = 0x2
	Close        = 0x8
	Ping         = 0x9
	Pong         = 0xA
)

// MaxHeader is the max length of a header: two bytes, eight of length, four of key.
const MaxHeader = 14

// MaxControl is the max payload of a control frame in bytes, RFC 6455 section 5.5.
const MaxControl = 125

// MaxFrames returns the max number of frames of a message when it may have maxMessage
// bytes, protocol section 6. Some writers send frames of 4 KiB whatever the size.
func MaxFrames(maxMessage int64) int { return int(max(1024, maxMessage>>10)) }

// Errors of Parse: what RFC 6455 forbids in a header. The close code for all is 1002.
var (
	ErrReserved = errors.New("reserved bits or opcode set")
	ErrControl  = errors.New("control frame fragmented or longer than 125 bytes")
	ErrLength   = errors.New("frame length not in its shortest form, or above 2^63-1")
)

// A Header is the header of a frame.
type Header struct {
	Op     byte
	Fin    bool
	Masked bool
	Key    [4]byte // if Masked
	Size   int     // of the header itself, in bytes
	Length int64   // of the payload, in bytes
}

// Control reports whether the frame is a Close, Ping or Pong.
func (h Header) Control() bool { return h.Op&0x8 != 0 }

// Parse reads the header at the start of b. Size 0 without an error means
// that b does not contain the whole header yet.
func Parse(b []byte) (Header, error) {
	if len(b) < 2 {
		return Header{}, nil
	}
	h := Header{Op: b[0] & 0x0F, Fin: b[0]&0x80 != 0, Masked: b[1]&0x80 != 0, Length: int64(b[1] & 0x7F)}
	if err := h.check(b[0]); err != nil {
		return Header{}, err
	}
	size := 2
	switch h.Length {
	case 126:
		size = 4
	case 127:
		size = 10
	}
	end := size
	if h.Masked {
		end += 4
	}
	if len(b) < end {
		return Header{}, nil
	}
	switch size {
	case 4:
		h.Length = int64(binary.BigEndian.Uint16(b[2:]))
		if h.Length < 126 {
			return Header{}, ErrLength
		}
	case 10:
		h.Length = int64(binary.BigEndian.Uint64(b[2:]))
		if h.Length < 1<<16 {
			return Header{}, ErrLength // the top bit makes it negative
		}
	}
	if h.Masked {
		h.Key = [4]byte(b[size:])
	}
	h.Size = end
	return h, nil
}

// check returns an error for what the first two bytes show to be forbidden.
func (h Header) check(first byte) error {
	switch {
	case first&0x70 != 0, h.Op > Pong, h.Op > Binary && h.Op < Close:
		return ErrReserved
	case h.Control() && (!h.Fin || h.Length > MaxControl):
		return ErrControl
	}
	return nil
}

// AppendHeader appends an unmasked header.
func AppendHeader(dst []byte, op byte, fin bool, length int) []byte {
	return appendHeader(dst, op, fin, length, 0)
}

// AppendMasked appends a complete masked frame. payload is not changed.
func AppendMasked(dst []byte, op byte, key [4]byte, payload []byte) []byte {
	dst = appendHeader(dst, op, true, len(payload), 0x80)
	dst = append(dst, key[:]...)
	dst = append(dst, payload...)
	XOR(dst[len(dst)-len(payload):], key)
	return dst
}

// Append appends a complete unmasked frame.
func Append(dst []byte, op byte, payload []byte) []byte {
	return append(appendHeader(dst, op, true, len(payload), 0), payload...)
}

func appendHeader(dst []byte, op byte, fin bool, length int, mask byte) []byte {
	if fin {
		op |= 0x80
	}
	switch {
	case length < 126:
		return append(dst, op, mask|byte(length))
	case length < 1<<16:
		return append(dst, op, mask|126, byte(length>>8), byte(length))
	}
	return binary.BigEndian.AppendUint64(append(dst, op, mask|127), uint64(length))
}
