//go:build linux

package load

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"reseat/gateway/internal/test/harness/bench/epoll"
	"reseat/gateway/internal/test/harness/bench/frames"
	"reseat/gateway/internal/test/harness/bench/message"
)

// A gateway is the other end of one client that speaks reseat.v1, controlled by the
// test.
type gateway struct {
	t      *testing.T
	c      *Client
	conn   *epoll.Conn
	reader frames.Reader
	heads  []string // of the handshakes
	texts  []string // control messages
	data   int
	text   bool
	buf    []byte
}

// speaking returns a client that speaks reseat.v1, and its gateway.
func speaking(t *testing.T, set Setup) *gateway {
	t.Helper()
	set.Resumable, set.Sessions, set.InFlight = true, 1, 1
	c, err := New(set)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	g := &gateway{t: t, c: c}
	if c.Target, err = c.loop.Listen(netip.MustParseAddrPort("127.0.0.1:0"), g.accept); err != nil {
		t.Fatal(err)
	}
	return g
}

func (g *gateway) accept(c *epoll.Conn) epoll.Owner {
	g.conn, g.buf = c, nil
	g.reader = frames.Reader{Sink: g, Masked: true}
	return g
}

func (g *gateway) Connected() {}
func (g *gateway) Room()      {}
func (g *gateway) Gone(error) {}
func (g *gateway) Data(b []byte) {
	if g.buf == nil {
		g.buf = []byte{}
		g.heads = append(g.heads, string(b))
		g.conn.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: " + handshakeAccept + "\r\n\r\n"))
		return
	}
	if err := g.reader.Feed(b); err != nil {
		g.t.Error(err)
	}
}
func (g *gateway) Begin(op byte)    { g.text, g.buf = op == frames.Text, g.buf[:0] }
func (g *gateway) Payload(b []byte) { g.buf = append(g.buf, b...) }
func (g *gateway) End() {
	if g.text {
		g.texts = append(g.texts, string(g.buf[1:]))
	} else {
		g.data++
	}
}
func (g *gateway) Control(byte, []byte) {}

func (g *gateway) say(text string) {
	g.conn.Write(frames.Append(nil, frames.Text, []byte("\x10"+text), nil))
}

func (g *gateway) hello(resumed bool, received, replay int) {
	g.say(fmt.Sprintf(`hello {"session":"s1","token":"t%d","resumed":%t,"received":%d,"lost":0,"replay":%d,"limits":{"unacked_messages":4,"unacked_bytes":1000}}`,
		len(g.heads), resumed, received, replay))
}

// send sends messages downward, from one number to another.
func (g *gateway) send(from, to int) {
	for n := from; n <= to; n++ {
		b := frames.Begin(nil, frames.Binary, down.Size)
		g.conn.Write(down.Append(b, epoll.Now(), 0, uint64(n)))
	}
}

func (g *gateway) until(what string, done func() bool) {
	g.t.Helper()
	if err := g.c.Until(func() string { return what }, limit, done); err != nil {
		g.t.Fatal(err, g.c.Faults, g.texts)
	}
}

// open connects the client and sends hello.
func (g *gateway) open() {
	g.t.Helper()
	heads := len(g.heads)
	g.c.todo = 0
	g.until("handshake", func() bool { return len(g.heads) > heads })
}

func (g *gateway) said(texts ...string) func() bool {
	return func() bool { return strings.Join(g.texts, "|") == strings.Join(texts, "|") }
}

func TestFirstAckIsImmediateAndThenEvery32Messages(t *testing.T) {
	g := speaking(t, Setup{Down: down, Up: up})
	g.open()
	if !strings.Contains(g.heads[0], "Sec-WebSocket-Protocol: reseat.v1\r\n") {
		t.Errorf("%q", g.heads[0])
	}
	g.hello(false, 0, 0)
	g.until("the first ack", g.said("ack 0"))
	g.send(1, 70)
	g.until("two more", g.said("ack 0", "ack 32", "ack 64"))
	g.say("ping x1")
	g.until("ack and pong", g.said("ack 0", "ack 32", "ack 64", "ack 70", "pong x1"))
}

func TestAckIsSentEvery64KiB(t *testing.T) {
	big := message.Kind{Way: message.Down, Size: 32 << 10}
	g := speaking(t, Setup{Down: big, Up: up})
	g.open()
	g.hello(false, 0, 0)
	for n := range uint64(4) {
		g.conn.Write(big.Append(frames.Begin(nil, frames.Binary, big.Size), 1, 0, n+1))
	}
	g.until("acks", g.said("ack 0", "ack 2", "ack 4"))
}

// The test does not wait for the ack: it checks the queue.
func TestAckIsDueWithinASecond(t *testing.T) {
	g := speaking(t, Setup{Down: down, Up: up})
	g.open()
	g.hello(false, 0, 0)
	g.send(1, 1)
	g.until("the message", func() bool { return g.c.Received == 1 })
	since := g.c.sessions[0].v1.since
	due, ok := g.c.owing.next()
	if !ok || due <= since || due > since+1e9 {
		t.Fatalf("due at %d, the message came at %d", due, since)
	}
	g.c.owing.settle(due - 1)
	g.c.owing.settle(due)
	g.until("the ack", g.said("ack 0", "ack 1"))
	if _, ok := g.c.owing.next(); ok {
		t.Error("it is owed still")
	}
}

func TestWindowIsNotExceeded(t *testing.T) {
	g := speaking(t, Setup{Down: down, Up: up})
	g.open()
	g.hello(false, 0, 0)
	g.until("hello", func() bool { return g.c.Open == 1 })
	for range 10 {
		g.c.sessions[0].make()
	}
	if g.c.Written != 4 {
		t.Fatalf("%d of 4 allowed messages sent", g.c.Written)
	}
	g.say("ack 3")
	g.until("three more", func() bool { return g.data == 7 })
	g.say("ack 7")
	g.until("the rest", func() bool { return g.data == 10 })
}

func TestResumeContinuesAtTheGatewaysCount(t *testing.T) {
	g := speaking(t, Setup{Down: down, Up: up})
	g.open()
	g.hello(false, 0, 0)
	g.send(1, 5)
	g.until("five", func() bool { return g.c.Received == 5 })
	for range 3 {
		g.c.sessions[0].make()
	}
	g.until("three", func() bool { return g.data == 3 })
	g.c.Cut()
	g.c.sessions[0].make() // while disconnected
	g.open()
	if want := "reseat.v1, reseat.token.t1, reseat.received.5\r\n"; !strings.Contains(g.heads[1], want) {
		t.Fatalf("%q", g.heads[1])
	}
	g.texts = nil
	g.hello(true, 1, 2) // one of the three was received
	g.until("the others", func() bool { return g.data == 3+3 })
	if g.c.CaughtUp != 0 {
		t.Error("it has caught up before anything was replayed")
	}
	g.send(6, 7)
	g.until("the replay", func() bool { return g.c.CaughtUp == 1 })
	if g.c.Received != 7 || g.texts[0] != "ack 5" || g.c.Resumes.N() != 2 {
		t.Errorf("%d came, %q, %d resumes", g.c.Received, g.texts, g.c.Resumes.N())
	}
}

// A gateway that violates the protocol fails the run.
func TestGatewayThatBreaksTheProtocolFailsTheRun(t *testing.T) {
	for name, do := range map[string]func(*gateway){
		"data before hello":     func(g *gateway) { g.send(1, 1) },
		"a second hello":        func(g *gateway) { g.hello(false, 0, 0); g.hello(false, 0, 0) },
		"resumed, though new":   func(g *gateway) { g.hello(true, 0, 0) },
		"ack of what none sent": func(g *gateway) { g.hello(false, 0, 0); g.say("ack 1") },
		"no token":              func(g *gateway) { g.hello(false, 0, 0); g.say("token {}") },
		"close":                 func(g *gateway) { g.hello(false, 0, 0); g.say(`close {"code":1011}`) },
		"masked": func(g *gateway) {
			g.conn.Write(frames.Append(nil, frames.Text, []byte("\x10ack 0"), &[4]byte{1}))
		},
	} {
		g := speaking(t, Setup{Down: down, Up: up})
		g.open()
		do(g)
		if err := g.c.Until(func() string { return "not noticed" }, limit, func() bool { return false }); err == nil || !g.c.Faults.Any() {
			t.Errorf("%s: %v, %v", name, err, g.c.Faults)
		}
	}
}

func TestUnknownVerbIsIgnored(t *testing.T) {
	g := speaking(t, Setup{Down: down, Up: up})
	g.open()
	g.hello(false, 0, 0)
	g.say("later {}")
	g.send(1, 32)
	g.until("the ack", g.said("ack 0", "ack 32"))
}

// The first byte distinguishes a control message from text data, wherever it is split.
func TestTextDataIsNoControlMessage(t *testing.T) {
	text := message.Kind{Way: message.Down, Size: 128, Text: true}
	g := speaking(t, Setup{Down: text, Up: up})
	g.open()
	g.hello(false, 0, 0)
	var b []byte
	for n := range uint64(32) {
		b = text.Append(frames.Begin(b, frames.Text, text.Size), 1, 0, n+1)
	}
	for _, p := range bytes.SplitAfter(b, []byte{0x81}) {
		g.conn.Write(p)
	}
	g.until("the ack", g.said("ack 0", "ack 32"))
}
