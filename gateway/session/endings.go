package session

import (
	"slices"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/wire"
)

// Reasons for the end of a session that are not the name of a close code.
const (
	ReasonBye            = "bye"
	ReasonGraceOver      = "grace_over"
	ReasonUpstreamClosed = "upstream_closed"
	ReasonNoProgress     = "no_progress"
	ReasonClientGone     = "client_gone"
	ReasonIdle           = "idle_timeout"
	ReasonNodeLost       = "node_lost" // of a durable session that no client has asked for at another node

	// ReasonMoved says that the session continues at another node: it has not ended.
	ReasonMoved = "moved"
)

// Reasons returns every reason for which a session may end, the names of close codes
// first. They are metric labels, so the set is fixed.
func Reasons() []string {
	codes := slices.DeleteFunc(wire.Names(), func(name string) bool { return name == wire.Name(wire.CodeNodeUnreachable) }) // that ends none
	return append(codes, ReasonBye, ReasonGraceOver, ReasonUpstreamClosed, ReasonNoProgress, ReasonClientGone, ReasonIdle, ReasonNodeLost)
}

// An Ending records how a session ended, and what a later resume gets.
type Ending struct {
	Reason string // one of Reasons
	Code   int    // close code for a later resume: 4404, 4408 or 4410; 4504 where it continues at another node
	Text   string // close reason for a later resume
	Detail string // what the operator, the game server or the client gave as the reason
	At     Time
}

// endInTime ends the session if its grace period or its idle timeout is over, and reports whether it has ended.
// A durable one may first have to ask whether it is this node's.
func (s *Session) endInTime(now Time) bool {
	var e ending
	switch {
	case s.cfg.Idle > 0 && now >= s.data.Add(s.cfg.Idle):
		e = s.quietEnding(ReasonIdle, "idle timeout")
	case s.state == Detached && now >= s.graceEnd:
		e = ending{Ending: s.noSessionEnding(ReasonGraceOver), code: wire.CodeGoingAway, text: "grace period over"}
	case s.state == Detached && s.scan.full && s.cfg.Overflow == EndSession: // and waits for certainty: see makeRoom
		e = s.overflowEnding(bufferFull)
	default:
		s.waitNoMore()
		return s.state == Ended
	}
	certain := s.mayEnd(now)
	if !certain && now < s.durable.endBy {
		return false
	}
	if e.Reason == wire.Name(wire.CodeWindowExceeded) {
		s.emit(Event{Kind: Overflowed, Reason: bufferFull})
	}
	if !certain {
		s.endSilently(now, e)
		return true
	}
	if e.Reason == ReasonGraceOver {
		s.sendText(s.cfg.Notices.Expire)
	}
	s.end(now, e)
	return true
}

// nextEnd returns when endInTime has something to do.
func (s *Session) nextEnd() (t Time) {
	if d := s.durable; d != nil && d.endBy > 0 {
		return d.endBy
	}
	if s.state == Detached {
		t = s.graceEnd
	}
	if s.cfg.Idle > 0 {
		t = earlier(t, s.data.Add(s.cfg.Idle))
	}
	return t
}

// endSilently ends a durable session while nobody knows whether another node has it: the game server's
// connection is closed without a Close frame, and a resume gets no verdict.
func (s *Session) endSilently(now Time, e ending) {
	if !s.up.released {
		s.shutUpstream(s.up)
	}
	e.code, e.Ending.Code, e.Ending.Text = 0, wire.CodeNodeUnreachable, wire.Name(wire.CodeNodeUnreachable)
	s.end(now, e)
}

// endFutile ends a session whose client keeps reconnecting without progress: a message
// that crashes its client would otherwise go on crashing it. Protocol section 11,
// no progress.
func (s *Session) endFutile(now Time) { s.endQuietly(now, ReasonNoProgress, "no progress") }

// endQuietly ends the session for something that one side failed to do.
func (s *Session) endQuietly(now Time, reason, text string) { s.end(now, s.quietEnding(reason, text)) }

// quietEnding is its ending: 4410 for the client, 1001 for the upstream.
func (s *Session) quietEnding(reason, text string) ending {
	return ending{
		Ending: Ending{Reason: reason, Code: wire.CodeEnded, Text: text},
		code:   wire.CodeGoingAway, text: text,
		client: s.ended(wire.CodeGoingAway, text), clientMode: Linger,
	}
}

// ended returns the frames that end the client's connection: 4410 for a resumable
// client. A plain client gets the code that the upstream gets, as on a direct
// connection: it does not know the gateway's codes.
func (s *Session) ended(code int, text string) []byte {
	if s.cfg.Resumable {
		return wire.AppendClosing(nil, wire.Closing{Code: wire.CodeEnded, Reason: text})
	}
	return frame.Append(nil, frame.Close, frame.ClosePayload(code, text))
}

// noSessionEnding is an Ending after which a resume gets 4404: the client has left,
// or was sent the reason on its connection.
func (s *Session) noSessionEnding(reason string) Ending {
	return Ending{Reason: reason, Code: wire.CodeNoSession, Text: wire.Name(wire.CodeNoSession)}
}

// An ending says how to end a session: its record, and what each leg is sent.
type ending struct {
	Ending
	code       int       // of the Close frame to the upstream; 0: close its connection without one
	text       string    // reason in that Close frame
	client     []byte    // last frames for the attached client
	clientMode CloseMode // how its connection is closed
	flush      bool      // first send the client everything read from the upstream
}

// violation ends the session for a breach of the protocol by the client, with one of
// the codes of protocol section 6.1.
func (s *Session) violation(now Time, code int, format string, args ...any) {
	ref := Refuse(code, format, args...)
	s.end(now, ending{
		Ending: Ending{Reason: wire.Name(code), Code: wire.CodeNoSession, Text: wire.Name(wire.CodeNoSession)},
		code:   wire.UpstreamCode(code), text: ref.Text,
		client: s.closing(wire.Closing{Code: code, Reason: ref.Text}), clientMode: Linger,
	})
}

// closing returns the frames that close a client's connection: `close` and a Close
// frame for a resumable client, only a Close frame with a standard code for a plain one.
func (s *Session) closing(c wire.Closing) []byte {
	if s.cfg.Resumable {
		return wire.AppendClosing(nil, c)
	}
	return frame.Append(nil, frame.Close, frame.ClosePayload(wire.PlainCode(c.Code), c.Reason))
}

// Terminate ends the session on behalf of an operator or the game server: the
// upstream gets code and text, the client 4410 and text.
func (s *Session) Terminate(now Time, code int, text string) {
	s.end(now, ending{
		Ending: Ending{Reason: wire.Name(wire.CodeEnded), Code: wire.CodeEnded, Text: text},
		code:   code, text: text, client: s.ended(code, text), clientMode: Linger,
	})
}

// Supersede ends the session because its player has begun another one. The client
// gets 4409.
func (s *Session) Supersede(now Time) {
	name := wire.Name(wire.CodeSuperseded)
	s.end(now, ending{
		Ending: s.noSessionEnding(name), code: wire.CodeGoingAway, text: name,
		client: s.closing(wire.Closing{Code: wire.CodeSuperseded, Reason: name}), clientMode: Linger,
	})
}

// Drain ends the session because the gateway shuts down: 4503, protocol section 6.1.
// The client first gets everything read from the upstream. It may begin a new session
// after again.
func (s *Session) Drain(now Time, again time.Duration) {
	name := wire.Name(wire.CodeDraining)
	s.end(now, ending{
		Ending: s.noSessionEnding(name),
		code:   wire.CodeGoingAway, text: name,
		client: s.closing(wire.Closing{Code: wire.CodeDraining, Reason: name, RetryAfter: again.Milliseconds()}), clientMode: Linger, flush: true,
	})
}

// maxFarewell limits what an evicted session still holds until a peer has taken it, in bytes: a
// Close frame waits behind it.
const maxFarewell = 64 << 10

// Evict ends the session because the memory for all replay buffers is exhausted and it
// holds much of that; detail says how much. Its client gets 4408, now or at a later resume; the
// memory is free at once, whether or not the peers take anything. It reports false, and does
// nothing, if the session has no client yet or has ended.
func (s *Session) Evict(now Time, detail string) bool {
	if s.state == Ended || s.state == Connecting && s.awaiting == 0 {
		return false
	}
	if s.incoming != nil && s.partsLeft() == 0 { // its client sends it again
		s.forgetIncoming()
		return false
	}
	why := "memory for replay buffers exhausted: " + detail
	if s.q.charge > maxFarewell && !s.up.released {
		s.shutUpstream(s.up)
	}
	if s.state == Detached && !s.certain(now) { // there is no time to ask
		s.emit(Event{Kind: Overflowed, Reason: why})
		s.endSilently(now, s.overflowEnding(why))
		return true
	}
	s.endOverflow(now, why)
	return true
}

// bufferFull is the reason of an end by the policy EndSession.
const bufferFull = "replay buffer full"

// endOverflow ends a session whose messages can no longer all be kept. A client that is
// detached, or is in the middle of a large message, learns of it from 4408 at its next resume:
// protocol section 6.1.
func (s *Session) endOverflow(now Time, why string) {
	s.emit(Event{Kind: Overflowed, Reason: why})
	e := s.overflowEnding(why)
	if a := s.att; a != nil && s.unfinished(a) > maxFarewell {
		e.clientMode = Shut
	}
	s.end(now, e)
}

// overflowEnding is its ending.
func (s *Session) overflowEnding(why string) ending {
	const code = wire.CodeWindowExceeded
	name := wire.Name(code)
	text := name + ": " + why
	return ending{
		Ending: Ending{Reason: name, Code: code, Text: text},
		code:   wire.UpstreamCode(code), text: why,
		client: s.closing(wire.Closing{Code: code, Reason: text}), clientMode: Linger,
	}
}

// Fail ends the session because of a bug in the gateway.
func (s *Session) Fail(now Time) { s.violation(now, wire.CodeInternalError, "") }
