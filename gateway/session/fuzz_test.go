package session_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"reseat/gateway/frame"
	"reseat/gateway/session"
)

// Input arrives in pieces of any size. Whatever it holds, nothing panics, and where the
// pieces end makes no difference to the output.

// pieces cuts b at places drawn from seed. With seed 0 it returns b whole.
func pieces(b []byte, seed uint64) (list [][]byte) {
	r := rand.New(rand.NewPCG(seed, 1))
	for len(b) > 0 {
		n := len(b)
		if seed > 0 {
			n = 1 + r.IntN(min(n, 1+r.IntN(300)))
		}
		list = append(list, bytes.Clone(b[:n])) // the session unmasks in place
		b = b[n:]
	}
	return list
}

const maxFuzzed = 32 << 10 // about one read of the upstream

// seeds are valid streams, masked like a client's or not.
func seeds(f *testing.F, masks bool) {
	var all []byte
	add := func(first byte, payload string) {
		var b []byte
		if masks {
			b = frame.AppendMasked(nil, first&0xF, [4]byte{1, 2, 3, 4}, []byte(payload))
		} else {
			b = frame.Append(nil, first&0xF, []byte(payload))
		}
		b[0] = first
		all = append(all, b...)
		f.Add(b, uint64(3), true)
		f.Add(bytes.Clone(all), uint64(7), len(all)%2 == 0)
	}
	add(0x81, "hello")
	add(0x82, "\x10\x00\xff")
	add(0x81, "\x10\x10data")
	add(0x81, "\x10ack 0")
	add(0x81, "\x10ping x")
	add(0x01, "")
	add(0x89, "between")
	add(0x00, "\x10")
	add(0x80, "\x10pieces")
	add(0x8A, "1")
	add(0x82, string(make([]byte, 300)))
	add(0x81, "\x10bye {\"code\":4000}")
	add(0x88, "\x03\xe8done")
	add(0x83, "reserved")
}

func FuzzClientBytes(f *testing.F) {
	seeds(f, true)
	f.Fuzz(func(t *testing.T, data []byte, seed uint64, resumable bool) {
		whole, wholeState := clientSays(t, pieces(data, 0), resumable)
		cut, cutState := clientSays(t, pieces(data, seed), resumable)
		if fmt.Sprintf("%q", whole) != fmt.Sprintf("%q", cut) || wholeState != cutState {
			t.Errorf("in one piece the game server gets %.300q and the session is %v; in pieces by seed %d it gets %.300q, and it is %v", whole, wholeState, seed, cut, cutState)
		}
	})
}

// clientSays feeds a client's bytes to a session, and returns what the game server got.
func clientSays(t *testing.T, reads [][]byte, resumable bool) ([]string, session.State) {
	b := fuzzed(t, resumable)
	var got []string
	for _, p := range reads {
		b.read(p)
		got = append(got, b.gameGets(b.up)...)
		clear(p) // the driver reuses its buffer
	}
	return append(got, b.gameGets(b.up)...), b.s.State()
}

func FuzzUpstreamBytes(f *testing.F) {
	seeds(f, false)
	f.Fuzz(func(t *testing.T, data []byte, seed uint64, resumable bool) {
		if len(data) > maxFuzzed {
			return
		}
		whole := gameSays(t, pieces(data, 0), resumable)
		cut := gameSays(t, pieces(data, seed), resumable)
		if fmt.Sprintf("%q", whole) != fmt.Sprintf("%q", cut) {
			t.Errorf("in one piece the client gets %.300q; in pieces by seed %d %.300q", whole, seed, cut)
		}
	})
}

// gameSays feeds a game server's bytes to a session, and returns what the client got.
func gameSays(t *testing.T, reads [][]byte, resumable bool) []string {
	b := fuzzed(t, resumable)
	got := b.output()
	for _, p := range reads {
		for len(p) > 0 {
			n := b.some(p)
			if n == 0 {
				break // it is over
			}
			p = p[n:]
			got = append(got, b.output()...)
		}
	}
	list, _ := frames(t, got)
	return list
}

func fuzzed(t *testing.T, resumable bool) *table {
	b := connecting(t, conf(func(c *session.Config) { c.Resumable = resumable }), "")
	b.first()
	return b
}

// some delivers as much of p from the upstream as there is room for.
func (b *table) some(p []byte) int {
	room := b.s.Room(b.up)
	n := copy(room, p)
	if n > 0 {
		b.s.Read(b.now, b.up, room[:n])
	}
	return n
}

// Where writes stop makes no difference to a client that takes large messages in parts.
func FuzzParts(f *testing.F) {
	seeds(f, false)
	var all []byte
	for _, shape := range [][]int{{5000}, {100}, {4000, 0, 97}, {0, 9000, 0}, {4096}, {20000}} {
		for i, n := range shape {
			op := byte(frame.Text)
			if i > 0 {
				op = frame.Continuation
			}
			all = frame.AppendHeader(all, op, i == len(shape)-1, n)
			all = append(all, bytes.Repeat([]byte{0x10}, n)...)
		}
		f.Add(bytes.Clone(all), uint64(len(all)), len(shape)%2 == 0)
	}
	f.Fuzz(func(t *testing.T, data []byte, seed uint64, tiny bool) {
		if len(data) > maxFuzzed {
			return
		}
		whole, cut := gameSaysInParts(t, data, 0, false), gameSaysInParts(t, data, seed, tiny)
		if fmt.Sprintf("%q", whole) != fmt.Sprintf("%q", cut) {
			t.Errorf("in whole writes the client gets %.300q; in pieces by seed %d %.300q", whole, seed, cut)
		}
	})
}

// gameSaysInParts feeds a game server's bytes to a session, and returns what a client puts together that takes parts.
func gameSaysInParts(t *testing.T, data []byte, seed uint64, tiny bool) []string {
	b, r := newParted(t), rand.New(rand.NewPCG(seed, 2))
	write := func() int {
		switch {
		case seed == 0:
			return 1 << 30
		case tiny:
			return r.IntN(50)
		}
		return r.IntN(1 + r.IntN(9000))
	}
	for len(data) > 0 {
		n := b.some(data)
		if n == 0 {
			break // it is over
		}
		data = data[n:]
	}
	for idle := 0; idle < 20; idle++ {
		if b.takes(write()) {
			idle = 0
		}
	}
	return b.got
}
