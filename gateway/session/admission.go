package session

import (
	"fmt"
	"time"

	"reseat/gateway/wire"
)

// A Refusal says why a resume was refused. A refused resume changes nothing in the
// session.
type Refusal struct {
	Code       int // of protocol section 6.1
	Text       string
	Retry      time.Duration // resume again after this; zero: this token never works again
	Superseded bool          // the token's generation is superseded: a client bug, or theft
}

// Error implements error.
func (r *Refusal) Error() string { return fmt.Sprintf("%d %s", r.Code, r.Text) }

// Refuse makes a Refusal whose text begins with the code's name.
func Refuse(code int, format string, args ...any) *Refusal {
	text := wire.Name(code)
	if detail := fmt.Sprintf(format, args...); detail != "" {
		text += ": " + detail
	}
	return &Refusal{Code: code, Text: text}
}

// A Resume is what a client states in the handshake of a resume: protocol section 2.
type Resume struct {
	Gen       uint64 // the generation of its token
	Received  uint64 // its N
	Malformed bool   // N was missing, malformed, or given twice with different values
	Settled   uint64 // after a claim: newest message of the client's that is not to be written again
}

// Check returns why r is refused, nil if it is not. It changes nothing. The token comes
// first, then the session, then N, as in protocol section 2: a stolen or old token
// must learn nothing about the session.
func (s *Session) Check(now Time, r Resume) *Refusal {
	switch {
	case !s.gen.Good(r.Gen):
		ref := Refuse(wire.CodeBadToken, "generation %d is superseded or unknown", r.Gen)
		ref.Superseded = true
		return ref
	case s.state == Ended && s.outcome.Code != wire.CodeNodeUnreachable:
		return &Refusal{Code: s.outcome.Code, Text: s.outcome.Text}
	case s.state == Ended, s.isLeaving():
		return RefuseMoved()
	case s.att != nil && s.att.closing != nil: // about to end: nobody can return to it, protocol section 11
		return Refuse(wire.CodeNoSession, "")
	case !s.cfg.Resumable: // a cookie carries no N
	case r.Malformed:
		return Refuse(wire.CodeProtocolViolation, "received missing, malformed or given twice")
	case r.Received < s.acked:
		return Refuse(wire.CodeWindowExceeded, "received %d, but %d were acked", r.Received, s.acked)
	case !s.wasSent(r.Received) && !s.unaccepted(r):
		return Refuse(wire.CodeProtocolViolation, "received %d is beyond what was sent", r.Received)
	case s.att != nil && len(s.takeovers) == takeoverLimit && now.Sub(s.takeovers[0]) < takeoverSpan:
		ref := Refuse(wire.CodeTooFast, "more than %d takeovers in %v", takeoverLimit, takeoverSpan)
		ref.Retry = max(takeoverSpan-now.Sub(s.takeovers[0]), time.Millisecond)
		return ref
	}
	return nil
}

// NextGen returns the generation that the next attach issues: protocol section 7.
func (s *Session) NextGen() uint64 { return s.gen.Next() }

// A Pass is what an attach gives to the client, and where the client came from.
type Pass struct {
	Gen     uint64
	Token   string
	Expires Time          // the token's exp
	Renew   time.Duration // how long from now until the token must be renewed
	Arrived Time          // when the handshake arrived, for Event.Elapsed
	Peer    string        // the client's address, for Event.Peer
	Route   string        // of hello: protocol section 5.1
	Durable bool          // of hello: the session outlives its node
	Parts   bool          // the client takes large messages in parts
}

// noteTakeover records a takeover. The last takeoverLimit times are kept, oldest
// first: when all of them lie within takeoverSpan, Check refuses the next one.
func (s *Session) noteTakeover(now Time) {
	if len(s.takeovers) == takeoverLimit {
		s.takeovers = append(s.takeovers[:0], s.takeovers[1:]...)
	}
	s.takeovers = append(s.takeovers, now)
}

// futility counts consecutive resumes without progress: protocol section 11.
type futility struct {
	n     int
	since Time // when the first of them attached
}

// noteProgress judges a connection that has ended, and reports whether it was the last
// of too many without progress. It had none if its client sent something, was sent
// something, and acked nothing new. A connection that was still draining is not
// counted: its client may have been receiving a large message.
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

// noteReceived takes the N of a resume for an ack. A higher N than before shows that
// earlier connections made progress, although none of them lived to ack it.
func (s *Session) noteReceived(n uint64) {
	if n > s.acked {
		s.acked, s.futile = n, futility{}
	}
}
