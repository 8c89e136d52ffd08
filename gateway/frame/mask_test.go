package frame

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
)

// xored is the oracle: byte by byte, as in RFC 6455 section 5.3.
func xored(b []byte, key [4]byte) []byte {
	out := make([]byte, len(b))
	for i := range b {
		out[i] = b[i] ^ key[i%4]
	}
	return out
}

func random(n int) []byte {
	r := rand.New(rand.NewPCG(1, uint64(n)))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

var keys = [][4]byte{{}, {1, 2, 3, 4}, {0xFF, 0, 0xFF, 0}, {0x80, 0x7F, 0x01, 0xFE}}

// Every length up to three of the widest steps, at every alignment.
func TestMaskingIsByteByByte(t *testing.T) {
	memory := random(200)
	for n := range 101 {
		for at := range 40 {
			for _, key := range keys {
				b := bytes.Clone(memory)
				XOR(b[at:at+n], key)
				if !bytes.Equal(b[at:at+n], xored(memory[at:at+n], key)) {
					t.Fatalf("%d bytes at %d with key % x: % x", n, at, key, b[at:at+n])
				}
				if !bytes.Equal(b[:at], memory[:at]) || !bytes.Equal(b[at+n:], memory[at+n:]) {
					t.Fatalf("%d bytes at %d: bytes outside were changed", n, at)
				}
			}
		}
	}
}

func TestRemaskEqualsUnmaskAndMask(t *testing.T) {
	for _, p := range append(whole(), random(5), random(64), random(1000)) {
		for _, old := range keys {
			for _, fresh := range keys {
				f := append(AppendMasked(nil, Text, old, p), "the next frame"...)
				want := append(AppendMasked(nil, Text, fresh, p), "the next frame"...)
				h, err := Parse(f)
				if err != nil {
					t.Fatal(err)
				}
				Remask(f, h, fresh)
				if !bytes.Equal(f, want) {
					t.Fatalf("%d bytes from key % x to % x: % .20x, want % .20x", len(p), old, fresh, f, want)
				}
			}
		}
	}
}

func TestFramesAreHandledWithoutAllocation(t *testing.T) {
	dst := make([]byte, 0, 4096)
	payload := random(1000)
	f := AppendMasked(nil, Binary, keys[1], payload)
	for name, run := range map[string]func(){
		"Parse":        func() { Parse(f) },
		"a bad header": func() { Parse([]byte{0xF0, 0}) },
		"XOR":          func() { XOR(payload, keys[1]) },
		"Remask":       func() { h, _ := Parse(f); Remask(f, h, keys[2]) },
		"AppendHeader": func() { AppendHeader(dst, Text, true, 70000) },
		"Append":       func() { Append(dst, Text, payload) },
		"AppendMasked": func() { AppendMasked(dst, Text, keys[3], payload) },
		"Clip":         func() { _ = Clip("a reason that is longer", 8) },
	} {
		if n := testing.AllocsPerRun(100, run); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}

func BenchmarkFrame(b *testing.B) {
	for _, n := range []int{48, 1 << 10, 64 << 10} {
		p, dst := random(n), make([]byte, 0, n+MaxHeader)
		f := AppendMasked(nil, Binary, keys[1], p)
		for name, run := range map[string]func(){
			"XOR":          func() { XOR(p, keys[1]) },
			"Parse":        func() { Parse(f) },
			"Remask":       func() { h, _ := Parse(f); Remask(f, h, keys[2]) },
			"AppendMasked": func() { AppendMasked(dst, Binary, keys[1], p) },
		} {
			b.Run(fmt.Sprint(name, "/", n), func(b *testing.B) {
				b.SetBytes(int64(n))
				b.ReportAllocs()
				for b.Loop() {
					run()
				}
			})
		}
	}
}
