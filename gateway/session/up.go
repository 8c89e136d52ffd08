package session

import (
	"reseat/gateway/frame"
	"reseat/gateway/replay"
	"reseat/gateway/wire"
)

// This file is the path of a message up, from the client to the queue for the upstream:
// Read, frame, data, message, then either control (a control message of reseat.v1) or
// accept and the queue. What must hold:
//
//   - A message counts as received (protocol section 4) only when all of it is here, and
//     goes to the upstream only then. A connection that breaks inside a message leaves
//     nothing of it behind.
//   - Input is judged by frame headers before memory is spent on it.
//   - Every message leaves in one frame, with a new masking key.
//   - Nothing is copied in the common case, a message that arrives in one read and is
//     written before the next one.

// inbound is the state of the walk over a client's frames. A message is passed on only
// when it is complete, since a connection may break inside it: the next one then brings
// it whole. buf[:whole] holds the complete frames of an unfinished message, the rest of
// buf the beginning of the next frame.
type inbound struct {
	buf      []byte
	whole    int
	open     bool
	text     bool
	first    byte  // of the payload, unmasked, once known: it may be a DLE
	size     int64 // payload of the open message's complete frames
	frames   int
	began    Time // when a part of a message was first kept
	progress Time // when it last grew
}

// op returns the opcode of the open message.
func (in *inbound) op() byte {
	if in.text {
		return frame.Text
	}
	return frame.Binary
}

// unfinished reports whether a part of a message has arrived.
func (in *inbound) unfinished() bool { return in.open || len(in.buf) > 0 }

// wants reports whether the client may be read. A resumable one may unless it is crowded: its
// acks and pings must never be stuck behind data that the upstream does not take, protocol
// section 5.3. A plain one may not while messages of its own wait for the upstream (frames of
// the gateway may wait), unless the upstream waits for its Pong.
func (a *Attachment) wants(s *Session) bool {
	return a != s.att || a.closing != nil || !s.crowded() && (s.cfg.Resumable || !s.q.messages() || s.pongWanted())
}

// crowded reports whether the client is not read because the store is exhausted and the
// messages that it has sent hold more than the session's reserve: an unfinished one, or
// those that the upstream does not take. Others would pay for what it still sends.
func (s *Session) crowded() bool { return s.crowdable() && !s.cfg.Store.Grants(s.charged) }

// crowdable reports whether the session may be crowded. It is then looked at again and again,
// since other sessions decide.
func (s *Session) crowdable() bool {
	held := s.q.charge
	if s.partsLeft() > 0 {
		held += len(s.incoming.buf)
	}
	return s.att != nil && held+len(s.att.in.buf) > replay.MinReserve
}

// pongWanted reports whether the upstream waits for room that only a Pong can make. The
// upstream may be blocked on its own output, and take nothing of the queue until that is
// read. So the client is read on, for as much as a resumable one may send unacked.
func (s *Session) pongWanted() bool {
	return s.cfg.PlainResume && s.scan.full && s.q.charge < UnackedBytes
}

// deadlockedAt returns when a cookie client is disconnected because of a deadlock; zero:
// there is none. Its Pong lies behind more input than is read for its sake; the upstream
// takes no input before its output is read; and that is not read before the Pong makes
// room. Only a new connection helps: on it the client is sent a Ping first.
func (s *Session) deadlockedAt(a *Attachment) Time {
	if !s.cfg.PlainResume || !s.scan.full || a.wants(s) {
		return 0
	}
	return max(a.since, s.data, s.up.heard, s.up.took).Add(deadlockWait)
}

// readAgain restarts the clocks of a plain client that is read again: its silence was ours.
func (s *Session) readAgain(now Time, a *Attachment) { a.excused, a.in.progress = now, now }

func (a *Attachment) room(*Session) []byte { return nil }

// read ignores input of a replaced connection: after the new hello the client counts on
// none of it having been received, protocol section 8.
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
	if gathered { // the message began in an earlier read
		a.clogged = now
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

// A reader walks over the bytes b of one read. The open message is b[start:whole]; the
// frame to be parsed next begins at at.
type reader struct {
	s                *Session
	a                *Attachment
	b                []byte
	start, whole, at int
	gathered         bool // b is the attachment's own memory
	pushed           bool // and the queue now refers to it
	added            int  // bytes that this read added to b
}

// keep saves what is not complete for the next read.
func (r *reader) keep(now Time) {
	in := &r.a.in
	rest := r.b[r.at:]
	in.whole = r.whole - r.start
	had := len(in.buf)
	switch {
	case in.whole+len(rest) == 0:
		in.buf, in.began = nil, 0
		return
	case r.gathered && r.start == 0 && r.whole == r.at: // it already lies there
	case r.gathered && !r.pushed:
		in.buf = append(append(r.b[:0], r.b[r.start:r.whole]...), rest...)
	// b is the driver's buffer, or the queue now owns a part of it. Twice the size, so that
	// a message that trickles in is not copied at each read.
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

// frame processes the next frame, and reports whether there may be another.
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

// fail ends the session for a violation. It reports false.
func (r *reader) fail(now Time, code int, why string) bool {
	r.s.violation(now, code, "%s", why)
	return false
}

// data processes a data frame once it is complete. Its size is checked before, by the
// length that its header announces (protocol section 11, Size), so that a client cannot
// make the gateway buffer more than one message.
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
	if left := r.s.partsLeft(); left > 0 && !in.text && in.size+h.Length > min(left, PartBytes) {
		return r.fail(now, wire.CodeProtocolViolation, "part too large")
	}
	first := in.first
	if in.size == 0 && h.Length > 0 && len(b) > h.Size {
		first = b[h.Size] ^ h.Key[0]
	}
	// The limit depends on the first byte of the payload. Before that has arrived, only
	// the larger limit can be applied.
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
		copy(r.b[r.whole:], b[:end]) // close the gap that a control frame left
	}
	r.whole += end
	r.at += end
	// From here on the frame is complete and counted.
	in.open, in.size, in.first = true, size, first
	in.frames++
	if !h.Fin {
		return true
	}
	return r.message(now, h)
}

// message passes on the message that is now complete; h is its last header.
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
	switch {
	case !in.text && s.partsLeft() > 0:
		return s.part(now, a, msg, in.size)
	case s.incoming != nil && !s.admitsData(now):
		return false
	case !s.accept(now, in.size):
		return a == s.att
	}
	s.logUp(msg, in.size)
	if in.size <= maxKeepalive && in.frames == 1 && s.cfg.Keepalive != KeepaliveOff {
		kind := KeepaliveBinary
		if in.text {
			kind = KeepaliveText
		}
		s.notice(now, kind, msg[h.Size:], h.Key)
	}
	switch {
	case in.frames > 1: // by the client, or because its compressed message came in pieces
		s.q.own(s.masked(in.op(), flatten(msg, in.size)), in.size)
	case r.gathered:
		frame.Remask(msg, h, s.cfg.Key())
		s.q.own(msg, in.size)
		r.pushed = true
	default:
		frame.Remask(msg, h, s.cfg.Key())
		s.q.borrow(msg, in.size)
	}
	s.q.hold(now, s.pace.until)
	return true
}

// remaskAll gives each frame of a message a new masking key: RFC 6455 section 5.3 wants
// it unpredictable, and the client chose the old one.
func (s *Session) remaskAll(msg []byte) {
	for len(msg) > 0 {
		h, _ := frame.Parse(msg)
		frame.Remask(msg, h, s.cfg.Key())
		msg = msg[h.Size+int(h.Length):]
	}
}

// escaped handles text that begins with a DLE: a control message, or data text that begins
// with a DLE itself. Protocol section 3.
func (s *Session) escaped(now Time, a *Attachment, msg []byte, size int64) bool {
	p := flatten(msg, size)
	switch {
	case len(p) == 1:
		s.violation(now, wire.CodeProtocolViolation, "lone DLE")
	case p[1] != wire.DLE:
		s.control(now, a, p[1:])
	case size-1 > s.cfg.MaxMessage:
		s.violation(now, wire.CodeMessageTooBig, "")
	case s.incoming != nil && !s.admitsData(now):
	case s.accept(now, size-1):
		s.logUp(msg, size-1)
		s.q.own(s.masked(frame.Text, p[1:]), size-1)
		s.q.hold(now, s.pace.until)
	}
	return a == s.att
}

// flatten returns the unmasked payload of a message's frames in one piece.
func flatten(msg []byte, size int64) []byte { return appendPayload(make([]byte, 0, size), msg) }

// appendPayload appends the unmasked payload of a message's frames.
func appendPayload(p, msg []byte) []byte {
	for len(msg) > 0 {
		h, _ := frame.Parse(msg)
		end := h.Size + int(h.Length)
		p = append(p, msg[h.Size:end]...)
		frame.XOR(p[len(p)-int(h.Length):], h.Key)
		msg = msg[end:]
	}
	return p
}

// served reports whether the session has an upstream, or waits in an outage for the next one: only then the client's
// messages count.
func (s *Session) served() bool { return s.up.mode == Open || s.outage.since > 0 }

// accept counts a data message of the client as received. It reports false for a message
// that is not passed on: the upstream has closed or was lost, or the client has exceeded
// its window (protocol section 5.3) or its rate.
func (s *Session) accept(now Time, payload int64) bool {
	if s.repeated() {
		return false
	}
	if !s.served() {
		return false
	}
	if s.cfg.Resumable {
		n, bytes := s.received.n-s.ackSent.n, s.received.bytes-s.ackSent.bytes
		// A single message may always be unacked, however large: protocol section 5.3.
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

// clientLimit returns the max payload of a client's message. An escaping DLE is not
// counted, and a control message has its own limit: protocol section 11.
func (s *Session) clientLimit(text bool, first byte) int64 {
	if s.cfg.Resumable && text && first == wire.DLE {
		return max(s.cfg.MaxMessage+1, maxControl)
	}
	return s.cfg.MaxMessage
}

// confirm records the first message after hello: it proves that the client holds the
// token of that hello. Protocol section 7.
func (s *Session) confirm(a *Attachment) {
	if !a.spoke {
		a.spoke, s.pageLeft = true, false
		s.gen.Confirm(a.gen)
		s.tookHello(a.gen)
		if s.durable != nil {
			s.emit(Event{Kind: Confirmed})
		}
	}
}

// forgetInbound frees an unfinished message and returns its memory to the store. It was
// never counted, so the client sends it again, but for whole parts of one that comes in parts.
func (s *Session) forgetInbound(a *Attachment) {
	if s.incoming != nil {
		s.incoming.open = false
	}
	if a.in = (inbound{}); a == s.att {
		s.recharge()
	}
}
