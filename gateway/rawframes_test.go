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

// Frames byte by byte, from the text of RFC 6455, on both legs. The frames are not written by the gateway's own code.

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

// rawCases has a case of each rule; package frame has each rule's every case.
func rawCases() (list []rawCase) {
	const more, last = 0x00, 0x80
	limit := int(testPolicy().MaxMessage)
	code := func(n int, reason string) string {
		return string(binary.BigEndian.AppendUint16(nil, uint16(n))) + reason
	}
	add := func(section, name string, want outcome, frames ...raw) {
		list = append(list, rawCase{name, section, frames, want})
	}
	gets := func(s string) outcome { return outcome{message: &s} }
	pong := func(s string) outcome { return outcome{pong: &s} }
	bad, large := outcome{broken: 1002}, outcome{broken: 1009}

	add("5.1", "the wrong masking on text", bad, raw{first: 0x81, payload: "x", flip: true})
	add("5.1", "the wrong masking on a Ping", bad, raw{first: 0x89, flip: true})
	add("5.2", "RSV1 on text", bad, raw{first: 0xC1, payload: "x"})
	add("5.2", "RSV3 on a continuation", bad, raw{first: 0x01, payload: "x"}, raw{first: 0x90, payload: "x"})
	add("5.2", "RSV2 on a Close", bad, raw{first: 0xA8})
	add("5.2", "opcode 3", bad, raw{first: 0x83, payload: "x"})
	add("5.2", "opcode F", bad, raw{first: 0x8F})
	for _, n := range []int{0, 125, 126, 65535, 65536, limit} {
		s := strings.Repeat("x", n)
		add("5.2", fmt.Sprintf("%d bytes", n), gets(s), raw{first: 0x81, payload: s})
	}
	add("5.2", "125 bytes in 16 bits", bad, raw{first: 0x82, payload: strings.Repeat("x", 125), form: 2})
	add("5.2", "65535 bytes in 64 bits", bad, raw{first: 0x82, payload: strings.Repeat("x", 65535), form: 8})
	add("5.2", "the top bit of the length", bad, raw{first: 0x82, announce: 1 << 63})

	add("5.4", "in three, one of them empty", gets("ab"), raw{first: 0x01, payload: "a"}, raw{first: more}, raw{first: last, payload: "b"})
	add("5.4", "all empty", gets(""), raw{first: 0x02}, raw{first: last})
	add("5.4", "a character cut in two", gets("\xc3\xa4"), raw{first: 0x01, payload: "\xc3"}, raw{first: last, payload: "\xa4"})
	add("5.4", "with a Ping in between", gets("ab"), raw{first: 0x01, payload: "a"}, raw{first: 0x89, payload: "!"}, raw{first: last, payload: "b"})
	add("5.4", "a continuation of nothing", bad, raw{first: last, payload: "x"})
	add("5.4", "a continuation of a message that is whole", outcome{broken: 1002, before: []string{"a"}}, raw{first: 0x01, payload: "a"}, raw{first: last}, raw{first: last, payload: "x"})
	add("5.4", "a text frame within a message", bad, raw{first: 0x01, payload: "a"}, raw{first: 0x81, payload: "b"})
	add("5.4", "the limit in fragments", gets(strings.Repeat("x", limit)), raw{first: 0x02, payload: strings.Repeat("x", limit-1)}, raw{first: last, payload: "x"})
	add("7.4.1", "one byte over the limit", large, raw{first: 0x82, payload: strings.Repeat("x", limit+1)})
	add("7.4.1", "one byte over the limit in fragments", large, raw{first: 0x02, payload: strings.Repeat("x", limit)}, raw{first: last, payload: "x"})
	add("7.4.1", "a fragment that makes the sum overflow", large, raw{first: 0x02, payload: "xx"}, raw{first: last, announce: 1<<63 - 1})

	add("5.5", "a fragmented Ping", bad, raw{first: 0x09})
	add("5.5", "a Ping of 126 bytes", bad, raw{first: 0x89, payload: strings.Repeat("x", 126)})
	add("5.5.2", "a Ping of 125 bytes", pong(strings.Repeat("p", 125)), raw{first: 0x89, payload: strings.Repeat("p", 125)})
	add("5.5.2", "several Pings", pong("2"), raw{first: 0x89, payload: "1"}, raw{first: 0x89, payload: "2"})
	add("5.5.3", "a Pong that nobody asked for", gets("on"), raw{first: 0x8A, payload: "?"}, raw{first: 0x81, payload: "on"})
	// Whether relayed text is UTF-8 is for its two ends to judge, protocol section 3.
	add("8.1", "text that is not UTF-8", gets("a\xc3"), raw{first: 0x81, payload: "a\xc3"})

	add("5.5", "a Close between the frames of a message", outcome{closed: 1000}, raw{first: 0x01, payload: "a"}, raw{first: 0x88, payload: code(1000, "")})
	add("5.5.1", "a Close without a code", outcome{closed: 1005}, raw{first: 0x88})
	add("5.5.1", "a Close of one byte", bad, raw{first: 0x88, payload: "\x03"})
	add("5.5.1", "a Close with the longest reason", outcome{closed: 1011}, raw{first: 0x88, payload: code(1011, strings.Repeat("r", 123))})
	add("5.5.1", "a close reason that is not UTF-8", outcome{broken: 1007}, raw{first: 0x88, payload: code(1000, "\x80")})
	add("7.4", "Close 4999", outcome{closed: 4999}, raw{first: 0x88, payload: code(4999, "why")})
	add("7.4", "Close 1005", bad, raw{first: 0x88, payload: code(1005, "")})
	return list
}

func TestFramesFollowRFC6455(t *testing.T) {
	if *compression {
		t.Skip("with compression RSV1 means something")
	}
	for leg, play := range map[string]func(*world, rawCase, *wstest.Player, *wstest.Peer){"from a client": fromClient, "from the game server": fromGame} {
		for _, c := range rawCases() {
			t.Run(leg+"/"+c.section+" "+c.name, func(t *testing.T) {
				inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) { play(w, c, p, game) })
			})
		}
	}
}

// bytes are the case's frames as a client writes them, or as a game server does.
func (c rawCase) bytes(masks bool) (b []byte) {
	for _, f := range c.frames {
		b = f.append(b, masks)
	}
	return b
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

func fromClient(w *world, c rawCase, p *wstest.Player, game *wstest.Peer) {
	p.Raw(c.bytes(true))
	switch want := c.want; {
	case want.message != nil:
		game.Want(*want.message)
		p.Pass(game, "after")
	case want.pong != nil:
		wantPong(w, p.Peer, *want.pong)
		p.Pass(game, "after")
	case want.broken > 0:
		p.WantClosing(want.broken)
		game.Want(want.before...)
		game.WantClose(map[bool]int{true: wire.CodeMessageTooBig, false: wire.CodePolicyViolation}[want.broken == wire.CodeMessageTooBig])
	default: // without a bye before it, it detaches: protocol section 6
		p.WantClose(want.closed)
		w.wantState(p, session.Detached)
		game.WantNothing(0)
	}
}

func fromGame(w *world, c rawCase, p *wstest.Player, game *wstest.Peer) {
	game.Raw(c.bytes(false))
	switch want := c.want; {
	case want.message != nil:
		p.Want(*want.message)
		p.Ack(1) // a large message fills the window
		game.Pass(p, "after")
	case want.pong != nil:
		wantPong(w, game, *want.pong)
		game.Pass(p, "after")
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
