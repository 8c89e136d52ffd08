package sim

import (
	"slices"
	"strconv"
	"time"

	"reseat/gateway/session"
)

// Plain clients that resume by a cookie, protocol section 9. Such a client neither
// counts nor acks nor resends: it answers Pings, as RFC 6455 requires, and opens a new
// connection with its cookie. It has received what it was sent on all its connections
// together. The Pings carry the count. From the Pongs that the core has read the model
// knows with which message the next connection must start: not later, because a message
// may not have arrived, and not earlier, because everything up to there is delivered
// exactly once.

// answerTime is how long an attached client may take to answer a Ping before another
// with its cookie may replace it.
const answerTime = 2 * time.Second

// cookieLife is how long a cookie's token is valid.
const cookieLife = 10 * 365 * 24 * time.Hour

// keeps reports whether the session outlives a disconnect.
func (g *game) keeps() bool { return g.cfg.Resumable || g.cfg.PlainResume }

// An inquiry is what an attempt with a cookie must find out first: whether the attached
// client answers.
type inquiry struct {
	made  bool
	since session.Time // zero: not waiting for an answer
	pongs int          // that had been read before
}

// inquire pings the attached client. It reports whether the attempt must wait for the
// answer.
func (g *game) inquire(t *attempt) bool {
	if !g.cfg.PlainResume || t.inquiry.made {
		return false
	}
	t.inquiry = inquiry{made: true, pongs: g.seen.pongs}
	asked := g.asks()
	if asked {
		t.inquiry.since, t.stage = g.w.now, asking
	}
	return asked
}

// learn checks whether the answer has arrived, or is overdue.
func (g *game) learn(t *attempt) bool {
	switch {
	case g.seen.pongs > t.inquiry.pongs:
		g.w.cov.hit("second tab")
		g.inert("a second tab", func() { g.turnAway(t, &session.Refusal{Text: "a session of its own"}) })
	case g.w.now >= t.answerBy():
		t.stage = checking
	case !g.w.calm && g.w.chance(50):
		g.w.advanceTo(t.answerBy(), nil) // it may be in flight
	default:
		return false
	}
	return true
}

// answerBy returns until when the attached client may answer; zero: nobody waits.
func (t *attempt) answerBy() session.Time {
	if t.stage != asking {
		return 0
	}
	return t.inquiry.since.Add(answerTime)
}

// issues returns how many generations a resume issues: a cookie is valid for its
// session's whole life.
func (g *game) issues() uint64 {
	if g.cfg.PlainResume {
		return 0
	}
	return 1
}

// returns records the client's new connection. It continues after message start, and
// lost messages before that were dropped since the last Pong.
func (g *game) returns(t *attempt, start, lost uint64) {
	l, c := t.link, g.cli
	c.count = max(c.count, start)
	if l == nil {
		return
	}
	l.stated, l.lost = start-lost, lost
	l.next = g.core.Info().Received + 1 // what never arrived is not resent: these are new messages
	if !t.live() {
		return // it is closed, or another was opened since
	}
	old := c.live
	c.hellos++
	l.hello = c.hellos
	c.live, c.trying = l, nil
	if old != nil {
		old.drop()
		c.live = l
	}
}

// noteReturn counts how a client has resumed a session in the state b.
func (g *game) noteReturn(b session.Info, replay uint64) {
	c := &g.w.cov
	switch {
	case b.State == session.Attached:
		c.hit("back by cookie, no answer")
	case g.cli.count > g.ponged:
		c.hit("back by cookie, something twice")
	case replay == 0:
		c.hit("back by cookie, missed nothing")
	default:
		c.hit("back by cookie, missed something")
	}
}

// cookie is the token in the response to the first handshake.
func (g *game) cookie(p session.Pass) {
	if g.cfg.PlainResume && g.cli.token.gen == 0 {
		g.cli.token = parseToken(p.Token)
	}
}

// count checks a Ping of the core's, which carries how many messages were written
// completely before it.
func (t *tap) count(p []byte) {
	g := t.l.g
	if !g.cfg.PlainResume {
		return
	}
	n, err := strconv.ParseUint(string(p), 10, 64)
	if err != nil || n > t.n || n < t.counted {
		g.fail("section 9", "a Ping carries %q behind message %d; the one before carried %d", p, t.n, t.counted)
	}
	t.counted = n
}

// pong answers a Ping of the gateway's.
func (l *link) pong(p []byte) {
	l.frame(0x80|opPong, p)
	n, err := strconv.ParseUint(string(p), 10, 64)
	if err == nil {
		l.mark(markPong, n)
	}
}

// checkPongs checks that the messages covered by a Pong are acked, and no others.
func (g *game) checkPongs(l *leg, c catch) {
	if !g.cfg.PlainResume || g.closesAt > 0 {
		return
	}
	if n := len(c.pongs); n > 0 && slices.Max(c.pongs) < l.tap.counted {
		g.w.cov.hit("pong to an older ping")
	}
	if acked := g.core.Info().Acked; acked != g.ponged {
		g.fail("section 9", "Pongs %d were read, acked is %d, want %d", c.pongs, acked, g.ponged)
	}
}

// noteAsk records since when messages are written that neither a Pong covers nor a Ping
// asks about.
func (g *game) noteAsk(i session.Info) {
	m, l := &g.seen, g.down
	switch {
	case !g.cfg.PlainResume || g.closesAt > 0 || i.State != session.Attached || l == nil || l.stale() || l.reported <= i.Acked || len(g.life.open) > 0:
		m.askOwed = 0
	case m.askOwed == 0:
		m.askOwed = g.w.now
	}
}

// checkAsked checks that the client is pinged within a second.
func (g *game) checkAsked() {
	if since := g.seen.askOwed; since > 0 && g.w.now > since.Add(time.Second+maxLateness) {
		g.fail("section 9", "no Ping since %d, and message %d of %d is acked", since, g.core.Info().Acked, g.down.tap.n)
	}
}

// afterClose lets a client that received a Close resume, if its session still exists.
func (c *client) afterClose(code int) {
	if c.g.cfg.PlainResume && c.g.core.State() != session.Ended && c.token.gen > 0 && !c.closing && !c.g.w.calm && c.g.w.chance(500) {
		return
	}
	c.finish("close " + strconv.Itoa(code))
}

// checkTold checks that a session whose upstream has ended ends when its client has
// received everything before that, or has closed deliberately. A Close 1001 from a page
// that is left looks like the answer to the upstream's own.
func (g *game) checkTold() {
	if !g.cfg.PlainResume || !g.honest() || g.cli.closing || g.ups.code == 1001 {
		return
	}
	if i := g.core.Info(); g.cli.count < i.Sent {
		g.fail("section 9", "the upstream's end is delivered, and the client has %d of %d messages", g.cli.count, i.Sent)
	}
}
