package session

import (
	"reseat/gateway/frame"
	"reseat/gateway/wire"
)

// inbound is where the walk over a client's frames stands: buf holds the whole
// frames of a message that is not finished, buf[:whole], and behind them what
// has come of the next frame.
type inbound struct {
	buf      []byte
	whole    int
	open     bool
	text     bool
	size     int64 // payload of the open message's whole frames
	frames   int
	first    byte // of the payload, plain, once there is one
	began    Time // when a part of a message was first kept
	progress Time
}

// unfinished reports whether a part of a message has come.
func (in *inbound) unfinished() bool { return in.open || len(in.buf) > 0 }

// wants: a resumable client may always be read, so that its acks and pings are never stuck behind data that the
// upstream does not take; a plain one is not while the upstream is behind with its
// messages (with frames of ours it may be), unless that waits for its Pong.
func (a *Attachment) wants(s *Session) bool {
	return s.cfg.Resumable || a != s.att || a.closing != nil || !s.q.messages() || s.pongWanted()
}

// pongWanted reports whether the upstream waits for room that only a Pong can
// make. It may be what does not take the queue until somebody reads what it
// says, so the client is read on: as much as a resumable one may send unacked.
func (s *Session) pongWanted() bool {
	return s.cfg.Kept && s.scan.full && s.q.charge < UnackedBytes
}

// deadlockedAt is when a plain client that is kept is disconnected, since its Pong lies
// behind more than is read for its sake: the upstream takes nothing before it is read,
// and is not read before that Pong makes room. Zero: not so. Neither side can break
// this but by a new connection, on which the client is asked first of all.
func (s *Session) deadlockedAt(a *Attachment) Time {
	if !s.cfg.Kept || !s.scan.full || a.wants(s) {
		return 0
	}
	return max(a.since, s.data, s.up.heard, s.up.took).Add(deadlockWait)
}

// readAgain: a plain client is read from here on, and its silence was ours.
func (s *Session) readAgain(now Time, a *Attachment) { a.excused, a.in.progress = now, now }

func (a *Attachment) room(s *Session, lend func() []byte) []byte {
	if !a.wants(s) {
		return nil
	}
	return lend()
}

func (a *Attachment) read(s *Session, now Time, p []byte) {
	if a != s.att || len(p) == 0 {
		return
	}
	a.hear(now)
	if a.closing != nil {
		return // nothing counts that follows a Close
	}
	in := &a.in
	b, gathered := p, len(in.buf) > 0
	if gathered { // a message in pieces: it goes on from buffers of its own
		in.buf = append(in.buf, p...)
		b = in.buf
	}
	r := reader{s: s, a: a, b: b, at: in.whole, whole: in.whole, gathered: gathered, added: len(p)}
	for r.frame(now) {
	}
	if a != s.att {
		return
	}
	if a.closing == nil {
		r.keep(now)
	}
	s.recharge()
}

// A reader walks over b: the open message is b[start:whole], and the frame
// that is looked at begins at at.
type reader struct {
	s                *Session
	a                *Attachment
	b                []byte
	start, whole, at int
	gathered         bool // b is the attachment's own memory
	pushed           bool // and something in it was handed on
	added            int  // bytes that were read last
}

// keep saves what is not whole yet for the next read.
func (r *reader) keep(now Time) {
	in := &r.a.in
	rest := r.b[r.at:]
	in.whole = r.whole - r.start
	had := len(in.buf)
	switch {
	case in.whole+len(rest) == 0:
		in.buf, in.began = nil, 0
		return
	case r.gathered && r.start == 0 && r.whole == r.at: // it lies where it should
	case r.gathered && !r.pushed:
		in.buf = append(append(r.b[:0], r.b[r.start:r.whole]...), rest...)
	default:
		buf := make([]byte, 0, 2*(in.whole+len(rest)))
		in.buf = append(append(buf, r.b[r.start:r.whole]...), rest...)
	}
	if len(in.buf) != had-r.added || in.progress == 0 {
		in.progress = now
	}
	if in.began == 0 {
		in.began = now
	}
}

// frame takes in the next frame and reports whether there may be another.
func (r *reader) frame(now Time) bool {
	b := r.b[r.at:]
	h, err := frame.Parse(b)
	switch {
	case err != nil:
		return r.fail(now, wire.CodeProtocolError, err.Error())
	case h.Size == 0:
		return false
	case !h.Masked:
		return r.fail(now, wire.CodeProtocolError, "frame of a client not masked")
	case h.Control():
		end := h.Size + int(h.Length)
		if len(b) < end {
			return false
		}
		r.at += end
		payload := b[h.Size:end]
		frame.XOR(payload, h.Key)
		r.s.clientControl(now, r.a, h.Op, payload)
		return r.a == r.s.att && r.a.closing == nil
	}
	return r.data(now, h, b)
}

func (r *reader) fail(now Time, code int, why string) bool {
	r.s.violation(now, code, "%s", why)
	return false
}

// data takes in a data frame once it is whole.
func (r *reader) data(now Time, h frame.Header, b []byte) bool {
	in := &r.a.in
	if (h.Op == frame.Continuation) != in.open {
		return r.fail(now, wire.CodeProtocolError, "continuation frame out of place")
	}
	if !in.open {
		r.start, r.whole = r.at, r.at
		*in = inbound{buf: in.buf, began: in.began, text: h.Op == frame.Text}
	}
	if limit := frame.MaxFrames(r.s.cfg.MaxMessage); in.frames == limit {
		return r.fail(now, wire.CodeProtocolViolation, tooManyFrames(limit))
	}
	first := in.first
	if in.size == 0 && h.Length > 0 && len(b) > h.Size {
		first = b[h.Size] ^ h.Key[0]
	}
	known := in.size > 0 || h.Length == 0 || len(b) > h.Size
	size := in.size + h.Length
	if size < 0 || known && size > r.s.clientLimit(in.text, first) || size > max(r.s.cfg.MaxMessage+1, maxControl) {
		return r.fail(now, wire.CodeMessageTooBig, "")
	}
	if int64(len(b)-h.Size) < h.Length {
		return false
	}
	end := h.Size + int(h.Length)
	if r.whole < r.at {
		copy(r.b[r.whole:], b[:end]) // a control frame was cut out before
	}
	r.whole += end
	r.at += end
	in.open, in.size, in.first = true, size, first
	in.frames++
	if !h.Fin {
		return true
	}
	return r.message(now, h)
}

// message hands on the message that has become whole; h is its last header.
func (r *reader) message(now Time, h frame.Header) bool {
	s, a := r.s, r.a
	in := a.in
	a.in = inbound{buf: in.buf}
	msg := r.b[r.start:r.whole]
	r.start, r.whole = r.at, r.at
	s.confirm(a)
	if s.cfg.Resumable && in.text && in.size > 0 && in.first == wire.DLE {
		return s.escaped(now, a, msg, in.size)
	}
	if !s.accept(now, in.size) {
		return a == s.att
	}
	s.logUp(msg, in.size)
	if in.frames == 1 {
		frame.Remask(msg, h, s.cfg.Key())
	} else {
		s.remaskAll(msg)
	}
	if r.gathered {
		s.q.own(msg, in.size)
		r.pushed = true
	} else {
		s.q.borrow(msg, in.size)
	}
	s.q.hold(now, s.pace.until)
	return true
}

func (s *Session) remaskAll(msg []byte) {
	for len(msg) > 0 {
		h, _ := frame.Parse(msg)
		frame.Remask(msg, h, s.cfg.Key())
		msg = msg[h.Size+int(h.Length):]
	}
}

// escaped handles a text that begins with DLE: a control message, or data that
// itself begins with DLE.
func (s *Session) escaped(now Time, a *Attachment, msg []byte, size int64) bool {
	p := flatten(msg, size)
	switch {
	case len(p) == 1:
		s.violation(now, wire.CodeProtocolViolation, "lone DLE")
	case p[1] != wire.DLE:
		s.control(now, a, p[1:])
	case size-1 > s.cfg.MaxMessage:
		s.violation(now, wire.CodeMessageTooBig, "")
	case s.accept(now, size-1):
		s.logUp(msg, size-1)
		s.q.own(s.masked(frame.Text, p[1:]), size-1)
		s.q.hold(now, s.pace.until)
	}
	return a == s.att
}

// flatten is the plain payload of a message's frames, in one piece.
func flatten(msg []byte, size int64) []byte {
	p := make([]byte, 0, size)
	for len(msg) > 0 {
		h, _ := frame.Parse(msg)
		end := h.Size + int(h.Length)
		p = append(p, msg[h.Size:end]...)
		frame.XOR(p[len(p)-int(h.Length):], h.Key)
		msg = msg[end:]
	}
	return p
}

// accept counts a data message of the client's. It is false for one that goes
// nowhere: the upstream's Close is answered or it was lost, or the client has broken
// the unacked limit.
func (s *Session) accept(now Time, payload int64) bool {
	if s.up.mode != Open {
		return false
	}
	if s.cfg.Resumable {
		n, bytes := s.received.n-s.ackSent.n, s.received.bytes-s.ackSent.bytes
		if n > 0 && (n >= UnackedMessages || bytes+uint64(payload) > UnackedBytes) {
			s.violation(now, wire.CodeProtocolViolation, "more than %d messages or %d bytes not acked", UnackedMessages, UnackedBytes)
			return false
		}
	}
	if !s.inTime(now, payload) {
		return false
	}
	s.received.add(payload)
	s.stats.ToUpstream++
	s.stats.ToUpstreamBytes += uint64(payload)
	s.data = now
	return true
}

// clientLimit is the largest payload of a client's message: an escaping DLE is
// not counted, and a control message has a limit of its own.
func (s *Session) clientLimit(text bool, first byte) int64 {
	if s.cfg.Resumable && text && first == wire.DLE {
		return max(s.cfg.MaxMessage+1, maxControl)
	}
	return s.cfg.MaxMessage
}

// confirm: a message came on the connection whose hello carried a generation.
func (s *Session) confirm(a *Attachment) {
	if !a.spoke {
		a.spoke = true
		s.gen.Confirm(a.gen)
	}
}

func (s *Session) forgetInbound(a *Attachment) {
	a.in = inbound{}
	if a == s.att && s.charged > s.q.charge {
		s.cfg.Store.Charge(s.q.charge - s.charged)
		s.charged = s.q.charge
	}
}
