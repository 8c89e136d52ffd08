package wstest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/wire"
)

// patience is how long a test waits for an expected event. Under synctest it passes at
// once when nothing else can happen.
const patience = 5 * time.Minute

// A Message is one thing that a peer reads: data (Op Text or Binary), a control message
// (Verb), a Close frame (Op Close), a Ping or Pong, or the end (Err).
type Message struct {
	Op     byte
	Verb   string
	Data   string // payload, or a control message's argument
	Raw    string // of data and control messages: the payload as it stood on the wire
	Frames int    // of them, how many they came in
	Code   int    // of a Close
	Reason string
	Err    error
}

// String describes m for a failing test.
func (m Message) String() string {
	switch {
	case m.Err != nil:
		return "the end: " + m.Err.Error()
	case m.Verb != "":
		return "control message " + m.Verb + " " + m.Data
	case m.Op == frame.Close:
		return fmt.Sprintf("Close %d %q", m.Code, m.Reason)
	}
	return fmt.Sprintf("opcode %d %.80q", m.Op, m.Data)
}

// A Peer is a WebSocket endpoint played by a test. What it reads is queued; it answers
// heartbeats unless Mute is set.
type Peer struct {
	t      testing.TB
	Conn   *Conn
	Answer *http.Response // to a client's handshake
	Req    *http.Request  // a client's handshake
	client bool           // masks what it sends
	speaks bool           // speaks reseat.v1
	codec  codec          // of permessage-deflate
	Mute   atomic.Bool    // answers neither ping nor Ping

	write chan struct{}
	inbox chan Message
	ended chan struct{}
}

func newPeer(t testing.TB, c *Conn, r *bufio.Reader, client, speaks bool, codec codec) *Peer {
	p := &Peer{codec: codec, t: t, Conn: c, client: client, speaks: speaks, write: make(chan struct{}, 1), inbox: make(chan Message, 1<<16), ended: make(chan struct{})}
	go p.read(r)
	t.Cleanup(func() { c.Close() })
	return p
}

func (p *Peer) read(r *bufio.Reader) {
	defer close(p.ended)
	var op byte
	var payload []byte
	var compressed bool
	var frames int
	for {
		h, rsv1, body, err := p.codec.readFrame(r)
		switch {
		case err != nil:
			p.inbox <- Message{Err: err}
			return
		case h.Masked == p.client:
			p.inbox <- Message{Err: fmt.Errorf("frame with masked %v", h.Masked)}
			return
		case h.Op == frame.Close:
			code, reason, _ := frame.ParseClose(body)
			p.inbox <- Message{Op: frame.Close, Code: code, Reason: reason}
		case h.Op == frame.Ping:
			if !p.Mute.Load() {
				p.Frame(frame.Pong, true, string(body))
			}
			p.inbox <- Message{Op: frame.Ping, Data: string(body)}
		case h.Control():
			p.inbox <- Message{Op: h.Op, Data: string(body)}
		default:
			if h.Op != frame.Continuation {
				op, payload, compressed, frames = h.Op, nil, rsv1, 0
			}
			frames++
			payload = append(payload, body...)
			if !h.Fin {
				continue
			}
			if compressed {
				if payload, err = p.codec.received.inflate(payload); err != nil {
					p.inbox <- Message{Err: err}
					return
				}
			}
			p.message(op, string(payload), frames)
		}
	}
}

// readFrame reads a frame; rsv1 means that it begins a compressed message.
func (c *codec) readFrame(r *bufio.Reader) (h frame.Header, rsv1 bool, body []byte, err error) {
	var head []byte
	for h.Size == 0 {
		b, err := r.ReadByte()
		if err != nil {
			return h, rsv1, nil, err
		}
		if len(head) == 0 && c.on && b&0x8 == 0 && b&0xf != 0 {
			rsv1 = b&0x40 != 0
			b &^= 0x40
		}
		head = append(head, b)
		if h, err = frame.Parse(head); err != nil {
			return h, rsv1, nil, err
		}
	}
	body = make([]byte, h.Length)
	_, err = io.ReadFull(r, body)
	if h.Masked {
		frame.XOR(body, h.Key)
	}
	return h, rsv1, body, err
}

// message queues a complete message, and parses a control message.
func (p *Peer) message(op byte, s string, frames int) {
	if !p.speaks || op != frame.Text || s == "" || s[0] != wire.DLE {
		p.inbox <- Message{Op: op, Data: s, Raw: s, Frames: frames}
		return
	}
	if strings.HasPrefix(s, "\x10\x10") {
		p.inbox <- Message{Op: op, Data: s[1:], Raw: s, Frames: frames}
		return
	}
	verb, arg, _ := strings.Cut(s[1:], " ")
	if verb == wire.VerbPing && !p.Mute.Load() {
		p.Control(strings.TrimSuffix("pong "+arg, " "))
	}
	p.inbox <- Message{Op: op, Verb: verb, Data: arg, Raw: s, Frames: frames}
}

// Frame sends one frame. A message of one frame is compressed if that was negotiated.
func (p *Peer) Frame(op byte, fin bool, payload string) {
	p.write <- struct{}{} // no mutex: a goroutine waiting for one would stop a fake clock
	defer func() { <-p.write }()
	var b []byte
	compressed := p.codec.on && fin && (op == frame.Text || op == frame.Binary)
	if compressed {
		payload = p.codec.sent.deflate(payload)
	}
	if p.client {
		b = frame.AppendMasked(nil, op, [4]byte{1, 2, 3, 4}, []byte(payload))
	} else {
		b = frame.Append(nil, op, []byte(payload))
	}
	if !fin {
		b[0] &^= 0x80
	}
	if compressed {
		b[0] |= 0x40
	}
	p.Conn.Write(b)
}

// Raw sends bytes unchanged.
func (p *Peer) Raw(b []byte) {
	p.write <- struct{}{} // as in Frame
	defer func() { <-p.write }()
	p.Conn.Write(b)
}

// Text sends a text message, escaped if the peer speaks reseat.v1.
func (p *Peer) Text(s string) {
	if p.speaks && strings.HasPrefix(s, "\x10") {
		s = "\x10" + s
	}
	p.Frame(frame.Text, true, s)
}

// Binary sends a binary message.
func (p *Peer) Binary(s string) { p.Frame(frame.Binary, true, s) }

// Control sends a control message.
func (p *Peer) Control(s string) { p.Frame(frame.Text, true, "\x10"+s) }

// Close sends a Close frame.
func (p *Peer) Close(code int, reason string) {
	p.Frame(frame.Close, true, string(frame.ClosePayload(code, reason)))
}

// Next returns the next message of any kind, or false after patience.
func (p *Peer) Next() (Message, bool) {
	select {
	case m := <-p.inbox:
		return m, true
	case <-time.After(patience):
		return Message{}, false
	}
}

// Come returns the next message that has already arrived. It never waits.
func (p *Peer) Come() (Message, bool) {
	select {
	case m := <-p.inbox:
		return m, true
	default:
		return Message{}, false
	}
}

// next skips heartbeats and acks, except for those in keep.
func (p *Peer) next(keep ...string) Message {
	p.t.Helper()
	late := time.After(30 * patience) // heartbeats go on forever
	for {
		var m Message
		select {
		case m = <-p.inbox:
		case <-late:
			p.t.Fatalf("nothing came")
		}
		if m.Op == frame.Ping || m.Op == frame.Pong {
			continue
		}
		switch m.Verb {
		case wire.VerbAck, wire.VerbPing, wire.VerbPong, wire.VerbToken:
			if len(keep) == 0 || keep[0] != m.Verb {
				continue
			}
		}
		return m
	}
}

// Want reads data messages, and fails unless they are these, in this order.
func (p *Peer) Want(texts ...string) {
	p.t.Helper()
	for _, want := range texts {
		if m := p.next(); m.Err != nil || m.Verb != "" || m.Op == frame.Close || m.Data != want {
			p.t.Fatalf("got %v, want data %.80q", m, want)
		}
	}
}

// WantFrames reads a data message that came in so many frames.
func (p *Peer) WantFrames(want string, frames int) {
	p.t.Helper()
	if m := p.next(); m.Data != want || m.Frames != frames {
		p.t.Fatalf("got %v in %d frames, want data %.80q in %d", m, m.Frames, want, frames)
	}
}

// WantControl reads a control message with this verb.
func (p *Peer) WantControl(verb string) Message {
	p.t.Helper()
	m := p.next(verb)
	if m.Verb != verb {
		p.t.Fatalf("got %v, want control message %s", m, verb)
	}
	return m
}

// WantClosing reads close with this code, and the Close frame after it.
func (p *Peer) WantClosing(code int) wire.Closing {
	p.t.Helper()
	m := p.WantControl(wire.VerbClose)
	var c wire.Closing
	if err := json.Unmarshal([]byte(m.Data), &c); err != nil || c.Code != code {
		p.t.Fatalf("got close %s, want code %d", m.Data, code)
	}
	p.WantClose(code)
	return c
}

// WantClose reads a Close frame with this code, and returns its reason.
func (p *Peer) WantClose(code int) string {
	p.t.Helper()
	m := p.next()
	if m.Op != frame.Close || m.Code != code {
		p.t.Fatalf("got %v, want Close %d", m, code)
	}
	return m.Reason
}

// WantEnd reads the end of the connection.
func (p *Peer) WantEnd() {
	p.t.Helper()
	if m := p.next(); m.Err == nil {
		p.t.Fatalf("got %v, want the end of the connection", m)
	}
}

// WantNothing fails if anything but heartbeats arrives within d.
func (p *Peer) WantNothing(d time.Duration) {
	p.t.Helper()
	timer := time.After(d)
	for {
		select {
		case m := <-p.inbox:
			if m.Op != frame.Ping && m.Op != frame.Pong && m.Verb != wire.VerbAck && m.Verb != wire.VerbPing && m.Verb != wire.VerbPong {
				p.t.Fatalf("got %v, want nothing", m)
			}
		case <-timer:
			return
		}
	}
}

// Hold stops reading: what the other side writes, and its end, wait in the connection's
// buffer until Hold(false).
func (p *Peer) Hold(on bool) { p.Conn.in.set(func() { p.Conn.in.held = on }) }

// Drop resets the connection.
func (p *Peer) Drop() { p.Conn.Reset() }

// Accept makes a game server's Peer from a connection after its handshake.
func Accept(t testing.TB, c *Conn) *Peer {
	return newPeer(t, c, bufio.NewReader(c), false, false, codec{})
}

// Pass sends text messages, each of which must reach the other side of the gateway.
func (p *Peer) Pass(to interface{ Want(...string) }, texts ...string) {
	p.t.Helper()
	for _, s := range texts {
		p.Text(s)
	}
	to.Want(texts...)
}

// WantReason reads a Close frame with this code and reason.
func (p *Peer) WantReason(code int, reason string) {
	p.t.Helper()
	if got := p.WantClose(code); got != reason {
		p.t.Fatalf("Close %d with reason %q, want %q", code, got, reason)
	}
}

// WantRetry is WantClosing for a close after which the client is to come again.
func (p *Peer) WantRetry(code int) wire.Closing {
	p.t.Helper()
	c := p.WantClosing(code)
	if !c.Retry || c.RetryAfter == 0 {
		p.t.Errorf("close %+v, want one that says when to come again", c)
	}
	return c
}

// WantFinal is WantClosing for a close after which the client is not to come again.
func (p *Peer) WantFinal(code int) wire.Closing {
	p.t.Helper()
	c := p.WantClosing(code)
	if c.Retry {
		p.t.Errorf("close %+v, want no retry", c)
	}
	return c
}
