package session

import (
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/wire"
)

// Reasons for which a session ends that are no close code's name.
const (
	ReasonBye            = "bye"
	ReasonGraceOver      = "grace_over"
	ReasonUpstreamClosed = "upstream_closed"
	ReasonNoProgress     = "no_progress"
	ReasonClientGone     = "client_gone"
	ReasonIdle           = "idle_timeout"
)

// Reasons lists all reasons for which a session may end, those that are a close
// code's name first.
func Reasons() []string {
	return append(wire.Names(), ReasonBye, ReasonGraceOver, ReasonUpstreamClosed, ReasonNoProgress, ReasonClientGone, ReasonIdle)
}

// An Ending is how a session ended, and what a later resume is told.
type Ending struct {
	Reason string // fixed: a metric label
	Code   int    // for a later resume: 4404, 4408 or 4410
	Text   string // for a later resume
	Detail string // what was said with it: an operator's words, the game server's, the client's
	At     Time
}

func (s *Session) endGrace(now Time) {
	s.sendText(s.cfg.Words.Expire)
	s.end(now, ending{Ending: s.noSessionEnding(ReasonGraceOver), code: wire.CodeGoingAway, text: "grace period over"})
}

// endFutile ends a session whose client comes and goes and gets nowhere:
// protocol section 6, 4410 no progress.
func (s *Session) endFutile(now Time) { s.endQuietly(now, ReasonNoProgress, "no progress") }

// endIdle ends a session in which nothing was said for too long.
func (s *Session) endIdle(now Time) { s.endQuietly(now, ReasonIdle, "idle timeout") }

// endQuietly ends the session for what one of its ends leaves undone: 4410 for
// the client, 1001 for the upstream.
func (s *Session) endQuietly(now Time, reason, text string) {
	s.end(now, ending{
		Ending: Ending{Reason: reason, Code: wire.CodeEnded, Text: text},
		code:   wire.CodeGoingAway, text: text,
		client: s.ended(wire.CodeGoingAway, text), clientMode: Linger,
	})
}

// ended is what tells a client of 4410, a plain one by the code that the
// upstream gets.
func (s *Session) ended(code int, text string) []byte {
	if s.cfg.Resumable {
		return wire.AppendClosing(nil, wire.Closing{Code: wire.CodeEnded, Reason: text})
	}
	return frame.Append(nil, frame.Close, frame.ClosePayload(code, text))
}

// noSessionEnding is how a session ends because its client is gone.
func (s *Session) noSessionEnding(reason string) Ending {
	return Ending{Reason: reason, Code: wire.CodeNoSession, Text: wire.Name(wire.CodeNoSession)}
}

// An ending is how to end a session: the record of it, and what each
// leg is told.
type ending struct {
	Ending
	code       int       // Close to the upstream; 0: its connection is dropped
	text       string    // and its reason
	client     []byte    // frames for the attached client
	clientMode CloseMode // and what becomes of its connection
	flush      bool      // the client gets what was read of the upstream first
}

// violation ends the session with one of the codes of protocol section 6 that
// a client brings upon itself.
func (s *Session) violation(now Time, code int, format string, args ...any) {
	ref := Refuse(code, format, args...)
	s.end(now, ending{
		Ending: Ending{Reason: wire.Name(code), Code: wire.CodeNoSession, Text: wire.Name(wire.CodeNoSession)},
		code:   wire.UpstreamCode(code), text: ref.Text,
		client: s.closing(wire.Closing{Code: code, Reason: ref.Text}), clientMode: Linger,
	})
}

// closing is what ends a client's connection: close and the Close frame, or for
// a plain client the Close frame alone.
func (s *Session) closing(c wire.Closing) []byte {
	if s.cfg.Resumable {
		return wire.AppendClosing(nil, c)
	}
	return frame.Append(nil, frame.Close, frame.ClosePayload(wire.PlainCode(c.Code), c.Reason))
}

// Terminate ends the session for an operator or the game server: code and text
// go to the upstream, 4410 and text to the client.
func (s *Session) Terminate(now Time, code int, text string) {
	s.end(now, ending{
		Ending: Ending{Reason: wire.Name(wire.CodeEnded), Code: wire.CodeEnded, Text: text},
		code:   code, text: text, client: s.ended(code, text), clientMode: Linger,
	})
}

// Supersede ends the session since its player began another one: 4409 for the
// client.
func (s *Session) Supersede(now Time) {
	name := wire.Name(wire.CodeSuperseded)
	s.end(now, ending{
		Ending: s.noSessionEnding(name), code: wire.CodeGoingAway, text: name,
		client: s.closing(wire.Closing{Code: wire.CodeSuperseded, Reason: name}), clientMode: Linger,
	})
}

// Drain ends the session since its gateway goes away: 4503, and the client
// first gets what was read already. again is when it may begin a new session.
func (s *Session) Drain(now Time, again time.Duration) {
	name := wire.Name(wire.CodeDraining)
	s.end(now, ending{
		Ending: s.noSessionEnding(name),
		code:   wire.CodeGoingAway, text: name,
		client: s.closing(wire.Closing{Code: wire.CodeDraining, Reason: name, RetryAfter: again.Milliseconds()}), clientMode: Linger, flush: true,
	})
}

// Evict ends a detached session since the memory for all replay buffers is
// spent: 4408 for a later resume. It reports false, and does nothing, where
// the session is not detached.
func (s *Session) Evict(now Time) bool {
	if s.state != Detached {
		return false
	}
	s.endOverflow(now, "memory of all replay buffers spent")
	return true
}

func (s *Session) endOverflow(now Time, why string) {
	name := wire.Name(wire.CodeWindowExceeded)
	s.emit(Event{Kind: Overflowed, Reason: why})
	s.end(now, ending{
		Ending: Ending{Reason: name, Code: wire.CodeWindowExceeded, Text: name + ": " + why},
		code:   wire.UpstreamCode(wire.CodeWindowExceeded), text: why,
	})
}

// Fail ends the session for a fault in the gateway itself.
func (s *Session) Fail(now Time) { s.violation(now, wire.CodeInternalError, "") }
