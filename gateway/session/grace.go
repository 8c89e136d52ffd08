package session

import (
	"strconv"
	"time"

	"reseat/gateway/newest"
	"reseat/gateway/wire"
)

// Terms are the settings that can change while a session lives.
type Terms struct {
	Grace            time.Duration // zero: a disconnect ends the session
	GraceBeforeStart time.Duration // the same, until SetStarted
	Overflow         Overflow
	Newest           *newest.Rules // which messages are states: see newest.go
}

// keep returns how long a detached session is kept, as hello.grace_ms says it.
func (s *Session) keep() time.Duration {
	if s.started {
		return s.cfg.Grace
	}
	return s.cfg.GraceBeforeStart
}

// grace returns how long the session is kept after this detach. If no hello was ever
// confirmed, nobody may hold a token for it, so it is kept for less: protocol section
// 11, an unconfirmed first hello. A cookie client confirms by the Pong to a first Ping, which
// may come a heartbeat after its handshake. A page that has said `leaving`, and whose browser then closed
// the connection, is most likely gone: protocol section 11, a page that is left.
func (s *Session) grace() time.Duration {
	switch {
	case s.pageLeft:
		return min(s.keep(), s.cfg.GraceUnconfirmed)
	case s.reserved, s.gen.Confirmed() > 0:
		return s.keep()
	case s.cfg.Resumable:
		return min(s.keep(), s.cfg.GraceUnconfirmed)
	}
	return min(s.keep(), 2*s.cfg.Heartbeat)
}

// SetTerms changes the terms. A running grace timer changes at once, and an attached
// client is sent `grace`. SetTerms reports false, and changes nothing, if the client is
// detached and its token would expire before the new grace period: the session would be
// kept for a client that can no longer resume it.
func (s *Session) SetTerms(now Time, t Terms) bool {
	before, kept := s.cfg.Terms, s.keep()
	s.cfg.Terms = t
	// The new end counts from the detach, and includes the pauses so far.
	if s.waitsForClient() && s.keep() != kept && s.detached.Add(s.pausedBy(now)+s.grace()) > s.expires {
		s.cfg.Terms = before
		return false
	}
	if t.Newest != before.Newest && s.state != Ended {
		s.setNewest()
	}
	s.retime(now, kept)
	if s.state != Ended && t.Overflow != before.Overflow {
		s.unblock(now)
	}
	return true
}

// SetStarted records that the game server marked the session started, or revoked that.
// The grace period changes as by SetTerms.
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

// waitsForClient reports whether the session is detached, if only because its new
// upstream is still being dialled.
func (s *Session) waitsForClient() bool { return s.state == Detached || s.awaiting > 0 }

// pausedBy returns the total pause of the grace timer until now.
func (s *Session) pausedBy(now Time) time.Duration {
	if s.awaiting == 0 {
		return s.paused
	}
	return s.paused + now.Sub(s.awaiting)
}

// retime applies a changed grace period; kept is the one before.
func (s *Session) retime(now Time, kept time.Duration) {
	switch {
	case s.keep() == kept:
	case s.waitsForClient():
		s.retimeGrace()
		if s.state == Detached && s.graceEnd <= now {
			s.endInTime(now)
		}
	case s.state == Attached && s.cfg.Resumable && !s.att.last:
		// A client tries to resume for the grace period plus twice the heartbeat, protocol
		// section 10. Its token must last as long.
		s.renewAt = earlier(s.renewAt, max(s.expires.Add(-2*s.cfg.Heartbeat-s.keep()), 1))
		s.renewIfDue(now)
		s.att.ctl = wire.Append(s.att.ctl, wire.VerbGrace, strconv.FormatInt(s.keep().Milliseconds(), 10))
	}
}

// RenewSoon asks for a new token at once if the request for it was made, and the answer
// lost: in an upgrade.
func (s *Session) RenewSoon(Time) {
	if s.att != nil && s.cfg.Resumable && s.renewAt == 0 {
		s.emit(Event{Kind: Renew})
	}
}

// renewIfDue asks for a token with a later exp when it is time: a token must outlive
// any disconnect that its client may resume after, protocol section 7.
func (s *Session) renewIfDue(now Time) {
	if s.renewAt > 0 && now >= s.renewAt {
		s.renewAt = 0
		s.emit(Event{Kind: Renew})
	}
}
