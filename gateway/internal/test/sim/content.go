package sim

import (
	"encoding/binary"
)

// A flow is everything that one side of a session sends. Message n depends on the flow
// and on n alone, so that any message can be checked wherever it appears, and none must
// be kept.
type flow struct {
	seed   uint64
	texts  uint64 // this many of 16 are text
	sizes  sizes
	limit  int  // --max-message
	states bool // some are states
}

// sizes are the shares, of 1000 messages, of those larger than a few bytes.
type sizes struct{ medium, seam, parted, large, huge uint64 }

const dle = 0x10

// leads are how some texts begin, with what looks like the protocol's own.
var leads = [...]string{"\x10", "\x10\x10", "\x10ack 3", "\x10hello {}", "\x10bye", "\x10\x10\x10ping", "\x10end {\"code\":1000}"}

// A message is a message of a flow.
type message struct {
	op   byte
	size int
	seed uint64
	lead string
}

func (f *flow) message(n uint64) message {
	h := mix(f.seed, n)
	m := message{op: opBinary, seed: h}
	m.size = min(f.size(h>>16), f.limit)
	if h&15 < f.texts {
		m.op = opText
		if h>>4&7 == 0 {
			lead := leads[h>>7%uint64(len(leads))]
			m.lead = lead[:min(len(lead), m.size)]
		}
	}
	if k := h >> 12 & 7; f.states && k < uint64(len(states)) {
		m.op, m.lead, m.size = opText, states[k], max(m.size, 2)
	}
	return m
}

func (f *flow) size(h uint64) int {
	pick, r := h%1000, int(h>>10&0xFFFFFF)
	switch s := f.sizes; {
	case pick < s.huge:
		return 200<<10 + r%(200<<10)
	case pick < s.huge+s.large:
		return 64<<10 - 400 + r%800
	case pick < s.huge+s.large+s.seam:
		return 4<<10 - 600 + r%700
	case pick < s.huge+s.large+s.seam+s.parted:
		return partBytes + r%(3*partBytes)
	case pick < s.huge+s.large+s.seam+s.parted+s.medium:
		return r % 3000
	case r%8 == 0:
		return 0
	}
	return r % 60
}

// escaped reports whether m needs a leading DLE.
func (m message) escaped() bool { return m.op == opText && m.size > 0 && m.byteAt(0) == dle }

func (m message) byteAt(i int) byte {
	if i < len(m.lead) {
		return m.lead[i]
	}
	return byte(mix(m.seed, uint64(i>>3)) >> (i & 7 * 8))
}

// append appends m's payload, unescaped.
func (m message) append(dst []byte) []byte {
	at := len(dst)
	for i := 0; i < m.size; i += 8 {
		dst = binary.LittleEndian.AppendUint64(dst, mix(m.seed, uint64(i>>3)))
	}
	dst = dst[:at+m.size]
	copy(dst[at:], m.lead)
	return dst
}

// equal reports whether p is m's payload.
func (m message) equal(p []byte) bool {
	if len(p) != m.size {
		return false
	}
	for i := 0; i < len(p); i++ {
		if whole := i >= len(m.lead) && i&7 == 0; whole && i+8 <= len(p) {
			if binary.LittleEndian.Uint64(p[i:]) != mix(m.seed, uint64(i>>3)) {
				return false
			}
			i += 7
		} else if p[i] != m.byteAt(i) {
			return false
		}
	}
	return true
}
