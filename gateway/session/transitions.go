package session

import (
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/wire"
)

// State is the state of a session's life cycle. Only this file changes it. The rules
// are those of protocol section 6.
//
//	state       event                      next        action
//	connecting  first attach               attached    hello (plain client: nothing)
//	connecting  created before its client  detached    the grace period starts
//	attached    disconnect, Close, silence detached    the grace period starts; hard: 1001 to the upstream
//	attached    good resume                attached    4409 to the older connection
//	attached    bye, violation, end        ended       both legs are notified
//	detached    good resume                attached    hello, then replay
//	detached    good resume, hard          connecting  the grace timer pauses during the dial
//	connecting  upstream connected         attached    queued messages go to it first
//	connecting  dial failed                detached    the grace timer continues
//	detached    grace period over          ended       1001 to the upstream
//	any         upstream closed or lost    unchanged   until the client has everything before it
//	any         upstream to be replaced    unchanged   an outage: see outage.go
//	any         end, drain, idle, login    ended       both legs are notified
//	any         input of an older epoch    unchanged   none
type State uint8

// The states, as the control API names them.
const (
	Connecting State = iota
	Attached
	Detached
	Ended
)

// String returns the state's name in the control API and in metrics.
func (s State) String() string {
	return [...]string{"connecting", "attached", "detached", "ended"}[s]
}

// AttachFirst attaches the client that the session was made for. If the session has
// already ended, the client gets the close that an attached one would have got.
func (s *Session) AttachFirst(now Time, p Pass) *Attachment {
	a := s.newAttachment(now, p)
	if s.state == Ended {
		a.mode, a.ctl = Linger, s.outcome.closeFrames
		return a
	}
	s.takesSkips = p.Skips && s.cfg.Resumable
	s.setReplacing()
	switch {
	case s.cfg.Resumable:
		s.hello(a, now, p, wire.Hello{})
	case s.cfg.PlainResume:
		s.gen.Issue(p.Gen)
		a.gen, s.expires = p.Gen, p.Expires
	}
	s.enterAttached(now, a, Event{Kind: Created})
	return a
}

// Reserve detaches a session that is created before its client connects. The client
// resumes it with the token of p.
func (s *Session) Reserve(now Time, p Pass) {
	if s.state == Ended {
		return
	}
	s.gen.Issue(p.Gen)
	s.expires, s.reserved = p.Expires, true
	s.emit(Event{Kind: Created, Peer: p.Peer})
	s.enterDetached(now)
	s.answerBuffered()
	s.startKeepalives(now)
	s.unblock(now)
}

// Attach attaches a resuming client, or returns a Refusal as Check does. A Refusal with
// code 0 asks the caller to try again: another attach has taken the generation of p
// meanwhile, or NeedsUpstream, perhaps only since the client has got further elsewhere: see goOnFrom.
func (s *Session) Attach(now Time, r Resume, p Pass) (*Attachment, *Refusal) {
	if ref := s.Check(now, r); ref != nil {
		return nil, ref
	}
	switch {
	case s.cfg.Resumable && p.Gen != s.gen.Next():
		return nil, &Refusal{Text: "generation overtaken"}
	case s.NeedsUpstream(), s.goOnFrom(now, r):
		return nil, &Refusal{Text: "upstream released"}
	}
	ev := Event{Kind: Resumed}
	if old := s.att; old != nil {
		ev.Kind, ev.OldPeer, ev.Outage = Superseded, old.peer, now.Sub(old.heard)
		s.noteTakeover(now)
		// A takeover is a resume like any other: it counts for `no progress`.
		s.noteProgress(now, old)
		s.release(old, Linger, s.closing(wire.Closing{Code: wire.CodeSuperseded, Reason: wire.Name(wire.CodeSuperseded)}), false)
	} else {
		ev.Elapsed = now.Sub(s.detached)
		ev.Outage = ev.Elapsed
		if s.heard > 0 { // zero: no client was ever attached
			ev.Outage = now.Sub(s.heard)
		}
		s.notifyResumed()
		if p.Look {
			s.noticeStates(ev.Outage)
		}
	}
	// Using a token confirms it: older generations are superseded from here on, protocol
	// section 7.
	s.gen.Confirm(r.Gen)
	s.tookHello(r.Gen)
	ev.Moved = s.MovedHere()
	s.grantResend(now)
	base := s.ring.Base().N
	if !s.cfg.Resumable {
		r.Received = s.acked // it states no N: its last Pong did
	}
	if r.Received > base {
		s.releaseUpTo(r.Received, s.ring.Last().Off)
		base = s.ring.Base().N
	}
	s.noteReceived(r.Received)
	ev.Skipped = s.states.after(r.Received)
	ev.Lost = base - r.Received - ev.Skipped
	if !s.cfg.Resumable {
		s.acked = base // no hello reports the lost messages to it, and no Pong can cover them
	}
	s.takesSkips = r.Skips && s.cfg.Resumable
	s.replaceAll()
	ev.Skipped += s.ring.Replaced()
	ev.Replay = uint64(s.ring.Messages())
	s.outage.heard.attach(r.Received)
	s.sentN = max(s.sentN, base)
	s.stats.Replayed += ev.Replay

	if base != r.Received || ev.Moved == wire.MovedFailover { // the first message to come may be another one
		p.Held = 0
	}
	a := s.newAttachment(now, p)
	a.resumed, a.replaying, a.catchUp = s.epoch > 0, true, s.ring.Last().Off
	if s.cfg.Resumable {
		s.hello(a, now, p, wire.Hello{Resumed: a.resumed, Received: s.receivedInHello(a), Lost: ev.Lost, Replay: ev.Replay, Skipped: ev.Skipped, Moved: ev.Moved})
		s.tellSkipped(a, r.Received, ev.Lost)
	} else {
		a.gen = r.Gen
	}
	s.enterAttached(now, a, ev)
	return a, nil
}

// hello queues the first message of a connection: protocol section 5.1. Received, the
// client's newest message that the session has, comes from the caller.
func (s *Session) hello(a *Attachment, now Time, p Pass, h wire.Hello) {
	s.gen.Issue(p.Gen)
	a.gen = p.Gen
	h.Session, h.Token, h.Protocol, h.Route, h.Durable = s.cfg.ID, p.Token, s.cfg.Protocol, p.Route, p.Durable
	h.Probe = true
	if p.Parts {
		a.takesParts, h.PartBytes = true, PartBytes
	}
	if p.Partial {
		a.partial, h.Partial = true, new(wire.Partial)
		h.Partial.Down = s.resumeParts(a, p.Held)
	}
	if up := s.resumeIncoming(a); h.Partial != nil {
		h.Partial.Up = up
	}
	h.Grace, h.Heartbeat, h.Answer = s.keep().Milliseconds(), s.cfg.Heartbeat.Milliseconds(), s.cfg.Answer.Milliseconds()
	h.Limits = wire.Limits{MessageBytes: s.cfg.MaxMessage, UnackedMessages: UnackedMessages, UnackedBytes: UnackedBytes}
	a.ctl = wire.AppendJSON(a.ctl, wire.VerbHello, h)
	if s.written.n > 0 {
		a.ackSince = now // protocol section 5.2: all of it is acked again after a resume
	}
	s.renewAt, s.expires = now.Add(p.Renew), p.Expires
}

// enterAttached makes a the attached client in a new epoch, and resets everything that
// belongs to the time without one.
func (s *Session) enterAttached(now Time, a *Attachment, ev Event) {
	s.epoch++
	a.epoch = s.epoch
	s.state, s.att = Attached, a
	// The grace timer must not survive the attach: the next detach starts a new one.
	s.detached, s.graceEnd, s.awaiting, s.scan.overflowed = 0, 0, 0, false
	s.waitNoMore()
	ev.Peer = a.peer
	s.emit(ev)
	s.tellState(a)
	s.unblock(now)
}

// drop detaches the attached client, or ends a session that does not survive a
// disconnect. f says how the connection is closed, final what it is sent before.
func (s *Session) drop(now Time, why string, f CloseMode, final []byte) {
	a := s.att
	switch {
	case a.closing != nil:
		s.endClosing(now, a.closing, f, final)
		return
	case !s.survivesDisconnect() && s.up.over:
		s.endDelivered(now, f)
		return
	case !s.survivesDisconnect():
		s.end(now, ending{Ending: s.noSessionEnding(ReasonClientGone), clientMode: f, client: final})
		return
	}
	s.answerUpstream() // the client cannot any more
	futile := s.noteProgress(now, a)
	s.detach(now, why, f, final)
	if futile {
		s.endFutile(now)
		return
	}
	ends := s.graceEnd <= now && s.mayEnd(now)
	s.notifyDetached(ends)
	switch {
	case ends:
		s.endInTime(now)
	case s.cfg.Hard && !s.isLeaving() && s.served():
		s.closeReleased()
	default:
		s.answerBuffered()
		s.startKeepalives(now)
		s.unblock(now)
	}
}

// detach closes the attached client's connection, as drop does, and starts the grace period.
func (s *Session) detach(now Time, why string, f CloseMode, final []byte) {
	a := s.att
	s.release(a, f, final, false)
	s.att = nil
	s.emit(Event{Kind: Disconnected, Reason: why, Peer: a.peer, Silent: now.Sub(a.heard)})
	s.enterDetached(now)
}

// detachArrived detaches the client of a session that another node has handed off, whose clock was d
// behind: the connection has stayed there.
func (s *Session) detachArrived(now Time, d time.Duration) {
	s.awaiting = 0
	if a := s.att; a != nil {
		s.heard = max(s.heard, a.heard.Add(d), 1)
		s.forgetInbound(a)
		s.att = nil
	}
	if s.state != Detached {
		s.enterDetached(now)
	}
}

// enterDetached starts the grace period: protocol section 6.
func (s *Session) enterDetached(now Time) {
	s.state, s.detached, s.paused = Detached, now, 0
	s.graceEnd = now.Add(s.grace())
	if s.replacing {
		s.index(s.ring.Base())
	}
}

// retimeGrace recomputes the end of the grace period.
func (s *Session) retimeGrace() { s.graceEnd = s.detached.Add(s.paused + s.grace()) }

// NeedsUpstream reports whether the session has no upstream (--disconnect hard). A
// resume must wait until one has been dialled.
func (s *Session) NeedsUpstream() bool {
	return s.up.released && !s.up.over && s.outage.since == 0 && s.state != Ended
}

// TakesUpstream reports whether Reconnect may be called with an upstream that was dialled in the outage that
// began then, or, with zero, for a waiting client. What one was dialled for may be over: its request had other
// counts then (see Counts).
func (s *Session) TakesUpstream(outage Time) bool {
	if outage > 0 {
		return s.outage.since == outage && s.state != Ended
	}
	return s.NeedsUpstream() && !s.isLeaving() && (s.durable == nil || !s.durable.stale)
}

// BeginRedial says that a client waits while a new upstream is dialled. The grace timer
// pauses until the client is attached, or until CancelRedial. A session that is being handed off
// gets none.
func (s *Session) BeginRedial(now Time) {
	if s.state == Detached && !s.isLeaving() {
		s.state, s.awaiting = Connecting, now
	}
}

// CancelRedial says that no client waits any more: the dial failed, or the client gave up.
// The grace timer continues. An upstream that connected meanwhile is released again.
func (s *Session) CancelRedial(now Time) {
	if s.awaiting == 0 || s.state != Connecting {
		return
	}
	s.state = Detached
	s.paused, s.awaiting = s.pausedBy(now), 0
	s.retimeGrace()
	s.answerUpstream() // a plain client cannot any more
	s.closeReleased()  // the dial may have succeeded just before the client gave up
}

// Reconnect gives a session that takes one its next upstream. It first gets the
// messages that were received and not written. early holds the bytes that it sent
// right after its handshake response.
func (s *Session) Reconnect(now Time, early []byte) *Upstream {
	replaced := s.outage.since > 0
	if !replaced {
		s.BeginRedial(now) // for a client that has waited since before the detach
	}
	// The queue may hold input that its reader has yet to retain: it may be writing something
	// else to the older upstream, and would reuse its buffer after that.
	s.Retain()
	if s.writer != nil {
		s.writer.mode = Shut // abort its write: the message goes to the next upstream whole
	}
	s.up = &Upstream{heard: now}
	if replaced {
		s.endOutage(now)
	} else {
		s.notifyReconnected()
	}
	s.feed(now, early)
	s.recount(now)
	return s.up
}

// end ends the session. The first reason counts: ending it again changes nothing.
func (s *Session) end(now Time, e ending) {
	if s.state == Ended {
		return
	}
	ev := Event{Kind: SessionEnded, Reason: e.Reason, Detail: e.text}
	if s.waitsForClient() {
		ev.Elapsed = now.Sub(s.detached)
	}
	s.outcome = &outcome{Ending: e.Ending}
	s.outcome.At, s.outcome.Detail = now, e.text
	if a := s.att; a != nil {
		ev.Silent = now.Sub(a.heard)
		s.release(a, e.clientMode, e.client, e.flush)
		s.att = nil
	} else {
		s.outcome.closeFrames = e.client
	}
	s.forgetIncoming()
	s.closeUpstream(e.code, e.text)
	if s.up.released && s.writer == nil { // with a write in flight, takeBack must first learn how much was taken
		s.dropQueue()
	}
	s.state, s.awaiting = Ended, 0
	s.dropIndex()
	// Nothing is replayed any more. Output that release has moved into rest stays valid.
	s.ring.Release()
	s.emit(ev)
}

// Disconnect resets the client's connection without a Close frame, for an operator or a
// test of reconnects. It reports false if no client is attached.
func (s *Session) Disconnect(now Time) bool {
	if s.att == nil {
		return false
	}
	s.drop(now, "disconnected by the operator", Reset, nil)
	return true
}

// CloseClient closes the client's connection with an unannounced Close frame, as a proxy
// would: protocol section 6. It reports false if no client is attached.
func (s *Session) CloseClient(now Time, code int, text string) bool {
	if s.att == nil {
		return false
	}
	s.drop(now, "closed by the operator", Linger, frame.Append(nil, frame.Close, frame.ClosePayload(code, text)))
	return true
}

// gone ignores the end of a connection that the session has replaced: only the attached
// one detaches it.
func (a *Attachment) gone(s *Session, now Time, why string) {
	if a == s.att {
		s.drop(now, why, Shut, nil)
	}
}

// writeFailed closes the connection even if the session has replaced it: nothing more can
// be sent on it.
func (a *Attachment) writeFailed(s *Session, now Time, why string) {
	a.gone(s, now, why)
	a.mode = max(a.mode, Shut)
}

// State returns where the session is in its life cycle.
func (s *Session) State() State { return s.state }
