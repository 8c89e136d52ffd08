package session

import (
	"strconv"
	"time"

	"reseat/gateway/wire"
)

// Terms are what may be changed while a session lives.
type Terms struct {
	Grace            time.Duration // zero: a drop ends the session
	GraceBeforeStart time.Duration // the same, until Start
	Overflow         Overflow
}

// keep is how long a detached session is kept, as its client is told.
func (s *Session) keep() time.Duration {
	if s.started {
		return s.cfg.Grace
	}
	return s.cfg.GraceBeforeStart
}

// grace is how long the session is kept from a drop on. A new session whose
// hello was never confirmed may have a token that nobody holds.
func (s *Session) grace() time.Duration {
	if s.gen.Confirmed() == 0 && !s.reserved {
		return min(s.keep(), 2*s.cfg.Heartbeat)
	}
	return s.keep()
}

// SetTerms changes the terms. A running grace timer follows at once, and an
// attached client is told. It reports false, and changes nothing, where the
// client is away with a token that expires before the new grace period does.
func (s *Session) SetTerms(now Time, t Terms) bool {
	before, kept := s.cfg.Terms, s.keep()
	s.cfg.Terms = t
	if s.waitsForClient() && s.keep() != kept && s.detached.Add(s.pausedBy(now)+s.grace()) > s.expires {
		s.cfg.Terms = before
		return false
	}
	s.retime(now, kept)
	if s.state != Ended && t.Overflow != before.Overflow {
		s.unblock(now)
	}
	return true
}

// SetStarted notes that the game server has marked the session started, or not
// started again. The grace period changes with it, as by SetTerms.
func (s *Session) SetStarted(now Time, started bool) {
	if s.state == Ended || s.started == started {
		return
	}
	kept := s.keep()
	s.started = started
	if started {
		s.emit(Event{Kind: Started})
	}
	s.retime(now, kept)
}

// waitsForClient reports whether the session waits for a client.
func (s *Session) waitsForClient() bool { return s.state == Detached || s.awaiting > 0 }

// pausedBy is for how long the grace timer has rested by now.
func (s *Session) pausedBy(now Time) time.Duration {
	if s.awaiting == 0 {
		return s.paused
	}
	return s.paused + now.Sub(s.awaiting)
}

// retime lets a changed grace period take effect; kept is what it was.
func (s *Session) retime(now Time, kept time.Duration) {
	switch {
	case s.keep() == kept:
	case s.waitsForClient():
		s.graceEnd = s.detached.Add(s.paused + s.grace())
		if s.state == Detached && s.graceEnd <= now {
			s.endGrace(now)
		}
	case s.state == Attached && s.cfg.Resumable && !s.att.last:
		s.renewAt = earlier(s.renewAt, max(s.expires.Add(-2*s.cfg.Heartbeat-s.keep()), 1))
		s.renewIfDue(now)
		s.att.ctl = wire.Append(s.att.ctl, wire.VerbGrace, strconv.FormatInt(s.keep().Milliseconds(), 10))
	}
}

// renewIfDue asks for a token with a later exp when it is time.
func (s *Session) renewIfDue(now Time) {
	if s.renewAt > 0 && now >= s.renewAt {
		s.renewAt = 0
		s.emit(Event{Kind: Renew})
	}
}
