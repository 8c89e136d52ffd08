package gateway_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"reseat/gateway/frame"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

// Frames byte by byte, from the text of RFC 6455, on both legs. A plain client, a resumable
// one and a game server each send every case. The frames are not written by the gateway's
// own code.

// A raw is one frame as its sender writes it.
type raw struct {
	first    byte // FIN, RSV1-3, opcode
	payload  string
	form     int    // bytes of extended length: 0 the shortest, 2 or 8
	announce uint64 // a length that no payload follows; zero: that of payload
	flip     bool   // masked if it must not be, or the reverse
}

func (f raw) append(b []byte, masks bool) []byte {
	n, form := uint64(len(f.payload)), f.form
	if f.announce > 0 {
		n, form = f.announce, 8
	}
	switch {
	case form > 0:
	case n >= 1<<16:
		form = 8
	case n >= 126:
		form = 2
	}
	var mask byte
	if masks != f.flip {
		mask = 0x80
	}
	switch form {
	case 0:
		b = append(b, f.first, mask|byte(n))
	case 2:
		b = binary.BigEndian.AppendUint16(append(b, f.first, mask|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, f.first, mask|127), n)
	}
	if mask == 0 {
		return append(b, f.payload...)
	}
	key := "\x37\xfa\x21\x3d" // the example in section 5.7
	b = append(b, key...)
	for i := range len(f.payload) {
		b = append(b, f.payload[i]^key[i%4])
	}
	return b
}

// The result of a case: message, pong, broken or closed.
type outcome struct {
	message *string  // the other side gets this
	pong    *string  // the sender gets a Pong with this, and the other side nothing
	broken  int      // the connection is closed with this code, RFC 6455 section 7.4.1
	closed  int      // a valid Close with this code: 1005 for none
	before  []string // what the other side gets first
}

type rawCase struct {
	name    string
	section string
	frames  []raw
	want    outcome
}

func rawCases() (list []rawCase) {
	add := func(section, name string, want outcome, frames ...raw) {
		list = append(list, rawCase{name, section, frames, want})
	}
	bad := outcome{broken: 1002}
	large := outcome{broken: 1009}
	gets := func(s string) outcome { return outcome{message: &s} }
	pong := func(s string) outcome { return outcome{pong: &s} }
	reservedCases(add, bad)
	fragmentCases(add, bad, gets)
	lengthCases(add, bad, large, gets)
	controlCases(add, bad, gets, pong)
	closeCases(add, bad)
	return list
}

type addCase func(section, name string, want outcome, frames ...raw)

func reservedCases(add addCase, bad outcome) {
	for bits, name := range map[byte]string{0x40: "RSV1", 0x20: "RSV2", 0x10: "RSV3", 0x70: "all RSV"} {
		add("5.2", name+" on text", bad, raw{first: 0x81 | bits, payload: "x"})
		add("5.2", name+" on binary", bad, raw{first: 0x82 | bits, payload: "x"})
		add("5.2", name+" on a continuation", bad, raw{first: 0x01, payload: "x"}, raw{first: 0x80 | bits, payload: "x"})
		add("5.2", name+" on a Ping", bad, raw{first: 0x89 | bits})
		add("5.2", name+" on a Close", bad, raw{first: 0x88 | bits})
	}
	for _, op := range []byte{3, 4, 5, 6, 7, 0xB, 0xC, 0xD, 0xE, 0xF} {
		add("5.2", fmt.Sprintf("opcode %X", op), bad, raw{first: 0x80 | op, payload: "x"})
		add("5.2", fmt.Sprintf("opcode %X, not final", op), bad, raw{first: op, payload: "x"})
	}
	for name, first := range map[string]byte{"text": 0x81, "binary": 0x82, "a first fragment": 0x01, "a Ping": 0x89, "a Pong": 0x8A, "a Close": 0x88} {
		add("5.1", "the wrong masking on "+name, bad, raw{first: first, payload: "\x03\xe8", flip: true})
	}
}

func fragmentCases(add addCase, bad outcome, gets func(string) outcome) {
	more, last := byte(0x00), byte(0x80)
	add("5.4", "text in two", gets("Hello"), raw{first: 0x01, payload: "Hel"}, raw{first: last, payload: "lo"})
	add("5.4", "binary in two", gets("\x00\x01\x02"), raw{first: 0x02, payload: "\x00"}, raw{first: last, payload: "\x01\x02"})
	add("5.4", "in three", gets("abc"), raw{first: 0x01, payload: "a"}, raw{first: more, payload: "b"}, raw{first: last, payload: "c"})
	add("5.4", "empty first", gets("x"), raw{first: 0x01}, raw{first: last, payload: "x"})
	add("5.4", "empty in the middle", gets("ab"), raw{first: 0x01, payload: "a"}, raw{first: more}, raw{first: last, payload: "b"})
	add("5.4", "empty last", gets("x"), raw{first: 0x01, payload: "x"}, raw{first: last})
	add("5.4", "all empty", gets(""), raw{first: 0x01}, raw{first: more}, raw{first: last})
	add("5.4", "a character cut in two", gets("\xc3\xa4"), raw{first: 0x01, payload: "\xc3"}, raw{first: last, payload: "\xa4"})
	add("5.4", "with a Ping in between", gets("ab"), raw{first: 0x01, payload: "a"}, raw{first: 0x89, payload: "!"}, raw{first: last, payload: "b"})
	add("5.4", "with a Pong in between", gets("ab"), raw{first: 0x01, payload: "a"}, raw{first: 0x8A}, raw{first: last, payload: "b"})
	add("5.5", "a Close between the frames of a message", outcome{closed: 1000}, raw{first: 0x01, payload: "a"}, raw{first: 0x88, payload: "\x03\xe8"})
	add("5.4", "a continuation of nothing", bad, raw{first: last, payload: "x"})
	add("5.4", "a continuation of nothing, not final", bad, raw{first: more, payload: "x"})
	add("5.4", "a continuation of a message that is whole", outcome{broken: bad.broken, before: []string{"a"}}, raw{first: 0x01, payload: "a"}, raw{first: last}, raw{first: last, payload: "x"})
	for name, first := range map[string]byte{"text": 0x81, "binary": 0x82, "first text": 0x01, "first binary": 0x02} {
		add("5.4", "a "+name+" frame within a message", bad, raw{first: 0x01, payload: "a"}, raw{first: first, payload: "b"})
	}
	for name, first := range map[string]byte{"Ping": 0x09, "Pong": 0x0A, "Close": 0x08} {
		add("5.5", "a fragmented "+name, bad, raw{first: first})
		add("5.5", "a fragmented "+name+" within a message", bad, raw{first: 0x01, payload: "a"}, raw{first: first})
	}
}

func lengthCases(add addCase, bad, large outcome, gets func(string) outcome) {
	limit := int(testPolicy().MaxMessage)
	for _, n := range []int{0, 1, 125, 126, 127, 255, 256, 65535, 65536, limit - 1, limit} {
		s := strings.Repeat("x", n)
		add("5.2", fmt.Sprintf("%d bytes", n), gets(s), raw{first: 0x81, payload: s})
	}
	for _, n := range []int{0, 1, 125} {
		add("5.2", fmt.Sprintf("%d bytes in 16 bits", n), bad, raw{first: 0x82, payload: strings.Repeat("x", n), form: 2})
	}
	for _, n := range []int{0, 125, 126, 65535} {
		add("5.2", fmt.Sprintf("%d bytes in 64 bits", n), bad, raw{first: 0x82, payload: strings.Repeat("x", n), form: 8})
	}
	for _, n := range []uint64{1 << 63, 1<<64 - 1} {
		add("5.2", fmt.Sprintf("the top bit of the length: %d", n), bad, raw{first: 0x82, announce: n})
	}
	for _, n := range []uint64{uint64(limit) + 2, 1 << 31, 1 << 32, 1<<63 - 1} {
		add("7.4.1", fmt.Sprintf("%d bytes announced", n), large, raw{first: 0x82, announce: n})
	}
	add("7.4.1", "a fragment that makes the sum overflow", large, raw{first: 0x02, payload: "xx"}, raw{first: 0x80, announce: 1<<63 - 1})
	add("7.4.1", "one byte over the limit", large, raw{first: 0x82, payload: strings.Repeat("x", limit+1)})
	add("7.4.1", "one byte over the limit in fragments", large, raw{first: 0x02, payload: strings.Repeat("x", limit)}, raw{first: 0x80, payload: "x"})
	add("5.4", "the limit in fragments", gets(strings.Repeat("x", limit)), raw{first: 0x02, payload: strings.Repeat("x", limit-1)}, raw{first: 0x80, payload: "x"})
}

func controlCases(add addCase, bad outcome, gets, pong func(string) outcome) {
	for _, s := range []string{"", "!", "\x00\xff\x10", strings.Repeat("p", 125)} {
		add("5.5.2", fmt.Sprintf("a Ping of %d bytes", len(s)), pong(s), raw{first: 0x89, payload: s})
	}
	add("5.5.2", "several Pings", pong("2"), raw{first: 0x89, payload: "1"}, raw{first: 0x89, payload: "2"})
	add("5.5.3", "a Pong that nobody asked for", gets("on"), raw{first: 0x8A, payload: "?"}, raw{first: 0x81, payload: "on"})
	for name, first := range map[string]byte{"Ping": 0x89, "Pong": 0x8A, "Close": 0x88} {
		add("5.5", "a "+name+" of 126 bytes", bad, raw{first: first, payload: "\x03\xe8" + strings.Repeat("x", 124)})
		add("5.5", "a "+name+" of 65536 bytes", bad, raw{first: first, payload: "\x03\xe8" + strings.Repeat("x", 65534)})
		add("5.2", "a "+name+" whose length is not in its shortest form", bad, raw{first: first, payload: "\x03\xe8", form: 2})
	}
	// Whether relayed text is UTF-8 is for its two ends to judge, protocol section 3.
	for name, s := range map[string]string{"a lone continuation byte": "\x80", "half a character": "a\xc3", "a surrogate": "\xed\xa0\x80", "overlong": "\xc0\xaf", "beyond U+10FFFF": "\xf4\x90\x80\x80"} {
		add("8.1", "text that is not UTF-8: "+name, gets(s), raw{first: 0x81, payload: s})
	}
}

func closeCases(add addCase, bad outcome) {
	code := func(n int) string { return string(binary.BigEndian.AppendUint16(nil, uint16(n))) }
	add("5.5.1", "a Close without a code", outcome{closed: 1005}, raw{first: 0x88})
	add("5.5.1", "a Close of one byte", bad, raw{first: 0x88, payload: "\x03"})
	for _, n := range []int{1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 3999, 4000, 4999} {
		add("7.4", fmt.Sprintf("Close %d", n), outcome{closed: n}, raw{first: 0x88, payload: code(n) + "why"})
	}
	for _, n := range []int{0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 1999, 2000, 2999, 5000, 65535} {
		add("7.4", fmt.Sprintf("Close %d", n), bad, raw{first: 0x88, payload: code(n)})
	}
	add("5.5.1", "a Close with the longest reason", outcome{closed: 1000}, raw{first: 0x88, payload: code(1000) + strings.Repeat("r", 123)})
	for name, s := range map[string]string{"a lone continuation byte": "\x80", "half a character": "ab\xc3", "a surrogate": "\xed\xa0\x80", "overlong": "\xc0\xaf"} {
		add("5.5.1", "a close reason that is not UTF-8: "+name, outcome{broken: 1007}, raw{first: 0x88, payload: code(1000) + s})
	}
}

func TestFramesFollowRFC6455(t *testing.T) {
	cases := rawCases()
	if len(cases) < 80 {
		t.Errorf("only %d cases", len(cases))
	}
	for leg, play := range map[string]func(*world, rawCase, []byte){
		"from a plain client": fromPlain, "from a resumable client": fromResumable,
		"from the game server, to a plain client": toPlain, "from the game server, to a resumable client": toResumable,
	} {
		t.Run(leg, func(t *testing.T) {
			for _, c := range cases {
				var b []byte
				for _, f := range c.frames {
					b = f.append(b, strings.Contains(leg, "from a "))
				}
				t.Run(c.section+" "+c.name, func(t *testing.T) {
					inWorld(t, testPolicy(), func(t *testing.T, w *world) {
						if w.Offer != "" {
							t.Skip("with compression RSV1 means something")
						}
						play(w, c, b)
					})
				})
			}
		})
	}
}

// wantPong checks the sender's answer; acks and heartbeats may precede it.
func wantPong(w *world, p *wstest.Peer, want string) {
	w.t.Helper()
	for {
		m, ok := p.Next()
		switch {
		case !ok || m.Err != nil || m.Op == frame.Close:
			w.t.Fatalf("got %v, want a Pong %q", m, want)
		case m.Op == frame.Pong && m.Data == want:
			return
		case m.Op == frame.Pong && len(want) > 0 && m.Data != "1":
			w.t.Fatalf("got a Pong %q, want %q", m.Data, want)
		}
	}
}

// upstreamCode is the code for the game server if a client breaks the protocol.
func upstreamCode(code int) int {
	if code == 1009 {
		return 1009
	}
	return 1008
}

// passes plays valid cases: what from sends arrives at to, or is answered, and both continue.
// It calls taken once to has the message. It reports false for other cases.
func passes(w *world, c rawCase, from, to *wstest.Peer, taken func()) bool {
	switch {
	case c.want.message != nil:
		to.Want(*c.want.message)
		taken()
		from.Pass(to, "after")
	case c.want.pong != nil:
		wantPong(w, from, *c.want.pong)
	default:
		return false
	}
	return true
}

func nothingElse() {}

func fromPlain(w *world, c rawCase, b []byte) {
	client, game := w.plain()
	client.Raw(b)
	switch want := c.want; {
	case passes(w, c, client, game, nothingElse):
	case want.broken > 0:
		client.WantClose(want.broken)
		game.Want(want.before...)
		game.WantClose(upstreamCode(want.broken))
	default:
		game.WantClose(want.closed)
		client.WantClose(want.closed)
	}
}

func fromResumable(w *world, c rawCase, b []byte) {
	p, game := w.play()
	p.Raw(b)
	switch want := c.want; {
	case passes(w, c, p.Peer, game, nothingElse):
	case want.broken > 0:
		p.WantClosing(want.broken)
		game.Want(want.before...)
		game.WantClose(upstreamCode(want.broken))
	default: // without a bye before it, it detaches: protocol section 6
		p.WantClose(want.closed)
		w.wantState(p, session.Detached)
		game.WantNothing(0)
	}
}

func toPlain(w *world, c rawCase, b []byte) {
	client, game := w.plain()
	game.Raw(b)
	switch want := c.want; {
	case passes(w, c, game, client, nothingElse):
	case want.broken > 0:
		game.WantClose(want.broken)
		client.Want(want.before...)
		client.WantEnd()
	default:
		client.WantClose(want.closed)
		game.WantClose(want.closed)
	}
}

func toResumable(w *world, c rawCase, b []byte) {
	p, game := w.play()
	game.Raw(b)
	ack := func() { p.Ack(1) } // a large message fills the window
	switch want := c.want; {
	case passes(w, c, game, p.Peer, ack):
	case want.broken > 0:
		game.WantClose(want.broken)
		p.Want(want.before...)
		p.WantClosing(wire.CodeUpstreamLost)
	default:
		var end wire.Ending
		if m := p.WantControl(wire.VerbEnd); json.Unmarshal([]byte(m.Data), &end) != nil || end.Code != want.closed {
			w.t.Fatalf("end %s, want code %d", m.Data, want.closed)
		}
		p.WantClose(want.closed)
		game.WantClose(want.closed)
	}
}
