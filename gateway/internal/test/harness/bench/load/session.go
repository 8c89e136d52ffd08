//go:build linux

package load

import (
	"bytes"
	"fmt"
	"strconv"

	"reseat/gateway/frame"
	"reseat/gateway/internal/test/harness/bench/epoll"
	"reseat/gateway/internal/test/harness/bench/frames"
	"reseat/gateway/internal/test/harness/bench/message"
)

const (
	// The key of every handshake, and its Sec-WebSocket-Accept, RFC 6455 section 4.2.2.
	handshakeKey    = "cmVzZWF0IGJlbmNobWFyaw=="
	handshakeAccept = "lqGQyi77QWnBkVRZk+chjycQVqk="
	maxHead         = 16 << 10
)

// A state is the progress of a session's connection.
type state uint8

const (
	away      state = iota // not connected
	dialling               // TCP
	upgrading              // waits for the 101
	greeting               // waits for hello
	open
	leaving // has sent bye or Close
	done
)

// A session is one client.
type session struct {
	c      *Client
	id     uint32
	conn   *epoll.Conn
	state  state
	dialed int64
	reader frames.Reader
	check  message.Check
	head   []byte // of the response, while incomplete

	// Upward: acked <= sent <= made.
	made, sent, acked uint64

	v1 resumable
}

func (s *session) init(c *Client, id uint32) {
	s.c, s.id = c, id
	s.check = message.Check{Kind: c.Down, Session: id, Faults: &c.Faults}
}

func (s *session) dial() {
	s.state, s.dialed = dialling, epoll.Now()
	s.reader = frames.Reader{Sink: s}
	s.c.flight++
	conn, err := s.c.loop.Dial(addressOf(s.id), s.c.target(s.id), s)
	if err != nil {
		s.Gone(err)
		return
	}
	s.conn = conn
}

// Connected sends the handshake.
func (s *session) Connected() {
	s.state = upgrading
	b := append(s.c.out[:0], "GET "...)
	b = append(b, s.c.Prefix...)
	b = append(b, "/s/"...)
	b = strconv.AppendUint(b, uint64(s.id), 10)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, s.c.target(s.id).String()...)
	b = append(b, "\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "+handshakeKey+"\r\n"...)
	if s.c.Deflate {
		b = append(b, frames.Deflate...)
	}
	if s.c.Resumable {
		b = s.v1.offer(b, s.check.Taken)
	}
	s.c.out = append(b, "\r\n"...)
	s.flush()
}

// Data processes received bytes.
func (s *session) Data(b []byte) {
	s.c.now = epoll.Now()
	s.c.Bytes += int64(len(b))
	if s.state == upgrading {
		var whole bool
		if b, whole = s.upgrade(b); !whole {
			return
		}
	}
	if err := s.reader.Feed(b); err != nil {
		s.c.Faults.Wrong++
		s.c.Faults.Say("session %d: %v", s.id, err)
	}
	s.flush()
}

// upgrade parses the handshake response, and returns the bytes after it.
func (s *session) upgrade(b []byte) (rest []byte, whole bool) {
	s.head = append(s.head, b...)
	end := bytes.Index(s.head, []byte("\r\n\r\n"))
	if end < 0 && len(s.head) < maxHead {
		return nil, false
	}
	head := s.head[:max(end, 0)]
	if !bytes.HasPrefix(head, []byte("HTTP/1.1 101 ")) || !bytes.Contains(head, []byte(handshakeAccept)) {
		s.conn.Close()
		line, _, _ := bytes.Cut(s.head, []byte("\r\n"))
		s.Gone(fmt.Errorf("answered by %q", line))
		return nil, false
	}
	if agreed := bytes.Contains(head, []byte("permessage-deflate")); agreed != s.c.Deflate {
		s.conn.Close()
		s.Gone(fmt.Errorf("compression agreed on: %t, want %t", agreed, s.c.Deflate))
		return nil, false
	}
	if s.c.Deflate {
		s.reader.Deflater = s.c.deflate
	}
	b, s.head = s.head[end+4:], nil
	s.state = greeting
	if !s.c.Resumable {
		s.opened()
	}
	return b, true
}

// opened records that messages may be sent.
func (s *session) opened() {
	s.state = open
	s.c.Open++
	if !s.c.Storm {
		s.c.flight--
		s.pump()
		return
	}
	s.make()
}

// make makes the session's next message and sends it if possible.
func (s *session) make() {
	s.made++
	s.c.made++
	if s.state == open {
		s.pump()
		s.flush()
	}
}

// pump moves unsent messages into out, as far as the window allows.
func (s *session) pump() {
	kind := s.c.Up
	for s.sent < s.made && s.v1.fits(s.sent-s.acked, kind.Size) {
		s.ackAlong()
		s.sent++
		s.c.Written++
		s.c.plain = kind.Append(s.c.plain[:0], epoll.Now(), s.id, s.sent)
		if s.c.Deflate {
			s.frame(kind.Op()|frames.RSV1, s.c.deflate.Compress(s.c.plain))
		} else {
			s.frame(kind.Op(), s.c.plain)
		}
	}
}

// frame adds a frame to out.
func (s *session) frame(op byte, payload []byte) {
	s.c.out = frame.AppendMasked(s.c.out, op, s.c.key(), payload)
}

// flush writes out, in one write.
func (s *session) flush() {
	if len(s.c.out) > 0 {
		s.conn.Write(s.c.out)
		s.c.out = s.c.out[:0]
	}
}

// Begin implements frames.Sink.
func (s *session) Begin(op byte) {
	s.v1.begin(s.c.Resumable && op == frame.Text)
	s.check.Begin(op == frame.Text)
}

// Payload implements frames.Sink.
func (s *session) Payload(b []byte) {
	if !s.v1.payload(b) {
		s.check.Payload(b)
	}
}

// End implements frames.Sink: a message is complete.
func (s *session) End() {
	if s.v1.control {
		s.controlMessage()
		return
	}
	if s.state != open {
		s.c.Faults.Wrong++
		s.c.Faults.Say("session %d: a message before hello", s.id)
	}
	s.check.End()
	s.c.Received++
	if s.c.Measuring {
		s.c.Latency.Record(s.c.now - s.check.Clock)
	}
	if s.c.Resumable {
		s.tookIn()
	}
	switch {
	case s.c.Storm:
		s.leave()
	case s.c.Echo && s.c.running && !s.c.Once:
		s.made++
		s.c.made++
		s.pump()
	}
}

// Control implements frames.Sink.
func (s *session) Control(op byte, payload []byte) {
	switch {
	case op == frame.Ping:
		s.frame(frame.Pong, payload)
	case op == frame.Close && s.state == leaving:
		s.conn.Close()
		s.finished()
	case op == frame.Close:
		s.c.Faults.Dropped++
		s.c.Faults.Say("session %d: closed with % x %q", s.id, payload[:min(2, len(payload))], payload[min(2, len(payload)):])
	}
}

// leave sends bye or Close.
func (s *session) leave() {
	s.state = leaving
	if s.c.Resumable {
		s.frame(frame.Text, []byte("\x10bye"))
	}
	s.frame(frame.Close, []byte{1000 >> 8, 1000 & 0xFF})
}

func (s *session) finished() {
	s.state = done
	s.c.flight--
	s.c.Finished++
}

// Room is never called: no client writes as fast as it can.
func (s *session) Room() {}

// Gone records that the connection has ended, or could not be made.
func (s *session) Gone(err error) {
	was := s.state
	s.state = away
	switch was {
	case leaving:
		s.finished()
	case open:
		s.c.Faults.Dropped++
		s.c.Faults.Say("session %d: dropped: %v", s.id, err)
	default:
		s.c.Faults.Refused++
		s.c.Faults.Say("session %d: not connected: %v", s.id, err)
	}
}

// cut resets the connection. What was in flight is lost.
func (s *session) cut() {
	s.conn.Reset()
	s.state = away
	s.v1.forget()
}
