package session

import (
	"errors"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/wire"
	"reseat/tokens/generation"
)

// This file is how a durable session goes to another node while its own still lives: a hand-off, from Leave
// at the one to Arrive at the other, or a fence, where another node has it already. What must hold:
//
//   - Nothing is lost: the upstream is read until it has closed, and its messages go along.
//   - Nothing comes twice: what the upstream has taken in part goes to the next one whole, and only there.
//   - A game server that ends the session has ended it, and nobody revives it.

// Leave begins a hand-off. The upstream gets a Close frame, and is read until it has answered, or for
// five seconds: nothing that it has sent is lost. Then Left is emitted, or Stays if the game server ends the
// session itself. What the client sends meanwhile waits for the next upstream. Leave reports false, and does
// nothing, if the session cannot be handed off: it is not durable, has no client of its own yet, waits for an
// upstream that is dialled, or is about to end.
func (s *Session) Leave(now Time) bool {
	d := s.durable
	switch {
	case d == nil || d.leaving > 0 || s.state == Connecting || s.state == Ended || s.up.over:
		return false
	case s.MovedHere() == wire.MovedFailover: // its client may state more than the claim: see unaccepted
		return false
	}
	d.leaving = now
	if s.outage.since > 0 || s.up.released {
		s.outage = outage{heard: s.outage.heard}
		s.left()
		return true
	}
	// Everything must be read, whether it fits or not, or the Close frame is never reached.
	if s.scan.full {
		s.scan.full = false
		s.up.heard, s.scan.progress = now, now // it was not read meanwhile: the silence was ours
		s.scanRaw(now)
	}
	s.closeLeaving()
	return s.isLeaving()
}

// isLeaving reports whether the session is being handed off.
func (s *Session) isLeaving() bool { return s.durable != nil && s.durable.leaving > 0 }

// closeLeaving sends the upstream its Close frame, once no message is written in part.
func (s *Session) closeLeaving() {
	d, u := s.durable, s.up
	if d.closing || d.left || s.writer != nil || s.q.part > 0 || u.mode != Open {
		return
	}
	d.closing = true
	u.rest = append(u.rest, s.movedFrame()...)
	u.closed = true
}

// leavingEnds handles a Close frame of the upstream during a hand-off. It reports false for one that is not the
// answer to the gateway's own: the game server ends the session.
func (s *Session) leavingEnds(now Time, code int) bool {
	switch {
	case !s.isLeaving():
		return false
	case s.durable.closing:
	case s.replaces(now, code): // it goes away by itself
		s.releaseUpstream(s.masked(frame.Close, frame.ClosePayload(code, "")))
	default:
		return false
	}
	s.left()
	return true
}

// left completes Leave. The upstream, if there is one, gets its Close frame if it has not been sent one.
func (s *Session) left() {
	if s.durable.left || s.state == Ended {
		return
	}
	s.durable.left = true
	s.giveUpstream()
	s.emit(Event{Kind: Left})
}

// HasLeft reports whether the session can be handed off: since Left, and until Stay.
func (s *Session) HasLeft() bool { return s.isLeaving() && s.durable.left && s.state != Ended }

// stays ends a hand-off because the game server has ended the session. Its Close frame may be written, or not.
func (s *Session) stays() {
	if s.isLeaving() && s.state != Ended {
		s.durable.leaving = 0
		s.emit(Event{Kind: Stays})
	}
}

// leaveBy returns when the upstream is waited for no longer; zero: it is not waited for.
func (s *Session) leaveBy() Time {
	if !s.isLeaving() || s.durable.left || s.state == Ended {
		return 0
	}
	return s.durable.leaving.Add(leaveTime)
}

// Stay ends a hand-off that no node has taken, as far as is known. The client resumes, and gets a new upstream, which
// must be dialled from now on: what an earlier dial brings is not taken.
func (s *Session) Stay(now Time) {
	if !s.isLeaving() || s.state == Ended {
		return
	}
	s.giveUpstream() // it has its Close frame, or no way back
	s.durable.leaving, s.durable.closing, s.durable.left, s.durable.stale = 0, false, false, true
	if s.att != nil {
		s.drop(now, "hand-off failed", Linger, frame.Append(nil, frame.Close, frame.ClosePayload(wire.CodeServiceRestart, "")))
	}
}

// Release ends the session here without another node that has taken it: the first one that its client comes
// back to claims it. The client first gets everything read from the upstream, which gets 1001.
func (s *Session) Release(now Time, again time.Duration) {
	name := wire.Name(wire.CodeDraining)
	s.end(now, ending{
		Ending: movedEnding(), code: wire.CodeGoingAway, text: movedText,
		client: s.closing(wire.Closing{Code: wire.CodeDraining, Reason: name, Retry: true, RetryAfter: again.Milliseconds()}), clientMode: Linger, flush: true,
	})
}

// HandedOff ends the session here: another node has taken it. Its client resumes there after again.
func (s *Session) HandedOff(now Time, again time.Duration) {
	name := wire.Name(wire.CodeDraining)
	s.end(now, ending{
		Ending: movedEnding(),
		client: s.closing(wire.Closing{Code: wire.CodeDraining, Reason: name, Retry: true, RetryAfter: again.Milliseconds()}), clientMode: Linger,
	})
}

// Fence ends the session here, since another node has it. The upstream gets 1001 and none of what it
// has not taken; inside a message it gets nothing more. The client resumes there.
func (s *Session) Fence(now Time) {
	if s.state == Ended {
		return
	}
	s.giveUpstream()
	s.end(now, ending{
		Ending: movedEnding(),
		client: frame.Append(nil, frame.Close, frame.ClosePayload(wire.CodeServiceRestart, movedText)), clientMode: Linger,
	})
}

// movedEnding is the end of a session that continues elsewhere: a resume that still comes here is no verdict.
func movedEnding() Ending {
	return Ending{Reason: ReasonMoved, Code: wire.CodeNodeUnreachable, Text: wire.Name(wire.CodeNodeUnreachable)}
}

// RefuseMoved is the refusal for a resume that comes while the session goes elsewhere, or has gone: the client's
// next handshake is led to where it is.
func RefuseMoved() *Refusal {
	ref := Refuse(wire.CodeNodeUnreachable, "")
	ref.Retry = elsewhereRetry
	return ref
}

// Arrive is called once after Restore, for a session that another node has handed off. then is that
// node's time at Freeze. The client is detached: it resumes here.
func (s *Session) Arrive(now, then Time, epoch uint64) error {
	switch {
	case s.durable == nil || !s.durable.left:
		return errors.New("hand-off: the session still has its upstream")
	case epoch <= s.durable.epoch || !s.gen.Restore(generation.FirstOf(epoch)-1, s.gen.Confirmed()):
		return errors.New("hand-off: its generations are of a later epoch")
	}
	// The older node may have sent everything, and the client may have it.
	s.sentN, s.sentOff = s.ring.Last().N, s.ring.Last().Off
	s.rebase(now.Sub(then))
	s.detachArrived(now, now.Sub(then))
	s.first = Upstream{mode: Shut, released: true, heard: now}
	s.up = &s.first
	s.scan, s.keepalives = scanner{overflowed: s.scan.overflowed}, nil
	s.forgetIncoming() // the other node's time
	s.durable = &durable{moved: wire.MovedHandoff, epoch: epoch, base: s.ring.Last().N}
	s.outage, s.renewAt, s.starved = outage{heard: s.outage.heard}, 0, false
	s.startPacer(now)
	return nil
}

// rebase moves every moment that outlives Arrive to this node's clock, d ahead of the other's.
func (s *Session) rebase(d time.Duration) {
	move := func(t *Time) {
		if *t != 0 {
			*t = max(t.Add(d), 1)
		}
	}
	for _, t := range []*Time{&s.data, &s.created, &s.heard, &s.detached, &s.graceEnd, &s.expires, &s.pace.until} {
		move(t)
	}
	if f := s.faults; f != nil {
		move(&f.futile.since)
		for i := range f.taken {
			move(&f.taken[i])
		}
	}
	for i := range s.q.units {
		move(&s.q.units[i].at)
	}
}
