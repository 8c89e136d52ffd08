package session

import (
	"reseat/gateway/wire"
)

// This file is all the timers of a session. The core has no clock: Next says when Tick is
// needed, and the driver calls it. Each next* function has a tick* function with the same
// conditions in the same order; a rule belongs in both.
//
// A limit for a peer runs only while the gateway does its own part. A peer that is not read
// cannot be blamed for silence, so a clock restarts when reading does (readAgain,
// unblock), and after a pause of the whole process (notePause).

// Next returns when Tick must be called at the latest; zero: not at all. An early call is
// harmless. Each moment here belongs to a rule in Tick, and both must agree: a timer
// that Tick does not serve would fire forever.
func (s *Session) Next() Time {
	var t Time
	switch s.state {
	case Ended:
		return 0
	case Detached:
		t = s.nextKeepalive()
	case Attached:
		t = s.nextAttached(s.att)
	}
	// From here on, moments that do not depend on a client: the upstream must be served
	// while the session is detached, too.
	t = earlier(t, s.nextEnd())
	t = earlier(t, s.q.next())
	if s.outage.since > 0 {
		t = earlier(t, s.outage.until)
	}
	if s.starved {
		t = earlier(t, s.up.heard.Add(starvedRetry))
	}
	t = earlier(t, s.leaveBy())
	return earlier(t, s.nextUpstream())
}

// nextAttached returns the next moment of a client's rules: see tickAttached.
func (s *Session) nextAttached(a *Attachment) Time {
	if a.closing != nil {
		return a.closing.deadline
	}
	t := s.answerBy(a)
	if s.crowdable() {
		t = earlier(t, max(a.looked, a.in.progress).Add(starvedRetry))
	}
	if !a.last {
		t = earlier(t, s.nextOwed(a))
	}
	// The silence of a client that is not read proves nothing.
	if a.wants(s) {
		t = earlier(t, s.growBy(a))
		t = earlier(t, s.silentAt(a))
		t = earlier(t, s.nextLook(a))
	}
	if a.overdue.at > 0 {
		t = earlier(t, a.overdue.at.Add(overdueAck))
	}
	return earlier(t, s.deadlockedAt(a))
}

// nextOwed returns when something must be sent to a live client: see tickOwed.
func (s *Session) nextOwed(a *Attachment) Time {
	t := earlier(s.pingDue(a), s.renewAt)
	if a.ackSince > 0 && !a.ackNow { // once due, it only waits for the socket
		t = earlier(t, a.ackSince.Add(ackLatest))
	}
	if a.askSince > 0 && len(a.pings) == 0 {
		t = earlier(t, a.askSince.Add(ackWanted))
	}
	if in := s.incoming; in != nil && in.since > 0 && !in.due {
		t = earlier(t, in.since.Add(partLatest))
	}
	return t
}

// nextUpstream returns the next moment of the upstream's rules: see tickUpstream.
func (s *Session) nextUpstream() Time {
	var t Time
	if s.answerPending() {
		t = s.up.answerBy
	}
	if !s.up.wants(s) {
		return t
	}
	if s.scan.open {
		t = s.scan.progress.Add(stalledMessage)
	}
	// One heartbeat of silence brings a ping, a second one without any byte the end.
	if hb := s.cfg.UpstreamHeartbeat; hb > 0 && !s.up.closed {
		if s.up.pinged {
			hb *= 2
		}
		t = earlier(t, s.up.heard.Add(hb))
	}
	return t
}

// earlier returns the earlier of two moments, where zero means never.
func earlier(a, b Time) Time {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// Tick applies every rule that is due by now.
func (s *Session) Tick(now Time) {
	// First of all: after a pause none of the clocks below may be judged.
	s.notePause(now)
	s.q.release(now)
	switch {
	case s.state == Ended, s.endInTime(now):
		return
	case s.state == Detached:
		s.tickKeepalives(now)
	case s.state == Attached:
		s.tickAttached(now, s.att)
	}
	if s.outage.since > 0 && now >= s.outage.until {
		s.FailRedial(now, "not back in time")
	}
	if t := s.leaveBy(); t > 0 && now >= t {
		s.left()
	}
	s.tickUpstream(now)
}

// tickAttached applies the rules for an attached client: it may be dead, in violation of
// the protocol, or owed some output.
func (s *Session) tickAttached(now Time, a *Attachment) {
	if a.closing != nil {
		if now >= a.closing.deadline {
			s.expireClosing(now, a.closing)
		}
		return
	}
	// An unfinished message is judged only while the client is read.
	if a.looked = now; s.crowded() {
		s.readAgain(now, a)
	}
	reads := a.wants(s)
	if t := s.nextLook(a); t > 0 && now >= t {
		a.socket.looked = now
	}
	// The order matters where several are due, as after a long pause of the client: a
	// disconnect, which it can resume from, comes before a violation, which ends the session.
	switch dead := s.silentAt(a); {
	case s.answerBy(a) > 0 && now >= s.answerBy(a):
		s.drop(now, "close not answered", Shut, nil)
	case dead > 0 && now >= dead:
		if s.trip.smoothed == 0 && s.trip.silent < maxSilent { // perhaps its round trip takes longer
			s.trip.silent++
		}
		s.drop(now, "silent", Reset, nil)
	case s.deadlockedAt(a) > 0 && now >= s.deadlockedAt(a):
		s.drop(now, "its answer lies behind what the game server does not take", Reset, nil)
	case reads && s.growBy(a) > 0 && now >= s.growBy(a):
		s.stalled(now)
	case a.overdue.at > 0 && now >= a.overdue.at.Add(overdueAck):
		s.violation(now, wire.CodeProtocolViolation, "message %d not acked for %v", a.overdue.n, overdueAck)
	case a.last:
	default:
		s.tickOwed(now, a)
	}
}

// answerBy returns when our Close frame must have been answered; zero: never. A client
// that may still have messages to read has a minute, counted from its newest ack, or from its last sign
// of life if one of them is large; any other
// has a second, counted from its last sign of life. Protocol section 11, Close frames from
// the client.
func (s *Session) answerBy(a *Attachment) Time {
	if a.closed == 0 {
		return 0
	}
	if s.survivesDisconnect() && s.acked < s.ring.Last().N {
		since := max(a.closed, a.acks, a.excused)
		if s.large > s.ring.Base().Off { // it may take minutes to receive
			since = max(since, a.heard)
		}
		return since.Add(overdueAck)
	}
	if !s.cfg.Resumable && !s.up.lost {
		return a.closed.Add(closeWait)
	}
	return max(a.closed, a.silentSince()).Add(answerWait)
}

// stalled handles a message that does not grow: protocol section 11, Size. A resumable
// client is only disconnected, since it can send the message again; a plain one cannot.
func (s *Session) stalled(now Time) {
	if s.cfg.Resumable {
		s.drop(now, "unfinished message", Reset, nil)
		return
	}
	s.violation(now, wire.CodeProtocolViolation, "unfinished message")
}

// tickOwed sends what a live client is owed.
func (s *Session) tickOwed(now Time, a *Attachment) {
	if a.askSince > 0 {
		s.askPong(now, a)
	}
	if a.ackSince > 0 && now >= a.ackSince.Add(ackLatest) {
		a.ackNow = true
	}
	if in := s.incoming; in != nil && in.since > 0 && now >= in.since.Add(partLatest) {
		in.due = true
	}
	if now >= s.pingDue(a) {
		s.sendPing(now, a)
	}
	if now >= a.sent.Add(s.cfg.Heartbeat) {
		a.sent = now // one ping for each heartbeat, whether or not the socket accepted it
	}
	s.renewIfDue(now)
}

// tickUpstream applies the rules for the upstream. While it is not read, its silence is
// not judged.
func (s *Session) tickUpstream(now Time) {
	if s.answerPending() && now >= s.up.answerBy {
		s.answerUpstream()
	}
	if s.starved && now >= s.up.heard.Add(starvedRetry) {
		s.up.heard, s.scan.progress = now, now // it was not read: the silence was ours
		if s.att != nil {
			s.askAck(now, s.att)
		}
		s.starved = false
		s.relieve(now)
	}
	if !s.up.wants(s) {
		return
	}
	hb := s.cfg.UpstreamHeartbeat
	if s.up.closed {
		hb = 0 // no ping may follow a Close frame; closeWait applies
	}
	switch {
	case s.scan.open && now >= s.scan.progress.Add(stalledMessage):
		s.loseUpstream(now, wire.CodeProtocolError, "unfinished message")
	case hb > 0 && now >= s.up.heard.Add(2*hb):
		s.breakUpstream(now, "upstream silent")
	case hb > 0 && now >= s.up.heard.Add(hb) && !s.up.pinged:
		s.up.pinged, s.up.pingDue = true, true
	}
}
