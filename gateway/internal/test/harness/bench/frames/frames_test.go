package frames

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// A note records what a Reader finds.
type note struct{ seen []string }

func (n *note) Begin(op byte) { n.seen = append(n.seen, fmt.Sprintf("%x:", op)) }
func (n *note) Payload(b []byte) {
	n.seen[len(n.seen)-1] += string(b)
}
func (n *note) End() { n.seen[len(n.seen)-1] += "." }
func (n *note) Control(op byte, b []byte) {
	last := n.seen[len(n.seen)-1]
	n.seen = append(n.seen[:len(n.seen)-1], fmt.Sprintf("control %x:%s", op, b), last)
}

func TestEveryLengthIsReadAsWritten(t *testing.T) {
	key := [4]byte{1, 2, 3, 250}
	for _, n := range []int{0, 1, 7, 125, 126, 127, 1023, 1024, 65535, 65536, 70001} {
		payload := bytes.Repeat([]byte("0123456789"), n/10+1)[:n]
		for _, k := range []*[4]byte{nil, &key} {
			got := new(note)
			r := Reader{Sink: got, Masked: k != nil}
			if err := r.Feed(Append(nil, Binary, payload, k)); err != nil {
				t.Fatalf("%d bytes: %v", n, err)
			}
			if want := "2:" + string(payload) + "."; len(got.seen) != 1 || got.seen[0] != want {
				t.Errorf("%d bytes, masked %t: not the same", n, k != nil)
			}
		}
	}
}

// A stream may be split anywhere, within headers, keys and control frames too.
func TestStreamMayBeSplitAnywhere(t *testing.T) {
	key := [4]byte{9, 8, 7, 6}
	var stream []byte
	stream = Append(stream, Text, []byte("first"), &key)
	part := Append(nil, Text, bytes.Repeat([]byte("a"), 300), &key)
	part[0] &^= 0x80 // not its last frame
	stream = append(stream, part...)
	stream = Append(stream, Ping, []byte("ping"), &key)
	stream = Append(stream, Continuation, []byte("b"), &key)
	want := []string{"1:first.", "control 9:ping", "1:" + string(bytes.Repeat([]byte("a"), 300)) + "b."}
	for cut := range stream {
		for second := cut; second < min(cut+20, len(stream)); second++ {
			b, got := bytes.Clone(stream), new(note)
			r := Reader{Sink: got, Masked: true}
			for _, piece := range [][]byte{b[:cut], b[cut:second], b[second:]} {
				if err := r.Feed(piece); err != nil {
					t.Fatal(err)
				}
			}
			if fmt.Sprint(got.seen) != fmt.Sprint(want) {
				t.Fatalf("cut at %d and %d: %q", cut, second, got.seen)
			}
		}
	}
}

func TestFramesForbiddenByRFC6455AreRefused(t *testing.T) {
	long := append(begin(nil, Binary, 1<<16, 0)[:2], 0, 0, 0, 0, 0, 0, 0, 200)
	for name, tt := range map[string]struct {
		frame []byte
		want  error
	}{
		"masked by a server":       {Append(nil, Text, []byte("x"), &[4]byte{1}), ErrMask},
		"reserved bit":             {[]byte{0xC1, 0}, ErrBits},
		"reserved opcode":          {[]byte{0x83, 0}, ErrBits},
		"continuation of nothing":  {[]byte{0x80, 0}, ErrOrder},
		"message within a message": {[]byte{0x01, 0, 0x01, 0}, ErrOrder},
		"ping in pieces":           {[]byte{0x09, 0}, ErrControl},
		"ping too long":            {begin(nil, Ping, 126, 0), ErrControl},
		"16 bits for a short one":  {[]byte{0x82, 126, 0, 125}, ErrLength},
		"64 bits for a short one":  {long, ErrLength},
		"top bit of the length":    {[]byte{0x82, 127, 0x80, 0, 0, 0, 0, 0, 0, 0}, ErrLength},
	} {
		r := Reader{Sink: new(note)}
		if err := r.Feed(tt.frame); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
	r := Reader{Sink: new(note), Masked: true}
	if err := r.Feed(Append(nil, Text, []byte("x"), nil)); !errors.Is(err, ErrMask) {
		t.Errorf("not masked by a client: %v", err)
	}
}

func TestXORIsTheSameByteByByte(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for n := range 2500 {
		p, key := make([]byte, n), [4]byte{byte(r.Uint32()), byte(r.Uint32()), byte(r.Uint32()), byte(r.Uint32())}
		pos := r.IntN(9)
		want := make([]byte, n)
		for i := range p {
			p[i] = byte(r.Uint32())
			want[i] = p[i] ^ key[(pos+i)%4]
		}
		if XOR(p, key, pos); !bytes.Equal(p, want) {
			t.Fatalf("%d bytes from %d differ", n, pos)
		}
	}
}

func FuzzReaderTakesAnything(f *testing.F) {
	f.Add(Append(nil, Text, []byte("hello"), &[4]byte{1, 2, 3, 4}), true)
	f.Add([]byte{0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0}, false)
	f.Fuzz(func(t *testing.T, b []byte, masked bool) {
		r := Reader{Sink: &note{seen: []string{""}}, Masked: masked}
		r.Feed(b)
	})
}

func TestOnlyTheFirstFrameOfAMessageMayBeCompressed(t *testing.T) {
	for name, tt := range map[string]struct {
		agreed bool
		first  byte
		want   error
	}{
		"agreed on":           {true, 0x80 | RSV1 | Text, nil},
		"not agreed on":       {false, 0x80 | RSV1 | Text, ErrBits},
		"a ping":              {true, 0x80 | RSV1 | Ping, ErrBits},
		"a continuation":      {true, 0x80 | RSV1 | Continuation, ErrBits},
		"of another bit, too": {true, 0x80 | RSV1 | 0x20 | Text, ErrBits},
	} {
		got := new(note)
		r := Reader{Sink: got, Deflate: tt.agreed}
		err := r.Feed([]byte{tt.first, 1, 'x'})
		if !errors.Is(err, tt.want) || err == nil && strings.Join(got.seen, " ") != "41:x." {
			t.Errorf("%s: %v, %q", name, err, got.seen)
		}
	}
}
