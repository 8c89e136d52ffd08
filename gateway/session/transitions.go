package session

import (
	"fmt"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/wire"
)

// A State is where a session is in its life. Every change of it is made in
// this file.
//
//	state       event                      next       what happens
//	connecting  first attach               attached   hello (a plain client: nothing)
//	attached    drop, Close, silence       detached   the grace period runs
//	attached    good resume                attached   the older connection gets 4409
//	attached    bye, violation, end        ended      both legs are told
//	detached    good resume                attached   hello, then what was missed
//	detached    grace over                 ended      the upstream gets 1001
//	any         upstream closed or lost    the same   until all before it was delivered
//	any         anything of an old epoch   the same   nothing
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

// Reasons for which a session ends that are no close code's name.
const (
	ReasonBye            = "bye"
	ReasonGraceOver      = "grace_over"
	ReasonUpstreamClosed = "upstream_closed"
	ReasonNoProgress     = "no_progress"
	ReasonClientGone     = "client_gone"
)

// Reasons lists all reasons for which a session may end, those that are a close
// code's name first.
func Reasons() []string {
	return append(wire.Names(), ReasonBye, ReasonGraceOver, ReasonUpstreamClosed, ReasonNoProgress, ReasonClientGone)
}

// An Ending is how a session ended, and what a later resume is told.
type Ending struct {
	Reason string // fixed: a metric label
	Code   int    // for a later resume: 4404, 4408 or 4410
	Text   string // for a later resume
	At     Time
}

// A Refusal is why a resume was refused. It changes nothing in the session.
type Refusal struct {
	Code  int
	Text  string
	Retry time.Duration // come back after; zero: this token will never do
	Spent bool          // the token's generation is spent: a bug or a theft
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
// The order of the checks is that of reseat.v1 section 2.
func (s *Session) Check(now Time, r Resume) *Refusal {
	switch {
	case !s.gen.Good(r.Gen):
		ref := Refuse(wire.CodeBadToken, "generation %d is spent or unknown", r.Gen)
		ref.Spent = true
		return ref
	case s.state == Ended:
		return &Refusal{Code: s.ending.Code, Text: s.ending.Text}
	case r.Malformed:
		return Refuse(wire.CodeProtocolViolation, "received missing, malformed or given twice")
	case r.Received < s.acked:
		return Refuse(wire.CodeWindowExceeded, "received %d, but %d were acked", r.Received, s.acked)
	case !s.wasSent(r.Received):
		return Refuse(wire.CodeProtocolViolation, "received %d is beyond what was sent", r.Received)
	case s.att != nil && len(s.takeover) == takeoverLimit && now.Sub(s.takeover[0]) < takeoverSpan:
		ref := Refuse(wire.CodeTooFast, "more than %d takeovers in %v", takeoverLimit, takeoverSpan)
		ref.Retry = max(takeoverSpan-now.Sub(s.takeover[0]), time.Millisecond)
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
	Renew   time.Duration // from now until the token is to be renewed
	Arrived Time          // when the handshake came, for Event.Took
	Peer    string        // the client's address, for Event.Peer
}

// AttachFirst attaches the client that the session was made for. Where the
// session has ended before it came, the client is told so.
func (s *Session) AttachFirst(now Time, p Pass) *Attachment {
	a := s.newAttachment(now, p)
	if s.state == Ended {
		a.fate = Linger
		if s.cfg.Resumable {
			a.ctl = wire.AppendClosing(nil, wire.Closing{Code: s.ending.Code, Reason: s.ending.Text})
		}
		return a
	}
	if s.cfg.Resumable {
		s.hello(a, now, p, wire.Hello{})
	}
	s.enterAttached(now, a, Event{Kind: Created})
	return a
}

// Attach attaches a resuming client. It reports a Refusal as Check does, and
// also, with code 0, a pass whose generation has been overtaken meanwhile.
func (s *Session) Attach(now Time, r Resume, p Pass) (*Attachment, *Refusal) {
	if ref := s.Check(now, r); ref != nil {
		return nil, ref
	}
	if p.Gen != s.gen.Next() {
		return nil, &Refusal{Text: "generation overtaken"}
	}
	ev := Event{Kind: Resumed}
	if old := s.att; old != nil {
		ev.Kind, ev.Was = Superseded, old.peer
		s.noteTakeover(now)
		s.noteProgress(now, old)
		s.part(old, Linger, wire.AppendClosing(nil, wire.Closing{Code: wire.CodeSuperseded, Reason: wire.Name(wire.CodeSuperseded)}), false)
	} else {
		ev.Took = now.Sub(s.detached)
	}
	s.gen.Confirm(r.Gen)
	base := s.ring.Base().N
	if r.Received > base {
		s.ring.Ack(r.Received, s.ring.Last().Off)
		base = r.Received
	}
	s.acked = max(s.acked, r.Received)
	ev.Lost = base - r.Received
	ev.Replay = s.ring.Last().N - base
	s.sentN = max(s.sentN, base)
	s.stats.Replayed += ev.Replay

	a := s.newAttachment(now, p)
	a.resumed, a.behindReplay, a.catchUp = true, true, s.ring.Last().Off
	s.hello(a, now, p, wire.Hello{Resumed: true, Received: s.admitted.n, Lost: ev.Lost, Replay: ev.Replay})
	s.enterAttached(now, a, ev)
	return a, nil
}

func (s *Session) hello(a *Attachment, now Time, p Pass, h wire.Hello) {
	s.gen.Issue(p.Gen)
	a.gen = p.Gen
	h.Session, h.Token, h.Protocol = s.cfg.ID, p.Token, s.cfg.Protocol
	h.Grace, h.Heartbeat = s.cfg.Grace.Milliseconds(), s.cfg.Heartbeat.Milliseconds()
	h.Limits = wire.Limits{MessageBytes: s.cfg.MaxMessage, UnackedMessages: UnackedMessages, UnackedBytes: UnackedBytes}
	a.ctl = wire.AppendJSON(a.ctl, wire.VerbHello, h)
	if s.written.n > 0 {
		a.ackSince = now // acked anew, though an older connection was told already
	}
	s.renewAt = now.Add(p.Renew)
}

func (s *Session) enterAttached(now Time, a *Attachment, ev Event) {
	s.epoch++
	a.epoch = s.epoch
	s.state, s.att = Attached, a
	s.detached, s.graceEnd, s.scan.told = 0, 0, false
	ev.Peer = a.peer
	s.emit(ev)
	s.unblock(now)
}

// drop detaches the attached client, or ends the session where a drop does.
// final is what its connection is still sent.
func (s *Session) drop(now Time, why string, f Fate, final []byte) {
	a := s.att
	switch {
	case !s.cfg.Resumable && s.up.over:
		s.endDelivered(now, f)
		return
	case !s.cfg.Resumable:
		s.end(now, ending{Ending: s.goneEnding(ReasonClientGone), clientFate: f, client: final})
		return
	}
	futile := s.noteProgress(now, a)
	s.part(a, f, final, false)
	s.att = nil
	s.state, s.detached = Detached, now
	s.graceEnd = now.Add(s.grace())
	s.emit(Event{Kind: Dropped, Reason: why, Peer: a.peer})
	switch {
	case futile:
		s.end(now, ending{Ending: Ending{Reason: ReasonNoProgress, Code: wire.CodeEnded, Text: "no progress"}, code: wire.CodeGoingAway, text: "no progress"})
	case s.graceEnd <= now:
		s.endGrace(now)
	default:
		s.unblock(now)
	}
}

// grace is how long the session is kept from a drop on. A new session whose
// hello was never confirmed may have a token that nobody holds.
func (s *Session) grace() time.Duration {
	if s.gen.Confirmed() == 0 {
		return min(s.cfg.Grace, 2*s.cfg.Heartbeat)
	}
	return s.cfg.Grace
}

func (s *Session) endGrace(now Time) {
	s.end(now, ending{Ending: s.goneEnding(ReasonGraceOver), code: wire.CodeGoingAway, text: "grace period over"})
}

// goneEnding is how a session ends for want of a client.
func (s *Session) goneEnding(reason string) Ending {
	return Ending{Reason: reason, Code: wire.CodeNoSession, Text: wire.Name(wire.CodeNoSession)}
}

// An ending is how a session is to be ended: the record of it, and what each
// leg is told.
type ending struct {
	Ending
	code       int    // Close to the upstream; 0: its connection is dropped
	text       string // and its reason
	client     []byte // frames for the attached client
	clientFate Fate   // and what becomes of its connection
	flush      bool   // the client gets what was read of the upstream first
}

// end ends the session. One end, one reason: a second one changes nothing.
func (s *Session) end(now Time, e ending) {
	if s.state == Ended {
		return
	}
	ev := Event{Kind: Over, Reason: e.Reason, Detail: e.text}
	if s.state == Detached {
		ev.Took = now.Sub(s.detached)
	}
	if a := s.att; a != nil {
		s.part(a, e.clientFate, e.client, e.flush)
		s.att = nil
	}
	s.closeUpstream(now, e.code, e.text)
	e.At = now
	s.state, s.ending = Ended, e.Ending
	s.ring.Release()
	s.emit(ev)
}

// violation ends the session with one of the codes of reseat.v1 section 6 that
// a client brings upon itself.
func (s *Session) violation(now Time, code int, format string, args ...any) {
	ref := Refuse(code, format, args...)
	s.end(now, ending{
		Ending: Ending{Reason: wire.Name(code), Code: wire.CodeNoSession, Text: wire.Name(wire.CodeNoSession)},
		code:   wire.UpstreamCode(code), text: ref.Text,
		client: s.closing(wire.Closing{Code: code, Reason: ref.Text}), clientFate: Linger,
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
	client := wire.AppendClosing(nil, wire.Closing{Code: wire.CodeEnded, Reason: text})
	if !s.cfg.Resumable {
		client = frame.Append(nil, frame.Close, frame.ClosePayload(code, text))
	}
	s.end(now, ending{
		Ending: Ending{Reason: wire.Name(wire.CodeEnded), Code: wire.CodeEnded, Text: text},
		code:   code, text: text, client: client, clientFate: Linger,
	})
}

// Drain ends the session since its gateway goes away: 4503, and the client
// first gets what was read already. again is when it may begin a new session.
func (s *Session) Drain(now Time, again time.Duration) {
	name := wire.Name(wire.CodeDraining)
	s.end(now, ending{
		Ending: s.goneEnding(name),
		code:   wire.CodeGoingAway, text: name,
		client: s.closing(wire.Closing{Code: wire.CodeDraining, Reason: name, RetryAfter: again.Milliseconds()}), clientFate: Linger, flush: true,
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

// noteTakeover keeps the times of the last takeovers, oldest first.
func (s *Session) noteTakeover(now Time) {
	if len(s.takeover) == takeoverLimit {
		s.takeover = append(s.takeover[:0], s.takeover[1:]...)
	}
	s.takeover = append(s.takeover, now)
}

// futility counts the resumes in a row that came to nothing: reseat.v1 section
// 6, 4410 no progress.
type futility struct {
	n     int
	since Time
}

// noteProgress looks at a connection that is gone and reports whether it was
// the last of too many that came to nothing.
func (s *Session) noteProgress(now Time, a *Attachment) bool {
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

// ClientGone says that a's connection has ended without a Close frame.
func (s *Session) ClientGone(now Time, a *Attachment, why string) {
	if a == s.att {
		s.drop(now, why, Shut, nil)
	}
}

// State is where the session is in its life.
func (s *Session) State() State { return s.state }
