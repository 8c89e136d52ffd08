package session

import (
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/wire"
)

// upstream is the leg to the game server.
type upstream struct {
	q    upqueue
	out  bool // something of q is handed out
	fate Fate
	deaf bool // a write failed: it takes nothing more

	heard   Time
	pinged  bool // since heard
	pong    []byte
	pongDue bool

	// Once nothing more comes from it.
	over   bool
	lost   bool // it broke, or sent what is not allowed: no code of its own
	code   int  // of its Close
	reason string
}

// UpstreamFlush is how long an upstream that is being closed has to take what
// was admitted before, reseat.v1 section 5 (bye).
const UpstreamFlush = 10 * time.Second

// UpstreamFate is what the driver is to do with the upstream's connection.
func (s *Session) UpstreamFate() Fate { return s.up.fate }

// UpstreamOut appends to dst what is to be written to the upstream now. Until
// UpstreamWrote says how much of it was, it hands out nothing more.
func (s *Session) UpstreamOut(dst [][]byte) [][]byte {
	if s.up.out || s.up.deaf || s.up.fate >= Shut {
		return dst
	}
	if s.up.pongDue && s.up.fate == Open {
		s.pushControl(frame.Pong, s.up.pong)
	}
	s.up.pongDue = false
	s.up.out = !s.up.q.empty()
	return append(dst, s.up.q.pieces...)
}

// UpstreamWrote says that the first n bytes of what UpstreamOut handed out
// were accepted by the upstream's connection.
func (s *Session) UpstreamWrote(now Time, n int) {
	s.up.out = false
	if s.up.fate >= Shut {
		return
	}
	before := s.written.n
	s.up.q.wrote(n, &s.written)
	s.recharge()
	a := s.att
	switch {
	case a == nil:
		return
	case !s.cfg.Resumable:
		if s.up.q.empty() { // it is read again from here on: the silence was ours
			a.heard, a.in.progress = now, now
		}
		return
	case s.written.n == before:
		return
	}
	if a.ackSince == 0 {
		a.ackSince = now
	}
	if s.written.n-a.acked >= ackMessages || s.written.bytes-s.told.bytes >= ackBytes {
		a.ackNow = true
	}
}

// Retain copies what ClientRead left in its caller's buffer and the upstream
// has not taken. It must be called before that buffer is used again.
func (s *Session) Retain() {
	s.up.q.retain()
	s.recharge()
}

// UpstreamDeaf says that the upstream's connection takes nothing more. What it
// has sent may still be read.
func (s *Session) UpstreamDeaf() {
	s.up.deaf, s.up.out = true, false
	if s.up.fate == Linger {
		s.shutUpstream()
	}
}

// UpstreamGone says that the upstream's connection has ended, with an error or
// without, and that no Close frame told so.
func (s *Session) UpstreamGone(now Time, why string) {
	if !s.up.over {
		s.loseUpstream(now, 0, why)
	}
	s.shutUpstream()
}

// upstreamControl handles a control frame of the upstream.
func (s *Session) upstreamControl(now Time, op byte, payload []byte) {
	switch op {
	case frame.Ping:
		s.up.pong, s.up.pongDue = append(s.up.pong[:0], payload...), true
	case frame.Close:
		code, reason, err := frame.ParseClose(payload)
		if err != nil {
			s.upstreamFault(now, wire.CodeProtocolError, err.Error())
			return
		}
		s.up.over, s.up.code, s.up.reason = true, code, reason
		s.closeUpstream(now, code, "")
	}
}

// upstreamFault is an upstream that sent what is not allowed. It reports false.
func (s *Session) upstreamFault(now Time, code int, why string) bool {
	s.loseUpstream(now, code, why)
	return false
}

// loseUpstream: nothing more comes from the upstream, and it did not say so.
// The client is told when it has all that came before.
func (s *Session) loseUpstream(now Time, code int, why string) {
	s.up.over, s.up.lost, s.up.reason = true, true, why
	s.closeUpstream(now, code, why)
	s.deliverEnd(now)
}

// closeUpstream sends Close behind what is queued; with code 0 the connection is
// dropped there instead. It is closed once.
func (s *Session) closeUpstream(now Time, code int, reason string) {
	if s.up.fate != Open {
		return
	}
	if s.up.deaf || code == 0 && s.up.q.empty() {
		s.shutUpstream()
		return
	}
	if code != 0 {
		s.pushControl(frame.Close, frame.ClosePayload(code, reason))
	}
	s.up.fate = Linger
}

// shutUpstream: nothing more goes to the upstream, its connection is closed.
func (s *Session) shutUpstream() {
	s.up.fate = Shut
	s.up.q = upqueue{}
	s.recharge()
}

func (s *Session) pushControl(op byte, payload []byte) {
	s.up.q.own(frame.AppendMasked(make([]byte, 0, 6+len(payload)), op, s.cfg.Key(), payload))
}

// deliverEnd tells the attached client of the upstream's end, once it has
// everything that came before.
func (s *Session) deliverEnd(now Time) {
	a := s.att
	if a == nil || !s.up.over || a.last || a.out.up || a.cur < s.ring.Last().Off {
		return
	}
	s.compose(now, a)
	a.last = true
	switch {
	case s.up.lost && s.cfg.Resumable:
		a.ctl = wire.AppendClosing(a.ctl, wire.Closing{Code: wire.CodeUpstreamLost, Reason: wire.Name(wire.CodeUpstreamLost)})
	case s.up.lost:
		s.endDelivered(now, Linger) // the client has yet to read what was written
	case s.cfg.Resumable:
		a.ctl = wire.AppendJSON(a.ctl, wire.VerbEnd, wire.Ending{Code: s.up.code, Reason: s.up.reason})
		fallthrough
	default:
		a.ctl = frame.Append(a.ctl, frame.Close, frame.ClosePayload(s.up.code, s.up.reason))
	}
}

// endDelivered ends the session whose upstream's end the client has taken in.
func (s *Session) endDelivered(now Time, f Fate) {
	e := Ending{Reason: ReasonUpstreamClosed, Code: wire.CodeEnded, Text: s.up.reason}
	if s.up.lost {
		e = s.goneEnding(wire.Name(wire.CodeUpstreamLost))
	}
	s.end(now, ending{Ending: e, clientFate: f})
}

// recharge counts in the store what the session holds outside its ring.
func (s *Session) recharge() {
	held := s.up.q.charge
	if s.att != nil {
		held += cap(s.att.in.buf)
	}
	if held != s.charged {
		s.cfg.Store.Charge(held - s.charged)
		s.charged = held
	}
}
