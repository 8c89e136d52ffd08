//go:build linux

package game

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"net/textproto"
	"strconv"
	"strings"

	"reseat/gateway/frame"
	"reseat/gateway/internal/test/harness/bench/epoll"
	"reseat/gateway/internal/test/harness/bench/frames"
	"reseat/gateway/internal/test/harness/bench/message"
)

const (
	fireWrite = 32 << 10 // bytes of messages per write
	fireTurn  = 4        // writes before other sessions get their turn
	maxHead   = 16 << 10 // max bytes of a handshake
)

// A session is one player's connection, from its handshake on.
type session struct {
	server   *server
	conn     *epoll.Conn
	reader   frames.Reader
	check    message.Check
	deflater *frames.Deflater // nil: its messages are not compressed
	head     []byte           // of the handshake, while incomplete
	id       int
	open     bool

	sent  uint64
	block []byte // Fire: what is being written,
	rest  []byte // and the rest of it
}

func newVisitor(s *server, c *epoll.Conn) *session {
	v := &session{server: s, conn: c}
	v.reader = frames.Reader{Sink: v, Masked: true}
	return v
}

// Connected is never called: the server only accepts.
func (c *session) Connected() {}

// Data processes what the client, or a proxy for it, has sent.
func (c *session) Data(b []byte) {
	if !c.open {
		c.head = append(c.head, b...)
		end := bytes.Index(c.head, []byte("\r\n\r\n"))
		if end < 0 && len(c.head) < maxHead {
			return
		}
		if err := c.handshake(c.head[:max(end, 0)]); err != nil {
			c.server.faults.Refused++
			c.server.faults.Say("handshake: %v", err)
			c.conn.Close()
			return
		}
		b, c.head = c.head[end+4:], nil
	}
	if err := c.reader.Feed(b); err != nil {
		c.server.faults.Wrong++
		c.server.faults.Say("session %d at the game server: %v", c.id, err)
		c.conn.Close()
	}
}

func (c *session) handshake(head []byte) error {
	line, rest, _ := strings.Cut(string(head)+"\r\n\r\n", "\r\n")
	path := strings.Fields(line + " - -")[1]
	id, err := strconv.Atoi(path[strings.LastIndex(path, "/s/")+len("/s/"):])
	if err != nil || id < 0 || id >= len(c.server.sessions) || c.server.sessions[id] != nil {
		return fmt.Errorf("no free place at %q", line)
	}
	h, err := textproto.NewReader(bufio.NewReader(strings.NewReader(rest))).ReadMIMEHeader()
	if err != nil {
		return err
	}
	sum := sha1.Sum([]byte(h.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	agreed := ""
	if strings.Contains(h.Get("Sec-WebSocket-Extensions"), "permessage-deflate") {
		agreed, c.deflater = frames.Deflate, c.server.deflater
	}
	c.conn.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
		"Sec-WebSocket-Accept: " + base64.StdEncoding.EncodeToString(sum[:]) + "\r\n" + agreed + "\r\n"))
	c.reader.Deflater = c.deflater
	c.id, c.open = id, true
	c.check = message.Check{Kind: c.server.spec.Up, Session: uint32(id), Faults: &c.server.faults}
	c.server.sessions[id] = c
	return nil
}

// Room continues writing: Fire always has more.
func (c *session) Room() {
	for range fireTurn {
		if len(c.rest) == 0 {
			if !c.server.firing {
				c.conn.Hungry(false)
				return
			}
			c.fill()
		}
		c.rest = c.rest[c.conn.Offer(c.rest):]
		if len(c.rest) > 0 {
			return
		}
	}
}

func (c *session) fill() {
	now, kind := epoll.Now(), c.server.spec.Down
	c.block = c.block[:0]
	for range fireWrite / kind.Size {
		c.block = c.next(c.block, now)
	}
	c.rest = c.block
}

// next appends the session's next message.
func (c *session) next(dst []byte, clock int64) []byte {
	kind := c.server.spec.Down
	c.sent++
	c.server.sent++
	if c.deflater != nil {
		z := c.deflater.Compress(kind.Append(nil, clock, uint32(c.id), c.sent))
		return append(frame.AppendHeader(dst, kind.Op()|frames.RSV1, true, len(z)), z...)
	}
	dst = frame.AppendHeader(dst, kind.Op(), true, kind.Size)
	return kind.Append(dst, clock, uint32(c.id), c.sent)
}

// send sends one message, if the session is connected.
func (c *session) send(clock int64) {
	if !c.open {
		return
	}
	c.server.frame = c.next(c.server.frame[:0], clock)
	c.conn.Write(c.server.frame)
}

// Gone discards the connection. The client checks whether that was correct.
func (c *session) Gone(error) { c.open = false }

// Begin implements frames.Sink.
func (c *session) Begin(op byte) { c.check.Begin(op == frame.Text) }

// Payload implements frames.Sink.
func (c *session) Payload(b []byte) { c.check.Payload(b) }

// End implements frames.Sink: a message is complete.
func (c *session) End() {
	c.check.End()
	c.server.taken++
	if c.server.spec.Mode == Echo {
		c.send(c.check.Clock)
	}
}

// Control implements frames.Sink.
func (c *session) Control(op byte, payload []byte) {
	switch op {
	case frame.Ping:
		c.conn.Write(frame.Append(nil, frame.Pong, payload))
	case frame.Close:
		c.conn.Write(frame.Append(nil, frame.Close, payload))
		c.open = false
		c.conn.Close()
	}
}
