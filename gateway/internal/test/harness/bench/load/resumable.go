//go:build linux

package load

import (
	"bytes"
	"encoding/json"
	"strconv"

	"reseat/gateway/frame"
	"reseat/gateway/internal/test/harness/bench/epoll"
)

// When a client acks, protocol section 5.
const (
	ackMessages = 32
	ackBytes    = 64 << 10
	ackWanted   = 500e6 // ns after the oldest message: with the next message of one's own,
	ackAfter    = 900e6 // and alone after this; the limit is a second
)

const dle = 0x10

// A resumable is the additional state of a session that speaks reseat.v1.
type resumable struct {
	id, token string

	// What may be sent without an ack; zero before hello.
	windowMessages uint64
	windowBytes    uint64

	// What arrived and was not acked yet.
	owed, owedBytes int
	since           int64 // when the oldest of it arrived; zero: nothing is owed

	// How much remains to be replayed, once hello has said so.
	replaying bool
	replay    uint64

	// The message being read.
	first   bool // it is text whose first byte has not arrived
	control bool
	text    []byte
}

type hello struct {
	Session  string
	Token    string
	Resumed  bool
	Received uint64
	Lost     uint64
	Replay   uint64
	Limits   struct {
		Messages uint64 `json:"unacked_messages"`
		Bytes    uint64 `json:"unacked_bytes"`
	}
}

// offer appends the header that offers reseat.v1, and resumes if there is a session.
func (v *resumable) offer(b []byte, received uint64) []byte {
	b = append(b, "Sec-WebSocket-Protocol: reseat.v1"...)
	if v.token != "" {
		b = append(b, ", reseat.token."...)
		b = append(b, v.token...)
		b = append(b, ", reseat.received."...)
		b = strconv.AppendUint(b, received, 10)
	}
	return append(b, "\r\n"...)
}

// fits reports whether one more message may be sent with that many unacked.
func (v *resumable) fits(unacked uint64, size int) bool {
	return unacked == 0 || v.windowMessages == 0 ||
		unacked < v.windowMessages && (unacked+1)*uint64(size) <= v.windowBytes
}

func (v *resumable) forget() {
	v.owed, v.owedBytes, v.since, v.replaying = 0, 0, 0, false
}

func (v *resumable) begin(text bool) {
	v.first, v.control, v.text = text, false, v.text[:0]
}

// payload keeps b if it belongs to a control message.
func (v *resumable) payload(b []byte) bool {
	if v.first && len(b) > 0 {
		v.first, v.control = false, b[0] == dle
	}
	if v.control {
		v.text = append(v.text, b...)
	}
	return v.control
}

// controlMessage handles a control message from the gateway.
func (s *session) controlMessage() {
	verb, arg, _ := bytes.Cut(s.v1.text[1:], []byte(" "))
	switch string(verb) {
	case "hello":
		s.hello(arg)
	case "ack":
		n, err := strconv.ParseUint(string(arg), 10, 64)
		if err != nil || n > s.sent {
			s.violated(arg)
			return
		}
		s.acked = max(s.acked, n)
		s.pump()
	case "token":
		s.hold(arg)
	case "ping":
		if s.v1.owed > 0 {
			s.ack()
		}
		s.frame(frame.Text, append([]byte("\x10pong "), arg...))
	case "end", "close":
		s.violated(s.v1.text[1:])
	}
}

func (s *session) hold(arg []byte) {
	var t struct{ Token string }
	if err := json.Unmarshal(arg, &t); err != nil || t.Token == "" {
		s.violated(arg)
	}
	s.v1.token = t.Token
}

// violated records that the gateway has violated the protocol.
func (s *session) violated(what []byte) {
	s.c.Faults.Dropped++
	s.c.Faults.Say("session %d: the gateway said %q", s.id, what)
}

func (s *session) hello(arg []byte) {
	var h hello
	err := json.Unmarshal(arg, &h)
	again := s.v1.id != ""
	if err != nil || s.state != greeting || h.Token == "" || h.Resumed != again || again && h.Session != s.v1.id ||
		h.Received < s.acked || h.Received > s.sent || h.Lost > 0 {
		s.violated(arg)
		return
	}
	s.v1.id, s.v1.token = h.Session, h.Token
	s.v1.windowMessages, s.v1.windowBytes = h.Limits.Messages, h.Limits.Bytes
	s.v1.replaying, s.v1.replay = true, h.Replay
	s.sent = h.Received
	s.ack()
	s.caughtUp()
	s.opened()
}

// caughtUp records the end of a replay.
func (s *session) caughtUp() {
	if s.v1.replaying && s.v1.replay == 0 {
		s.v1.replaying = false
		s.c.CaughtUp++
		s.c.Resumes.Record(epoll.Now() - s.dialed)
	}
}

// tookIn counts a data message for the acks.
func (s *session) tookIn() {
	v := &s.v1
	v.owed++
	v.owedBytes += s.c.Down.Size
	if v.owed >= ackMessages || v.owedBytes >= ackBytes {
		s.ack()
	} else if v.since == 0 {
		v.since = s.c.now
		s.c.owing.add(s, v.since)
	}
	if v.replaying {
		v.replay--
		s.caughtUp()
	}
}

// ack adds an ack of everything to out.
func (s *session) ack() {
	var b [32]byte
	s.frame(frame.Text, strconv.AppendUint(append(b[:0], "\x10ack "...), s.check.Taken, 10))
	s.v1.owed, s.v1.owedBytes, s.v1.since = 0, 0, 0
}

// ackAlong acks what has been owed for a while before a message of one's own: what is
// sent together costs the gateway one wake-up.
func (s *session) ackAlong() {
	if v := &s.v1; v.since > 0 && epoll.Now()-v.since >= ackWanted {
		s.ack()
		s.flush() // by itself, as clients on a WebSocket library write each message
	}
}

// An owing is the queue of sessions that owe an ack, the earliest first. A session that
// has acked meanwhile is skipped.
type owing struct {
	list []debt
	head int
}

type debt struct {
	s     *session
	since int64
}

func (o *owing) add(s *session, since int64) {
	if o.head > len(o.list)/2 && o.head > 1024 {
		o.list = o.list[:copy(o.list, o.list[o.head:])]
		o.head = 0
	}
	o.list = append(o.list, debt{s, since})
}

// next returns when the first is due; false if none is owed.
func (o *owing) next() (int64, bool) {
	for ; o.head < len(o.list); o.head++ {
		if d := o.list[o.head]; d.s.v1.since == d.since {
			return d.since + ackAfter, true
		}
	}
	return 0, false
}

// settle sends the acks that are due.
func (o *owing) settle(now int64) {
	for {
		due, ok := o.next()
		if !ok || due > now {
			return
		}
		s := o.list[o.head].s
		s.ack()
		s.flush()
	}
}
