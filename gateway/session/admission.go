package session

import (
	"fmt"
	"time"

	"reseat/gateway/wire"
	"reseat/tokens/generation"
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
		return refuseGeneration(r)
	case s.state == Ended && s.outcome.Code != wire.CodeNodeUnreachable:
		return &Refusal{Code: s.outcome.Code, Text: s.outcome.Text}
	case s.state == Ended, s.isLeaving():
		return RefuseMoved()
	case s.att != nil && s.att.closing != nil: // about to end: nobody can return to it, protocol section 11
		return Refuse(wire.CodeNoSession, "")
	case !s.cfg.Resumable: // a cookie carries no N
	case r.Malformed:
		return refuseMalformed("received")
	case r.Received < s.acked:
		return refuseWindow(r, s.acked)
	case !s.wasSent(r.Received) && !s.unaccepted(r):
		return Refuse(wire.CodeProtocolViolation, "received %d is beyond what was sent", r.Received)
	case s.att != nil && len(s.takeovers) == takeoverLimit && now.Sub(s.takeovers[0]) < takeoverSpan:
		ref := Refuse(wire.CodeTooFast, "more than %d takeovers in %v", takeoverLimit, takeoverSpan)
		ref.Retry = max(takeoverSpan-now.Sub(s.takeovers[0]), time.Millisecond)
		return ref
	}
	return nil
}

// A Seated session is what is known of one whose node is lost: enough to refuse a resume before it is
// claimed.
type Seated struct {
	Epoch     uint64 // of its seat
	Confirmed uint64 // the newest generation that the client is known to have
	Acked     uint64
}

// maxAhead bounds how many messages can have been sent since a seat was written: 10,000 a second for
// three years. Beyond it a client's numbers are wrong, and would be the session's from then on.
const maxAhead = 1 << 40

// Check is Session.Check for a session before its claim. sent is the newest message that the
// client states to have sent; settledOK reports whether it could be read.
func (s Seated) Check(r Resume, sent uint64, settledOK bool) *Refusal {
	switch {
	case r.Gen < s.Confirmed || generation.Epoch(r.Gen) > s.Epoch:
		return refuseGeneration(r)
	case r.Malformed:
		return refuseMalformed("received")
	case !settledOK:
		return refuseMalformed("settled")
	case r.Received > s.Acked+maxAhead || sent > maxAhead:
		return Refuse(wire.CodeProtocolViolation, "received or settled names messages that cannot have been sent")
	case r.Received < s.Acked:
		return refuseWindow(r, s.Acked)
	}
	return nil
}

func refuseGeneration(r Resume) *Refusal {
	ref := Refuse(wire.CodeBadToken, "generation %d is superseded or unknown", r.Gen)
	ref.Superseded = true
	return ref
}

func refuseMalformed(what string) *Refusal {
	return Refuse(wire.CodeProtocolViolation, "%s missing, malformed or given twice", what)
}

func refuseWindow(r Resume, acked uint64) *Refusal {
	return Refuse(wire.CodeWindowExceeded, "received %d, but %d were acked", r.Received, acked)
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
