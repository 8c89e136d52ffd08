package frame

import "encoding/binary"

// XOR masks or unmasks b in place, RFC 6455 section 5.3. Masking with a and then with
// b equals masking once with a^b, which is how Remask changes a key in one pass.
func XOR(b []byte, key [4]byte) {
	k := uint64(binary.LittleEndian.Uint32(key[:]))
	k |= k << 32
	for len(b) >= 32 {
		binary.LittleEndian.PutUint64(b[0:], binary.LittleEndian.Uint64(b[0:])^k)
		binary.LittleEndian.PutUint64(b[8:], binary.LittleEndian.Uint64(b[8:])^k)
		binary.LittleEndian.PutUint64(b[16:], binary.LittleEndian.Uint64(b[16:])^k)
		binary.LittleEndian.PutUint64(b[24:], binary.LittleEndian.Uint64(b[24:])^k)
		b = b[32:]
	}
	for len(b) >= 8 {
		binary.LittleEndian.PutUint64(b, binary.LittleEndian.Uint64(b)^k)
		b = b[8:]
	}
	for i := range b {
		b[i] ^= key[i&3]
	}
}

// Remask replaces the key of the complete masked frame at the start of f, whose header
// is h, by fresh. The plain text is never in memory.
func Remask(f []byte, h Header, fresh [4]byte) {
	copy(f[h.Size-4:h.Size], fresh[:])
	for i := range fresh {
		fresh[i] ^= h.Key[i]
	}
	XOR(f[h.Size:h.Size+int(h.Length)], fresh)
}
