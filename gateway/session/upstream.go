package session

import (
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/wire"
)

// An Upstream is one upstream connection's tenure with a session. Most sessions
// have one; a session whose upstream is closed while it is detached has the
// next one from the resume on. Whatever arrives for one that has been replaced
// changes nothing.
type Upstream struct {
	mode       CloseMode
	unwritable bool // a write failed: it takes nothing more
	released   bool // the session has no upstream, or another one
	pinged     bool // since heard
	pingDue    bool
	over       bool // nothing more comes from it,
	lost       bool // since it broke, or sent what is not allowed: no code of its own
	heard      Time

	// Outward: rest first, then the session's queue; once released, rest alone.
	rest   []byte   // frames of the gateway's own
	flight upFlight // what Out returned and Wrote has not reported

	// What not every message needs.
	closed   bool   // a Close is queued: nothing follows it
	took     Time   // when it last took bytes
	answerBy Time   // of a plain client's: when its Close is answered at the latest
	final    []byte // released during a write: what goes out behind it
	pongs    pongs  // the answers to its Pings
	code     int    // of its Close
	reason   string
}

// upFlight is what an upstream connection has been handed out.
type upFlight struct {
	active bool
	rest   int  // bytes of rest
	queue  bool // and the session's queue
}

// CloseMode implements Leg.
func (u *Upstream) CloseMode() CloseMode { return u.mode }

// FlushTime implements Leg.
func (*Upstream) FlushTime() time.Duration { return upstreamFlush }

// HalfClose implements Leg.
func (*Upstream) HalfClose() bool { return false }

// Over reports whether nothing more comes from u: its Close has been read, or it was
// lost. A plain client's may be written to until its Close is answered.
func (u *Upstream) Over() bool { return u.over }

// Upstream is the present upstream connection's tenure, or the last one's where
// there is none.
func (s *Session) Upstream() *Upstream { return s.up }

func (u *Upstream) hasOutput(s *Session, _ Time) bool {
	switch {
	case u.flight.active || u.unwritable || u.mode >= Shut:
		return false
	case len(u.rest) > 0 || u.hasQueue(s):
		return true
	}
	return u.pingDue || len(u.pongs.due) > 0
}

// hasQueue reports whether what is queued may go to u now.
func (u *Upstream) hasQueue(s *Session) bool {
	return s.writer == nil && s.q.ready() && u == s.up && !u.released
}

func (u *Upstream) out(s *Session, _ Time, dst [][]byte) [][]byte {
	s.composeUp(u)
	if len(u.rest) > 0 {
		dst = append(dst, u.rest)
		u.flight = upFlight{active: true, rest: len(u.rest)}
	}
	if !u.hasQueue(s) {
		return dst
	}
	s.writer = u
	u.flight.active, u.flight.queue = true, true
	return s.q.slices(dst)
}

// maxPongCharge is how much may be queued for an upstream before its Pings wait for
// their answers: one that takes nothing must not fill the memory by asking.
const maxPongCharge = 64 << 10

// composeUp queues the answers to the upstream's Pings, and our own. They
// do not wait for messages whose turn has not come.
func (s *Session) composeUp(u *Upstream) {
	send := s.pushControl
	switch {
	case u.mode != Open || u.released || u.closed:
		u.pongs, u.pingDue = pongs{}, false
		return
	case s.q.held == 0:
	case s.q.part > 0 || s.writer != nil || s.q.ready():
		return // in the middle of a message, or older answers go first
	default:
		send = func(op byte, payload []byte) { u.rest = append(u.rest, s.masked(op, payload)...) }
	}
	if s.q.charge+len(u.rest) < maxPongCharge {
		for _, p := range u.pongs.take() {
			send(frame.Pong, p)
		}
	}
	if u.pingDue {
		u.pingDue = false
		send(frame.Ping, nil)
	}
}

func (u *Upstream) wrote(s *Session, now Time, n int, _ bool) (look bool) {
	out := u.flight
	u.flight = upFlight{}
	if n > 0 {
		u.took = now
	}
	own := min(n, out.rest)
	u.rest = u.rest[min(own, len(u.rest)):]
	if out.queue {
		s.writer = nil
		s.queueWrote(now, n-own)
	}
	if u.released {
		s.takeBack(u)
	}
	return false
}

// The state of a game server's socket proves nothing: it is pinged, if at all.

func (*Upstream) waits(*Session, Time)                    {}
func (*Upstream) watchesSocket(*Session) bool             { return false }
func (*Upstream) socketState(*Session, Time, SocketState) {}

// queueWrote takes note of what was written of the queue, and of the ack that
// is thereby due.
func (s *Session) queueWrote(now Time, n int) {
	before, a := s.written.n, s.att
	read := a != nil && a.wants(s)
	s.q.wrote(n, &s.written)
	s.recharge()
	switch {
	case a == nil:
		return
	case !s.cfg.Resumable:
		if !read && a.wants(s) {
			s.readAgain(now, a)
		}
		return
	case s.written.n == before:
		return
	}
	if a.ackSince == 0 {
		a.ackSince = now
	}
	if s.written.n-a.acked >= ackMessages || s.written.bytes-s.ackSent.bytes >= ackBytes {
		a.ackNow = true
	}
}

func (u *Upstream) writeFailed(s *Session, _ Time, _ string) {
	u.unwritable = true
	if u.mode == Linger {
		s.shutUpstream(u)
	}
}

func (u *Upstream) gone(s *Session, now Time, why string) {
	if u == s.up && !u.released && !u.over {
		s.loseUpstream(now, 0, why)
	}
	s.shutUpstream(u)
}

// upstreamControl handles a control frame of the upstream.
func (s *Session) upstreamControl(now Time, op byte, payload []byte) {
	switch op {
	case frame.Ping:
		s.up.pongs.add(payload)
	case frame.Close:
		code, reason, err := frame.ParseClose(payload)
		if err != nil {
			s.upstreamFault(now, closeFault(err), err.Error())
			return
		}
		s.up.over, s.up.code, s.up.reason = true, code, reason
		if !s.relayUpstreamClose(now) {
			s.answerUpstream()
		}
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
	s.closeUpstream(code, why)
	s.deliverEnd(now)
}

// relieve follows a time in which the upstream was not read, since the store is exhausted.
// Where it takes nothing more, what is queued for it may be the very memory that reading its
// end waits for, and would wait for good: nobody will have that queue. With --disconnect hard
// the next upstream would, so there the upstream is lost instead.
func (s *Session) relieve(now Time) {
	switch {
	case !s.up.unwritable || s.up.released || s.up.over:
	case s.cfg.Hard:
		s.loseUpstream(now, 0, "write failed")
	default:
		s.dropQueue()
	}
}

// closeUpstream sends Close behind what is queued; with code 0 the connection is
// dropped there instead. It is closed once.
func (s *Session) closeUpstream(code int, reason string) {
	u := s.up
	if u.mode != Open || u.released {
		return
	}
	if u.unwritable || code == 0 && s.q.empty() && len(u.rest) == 0 {
		s.shutUpstream(u)
		return
	}
	if code != 0 {
		s.queueClose(code, reason)
	}
	s.q.held, s.q.heldBytes = 0, 0 // it is the last that may go
	u.mode = Linger
}

// queueClose queues Close, once. The upstream is read on until closeUpstream.
func (s *Session) queueClose(code int, reason string) {
	if s.up.closed || s.up.released || s.up.mode != Open {
		return
	}
	s.pushControl(frame.Close, frame.ClosePayload(code, reason))
	s.q.held, s.q.heldBytes = 0, 0
	s.up.closed = true
}

// shutUpstream: nothing more goes to u, its connection is closed. What was
// queued for the present one is of no use any more.
func (s *Session) shutUpstream(u *Upstream) {
	u.mode, u.rest = Shut, nil
	if u == s.up && !u.released {
		s.dropQueue()
	}
}

// dropQueue: nobody will have what is queued. A write of it that is under way
// goes on from memory that nobody else uses.
func (s *Session) dropQueue() {
	if s.writer != nil {
		s.writer.flight.queue = false
		s.writer = nil
	}
	s.q = upqueue{}
	s.recharge()
}

// releaseUpstream takes the upstream off the session, --disconnect hard: it gets
// Close 1001, and what it has not taken is for the next one.
func (s *Session) releaseUpstream() {
	u := s.up
	u.released = true
	if text := s.cfg.Words.Detach; text != "" {
		u.final = s.masked(frame.Text, []byte(text))
	}
	u.final = append(u.final, s.masked(frame.Close, frame.ClosePayload(wire.CodeGoingAway, "disconnected"))...)
	s.ring.Truncate()
	s.scan, s.starved = scanner{overflowed: s.scan.overflowed}, false
	s.takeBack(u)
}

// takeBack ends the part that a released upstream has in the queue, once nothing
// of it is under way. A message that it has taken half of belongs whole to the
// next one, so its own connection is cut in the middle of it.
func (s *Session) takeBack(u *Upstream) {
	if s.writer == u || u.final == nil {
		return
	}
	final := u.final
	u.final = nil
	older := s.writer != nil // whose write is still under way: u has never had the queue
	switch {
	case u.mode >= Shut:
	case !older && s.q.part > 0, u.unwritable:
		u.mode = Shut
	default:
		u.rest = append(u.rest, final...)
		u.mode = Linger
	}
	switch {
	case older:
		return
	case s.state == Ended && s.up.released:
		s.dropQueue()
		return
	}
	s.q.takeBack()
	for _, p := range s.q.pieces {
		s.remaskAll(p) // RFC 6455 section 5.3: a fresh key for each frame sent
	}
	s.recharge()
}

func (s *Session) pushControl(op byte, payload []byte) { s.pushOwn(s.masked(op, payload)) }

// pushOwn queues a frame that is no client's, behind what waits for its turn. It
// is for the present upstream alone.
func (s *Session) pushOwn(p []byte) {
	s.q.own(p, notCounted)
	s.q.units[len(s.q.units)-1].to = s.up
	s.q.hold(0, 0)
}

// masked is a frame of the gateway's own for the upstream.
func (s *Session) masked(op byte, payload []byte) []byte {
	return frame.AppendMasked(make([]byte, 0, frame.MaxHeader+4+len(payload)), op, s.cfg.Key(), payload)
}

// deliverEnd tells the attached client of the upstream's end, once it has
// everything that came before.
func (s *Session) deliverEnd(now Time) {
	a := s.att
	if a == nil || !s.up.over || a.flight.active || a.cur < s.ring.Last().Off {
		return
	}
	if !a.last {
		s.queueEnd(now, a)
	}
	if a.last && a.closing != nil && a == s.att {
		s.endClosing(now, a.closing, Linger, nil)
	}
}

// queueEnd queues what tells a of the upstream's end. A plain client that is kept is
// first asked whether it has what came before a loss.
func (s *Session) queueEnd(now Time, a *Attachment) {
	if s.up.lost && s.cfg.Kept && a.closing == nil && s.acked < s.ring.Last().N {
		s.askLast(now, a)
		return
	}
	s.compose(now, a)
	a.last = true
	switch {
	case s.up.lost && a.closing != nil: // as on a direct connection: a drop
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

// askLast asks a plain client that is kept whether it has all that came before
// the upstream broke. It is told of that by a drop, which it could not answer.
func (s *Session) askLast(now Time, a *Attachment) {
	if a.closed == 0 {
		a.closed = now
	}
	if len(a.pings) == 0 {
		s.sendPing(now, a)
	}
}

// endDelivered ends the session whose upstream's end the client has taken in.
func (s *Session) endDelivered(now Time, f CloseMode) {
	s.answerUpstream()
	e := Ending{Reason: ReasonUpstreamClosed, Code: wire.CodeEnded, Text: s.up.reason}
	if s.up.lost {
		e = s.noSessionEnding(wire.Name(wire.CodeUpstreamLost))
	}
	s.end(now, ending{Ending: e, text: s.up.reason, clientMode: f})
}

// recharge counts in the store what the session holds outside its ring.
func (s *Session) recharge() {
	held := s.q.charge
	if s.att != nil {
		held += cap(s.att.in.buf)
	}
	if held != s.charged {
		s.cfg.Store.Charge(held - s.charged)
		s.charged = held
	}
}
