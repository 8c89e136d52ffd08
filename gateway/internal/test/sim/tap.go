package sim

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"reseat/gateway/session"
)

// A tap reads everything that is written to one client connection, whether or not it
// arrives, and checks that it is what that connection is owed: hello first, then the
// messages from the right one on, complete and in order, and at the end a control
// message and a Close.
type tap struct {
	l    *leg
	link *link // nil: another client's connection
	dec  decoder

	nums *numbers // what its messages are

	takesParts bool
	parts      assembly

	stated   uint64 // in the resume
	received uint64 // by the core, before the attach
	sent     uint64 // numbered before the attach
	first    bool
	late     bool // the session had already ended

	hello          bool
	lost           uint64
	replay         uint64
	skipped        uint64 // by skip,
	announcedSkips uint64 // and by hello
	n              uint64 // number of the newest message written
	acked          uint64 // newest ack written
	older          uint64 // what was written upstream before the attach
	announced      bool   // the end of the replay was announced
	code           int    // of close or end; 0: none
	verb           string
	closed         bool

	pongDue   uint64 // the client's newest unanswered ping
	pongAfter uint64 // what must be acked first
	wsPongDue bool

	outage    bool   // the client was attached in an outage
	lastState string // of the upstream, as this client has heard

	moved string // how the session came to its node, if the client has not been heard there

	graceNow int64   // the grace period that hello must contain
	graces   []int64 // changes since then, in order
	counted  uint64  // the count in the newest Ping
}

func newTap(l *leg, stated uint64) *tap {
	i := l.g.core.Info()
	if l.g.cfg.Durable {
		l.repeats, i.Received = i.Received-i.Written, i.Written
	}
	t := &tap{l: l, nums: l.g.nums, stated: stated, received: i.Received, sent: l.g.seen.sent, first: i.Epoch == 1, n: stated, older: i.Written}
	t.moved = l.g.movedHere()
	t.graceNow = l.g.keep().Milliseconds()
	t.late = i.State == session.Ended
	if l.g.cfg.PlainResume { // there is no hello to announce it
		t.lost, t.replay = l.g.seen.attach.Lost, l.g.seen.attach.Replay
		t.n += t.lost
	}
	t.hello = !l.g.cfg.Resumable || t.late
	if t.outage = l.g.seen.outage; t.outage {
		l.g.w.cov.hit("attach in an outage")
	}
	return t
}

// accept reads what the network has just accepted.
func (t *tap) accept(b []byte) {
	t.dec.feed(b)
	for {
		a, ok, bad := t.dec.next()
		if bad != "" {
			t.l.g.fail("I1", "a broken frame for a client: %s", bad)
		}
		if !ok {
			break
		}
		t.see(a)
	}
	if t.parts.left > 0 && t.dec.torn() {
		t.l.g.w.cov.hit("cut inside a part")
	}
	if t.closed && t.dec.torn() {
		t.l.g.fail("I12", "something is written behind a Close")
	}
}

func (t *tap) see(a arrival) {
	g := t.l.g
	switch {
	case t.closed:
		g.fail("I12", "opcode %d is written behind a Close", a.op)
	case a.op == opClose:
		t.closed = true
		t.checkClose(a.p)
	case a.op == opPong:
		if s := string(a.p); s != "between" && s != "are you there?" {
			g.fail("RFC 6455", "the pong %q is written", s)
		}
		t.wsPongDue = false
	case a.op >= opClose:
		t.count(a.p)
	case g.cfg.Resumable && isControl(a.op, a.p):
		t.control(string(a.p[1:]))
	case !t.hello:
		g.fail("I7", "data is written before hello")
	case t.code != 0:
		g.fail("I12", "data is written behind %s", t.verb)
	default:
		whole, ok, bad := t.parts.add(a, t.takesParts)
		if bad != "" {
			g.fail("parts", "opcode %d of %d bytes is written: %s", a.op, len(a.p), bad)
		}
		if ok {
			t.data(whole)
		}
	}
}

func (t *tap) data(a arrival) {
	g := t.l.g
	t.checkNews(t.n + 1)
	t.n++
	p := a.p
	if g.cfg.Resumable {
		p = unescaped(a)
	}
	if t.n > t.nums.last() {
		g.fail("I1", "message %d is written, %d are numbered", t.n, t.nums.last())
	}
	if m := t.nums.message(t.n); m.op != a.op || !m.equal(p) {
		g.fail("I1", "opcode %d of %d bytes is written as message %d, want opcode %d of %d bytes", a.op, len(p), t.n, m.op, m.size)
	}
}

func (t *tap) control(text string) {
	g := t.l.g
	verb, arg, _ := strings.Cut(text, " ")
	switch {
	case verb == "hello":
		t.seeHello(arg)
	case !t.hello:
		g.fail("I7", "%s is written before hello", verb)
	case verb == "ack":
		n, err := strconv.ParseUint(arg, 10, 64)
		if err != nil || n > g.expected.got || n < t.acked {
			g.fail("I5", "ack %q is written; the upstream was written %d, the last ack was %d", arg, g.expected.got, t.acked)
		}
		t.acked = n
	case verb == "pong":
		t.pong(arg)
	case verb == "parts":
		if bad := t.parts.announce(arg, g.cfg.MaxMessage); bad != "" || !t.takesParts {
			g.fail("parts", "parts %s is written: %s", arg, bad)
		}
		g.w.cov.hit("message in parts")
	case verb == "skip":
		t.skip(arg)
	case verb == "grace":
		t.grace(arg)
	case verb == "upstream":
		t.state(arg)
	case verb == "end" || verb == "close":
		var v closeArg
		g.must(json.Unmarshal([]byte(arg), &v))
		t.verb, t.code = verb, v.Code
		t.checkVerb()
	}
}

// grace checks the announcement of a changed grace period.
func (t *tap) grace(arg string) {
	g := t.l.g
	for g.seen.upOver && len(t.graces) > 1 && fmt.Sprint(t.graces[0]) != arg {
		t.graces = t.graces[1:] // nothing follows the announced end
	}
	if n, err := strconv.ParseInt(arg, 10, 64); err != nil || len(t.graces) == 0 || t.graces[0] != n {
		g.fail("terms", "grace %q is written, want %v", arg, t.graces)
	}
	t.graces = t.graces[1:]
	g.w.cov.hit("terms announced")
}

// pong checks the answer to a ping, which must follow the owed ack.
func (t *tap) pong(arg string) {
	n, err := strconv.ParseUint(arg, 10, 64)
	switch {
	case err != nil && t.link != nil:
		t.l.g.fail("section 5", "the pong %q is written", arg)
	case n != t.pongDue || n == 0:
		return // to an older ping
	case t.acked < t.pongAfter:
		t.l.g.fail("section 5", "ping %d is answered before the ack of %d", n, t.pongAfter)
	}
	t.pongDue = 0
}

func (t *tap) seeHello(arg string) {
	g := t.l.g
	var h helloArg
	g.must(json.Unmarshal([]byte(arg), &h))
	t.lost, t.replay, t.announcedSkips = h.Lost, h.Replay, h.Skipped
	switch {
	case t.hello:
		g.fail("I7", "a second hello")
	case h.Received != t.received:
		g.fail("I3", "hello.received %d, but %d were admitted at the attach", h.Received, t.received)
	case t.first != !*h.Resumed:
		g.fail("I7", "hello.resumed %v at epoch %d", *h.Resumed, t.l.att.Epoch())
	case (!t.first || g.detached.reserved) && t.stated+h.Lost+h.Replay+h.Skipped != t.sent:
		g.fail("I7", "stated %d, lost %d, replay %d, but %d were numbered", t.stated, h.Lost, h.Replay, t.sent)
	case h.Lost > 0 && !g.seen.dropping:
		g.fail("I1", "lost %d under %v", h.Lost, g.terms.Overflow)
	case h.Durable != g.cfg.Durable || h.Moved != t.moved:
		g.fail("durable", "hello says durable %v, moved %q; want %v, %q", h.Durable, h.Moved, g.cfg.Durable, t.moved)
	case h.Grace != t.graceNow:
		g.fail("terms", "hello says grace %d ms, want %d", h.Grace, t.graceNow)
	}
	t.hello = true
	t.n = t.stated + t.lost
	if p := h.Partial; p != nil && p.Down > 0 {
		t.parts.held = t.link.holds[:min(p.Down, len(t.link.holds))]
	}
}

// closeCode is the code that the client gets for an end reason.
var closeCode = map[string]int{
	"ended": 4410, "idle_timeout": 4410, "no_progress": 4410, "draining": 4503, "superseded": 4409, "too_fast": 4429, "window_exceeded": 4408,
	"moved": 4503, "internal_error": 1011, "protocol_error": 1002, "invalid_utf8": 1007, "message_too_big": 1009, "protocol_violation": 4400,
}

// checkVerb checks that the upstream's end follows all its messages.
func (t *tap) checkVerb() {
	g := t.l.g
	switch {
	case t.verb == "end":
		if t.n != t.nums.last() || len(g.ups.items) > 0 || !g.ups.over || g.ups.code != t.code {
			g.fail("I12", "end %d after message %d of %d; the upstream closed with %d after %d more", t.code, t.n, t.nums.last(), g.ups.code, len(g.ups.items))
		}
	case t.verb == "close" && t.code == 4409 && g.cfg.Durable && t.l.stale(): // its client has got further elsewhere
	case t.verb == "close" && t.l == g.seen.newest && t.code != 4502 && t.code != closeCode[g.core.Info().Ending.Reason]:
		g.fail("section 6", "close %d to the client of a session that ended with %q", t.code, g.core.Info().Ending.Reason)
	case t.code == 4502:
		if t.n != g.core.Info().Sent {
			g.fail("I12", "close 4502 after message %d of %d", t.n, g.core.Info().Sent)
		}
	case t.code == 4503:
		if t.n != g.core.Info().Sent && !t.late && g.core.Info().Ending.Reason != "moved" {
			g.fail("I12", "close 4503 after message %d of %d", t.n, g.core.Info().Sent)
		}
	case t.code == 4409:
		if !t.l.stale() {
			g.fail("I3", "the attached client gets 4409")
		}
	}
}

// checkClose checks that a Close has the code of the control message before it.
func (t *tap) checkClose(p []byte) {
	g := t.l.g
	code, _ := parseClose(p)
	if t.code != 0 && t.code != code {
		g.fail("section 6", "%s %d before a Close with %d", t.verb, t.code, code)
	}
	if t.l == g.seen.newest && g.closesAt > 0 && g.core.Info().Ending.Reason == "bye" {
		g.checkClosed(t, code)
		return
	}
	if !g.cfg.Resumable && !t.l.stale() && (t.n != t.nums.last() || len(g.ups.items) > 0 || code != g.ups.code) {
		g.fail("I12", "Close %d to a plain client after message %d of %d; the upstream closed with %d after %d more", code, t.n, t.nums.last(), g.ups.code, len(g.ups.items))
	}
}

// finished checks that everything for this connection is written.
func (t *tap) finished() {
	g := t.l.g
	if t.parts.left > 0 {
		g.w.cov.hit("released inside a message in parts")
	}
	switch {
	case t.dec.torn():
		g.fail("I1", "a connection is closed within a message, after message %d", t.n)
	case !t.closed && g.cfg.Resumable:
		g.fail("section 6", "a connection is closed in order without a Close")
	}
}

// replaying reports whether part of the replay is not written yet.
func (t *tap) replaying() bool {
	return t.replay > 0 && t.n < t.stated+t.lost+t.replay+t.announcedSkips
}

func (l *leg) stale() bool { return l.att.CloseMode() != session.Open }
