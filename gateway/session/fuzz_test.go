package session_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/session"
	"reseat/gateway/wire"
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
	add(0x81, "\x10parts {\"bytes\":5,\"text\":true}")
	add(0x82, "\x10\x10")
	add(0x81, "\x10part 3")
	add(0x02, "a")
	add(0x80, "bc")
	add(0x81, "\x10parts {\"bytes\":5}")
	add(0x81, "data")
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
	b := connecting(t, conf(func(c *session.Config) { c.Resumable = resumable }), "")
	p := b.pass()
	p.Parts, p.Partial = resumable, resumable
	b.att = b.s.AttachFirst(b.now, p)
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

// Whatever is cut, taken over or upgraded, and wherever, each message arrives once, in order and whole, both ways.
func FuzzPartial(f *testing.F) {
	f.Add([]byte("dtaUpcdtUuuucuddtttatagUuuuuxuuuTttuuupac"))
	r := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		ops := make([]byte, 300)
		for i := range ops {
			ops[i] = "ddttttaauuuuUcxgpsk"[r.IntN(19)] + byte(r.IntN(2))*128
		}
		f.Add(ops)
	}
	f.Fuzz(func(t *testing.T, ops []byte) {
		if len(ops) > 1000 {
			return
		}
		b := newPartial(t, func(c *session.Config) { c.BufferBytes = 1 << 30 })
		r := rand.New(rand.NewPCG(uint64(len(ops)), 3))
		size := func() int { return 1 + r.IntN(1+r.IntN(40000)) }
		var down, up, got, gets []string
		next, from, open := 0, 0, false // of the client's messages, and of that one
		forth := func() {
			if next == len(up) {
				return
			}
			p := up[next]
			if !open {
				b.says(fmt.Sprintf(`%cparts {"bytes":%d,"text":true,"from":%d}`, 0x10, len(p), from))
				open = true
			}
			n := min(len(p)-from, 1+r.IntN(session.PartBytes))
			b.read(masked(frame.Binary, p[from:from+n]))
			if from += n; from == len(p) {
				next, from, open = next+1, 0, false
			}
		}
		back := func() { // it counts what it is given
			for _, m := range b.got {
				if text, ok := strings.CutPrefix(m, "true "); ok {
					got = append(got, text)
				}
			}
			b.got = nil
			gets = append(gets, b.gameGets(b.up)...)
		}
		cut := func(takeover bool) {
			held := 0
			if b.left > 0 {
				held = len(b.msg)
			}
			p := b.pass()
			p.Held = uint64(held)
			if !takeover {
				b.s.Disconnected(b.now, b.att, "cut")
			}
			a, ref := b.s.Attach(b.now, session.Resume{Gen: b.s.Generation(), Received: uint64(len(got))}, p)
			switch {
			case ref != nil && ref.Code == wire.CodeEnded: // no progress: protocol section 11
				t.SkipNow()
			case ref != nil:
				t.Fatal(ref)
			}
			for b.att, b.in, b.left, b.h = a, nil, 0, nil; b.h == nil; {
				b.takes(1 + r.IntN(100))
			}
			h := b.h.Partial
			if int(h.Down) != held || int(h.Up) != from || int(b.h.Received) != next {
				t.Fatalf("hello says %+v and %d received, want %d, %d and %d", h, b.h.Received, held, from, next)
			}
			open = false
			b.says(fmt.Sprint("\x10ack ", len(got)))
		}
		for _, op := range ops {
			switch op & 127 {
			case 'd':
				frames := []int{size()}
				if frames[0] > session.PartBytes {
					frames = append(frames, size())
				}
				down = append(down, b.message(frame.Text, "", frames...))
			case 't':
				b.takes(size())
			case 'a':
				b.answers()
			case 'U':
				up = append(up, strings.Repeat("u", size()))
			case 'u':
				forth()
			case 'c', 'x':
				if b.now = b.now.Add(time.Second); op&127 == 'c' || r.IntN(9) == 0 {
					cut(op&127 == 'x')
				}
			case 'g':
				b.says(fmt.Sprint("\x10ack ", len(got)))
			case 'p':
				b.says("\x10ping x")
			case 's':
				b.sleep(time.Duration(r.IntN(500)) * time.Millisecond)
			case 'k':
				b.upgrade()
			}
			back()
		}
		for n := 0; n < 2000 && (len(got) < len(down) || len(gets) < len(up)); n++ {
			b.takesAll()
			b.answers()
			forth()
			back()
		}
		if !slices.Equal(got, down) || !slices.Equal(gets, up) {
			t.Errorf("the client got %d messages of %d, the game server %d of %d; %v", len(got), len(down), len(gets), len(up), b.s.State())
		}
	})
}
