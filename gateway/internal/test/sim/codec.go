package sim

import (
	"encoding/binary"
)

// The simulation's own RFC 6455 frames: they share no parsing with the gateway, so that
// its faults show.

const (
	opMore   = 0x0
	opText   = 0x1
	opBinary = 0x2
	opClose  = 0x8
	opPing   = 0x9
	opPong   = 0xA
)

// A head is a frame's header.
type head struct {
	fin    bool
	op     byte
	masked bool
	key    [4]byte
	length int // of the header
	size   int // of the payload
}

// parseHead parses a header; ok is false while it is incomplete, bad says what is wrong
// with it.
func parseHead(b []byte) (h head, ok bool, bad string) {
	if len(b) < 2 {
		return h, false, ""
	}
	h = head{fin: b[0] >= 0x80, op: b[0] & 15, masked: b[1] >= 0x80, length: 2, size: int(b[1] & 0x7F)}
	extra := 0
	if h.size >= 126 {
		extra = 2 << (2 * (h.size - 126)) // 126: 2 bytes, 127: 8
	}
	h.length += extra
	if h.masked {
		h.length += 4
	}
	if len(b) < h.length {
		return h, false, ""
	}
	switch extra {
	case 2:
		h.size = int(binary.BigEndian.Uint16(b[2:]))
	case 8:
		h.size = int(binary.BigEndian.Uint64(b[2:]))
	}
	if h.masked {
		copy(h.key[:], b[h.length-4:h.length])
	}
	return h, true, h.fault(b[0], extra)
}

func (h head) fault(first byte, extra int) string {
	switch {
	case first&0x70 != 0:
		return "reserved bit"
	case h.op > opBinary && h.op < opClose || h.op > opPong:
		return "unknown opcode"
	case h.op >= opClose && (!h.fin || h.size > 125):
		return "bad control frame"
	case extra == 2 && h.size < 126, extra == 8 && h.size < 1<<16, h.size < 0:
		return "length not in its shortest form"
	}
	return ""
}

// appendFrame appends a frame, masked if there is a key.
func appendFrame(dst []byte, first byte, key *[4]byte, p []byte) []byte {
	mask := byte(0)
	if key != nil {
		mask = 0x80
	}
	dst = append(dst, first)
	switch {
	case len(p) < 126:
		dst = append(dst, mask|byte(len(p)))
	case len(p) < 1<<16:
		dst = binary.BigEndian.AppendUint16(append(dst, mask|126), uint16(len(p)))
	default:
		dst = binary.BigEndian.AppendUint64(append(dst, mask|127), uint64(len(p)))
	}
	if key == nil {
		return append(dst, p...)
	}
	dst = append(dst, key[:]...)
	at := len(dst)
	dst = append(dst, p...)
	unmask(dst[at:], *key)
	return dst
}

func unmask(p []byte, key [4]byte) {
	k := uint64(binary.LittleEndian.Uint32(key[:]))
	k |= k << 32
	i := 0
	for ; i+8 <= len(p); i += 8 {
		binary.LittleEndian.PutUint64(p[i:], binary.LittleEndian.Uint64(p[i:])^k)
	}
	for ; i < len(p); i++ {
		p[i] ^= key[i%4]
	}
}

// closeFrame returns the payload of a Close frame.
func closeFrame(code int, reason string) []byte {
	if code == 1005 {
		return nil
	}
	return append(binary.BigEndian.AppendUint16(nil, uint16(code)), reason...)
}

// parseClose is its inverse.
func parseClose(p []byte) (code int, reason string) {
	if len(p) < 2 {
		return 1005, ""
	}
	return int(binary.BigEndian.Uint16(p)), string(p[2:])
}

// isControl reports whether a frame is a control message of the protocol, or the first bytes of one.
func isControl(op byte, p []byte) bool {
	return op == opText && len(p) > 0 && p[0] == dle && (len(p) == 1 || p[1] != dle)
}

// unescaped returns the payload of a data message to a resumable client.
func unescaped(a arrival) []byte {
	if a.op == opText && len(a.p) > 0 && a.p[0] == dle {
		return a.p[1:]
	}
	return a.p
}

// A decoder assembles messages from a stream of frames.
type decoder struct {
	masked bool               // required of every frame
	key    func([4]byte) bool // whether a frame's key is valid; nil: any is
	buf    []byte
	at     int
	msg    []byte
	op     byte
	open   bool
}

// An arrival is a complete message or control frame. Its payload is valid until the
// next call.
type arrival struct {
	op byte
	p  []byte
}

func (d *decoder) feed(p []byte) {
	if d.at > 0 && d.at == len(d.buf) {
		d.buf, d.at = d.buf[:0], 0
	} else if d.at > 4096 && d.at > len(d.buf)/2 {
		d.buf, d.at = d.buf[:copy(d.buf, d.buf[d.at:])], 0
	}
	d.buf = append(d.buf, p...)
}

// torn reports whether the stream ends within a frame or message.
func (d *decoder) torn() bool { return d.open || d.at < len(d.buf) }

// next returns the next arrival; bad says what is wrong with the stream.
func (d *decoder) next() (a arrival, ok bool, bad string) {
	for {
		h, whole, bad := parseHead(d.buf[d.at:])
		switch {
		case bad != "":
			return a, false, bad
		case whole && h.masked != d.masked:
			return a, false, "mask bit"
		case !whole || len(d.buf)-d.at-h.length < h.size:
			return a, false, ""
		}
		p := d.buf[d.at+h.length : d.at+h.length+h.size]
		d.at += h.length + h.size
		if h.masked {
			if d.key != nil && !d.key(h.key) {
				return a, false, "masking key is not a fresh one"
			}
			unmask(p, h.key)
		}
		if h.op >= opClose {
			return arrival{h.op, p}, true, ""
		}
		if (h.op == opMore) != d.open {
			return a, false, "continuation out of place"
		}
		if a, ok = d.piece(h, p); ok {
			return a, true, ""
		}
	}
}

func (d *decoder) piece(h head, p []byte) (arrival, bool) {
	if !d.open {
		if h.fin {
			return arrival{h.op, p}, true
		}
		d.open, d.op, d.msg = true, h.op, d.msg[:0]
	}
	d.msg = append(d.msg, p...)
	d.open = !h.fin
	return arrival{d.op, d.msg}, h.fin
}
