// Package frames reads and writes RFC 6455 frames for the load generator and its game
// server. It shares no code with the gateway: otherwise the same fault in both could go
// unnoticed.
package frames

import (
	"crypto/subtle"
	"encoding/binary"
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

// RSV1 is set with the opcode of a compressed message, RFC 7692 section 6.
const RSV1 = 0x40

const maxHeader = 14

// Begin appends the header of an unmasked message of n bytes in one frame.
func Begin(dst []byte, op byte, n int) []byte { return begin(dst, op, n, 0) }

// BeginMasked appends the header of a masked message of n bytes in one frame. The
// caller appends the plain payload and XORs it with key.
func BeginMasked(dst []byte, op byte, n int, key [4]byte) []byte {
	return append(begin(dst, op, n, 0x80), key[:]...)
}

func begin(dst []byte, op byte, n int, mask byte) []byte {
	switch {
	case n < 126:
		return append(dst, 0x80|op, mask|byte(n))
	case n < 1<<16:
		return append(dst, 0x80|op, mask|126, byte(n>>8), byte(n))
	}
	return binary.BigEndian.AppendUint64(append(dst, 0x80|op, mask|127), uint64(n))
}

// Append appends a complete frame, masked if key is set.
func Append(dst []byte, op byte, payload []byte, key *[4]byte) []byte {
	if key == nil {
		return append(Begin(dst, op, len(payload)), payload...)
	}
	dst = append(BeginMasked(dst, op, len(payload), *key), payload...)
	XOR(dst[len(dst)-len(payload):], *key, 0)
	return dst
}

// XOR masks or unmasks p, which starts at byte pos of its frame's payload.
func XOR(p []byte, key [4]byte, pos int) {
	var turned [4]byte
	for i := range turned {
		turned[i] = key[(pos+i)&3]
	}
	if len(p) >= 256 {
		p = xorLong(p, turned)
	}
	k := uint64(binary.LittleEndian.Uint32(turned[:]))
	k |= k << 32
	for len(p) >= 8 {
		binary.LittleEndian.PutUint64(p, binary.LittleEndian.Uint64(p)^k)
		p = p[8:]
	}
	for i := range p {
		p[i] ^= turned[i&3]
	}
}

// xorLong masks whole kilobytes with vector instructions and returns the rest.
func xorLong(p []byte, key [4]byte) []byte {
	var pattern [1024]byte
	k := uint64(binary.LittleEndian.Uint32(key[:]))
	k |= k << 32
	for i := 0; i < len(pattern); i += 8 {
		binary.LittleEndian.PutUint64(pattern[i:], k)
	}
	for len(p) >= len(pattern) {
		subtle.XORBytes(p, p[:len(pattern)], pattern[:])
		p = p[len(pattern):]
	}
	return p
}
