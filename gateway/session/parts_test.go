package session_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

// A parted is a client that has offered to take large messages in parts.
type parted struct {
	*table
	partial bool // and goes on inside them
	h       *wire.Hello
	in      []byte // not a whole frame yet
	left    int    // of the message that comes in parts
	text    bool
	msg     []byte
	got     []string // data messages, and the verbs of control messages
}

func newParted(t *testing.T) *parted {
	b := &parted{table: connecting(t, conf(), "")}
	b.att = b.s.AttachFirst(b.now, b.pass())
	b.says("\x10ack 0")
	b.takesAll()
	b.got = nil
	return b
}

func (b *parted) pass() session.Pass {
	p := b.table.pass()
	p.Parts, p.Partial = true, b.partial
	return p
}

// message is a message of the game server, in frames of these sizes; it begins with first.
func (b *parted) message(op byte, first string, sizes ...int) string {
	b.t.Helper()
	var all, payload []byte
	for i, n := range sizes {
		p := bytes.Repeat([]byte{byte('a' + i%26)}, n)
		if i == 0 {
			copy(p, first)
		} else {
			op = frame.Continuation
		}
		all = append(frame.AppendHeader(all, op, i == len(sizes)-1, n), p...)
		payload = append(payload, p...)
	}
	b.game(string(all))
	return string(payload)
}

// takes lets the client's socket accept up to n bytes, and reports whether there were more.
func (b *parted) takes(n int) (more bool) {
	b.t.Helper()
	all := bytes.Join(b.s.Out(b.now, b.att, nil), nil)
	more = n < len(all)
	n = min(n, len(all))
	b.hears(all[:n])
	b.s.Wrote(b.now, b.att, n, more)
	return more || n > 0
}

func (b *parted) takesAll() {
	for b.takes(1 << 30) {
	}
}

// hears takes bytes as a client does.
func (b *parted) hears(p []byte) {
	b.t.Helper()
	b.in = append(b.in, p...)
	for {
		h, p, ok := nextFrame(b.t, &b.in)
		if !ok {
			return
		}
		switch {
		case h.Op == frame.Close:
			b.got = append(b.got, "Close")
		case h.Op == frame.Text && len(p) > 0 && p[0] == wire.DLE && (len(p) == 1 || p[1] != wire.DLE):
			verb, arg, _ := strings.Cut(string(p[1:]), " ")
			if verb == wire.VerbHello {
				b.h = new(wire.Hello)
				if err := json.Unmarshal([]byte(arg), b.h); err != nil {
					b.t.Fatal(err)
				}
			}
			if verb != wire.VerbParts {
				b.got = append(b.got, verb)
				continue
			}
			var v wire.Part
			if err := json.Unmarshal([]byte(arg), &v); err != nil || b.left > 0 {
				b.t.Fatalf("parts %s with %d bytes left: %v", arg, b.left, err)
			}
			if v.From > 0 && (int(v.From) != len(b.msg) || v.From != b.h.Partial.Down) {
				b.t.Fatalf("parts %s, want them from %d, hello says %+v", arg, len(b.msg), b.h.Partial)
			}
			b.left, b.text, b.msg = int(v.Bytes-v.From), v.Text, b.msg[:v.From]
		case b.left == 0 && len(p) > session.PartBytes:
			b.t.Fatalf("a message of %d bytes comes whole", len(p))
		case b.left == 0:
			b.got = append(b.got, fmt.Sprint(h.Op == frame.Text, " ", string(p)))
		case h.Op != frame.Binary || !h.Fin || len(p) == 0 || len(p) > session.PartBytes || len(p) > b.left:
			b.t.Fatalf("opcode %d of %d bytes, with %d bytes of the message left", h.Op, len(p), b.left)
		default:
			b.msg = append(b.msg, p...)
			if b.left -= len(p); b.left == 0 {
				b.got = append(b.got, fmt.Sprint(b.text, " ", string(b.msg)))
			}
		}
	}
}

func (b *parted) wantGot(want ...string) {
	b.t.Helper()
	if len(b.got) != len(want) {
		b.t.Fatalf("the client got %d messages, want %d: %.60q", len(b.got), len(want), b.got)
	}
	for i := range want {
		if b.got[i] != want[i] {
			b.t.Fatalf("message %d is %d bytes %.60q, want %d bytes %.60q", i, len(b.got[i]), b.got[i], len(want[i]), want[i])
		}
	}
	b.got = nil
}

// Whatever the frames of the game server are, and wherever writes stop, the client puts together
// what was sent, with the type that it had.
func TestLargeMessagesComeInParts(t *testing.T) {
	shapes := [][]int{{4096}, {4097}, {10000}, {4095, 1, 1}, {3000, 3000, 3000}, {0, 5000, 0}, {5000, 0, 0}, {4096, 4096}, {100000}}
	for _, write := range []int{1 << 30, 4096, 1000, 57, 7} {
		for _, shape := range shapes {
			b := newParted(t)
			small := b.message(frame.Text, "small", 10)
			want := []string{"true " + small}
			for _, op := range []byte{frame.Text, frame.Binary} {
				want = append(want, fmt.Sprint(op == frame.Text, " ", b.message(op, "", shape...)), "true "+small)
				b.message(frame.Text, "small", 10)
			}
			for b.takes(write) {
			}
			b.wantGot(want...)
			b.says("\x10ack 5")
			if b.s.State() != session.Attached {
				t.Fatalf("frames of %d bytes, writes of %d: %v", shape, write, b.s.State())
			}
		}
	}
}

// An escaping DLE counts as payload.
func TestEscapedTextComesInParts(t *testing.T) {
	b := newParted(t)
	sent := b.message(frame.Text, "\x10", 4096)
	b.takesAll()
	b.wantGot("true \x10" + sent)
	if h := b.msg; len(h) != 4097 {
		t.Errorf("it came in parts of %d bytes together, want 4097", len(h))
	}
}

func TestControlMessageGoesBetweenTwoParts(t *testing.T) {
	b := newParted(t)
	sent := b.message(frame.Binary, "", 1<<20)
	b.takes(5000) // inside the second part
	b.says("\x10ping here")
	b.takes(8000)
	b.wantGot("pong")
	b.takesAll()
	b.wantGot("false " + sent)
}

// A connection that another one replaces ends behind the part that it is in.
func TestReplacedConnectionEndsBehindItsPart(t *testing.T) {
	for _, written := range []int{1, 3000, 5000, 70000} {
		b := newParted(t)
		sent := b.message(frame.Binary, "", 1<<20)
		b.takes(written)
		old := b.att
		a, ref := b.s.Attach(b.now, session.Resume{Gen: b.s.Generation()}, b.pass())
		if ref != nil {
			t.Fatal(ref)
		}
		b.takesAll()
		b.wantGot("close", "Close")
		if n := len(b.msg); n%session.PartBytes > 0 || n > written+session.PartBytes {
			t.Errorf("%d bytes of the message came, after %d were written", n, written)
		}
		if len(b.in) > 0 || b.att != old {
			t.Errorf("%d bytes of a frame are left", len(b.in))
		}
		b.att, b.left, b.in = a, 0, nil
		b.takesAll()
		b.wantGot("hello", "false "+sent)
	}
}

// A drain gives the client everything before it closes the connection.
func TestDrainSendsAllParts(t *testing.T) {
	for _, written := range []int{0, 10, 5000, 70000} {
		b := newParted(t)
		sent, small := b.message(frame.Text, "", 300000), b.message(frame.Text, "", 100)
		also := b.message(frame.Binary, "", 5000, 5000)
		b.takes(written)
		b.s.Drain(b.now, time.Second)
		b.takesAll()
		b.wantGot("true "+sent, "true "+small, "false "+also, "close", "Close")
	}
}

// Without the offer everything is as it was.
func TestClientWithoutOfferGetsWholeMessages(t *testing.T) {
	b := &parted{table: attached(t)}
	sent := b.message(frame.Text, "", 5000, 5000)
	out := bytes.Join(b.s.Out(b.now, b.att, nil), nil)
	if h, _ := frame.Parse(out); h.Op != frame.Text || h.Fin || h.Length != 5000 || len(out) != len(sent)+2*4 {
		t.Errorf("%d bytes are written, the first frame is %+v", len(out), h)
	}
}

// A message that was cut comes anew from its beginning, and an upgrade in the middle changes nothing.
func TestUpgradeInsideMessageInParts(t *testing.T) {
	b := newParted(t)
	sent := b.message(frame.Binary, "", 200000)
	for n := 1; ; n = n%5000 + 17 {
		if !b.takes(n) {
			break
		}
		b.upgrade()
	}
	b.wantGot("false " + sent)
}

// An older process would go on with the message as it lies in the buffer.
func TestSessionInsidePartsIsNotFrozenForOlderProcess(t *testing.T) {
	b := newParted(t)
	b.message(frame.Binary, "", 20000)
	b.s.Events()
	for _, format := range session.Formats {
		if _, err := b.s.Freeze(format); err != nil {
			t.Errorf("before the message, format %d: %v", format, err)
		}
	}
	b.takes(5000)
	if _, err := b.s.Freeze(1); err != session.ErrBusy {
		t.Errorf("inside it: %v, want ErrBusy", err)
	}
	b.takesAll()
	if _, err := b.s.Freeze(1); err != nil {
		t.Errorf("behind it: %v", err)
	}
}

// The client may have received the end of a part before its write is reported: its ack counts, and so
// does the N of a resume after that connection was reset.
func TestPartInFlightMayBeAcked(t *testing.T) {
	for _, acks := range []string{`client> ^ack 1`, `drop; resume 1`} {
		b := newParted(t)
		b.message(frame.Binary, "", 5000)
		b.takes(4500) // inside the second part
		b.s.Out(b.now, b.att, nil)
		if b.play(acks + `; attached`); b.s.Info().Acked != 1 {
			t.Errorf("%s: %d acked, want 1", acks, b.s.Info().Acked)
		}
	}
}
