package session

import (
	"reseat/gateway/frame"
	"reseat/gateway/wire"
)

// A State is where a session is in its life. Every change of it is made in
// this file.
//
//	state       event                      next        what happens
//	connecting  first attach               attached    hello (a plain client: nothing)
//	connecting  made ahead of its client   detached    the grace period runs
//	attached    drop, Close, silence       detached    the grace period runs; hard: the upstream gets 1001
//	attached    good resume                attached    the older connection gets 4409
//	attached    bye, violation, end        ended       both legs are told
//	detached    good resume                attached    hello, then what was missed
//	detached    good resume, hard          connecting  the timer rests while the upstream is dialled
//	connecting  upstream there again       attached    what it was owed goes first
//	connecting  upstream not there         detached    the timer goes on
//	detached    grace over                 ended       the upstream gets 1001
//	any         upstream closed or lost    the same    until all before it was delivered
//	any         end, drain, idle, login    ended       both legs are told
//	any         anything of an old epoch   the same    nothing
type State uint8

// The states, as the control API names them.
const (
	Connecting State = iota
	Attached
	Detached
	Ended
)

// String is the state's name in the control API and in metrics.
func (s State) String() string {
	return [...]string{"connecting", "attached", "detached", "ended"}[s]
}

// AttachFirst attaches the client that the session was made for. Where the
// session has ended before it came, the client is told so.
func (s *Session) AttachFirst(now Time, p Pass) *Attachment {
	a := s.newAttachment(now, p)
	if s.state == Ended {
		a.mode, a.ctl = Linger, s.closeFrames
		return a
	}
	switch {
	case s.cfg.Resumable:
		s.hello(a, now, p, wire.Hello{})
	case s.cfg.Kept:
		s.gen.Issue(p.Gen)
		a.gen, s.expires = p.Gen, p.Expires
	}
	s.enterAttached(now, a, Event{Kind: Created})
	return a
}

// Reserve has the session wait for a client that it was made ahead of, and
// that is to resume with the token of p.
func (s *Session) Reserve(now Time, p Pass) {
	if s.state == Ended {
		return
	}
	s.gen.Issue(p.Gen)
	s.expires, s.reserved = p.Expires, true
	s.emit(Event{Kind: Created, Peer: p.Peer})
	s.enterDetached(now)
	s.answerBuffered()
	s.startBeats(now)
	s.unblock(now)
}

// Attach attaches a resuming client. It reports a Refusal as Check does, and
// with code 0 one that is to begin anew: since the generation of its pass has
// been overtaken meanwhile, or since NeedsUpstream.
func (s *Session) Attach(now Time, r Resume, p Pass) (*Attachment, *Refusal) {
	if ref := s.Check(now, r); ref != nil {
		return nil, ref
	}
	switch {
	case s.cfg.Resumable && p.Gen != s.gen.Next():
		return nil, &Refusal{Text: "generation overtaken"}
	case s.NeedsUpstream():
		return nil, &Refusal{Text: "upstream released"}
	}
	ev := Event{Kind: Resumed}
	if old := s.att; old != nil {
		ev.Kind, ev.Was, ev.Away = Superseded, old.peer, now.Sub(old.heard)
		s.noteTakeover(now)
		s.noteProgress(now, old)
		s.release(old, Linger, s.closing(wire.Closing{Code: wire.CodeSuperseded, Reason: wire.Name(wire.CodeSuperseded)}), false)
	} else {
		ev.Took = now.Sub(s.detached)
		ev.Away = ev.Took
		if s.heard > 0 { // not where it was made ahead of its client
			ev.Away = now.Sub(s.heard)
		}
		s.notifyResumed()
	}
	s.gen.Confirm(r.Gen)
	s.grantResend(now)
	base := s.ring.Base().N
	if !s.cfg.Resumable {
		r.Received = s.acked // it cannot say: its last Pong did
	}
	if r.Received > base {
		s.ring.Ack(r.Received, s.ring.Last().Off)
		base = r.Received
	}
	s.noteReceived(r.Received)
	ev.Lost = base - r.Received
	if !s.cfg.Resumable {
		s.acked = base // no hello tells it of what is gone, and no Pong is to
	}
	ev.Replay = s.ring.Last().N - base
	s.sentN = max(s.sentN, base)
	s.stats.Replayed += ev.Replay

	a := s.newAttachment(now, p)
	a.resumed, a.replaying, a.catchUp = s.epoch > 0, true, s.ring.Last().Off
	if s.cfg.Resumable {
		s.hello(a, now, p, wire.Hello{Resumed: a.resumed, Received: s.received.n, Lost: ev.Lost, Replay: ev.Replay})
	} else {
		a.gen = r.Gen
	}
	s.enterAttached(now, a, ev)
	return a, nil
}

func (s *Session) hello(a *Attachment, now Time, p Pass, h wire.Hello) {
	s.gen.Issue(p.Gen)
	a.gen = p.Gen
	h.Session, h.Token, h.Protocol = s.cfg.ID, p.Token, s.cfg.Protocol
	h.Grace, h.Heartbeat, h.Answer = s.keep().Milliseconds(), s.cfg.Heartbeat.Milliseconds(), s.cfg.Answer.Milliseconds()
	h.Limits = wire.Limits{MessageBytes: s.cfg.MaxMessage, UnackedMessages: UnackedMessages, UnackedBytes: UnackedBytes}
	a.ctl = wire.AppendJSON(a.ctl, wire.VerbHello, h)
	if s.written.n > 0 {
		a.ackSince = now // acked anew, though an older connection was told already
	}
	s.renewAt, s.expires = now.Add(p.Renew), p.Expires
}

func (s *Session) enterAttached(now Time, a *Attachment, ev Event) {
	s.epoch++
	a.epoch = s.epoch
	s.state, s.att = Attached, a
	s.detached, s.graceEnd, s.awaiting, s.scan.overflowed = 0, 0, 0, false
	ev.Peer = a.peer
	s.emit(ev)
	s.unblock(now)
}

// drop detaches the attached client, or ends the session where a drop does.
// final is what its connection is still sent.
func (s *Session) drop(now Time, why string, f CloseMode, final []byte) {
	a := s.att
	switch {
	case a.closing != nil:
		s.endClosing(now, a.closing, f, final)
		return
	case !s.kept() && s.up.over:
		s.endDelivered(now, f)
		return
	case !s.kept():
		s.end(now, ending{Ending: s.noSessionEnding(ReasonClientGone), clientMode: f, client: final})
		return
	}
	s.answerUpstream() // the client will not
	futile := s.noteProgress(now, a)
	s.release(a, f, final, false)
	s.att = nil
	s.emit(Event{Kind: Dropped, Reason: why, Peer: a.peer, Silent: now.Sub(a.heard)})
	s.enterDetached(now)
	if futile {
		s.endFutile(now)
		return
	}
	s.notifyDetached(now)
	switch {
	case s.graceEnd <= now:
		s.endGrace(now)
	case s.cfg.Hard && s.up.mode == Open:
		s.releaseUpstream()
	default:
		s.answerBuffered()
		s.startBeats(now)
		s.unblock(now)
	}
}

func (s *Session) enterDetached(now Time) {
	s.state, s.detached, s.paused = Detached, now, 0
	s.graceEnd = now.Add(s.grace())
}

// NeedsUpstream reports whether the session has no upstream, --disconnect hard:
// a resume is to wait until one has been dialled.
func (s *Session) NeedsUpstream() bool { return s.up.released && s.state != Ended }

// Await says that a client waits while the upstream is dialled anew. The grace
// timer rests until it is attached, or Forgo.
func (s *Session) Await(now Time) {
	if s.state == Detached {
		s.state, s.awaiting = Connecting, now
	}
}

// Forgo says that no client waits any more: the upstream could not be had, or
// nobody wants it. The grace timer goes on.
func (s *Session) Forgo(now Time) {
	if s.awaiting == 0 || s.state != Connecting {
		return
	}
	s.state = Detached
	s.paused, s.awaiting = s.pausedBy(now), 0
	s.graceEnd = s.detached.Add(s.paused + s.grace())
	if s.up.mode == Open && !s.up.released {
		s.releaseUpstream()
	}
}

// Reconnect gives a session that needs one its next upstream. What was admitted
// and not written goes to it first. early is what it sent right behind its
// answer.
func (s *Session) Reconnect(now Time, early []byte) *Upstream {
	s.Await(now) // where the client has waited since before the drop
	if s.writer != nil {
		s.writer.mode = Shut // what it is writing is broken off
	}
	s.up = &Upstream{heard: now}
	s.notifyReconnected()
	s.feed(now, early)
	return s.up
}

// end ends the session. One end, one reason: a second one changes nothing.
func (s *Session) end(now Time, e ending) {
	if s.state == Ended {
		return
	}
	ev := Event{Kind: Over, Reason: e.Reason, Detail: e.text}
	if s.waitsForClient() {
		ev.Took = now.Sub(s.detached)
	}
	if a := s.att; a != nil {
		ev.Silent = now.Sub(a.heard)
		s.release(a, e.clientMode, e.client, e.flush)
		s.att = nil
	} else {
		s.closeFrames = e.client
	}
	s.closeUpstream(e.code, e.text)
	if s.up.released && s.writer == nil { // else takeBack has to know what was taken of it
		s.dropQueue()
	}
	e.At, e.Detail = now, e.text
	s.state, s.ending, s.awaiting = Ended, e.Ending, 0
	s.ring.Release()
	s.emit(ev)
}

// Disconnect cuts the client's connection without a Close. It reports false
// where none is attached.
func (s *Session) Disconnect(now Time) bool {
	if s.att == nil {
		return false
	}
	s.drop(now, "disconnected by the operator", Reset, nil)
	return true
}

// CloseClient closes the client's connection with a Close frame that neither
// close nor end goes before, as something in between would. It reports false
// where none is attached.
func (s *Session) CloseClient(now Time, code int, text string) bool {
	if s.att == nil {
		return false
	}
	s.drop(now, "closed by the operator", Linger, frame.Append(nil, frame.Close, frame.ClosePayload(code, text)))
	return true
}

func (a *Attachment) gone(s *Session, now Time, why string) {
	if a == s.att {
		s.drop(now, why, Shut, nil)
	}
}

func (a *Attachment) writeFailed(s *Session, now Time, why string) {
	a.gone(s, now, why)
	a.mode = max(a.mode, Shut)
}

// State is where the session is in its life.
func (s *Session) State() State { return s.state }
