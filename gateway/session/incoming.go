package session

import (
	"strconv"

	"reseat/gateway/frame"
	"reseat/gateway/wire"
)

// This file is the path of a client's message that comes in parts: protocol section 3.1. The part that was received
// outlives the connection, so that the client goes on there; it counts as received when it is whole.

// incoming is such a message.
type incoming struct {
	bytes    int64 // of the whole message, as it comes
	text     bool
	open     bool // the attached client is sending it: no other data may come
	due      bool // a `part` is, without further delay
	buf      []byte
	reported int64 // how much the client knows to have come, by `part` or hello
	since    Time  // when the oldest part came that it does not know of; zero: none has
	began    Time
	grown    Time // when the last part came, or `parts`
}

// head is the room for a header in incoming.buf, before the payload.
const head = frame.MaxHeader

// have returns how much has come.
func (in *incoming) have() int64 { return int64(len(in.buf) - head) }

// partsLeft returns how much is to come on this connection before other data may.
func (s *Session) partsLeft() int64 {
	if in := s.incoming; in != nil && in.open {
		return in.bytes - in.have()
	}
	return 0
}

// beginIncoming takes `parts` of the attached client.
func (s *Session) beginIncoming(now Time, a *Attachment, v wire.Part) {
	in := s.incoming
	switch {
	case !a.partial, s.partsLeft() > 0:
		s.violation(now, wire.CodeProtocolViolation, "parts out of place")
		return
	case v.Bytes > s.cfg.MaxMessage+1: // one for an escaping DLE
		s.violation(now, wire.CodeMessageTooBig, "")
		return
	case v.From == 0:
		in = &incoming{bytes: v.Bytes, text: v.Text, buf: make([]byte, head), began: now}
		s.incoming = in
	case in == nil || v.From != in.have() || v.Bytes != in.bytes || v.Text != in.text:
		s.violation(now, wire.CodeProtocolViolation, "parts from %d of %d bytes", v.From, v.Bytes)
		return
	}
	in.open, in.grown = true, now
}

// resumeIncoming prepares for a new connection of the client. It returns how much of the client's first
// message there has come.
func (s *Session) resumeIncoming(a *Attachment) int64 {
	in := s.incoming
	switch {
	case in == nil:
		return 0
	case !a.partial, a.repeats > 0, !s.served(): // it is not the first, or those before it were not counted
		s.forgetIncoming()
		return 0
	}
	in.open, in.due, in.reported, in.since = false, false, in.have(), 0
	return in.reported
}

// forgetIncoming gives up what has come: the client sends it again.
func (s *Session) forgetIncoming() {
	s.incoming = nil
	s.recharge()
}

// admitsData reports whether data that is no part may come. Inside a message in parts it ends the session;
// a client that has not gone on with one begins it anew later, if at all.
func (s *Session) admitsData(now Time) bool {
	if s.partsLeft() > 0 {
		s.violation(now, wire.CodeProtocolViolation, "data inside a message in parts")
		return false
	}
	s.incoming = nil
	return true
}

// part adds a part of size bytes, of which msg holds the frames. It reports whether the client may still be read.
func (s *Session) part(now Time, a *Attachment, msg []byte, size int64) bool {
	in := s.incoming
	if size == 0 {
		s.violation(now, wire.CodeProtocolViolation, "empty part")
		return false
	}
	in.buf = appendPayload(in.buf, msg)
	in.grown, a.clogged = now, now
	if in.since == 0 {
		in.since = now
	}
	p := in.buf[head:]
	escaped := in.text && p[0] == wire.DLE
	switch {
	case !escaped && in.bytes > s.cfg.MaxMessage:
		s.violation(now, wire.CodeMessageTooBig, "")
		return false
	case escaped && (in.bytes == 1 || len(p) > 1 && p[1] != wire.DLE):
		s.violation(now, wire.CodeProtocolViolation, "control message in parts")
		return false
	case in.have() < in.bytes:
		return true
	}
	s.incoming = nil
	op := byte(frame.Binary)
	if in.text {
		op = frame.Text
	}
	at := head
	if escaped {
		at++
	}
	if size = int64(len(in.buf) - at); s.accept(now, size) {
		s.logUp(frame.Append(nil, op, p[:min(len(p), s.cfg.MessageLog.Prefix+1)]), size)
		s.q.own(in.frame(op, at, s.cfg.Key()), size)
		s.q.hold(now, s.pace.until)
	}
	return a == s.att
}

// frame returns a masked frame of the payload from buf[at] on, which lies there already.
func (in *incoming) frame(op byte, at int, key [4]byte) []byte {
	payload := in.buf[at:]
	var b [head]byte
	n := len(frame.AppendHeader(b[:0], op, true, len(payload))) + len(key)
	return frame.AppendMasked(in.buf[at-n:at-n], op, key, payload)
}

// partDue reports whether `part` must be sent now.
func (s *Session) partDue(a *Attachment) bool {
	in := s.incoming
	return in != nil && in.since > 0 && (in.due || a.pongDue || in.have()-in.reported >= partAfter)
}

// tellPart appends `part`.
func (s *Session) tellPart(a *Attachment) {
	in := s.incoming
	in.reported, in.since, in.due = in.have(), 0, false
	a.ctl = wire.Append(a.ctl, wire.VerbPart, strconv.FormatInt(in.reported, 10))
}

// growBy returns when an unfinished message of the client's must have grown, or ends its connection: protocol
// section 11. Zero: there is none.
func (s *Session) growBy(a *Attachment) (t Time) {
	if len(a.in.buf) > 0 {
		t = a.in.progress
	}
	if s.partsLeft() > 0 {
		t = max(t, s.incoming.grown)
	}
	if t == 0 {
		return 0
	}
	return max(t, a.excused).Add(stalledMessage)
}
