package frame

import (
	"bytes"
	"testing"
)

// FuzzParse: no panic; a parsed header is written back byte for byte; a shorter prefix
// parses as incomplete, and further bytes change nothing.
func FuzzParse(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0x81, 0x85, 1, 2, 3, 4, 'h'})
	f.Add([]byte{0x82, 126, 0, 126})
	f.Add([]byte{0x02, 0xFF, 0, 0, 0, 0, 0, 1, 0, 0, 9, 8, 7, 6})
	f.Add([]byte{0x82, 127, 0xFF, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := Parse(b)
		for n := range min(len(b), MaxHeader) {
			short, shortErr := Parse(b[:n])
			if n < h.Size && (short != (Header{}) || shortErr != nil) || shortErr != nil && shortErr != err {
				t.Fatalf("Parse(% x) = %+v, %v, but its first %d bytes: %+v, %v", b, h, err, n, short, shortErr)
			}
		}
		switch {
		case err != nil && h != (Header{}), h.Size > len(b), h.Length < 0:
			t.Fatalf("Parse(% x) = %+v, %v", b, h, err)
		case err != nil:
			return
		case h.Size == 0 && len(b) >= MaxHeader:
			t.Fatalf("no header in % x", b)
		case h.Size == 0:
			return
		}
		again := AppendHeader(nil, h.Op, h.Fin, int(h.Length))
		if h.Masked {
			again = masked(again, h.Key)
		}
		if !bytes.Equal(again, b[:h.Size]) {
			t.Fatalf("Parse(% x) = %+v, which is written % x", b, h, again)
		}
	})
}

// FuzzXOR: the same as byte by byte, in any split.
func FuzzXOR(f *testing.F) {
	f.Add([]byte("some payload that is longer than a turn of 32 bytes"), uint32(0x01020304), uint8(7))
	f.Add([]byte{}, uint32(0), uint8(0))
	f.Fuzz(func(t *testing.T, b []byte, k uint32, at uint8) {
		key := [4]byte{byte(k >> 24), byte(k >> 16), byte(k >> 8), byte(k)}
		want := xored(b, key)
		got := bytes.Clone(b)
		XOR(got, key)
		if !bytes.Equal(got, want) {
			t.Fatalf("XOR(% x, % x) = % x, want % x", b, key, got, want)
		}
		cut := min(int(at)&^3, len(b)) // the key restarts at multiples of its length
		got = bytes.Clone(b)
		XOR(got[:cut], key)
		XOR(got[cut:], key)
		if cut%4 == 0 && !bytes.Equal(got, want) {
			t.Fatalf("XOR in two pieces, cut at %d: % x, want % x", cut, got, want)
		}
	})
}
