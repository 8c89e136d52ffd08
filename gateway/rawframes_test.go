package gateway_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

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

// An outcome is what comes of a case: the script if a client sends it, and if the game server does.
type outcome struct{ ofClient, ofGame string }

// gets: the other side gets this.
func gets(s string) outcome {
	return outcome{"game< " + s + "; client> after; game< after", "client< " + s + "; client> ^ack 1; game> after; client< after"} // a large message fills the window
}

// pong: the sender gets a Pong with this, and the other side nothing.
func pong(s string) outcome {
	return outcome{"client< Pong " + s + "; client> after; game< after", "game< Pong " + s + "; game> after; client< after"}
}

// broken: the connection is closed with this code, RFC 6455 section 7.4.1, once the other side has got what came before.
func broken(code int, before ...string) outcome {
	toGame := map[bool]int{true: wire.CodeMessageTooBig, false: wire.CodePolicyViolation}[code == wire.CodeMessageTooBig]
	items := strings.Join(append(before, ""), ", ")
	return outcome{
		fmt.Sprintf("client< ^close %d; game< %sClose %d", code, items, toGame), fmt.Sprintf("game< Close %d; client< %s^close 4502", code, items),
	}
}

// closed: it was a valid Close with this code, 1005 for none. Without a bye before it, a client detaches: protocol section 6.
func closed(code int) outcome {
	return outcome{fmt.Sprintf("client< Close %d; detached; game< nothing", code), fmt.Sprintf("client< ^end %d; game< Close %[1]d", code)}
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
	bad, large := broken(1002), broken(1009)

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
	add("5.4", "a continuation of a message that is whole", broken(1002, "a"), raw{first: 0x01, payload: "a"}, raw{first: last}, raw{first: last, payload: "x"})
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

	add("5.5", "a Close between the frames of a message", closed(1000), raw{first: 0x01, payload: "a"}, raw{first: 0x88, payload: code(1000, "")})
	add("5.5.1", "a Close without a code", closed(1005), raw{first: 0x88})
	add("5.5.1", "a Close of one byte", bad, raw{first: 0x88, payload: "\x03"})
	add("5.5.1", "a Close with the longest reason", closed(1011), raw{first: 0x88, payload: code(1011, strings.Repeat("r", 123))})
	add("5.5.1", "a close reason that is not UTF-8", broken(1007), raw{first: 0x88, payload: code(1000, "\x80")})
	add("7.4", "Close 4999", closed(4999), raw{first: 0x88, payload: code(4999, "why")})
	add("7.4", "Close 1005", bad, raw{first: 0x88, payload: code(1005, "")})
	return list
}

func TestFramesFollowRFC6455(t *testing.T) {
	if *compression {
		t.Skip("with compression RSV1 means something")
	}
	for _, c := range rawCases() {
		for leg, play := range map[string]func(*scene){
			"from a client":        func(s *scene) { s.client.Raw(c.bytes(true)); s.play(c.want.ofClient) },
			"from the game server": func(s *scene) { s.up.Raw(c.bytes(false)); s.play(c.want.ofGame) },
		} {
			t.Run(leg+"/"+c.section+" "+c.name, func(t *testing.T) { inScene(t, testPolicy(), play) })
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
