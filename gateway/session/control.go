package session

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/wire"
)

// This file handles what a client sends besides data: WebSocket control frames, and the
// control messages of protocol section 5. What the gateway asks of a client is here, too:
// pings, and the acks that they bring. A resumable client is asked by `ping`; a plain one
// by a WebSocket Ping, whose payload says what its Pong acknowledges (protocol section 9).

// clientControl handles a control frame of the attached client.
func (s *Session) clientControl(now Time, a *Attachment, op byte, payload []byte) {
	switch op {
	case frame.Ping:
		a.wsPongs.add(payload)
		if s.cfg.Keepalive != KeepaliveOff {
			s.notice(now, KeepalivePing, payload, [4]byte{})
		}
	case frame.Pong:
		if id, ok := wire.ParseNumber(string(payload)); ok {
			s.pong(now, a, id)
		}
	case frame.Close:
		s.clientClose(now, a, payload)
	}
}

// clientClose handles a Close frame. Without `bye`, a resumable client's was made by
// something in between and detaches (protocol section 6), unless it answers ours. A
// plain client's is passed on.
func (s *Session) clientClose(now Time, a *Attachment, payload []byte) {
	code, reason, err := frame.ParseClose(payload)
	switch {
	case err != nil:
		s.violation(now, closeFault(err), "%s", err)
	case a.last && s.answers(a, code):
		if s.answerPending() {
			s.closeUpstream(code, reason)
		}
		f := Shut
		if a.closed == 0 { // our Close frame is still being written
			f = Linger
		}
		s.endDelivered(now, f)
	case s.cfg.Resumable, s.cfg.PlainResume && code == wire.CodeGoingAway:
		a.spoke = true // counts for `no progress`, protocol section 11; it confirms no token
		s.pageLeft = a.pageLeaves && code == wire.CodeGoingAway
		s.drop(now, "closed by the client with "+strconv.Itoa(code), Linger, frame.Append(nil, frame.Close, frame.ClosePayload(code, "")))
	default:
		s.relayClientClose(now, a, code, reason)
	}
}

// closeFault returns the close code for a Close frame that RFC 6455 section 5.5.1
// forbids.
func closeFault(err error) int {
	if errors.Is(err, frame.ErrCloseReason) {
		return wire.CodeInvalidUTF8
	}
	return wire.CodeProtocolError
}

// answers reports whether a client's Close frame answers ours. A page that is being left
// sends 1001 without having read ours: messages that it has not acked must be sent
// again. Protocol section 11, Close frames from the client.
func (s *Session) answers(a *Attachment, code int) bool {
	if len(a.ctl) > a.flight.ctl {
		return false // Out has not even returned it
	}
	return code != wire.CodeGoingAway || s.up.code == code || s.acked == s.ring.Last().N
}

// control handles a control message of the attached client: protocol section 5. b is
// the message without its first DLE. Unknown verbs are ignored.
func (s *Session) control(now Time, a *Attachment, b []byte) {
	m, err := wire.ParseClient(b)
	switch {
	case errors.Is(err, wire.ErrUTF8):
		s.violation(now, wire.CodeInvalidUTF8, "")
		return
	case err != nil:
		s.violation(now, wire.CodeProtocolViolation, "%s", err)
		return
	}
	switch m.Verb {
	case wire.VerbAck:
		if !a.greeted { // the answer to hello gives the first round trip: protocol section 5.4
			a.greeted = true
			s.trip.sample(now.Sub(a.since), false)
		}
		s.clientAck(now, a, m.Ack)
	case wire.VerbPart:
		s.answer(now, a, int64(m.Ack))
	case wire.VerbParts:
		s.beginIncoming(now, a, m.Part)
	case wire.VerbPing:
		a.pong, a.pongDue = m.Arg, true
	case wire.VerbPong:
		arg, _ := strings.CutPrefix(m.Arg, askHeard)
		if id, ok := wire.ParseNumber(arg); ok {
			s.outage.heard.pong(id)
			s.pong(now, a, id)
		}
	case wire.VerbBye:
		s.bye(now, m.Bye)
	case wire.VerbLeaving:
		a.pageLeaves = true
	}
}

// clientAck handles an ack of the messages up to n: protocol section 5.2. A lower ack
// than an earlier one changes nothing. One beyond what was sent is a violation, since
// the messages that it names would be freed without having been sent.
func (s *Session) clientAck(now Time, a *Attachment, n uint64) {
	// The ack may arrive before the driver reports the write, so bytes in flight count as
	// sent: see handed.
	if n > s.ring.Last().N || !s.releaseUpTo(n, a.handed()) {
		s.violation(now, wire.CodeProtocolViolation, "ack %d is beyond what was sent", n)
		return
	}
	if n <= s.acked {
		return
	}
	// From here on the messages up to n are freed.
	s.acked, a.acks = n, now
	s.noteAcked()
	s.outage.heard.prove(n > s.outage.heard.after)
	if !s.owes(a) {
		a.owed = 0
	}
	s.sentN = max(s.sentN, n)
	if a.overdue.at > 0 && n >= a.overdue.n {
		a.overdue = probe{}
	}
	// The ack may have made the room that the upstream waits for.
	s.unblock(now)
	s.askAck(now, a)
}

// bye ends the session because the application closed it: protocol section 5. Messages
// that the client sent before go to the upstream first.
func (s *Session) bye(now Time, b wire.Bye) {
	if s.isLeaving() { // what came before it waits for the next upstream: the client says it there again
		s.drop(now, "said bye during a hand-off", Linger, frame.Append(nil, frame.Close, frame.ClosePayload(wire.CodeServiceRestart, "")))
		return
	}
	s.end(now, ending{
		Ending: s.noSessionEnding(ReasonBye), code: b.Code, text: b.Reason,
		client: frame.Append(nil, frame.Close, frame.ClosePayload(b.Code, b.Reason)), clientMode: Linger,
	})
}

// sendPing asks the client for a sign of life, and for an ack, which it sends before
// its pong.
func (s *Session) sendPing(now Time, a *Attachment) {
	a.pingID++
	if s.large > s.ring.Base().Off { // its answer may come after a large message
		a.clogged = now
	}
	// The probe names the last message that was written whole before this ping: one that is
	// cut need not have arrived when its pong does.
	p := probe{id: a.pingID, n: a.mark.N, at: now}
	if a.cur == s.ring.Last().Off {
		p.n = s.ring.Last().N
	}
	if s.cfg.PlainResume {
		p.id, a.asked, a.askSince = p.n, p.n, 0 // protocol section 9: the count is the payload
	}
	a.notePing(now, p)
	id := strconv.FormatUint(p.id, 10)
	if s.cfg.Resumable {
		a.ctl = wire.Append(a.ctl, wire.VerbPing, id)
	} else {
		a.ctl = frame.Append(a.ctl, frame.Ping, []byte(id))
	}
}

// askPong asks a cookie client by a WebSocket Ping which messages it has received:
// protocol section 9. It does so as often as an ack would be due, one Ping at a time.
func (s *Session) askPong(now Time, a *Attachment) {
	if a != s.att || a.mark.N <= s.acked || len(a.pings) > 0 || a.last || a.closing != nil {
		return
	}
	if a.askSince == 0 {
		a.askSince = now
	}
	if a.mark.N-s.acked >= ackMessages || a.cur-s.ring.Base().Off >= ackBytes || now >= a.askSince.Add(ackWanted) {
		s.sendPing(now, a)
	}
}

// Ping pings the attached client, unless a ping is unanswered. The event Pong follows
// when it answers. Ping reports false if no client is attached.
func (s *Session) Ping(now Time) bool {
	if s.att == nil || s.att.last || s.att.closing != nil {
		return false
	}
	if len(s.att.pings) == 0 {
		s.sendPing(now, s.att)
	}
	return true
}

// askAck pings for the ack that precedes the pong, once the replay buffer is full, or there
// is no memory for it, and the client has been sent all of it: protocol section 5.3. Otherwise both sides would
// wait for the ack timer.
func (s *Session) askAck(now Time, a *Attachment) {
	if (s.scan.full || s.starved) && a == s.att && s.survivesDisconnect() && len(a.pings) == 0 && !a.last && a.closing == nil && a.cur == s.ring.Last().Off && s.acked < s.ring.Last().N {
		s.sendPing(now, a)
	}
}

// pong handles the answer to ping id. Messages written before that ping and unacked
// after its answer are overdue in a minute: protocol section 5.3.
func (s *Session) pong(now Time, a *Attachment, id uint64) {
	p, ok := a.answered(id)
	if !ok {
		s.covered(now, a, id) // a duplicate, or the ping is no longer remembered
		return
	}
	if a.sampled(p) {
		s.trip.sample(now.Sub(p.at), true)
	}
	s.emit(Event{Kind: Pong, Elapsed: now.Sub(p.at)})
	if s.cfg.Resumable && a.overdue.at == 0 && p.n > s.acked {
		a.overdue = probe{n: p.n, at: now}
	}
	s.covered(now, a, p.n)
	if p.n < s.ring.Last().N { // messages sent since may need an ack as well
		s.askAck(now, a)
	}
}

// covered takes a Pong with count n for an ack. The client has everything written before
// that Ping, even if more Pings were sent since. It can claim no more than it was asked
// about: protocol section 9.
func (s *Session) covered(now Time, a *Attachment, n uint64) {
	if !s.cfg.PlainResume || n > a.asked {
		return
	}
	s.confirm(a)
	s.clientAck(now, a, n)
	s.askPong(now, a)
}

// SendToken gives the client a token of the same generation with a later exp: protocol
// section 7. It does nothing if the client has disconnected, or was issued a newer
// generation meanwhile.
func (s *Session) SendToken(now Time, p Pass) {
	a := s.att
	if a == nil || a.last || a.gen != p.Gen {
		return
	}
	// The generation stays the same: the client need not confirm it again.
	a.ctl = wire.AppendJSON(a.ctl, wire.VerbToken, struct {
		Token string `json:"token"`
	}{p.Token})
	s.renewAt, s.expires = now.Add(p.Renew), p.Expires
}

// Move asks the client to open a new connection within a time: protocol section 5. The
// present one is served until then. It does nothing for a client that cannot resume.
func (s *Session) Move(_ Time, within time.Duration, reason string) {
	a := s.att
	if a == nil || a.last || !s.cfg.Resumable {
		return
	}
	a.ctl = wire.AppendJSON(a.ctl, wire.VerbMove, struct {
		Within int64  `json:"within_ms"`
		Reason string `json:"reason"`
	}{within.Milliseconds(), reason})
}

// Generation returns the newest generation issued; a renewed token carries it.
func (s *Session) Generation() uint64 { return s.gen.Issued() }
