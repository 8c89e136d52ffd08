// Package frames reads and writes RFC 6455 frames for the load generator and
// its game server. It shares nothing with the gateway's own: a fault in one
// would otherwise be repeated, and thereby hidden, by the other.
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

// RSV1 stands with the opcode of a compressed message, RFC 7692 section 6.
const RSV1 = 0x40

const maxHeader = 14

// Begin appends the header of a whole, unmasked message of n bytes.
func Begin(dst []byte, op byte, n int) []byte { return begin(dst, op, n, 0) }

// BeginMasked appends the header of a whole masked message of n bytes. Once its
// payload follows in the clear, XOR it with key.
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

// Append appends a whole frame; masked, where a client sends it.
func Append(dst []byte, op byte, payload []byte, key *[4]byte) []byte {
	if key == nil {
		return append(Begin(dst, op, len(payload)), payload...)
	}
	dst = append(BeginMasked(dst, op, len(payload), *key), payload...)
	XOR(dst[len(dst)-len(payload):], *key, 0)
	return dst
}

// XOR masks or unmasks p, which begins at byte pos of its frame's payload.
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

// xorLong masks whole kilobytes by vector instructions and returns the rest.
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
