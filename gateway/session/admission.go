package session

import (
	"fmt"
	"time"

	"reseat/gateway/wire"
)

// A Refusal is why a resume was refused. It changes nothing in the session.
type Refusal struct {
	Code       int
	Text       string
	Retry      time.Duration // come back after; zero: this token will never do
	Superseded bool          // the token's generation is superseded: a bug or a theft
}

// Error is the refusal in words.
func (r *Refusal) Error() string { return fmt.Sprintf("%d %s", r.Code, r.Text) }

// Refuse makes a Refusal whose text begins with the code's name.
func Refuse(code int, format string, args ...any) *Refusal {
	text := wire.Name(code)
	if detail := fmt.Sprintf(format, args...); detail != "" {
		text += ": " + detail
	}
	return &Refusal{Code: code, Text: text}
}

// A Resume is what a client states to be attached again.
type Resume struct {
	Gen       uint64
	Received  uint64
	Malformed bool // received was missing or not a number
}

// Check says whether r would be attached now, nil for yes. It changes nothing.
// The order of the checks is that of protocol section 2.
func (s *Session) Check(now Time, r Resume) *Refusal {
	switch {
	case !s.gen.Good(r.Gen):
		ref := Refuse(wire.CodeBadToken, "generation %d is superseded or unknown", r.Gen)
		ref.Superseded = true
		return ref
	case s.state == Ended:
		return &Refusal{Code: s.ending.Code, Text: s.ending.Text}
	case s.att != nil && s.att.closing != nil: // it is about to end
		return Refuse(wire.CodeNoSession, "")
	case !s.cfg.Resumable: // it states nothing
	case r.Malformed:
		return Refuse(wire.CodeProtocolViolation, "received missing, malformed or given twice")
	case r.Received < s.acked:
		return Refuse(wire.CodeWindowExceeded, "received %d, but %d were acked", r.Received, s.acked)
	case !s.wasSent(r.Received):
		return Refuse(wire.CodeProtocolViolation, "received %d is beyond what was sent", r.Received)
	case s.att != nil && len(s.takeovers) == takeoverLimit && now.Sub(s.takeovers[0]) < takeoverSpan:
		ref := Refuse(wire.CodeTooFast, "more than %d takeovers in %v", takeoverLimit, takeoverSpan)
		ref.Retry = max(takeoverSpan-now.Sub(s.takeovers[0]), time.Millisecond)
		return ref
	}
	return nil
}

// NextGen is the generation that the next attach issues.
func (s *Session) NextGen() uint64 { return s.gen.Next() }

// A Pass is what an attach gives to the client.
type Pass struct {
	Gen     uint64
	Token   string
	Expires Time          // the token's exp
	Renew   time.Duration // from now until the token must be renewed
	Arrived Time          // when the handshake came, for Event.Took
	Peer    string        // the client's address, for Event.Peer
}

// noteTakeover keeps the times of the last takeovers, oldest first.
func (s *Session) noteTakeover(now Time) {
	if len(s.takeovers) == takeoverLimit {
		s.takeovers = append(s.takeovers[:0], s.takeovers[1:]...)
	}
	s.takeovers = append(s.takeovers, now)
}

// futility counts the resumes in a row that came to nothing: protocol section
// 6, 4410 no progress.
type futility struct {
	n     int
	since Time
}

// noteProgress looks at a connection that is gone and reports whether it was
// the last of too many that came to nothing. One that was still draining says
// nothing: its client may have been in the middle of a large message.
func (s *Session) noteProgress(now Time, a *Attachment) bool {
	if s.draining(now, a) {
		return false
	}
	if !a.resumed || !a.spoke || a.cur == a.start || s.acked > a.ackedAt {
		s.futile = futility{}
		return false
	}
	if s.futile.n == 0 {
		s.futile.since = a.since
	}
	s.futile.n++
	return s.futile.n >= futileLimit && now.Sub(s.futile.since) >= futileSpan
}

// noteReceived takes a resume's received for an ack. Where it is news, the
// connections before came to something, though none of them lived to say so.
func (s *Session) noteReceived(n uint64) {
	if n > s.acked {
		s.acked, s.futile = n, futility{}
	}
}
