package session

import (
	"strconv"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/wire"
)

// This file is the connection to the game server: output to it, its control frames, and how
// it ends. Its input is down.go.
//
// An upstream ends in one of three ways, which must not be confused, since each means
// something else to the client (protocol section 6):
//
//   - over, not lost: it sent a Close frame. The client gets that code.
//   - over and lost: it broke, or violated the protocol. The client gets 4502, or with a
//     plain client the disconnect that it would have seen on a direct connection.
//   - released: the session gave it up (--disconnect hard), or replaces it (--upstream-lost
//     redial: outage.go), and the next one gets what it has not written.

// An Upstream is one connection of a session to its game server. Most sessions have only
// one. With --disconnect hard the upstream of a detached session is closed, and a resume
// brings the next one; with --upstream-lost redial a lost one is replaced. Input of a
// replaced one changes nothing.
type Upstream struct {
	mode       CloseMode
	unwritable bool // a write failed: it takes no more bytes
	released   bool // the session has no upstream, or another one
	pinged     bool // after heard
	pingDue    bool
	over       bool // no more input follows: it has closed,
	lost       bool // or it broke or violated the protocol, without a close code of its own
	closed     bool // a Close frame is queued: nothing follows it
	heard      Time

	// Output: rest first, then the session's queue. Once released, only rest.
	rest   []byte   // frames of the gateway
	flight upFlight // returned by Out, not yet reported by Wrote

	// Fields that not every message needs.
	took     Time   // when it last accepted bytes
	answerBy Time   // when its Close frame is answered without the plain client
	final    []byte // released during a write: what goes out after it
	pongs    pongs  // answers to its Pings
	code     int    // of its Close frame
	reason   string
}

// upFlight is output to the upstream that is in flight.
type upFlight struct {
	active bool
	rest   int  // bytes of rest
	queue  bool // and the session's queue, which only one upstream at a time may write
}

// CloseMode implements Leg.
func (u *Upstream) CloseMode() CloseMode { return u.mode }

// FlushTime implements Leg.
func (*Upstream) FlushTime() time.Duration { return upstreamFlush }

// HalfClose implements Leg.
func (*Upstream) HalfClose() bool { return false }

// Direct implements Leg.
func (*Upstream) Direct() bool { return true }

// Over reports whether u sends no more input: its Close frame has been read, or it was
// lost. A plain client's upstream may still be written to until its Close frame is
// answered.
func (u *Upstream) Over() bool { return u.over }

// Upstream returns the current upstream connection, or the last one if there is none.
func (s *Session) Upstream() *Upstream { return s.up }

// hasOutput must be cheap, and must name every kind of output: see Attachment.hasOutput.
func (u *Upstream) hasOutput(s *Session, _ Time) bool {
	switch {
	case u.flight.active || u.unwritable || u.mode >= Shut:
		return false
	case len(u.rest) > 0 || u.hasQueue(s):
		return true
	}
	return u.pingDue || len(u.pongs.due) > 0
}

// hasQueue reports whether u may write the queue now.
func (u *Upstream) hasQueue(s *Session) bool {
	return s.writer == nil && s.q.ready() && u == s.up && !u.released && !(s.durable != nil && s.durable.closing)
}

// out returns frames of the gateway first, then the queue. Only one upstream at a time may
// write the queue: an older one may still be writing when the next one connects.
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

// maxPongCharge limits the bytes that wait for an upstream. Beyond it, answers to its Pings
// wait unsent: an upstream that sends Pings and reads nothing must not use up memory.
const maxPongCharge = 64 << 10

// composeUp queues the answers to the upstream's Pings, and our own Ping. They overtake
// messages that the rate limit holds back, which may wait for seconds.
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

// wrote counts the gateway's own frames first: out returned them first.
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
		if out.queue { // else it has taken no message, and a count may be that of a dial which nobody needs
			s.recount(now)
		}
	}
	if s.isLeaving() {
		s.closeLeaving()
	}
	return false
}

// The state of a game server's socket proves nothing: it is pinged, if at all.

func (*Upstream) waits(*Session, Time)                    {}
func (*Upstream) watchesSocket(*Session) bool             { return false }
func (*Upstream) socketState(*Session, Time, SocketState) {}

// queueWrote records that n bytes of the queue were written, and which ack is due for
// them: protocol section 5.2.
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

// writeFailed keeps reading u: its last messages, and its Close frame with the reason, may
// still wait in the socket.
func (u *Upstream) writeFailed(s *Session, _ Time, _ string) {
	u.unwritable = true
	if u.mode == Linger {
		s.shutUpstream(u)
	}
}

// gone closes u's connection. If it is the current one and has sent no Close frame, the
// upstream is lost: protocol section 6.
func (u *Upstream) gone(s *Session, now Time, why string) {
	if u == s.up && !u.released && !u.over {
		s.breakUpstream(now, why)
	}
	s.shutUpstream(u)
}

// upstreamControl handles a control frame of the upstream. After a Close frame the client
// first gets all messages: protocol section 6.
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
		switch {
		case s.leavingEnds(now, code):
			return
		case s.replaces(now, code):
			s.replaceUpstream(now, closedWith(code), frame.ClosePayload(code, ""))
			return
		}
		s.up.over, s.up.code, s.up.reason = true, code, reason
		s.noteAlone(now, UpstreamClosed, closedWith(code))
		s.stays()
		if !s.relayUpstreamClose(now) {
			s.answerUpstream()
		}
	}
}

func closedWith(code int) string { return "closed with " + strconv.Itoa(code) }

// noteAlone reports that the connection of the upstream has ended, by UpstreamLost, or by UpstreamClosed if the client
// is away: it may have been closed for the client's silence.
func (s *Session) noteAlone(now Time, kind Kind, why string) {
	ev := Event{Kind: kind, Reason: why}
	switch {
	case s.state == Detached:
		ev.Elapsed, ev.Silent = now.Sub(s.detached), now.Sub(max(s.heard, s.created))
		if s.cfg.Keepalive != KeepaliveAuto {
			ev.Keepalive = s.noticed()
		}
	case kind == UpstreamClosed:
		return
	}
	s.emit(ev)
}

// upstreamFault treats an upstream that violated RFC 6455 as lost. It reports false.
func (s *Session) upstreamFault(now Time, code int, why string) bool {
	s.loseUpstream(now, code, why)
	return false
}

// breakUpstream handles the end of a connection without a Close frame: another one replaces
// it, here or at another node, or the upstream is lost.
func (s *Session) breakUpstream(now Time, why string) {
	switch {
	case s.isLeaving():
		s.up.mode, s.up.rest = Shut, nil
		s.left()
	case s.replaces(now, noCode):
		s.replaceUpstream(now, why, nil)
	default:
		s.noteAlone(now, UpstreamClosed, why)
		s.loseUpstream(now, noCode, why)
	}
}

// loseUpstream records that the upstream sends nothing more and did not say why. The
// client is notified once it has everything before: protocol section 6.
func (s *Session) loseUpstream(now Time, code int, why string) {
	s.up.over, s.up.lost, s.up.reason = true, true, why
	s.stays()
	s.closeUpstream(code, why)
	s.deliverEnd(now)
}

// relieve frees memory after a pause in reading the upstream because the store is
// exhausted. If the upstream takes no more bytes, the queue for it may hold the very
// memory that reading its end waits for, and nobody will ever take that queue. Where a next
// upstream would take it, the current one is given up instead.
func (s *Session) relieve(now Time) {
	switch {
	case !s.up.unwritable || s.up.released || s.up.over:
	case s.cfg.Hard || s.replaces(now, noCode):
		s.breakUpstream(now, "write failed")
	default:
		s.dropQueue()
	}
}

// closeUpstream sends a Close frame after the queue; with code 0 it closes the connection
// there without one. The first call counts.
func (s *Session) closeUpstream(code int, reason string) {
	u := s.up
	if u.mode != Open || u.released {
		return
	}
	// Nothing is left to be written before the close, or nothing can be.
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

// queueClose queues a Close frame, once. The upstream is read on until closeUpstream.
func (s *Session) queueClose(code int, reason string) {
	if s.up.closed || s.up.released || s.up.mode != Open {
		return
	}
	s.pushControl(frame.Close, frame.ClosePayload(code, reason))
	s.q.held, s.q.heldBytes = 0, 0
	s.up.closed = true
}

// shutUpstream closes u's connection at once. Output queued for the current upstream is
// dropped.
func (s *Session) shutUpstream(u *Upstream) {
	u.mode, u.rest = Shut, nil
	if u == s.up && !u.released {
		s.dropQueue()
	}
}

// dropQueue drops the queue. A write of it that is in flight continues from memory that
// nothing else uses.
func (s *Session) dropQueue() {
	if s.writer != nil {
		s.writer.flight.queue = false
		s.writer = nil
	}
	s.q = upqueue{}
	s.recharge()
}

// closeReleased takes the upstream of a detached session off it (--disconnect hard). It gets
// a Close frame with 1001.
func (s *Session) closeReleased() {
	switch {
	case s.outage.since > 0: // there is none, and the resume will dial the next
		s.outage = outage{heard: s.outage.heard}
	case s.up.mode == Open && !s.up.released:
		var final []byte
		if text := s.cfg.Notices.Detach; text != "" {
			final = s.masked(frame.Text, []byte(text))
		}
		s.releaseUpstream(append(final, s.masked(frame.Close, frame.ClosePayload(wire.CodeGoingAway, "disconnected"))...))
	}
}

// releaseUpstream takes the upstream off the session. It gets final, if its connection is
// still open; the messages that it has not taken are for the next one.
func (s *Session) releaseUpstream(final []byte) {
	u := s.up
	u.released, u.final = true, final
	if s.writer == u { // nobody may wait for it for longer than for any other last output
		u.mode = max(u.mode, Linger)
	}
	// A message that the old upstream did not finish is dropped: the next one starts with a
	// new message.
	s.ring.Truncate()
	s.scan, s.starved = scanner{overflowed: s.scan.overflowed}, false
	s.takeBack(u)
}

// takeBack ends a released upstream's use of the queue, once no write of it is in flight.
// A message that it has taken in part goes to the next upstream whole, so its own
// connection is closed inside that message: it must not count it, too.
func (s *Session) takeBack(u *Upstream) {
	if s.writer == u || u.final == nil {
		return
	}
	final := u.final
	u.final = nil
	older := s.writer != nil // another one's write is still in flight: u never wrote the queue
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
	case s.up.released && (s.state == Ended || s.up.over):
		s.dropQueue()
		return
	}
	s.q.takeBack()
	for _, p := range s.q.pieces {
		s.remaskAll(p) // RFC 6455 section 5.3: a fresh key for each frame sent
	}
	s.recharge()
}

// pushControl queues a control frame for the current upstream.
func (s *Session) pushControl(op byte, payload []byte) { s.pushOwn(s.masked(op, payload)) }

// pushOwn queues a frame of the gateway, behind held units. It is for the current upstream
// only: the next one must not get it.
func (s *Session) pushOwn(p []byte) {
	s.q.own(p, notCounted)
	s.q.units[len(s.q.units)-1].to = s.up
	s.q.hold(0, 0)
}

// masked returns a frame of the gateway for the upstream.
func (s *Session) masked(op byte, payload []byte) []byte {
	return frame.AppendMasked(make([]byte, 0, frame.MaxHeader+4+len(payload)), op, s.cfg.Key(), payload)
}

// deliverEnd notifies the attached client that the upstream has closed or was lost, once
// everything before was written to it: protocol section 6.
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

// queueEnd queues that notification for a: `end` or `close` 4502, then a Close frame. A
// cookie client is first asked whether it has received everything before a loss.
func (s *Session) queueEnd(now Time, a *Attachment) {
	if s.up.lost && s.cfg.PlainResume && a.closing == nil && s.acked < s.ring.Last().N {
		s.askLast(now, a)
		return
	}
	s.compose(now, a)
	a.last = true
	switch {
	case s.up.lost && a.closing != nil: // closed without a Close frame, as on a direct connection
	// `end` is sent only for a Close frame of the game server: the application must be able
	// to tell an end from a failure.
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

// askLast asks a cookie client whether it has received everything before the upstream
// broke. It is notified by a disconnect, after which it could no longer answer.
func (s *Session) askLast(now Time, a *Attachment) {
	if a.closed == 0 {
		a.closed = now
	}
	if len(a.pings) == 0 {
		s.sendPing(now, a)
	}
}

// endDelivered ends the session once its client has received the upstream's end.
func (s *Session) endDelivered(now Time, f CloseMode) {
	s.answerUpstream()
	e := Ending{Reason: ReasonUpstreamClosed, Code: wire.CodeEnded, Text: s.up.reason}
	if s.up.lost {
		e = s.noSessionEnding(wire.Name(wire.CodeUpstreamLost))
	}
	s.end(now, ending{Ending: e, text: s.up.reason, clientMode: f})
}

// recharge updates what the store counts for the memory that the session holds outside
// its replay buffer.
func (s *Session) recharge() {
	held := s.q.charge
	if s.att != nil {
		held += cap(s.att.in.buf)
	}
	if s.incoming != nil {
		held += cap(s.incoming.buf)
	}
	if held != s.charged {
		s.cfg.Store.Charge(held - s.charged)
		s.charged = held
	}
}
