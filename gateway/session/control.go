package session

import (
	"errors"
	"strconv"

	"reseat/gateway/frame"
	"reseat/gateway/wire"
)

// clientControl handles a control frame of the attached client.
func (s *Session) clientControl(now Time, a *Attachment, op byte, payload []byte) {
	switch op {
	case frame.Ping:
		a.wsPongs.add(payload)
	case frame.Pong:
		if id, ok := wire.ParseNumber(string(payload)); ok {
			s.pong(now, a, id)
		}
	case frame.Close:
		s.clientClose(now, a, payload)
	}
}

// clientClose handles a Close frame. A resumable client's without a bye before it
// comes from something in between and detaches, unless it answers ours; a plain
// client's is passed on.
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
		if a.closed == 0 { // ours is still being written
			f = Linger
		}
		s.endDelivered(now, f)
	case s.cfg.Resumable, s.cfg.Kept && code == wire.CodeGoingAway:
		a.spoke = true // for `no progress` it counts, protocol section 6; it confirms nothing
		s.drop(now, "closed by the client with "+strconv.Itoa(code), Linger, frame.Append(nil, frame.Close, frame.ClosePayload(code, "")))
	default:
		s.relayClientClose(now, a, code, reason)
	}
}

// closeFault is the close code for a Close frame that RFC 6455 forbids.
func closeFault(err error) int {
	if errors.Is(err, frame.ErrCloseReason) {
		return wire.CodeInvalidUTF8
	}
	return wire.CodeProtocolError
}

// answers reports whether a client's Close is the answer to ours, which was
// written to it. A page that is being left says 1001 without having read ours:
// then what it has not acked is still owed to it.
func (s *Session) answers(a *Attachment, code int) bool {
	if len(a.ctl) > a.flight.ctl {
		return false // it has not even been handed out
	}
	return code != wire.CodeGoingAway || s.up.code == code || s.acked == s.ring.Last().N
}

// control handles a control message of the attached client, its first DLE
// taken off.
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
		if !a.greeted { // the answer to hello, protocol section 5
			a.greeted = true
			s.trip.sample(now.Sub(a.since), false)
		}
		s.clientAck(now, a, m.Ack)
	case wire.VerbPing:
		a.pong, a.pongDue = m.Arg, true
	case wire.VerbPong:
		if id, ok := wire.ParseNumber(m.Arg); ok {
			s.pong(now, a, id)
		}
	case wire.VerbBye:
		s.bye(now, m.Bye)
	}
}

// clientAck: the client has taken in the messages up to n.
func (s *Session) clientAck(now Time, a *Attachment, n uint64) {
	if n > s.ring.Last().N || !s.ring.Ack(n, a.handed()) {
		s.violation(now, wire.CodeProtocolViolation, "ack %d is beyond what was sent", n)
		return
	}
	if n <= s.acked {
		return
	}
	s.acked, a.acks = n, now
	if n >= a.mark.N {
		a.owed = 0
	}
	s.sentN = max(s.sentN, n)
	if a.overdue.at > 0 && n >= a.overdue.n {
		a.overdue = probe{}
	}
	s.unblock(now)
	s.askAck(now, a)
}

// bye: the application closed the session. What it sent before goes to the
// upstream first.
func (s *Session) bye(now Time, b wire.Bye) {
	s.end(now, ending{
		Ending: s.noSessionEnding(ReasonBye), code: b.Code, text: b.Reason,
		client: frame.Append(nil, frame.Close, frame.ClosePayload(b.Code, b.Reason)), clientMode: Linger,
	})
}

// sendPing asks the client for a sign of life, and thereby for an ack.
func (s *Session) sendPing(now Time, a *Attachment) {
	a.pingID++
	p := probe{id: a.pingID, n: a.mark.N, at: now}
	if a.cur == s.ring.Last().Off {
		p.n = s.ring.Last().N
	}
	if s.cfg.Kept {
		p.id, a.asked, a.askSince = p.n, p.n, 0 // protocol section 9: the count
	}
	a.notePing(now, p)
	id := strconv.FormatUint(p.id, 10)
	if s.cfg.Resumable {
		a.ctl = wire.Append(a.ctl, wire.VerbPing, id)
	} else {
		a.ctl = frame.Append(a.ctl, frame.Ping, []byte(id))
	}
}

// askPong asks a plain client that is kept, by a Ping, how far it has come: as
// often as an ack would be due, one Ping at a time.
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

// Ask sends the attached client a ping, if none is under way: the event Pong
// follows when it answers. It reports false where none is attached.
func (s *Session) Ask(now Time) bool {
	if s.att == nil || s.att.last || s.att.closing != nil {
		return false
	}
	if len(s.att.pings) == 0 {
		s.sendPing(now, s.att)
	}
	return true
}

// askAck sends a ping for the sake of the ack that comes before its answer,
// where the window is full and the client has been sent all that is in it.
func (s *Session) askAck(now Time, a *Attachment) {
	if s.scan.full && a == s.att && s.kept() && len(a.pings) == 0 && !a.last && a.closing == nil && a.cur == s.ring.Last().Off && s.acked < s.ring.Last().N {
		s.sendPing(now, a)
	}
}

// pong: the client answered ping id. A message that was written before the
// ping and is not acked now is overdue in a minute.
func (s *Session) pong(now Time, a *Attachment, id uint64) {
	p, ok := a.answered(id)
	if !ok {
		s.covered(now, a, id) // by the answer to an older one
		return
	}
	s.trip.sample(now.Sub(p.at), true)
	s.emit(Event{Kind: Pong, Took: now.Sub(p.at)})
	if s.cfg.Resumable && a.overdue.at == 0 && p.n > s.acked {
		a.overdue = probe{n: p.n, at: now}
	}
	s.covered(now, a, p.n)
	if p.n < s.ring.Last().N { // what was sent since may want an ack as well
		s.askAck(now, a)
	}
}

// covered: a plain client that is kept has answered a Ping that carried n. It has
// all that was written before it, whether or not another Ping was sent since.
func (s *Session) covered(now Time, a *Attachment, n uint64) {
	if !s.cfg.Kept || n > a.asked {
		return
	}
	s.confirm(a)
	s.clientAck(now, a, n)
	s.askPong(now, a)
}

// SendToken gives the client a token of the same generation that lives longer.
// One of an older generation, or for a client that has gone, is dropped.
func (s *Session) SendToken(now Time, p Pass) {
	a := s.att
	if a == nil || a.last || a.gen != p.Gen {
		return
	}
	a.ctl = wire.AppendJSON(a.ctl, wire.VerbToken, struct {
		Token string `json:"token"`
	}{p.Token})
	s.renewAt, s.expires = now.Add(p.Renew), p.Expires
}

// Generation is the newest that was issued; a renewed token carries it.
func (s *Session) Generation() uint64 { return s.gen.Issued() }
