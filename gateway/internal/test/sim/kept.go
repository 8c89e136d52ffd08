package sim

import (
	"slices"
	"strconv"
	"time"

	"reseat/gateway/session"
)

// Plain clients that come back by a cookie, protocol section 9. Such a client
// counts nothing, acks nothing and sends nothing again: it answers Pings, as
// RFC 6455 has everybody do, and opens a new connection with its cookie. What it
// has is what it was sent on all connections together. The Pings carry the
// count; from the Pongs that the core has read the model knows from which message
// on the next connection has to begin: not a message later, for it may not have
// come, and not one earlier, for up to there it is exactly once.

// answerTime is how long an attached client has to answer a Ping before somebody
// with its cookie may take its place.
const answerTime = 2 * time.Second

// cookieLife is that of a cookie's token.
const cookieLife = 10 * 365 * 24 * time.Hour

// keeps reports whether the session outlives a drop.
func (g *game) keeps() bool { return g.cfg.Resumable || g.cfg.Kept }

// An inquiry is what an attempt with a cookie wants to know first: whether the
// attached client answers.
type inquiry struct {
	made  bool
	since session.Time // zero: no answer is waited for
	pongs int          // that had come before
}

// inquire asks the attached client for a sign of life. It reports whether its
// answer is to be waited for.
func (g *game) inquire(t *attempt) bool {
	if !g.cfg.Kept || t.inquiry.made {
		return false
	}
	t.inquiry = inquiry{made: true, pongs: g.seen.pongs}
	asked := g.asks()
	if asked {
		t.inquiry.since, t.stage = g.w.now, asking
	}
	return asked
}

// learn looks whether the answer has come, or has not in time.
func (g *game) learn(t *attempt) bool {
	switch {
	case g.seen.pongs > t.inquiry.pongs:
		g.w.cov.hit(SecondTab)
		before := g.snapshot()
		g.turnAway(t, &session.Refusal{Text: "a session of its own"})
		g.unchanged(before, "a second tab")
	case g.w.now >= t.answerBy():
		t.stage = looking
	case !g.w.calm && g.w.chance(50):
		g.w.advanceTo(t.answerBy(), nil) // it may be on its way
	default:
		return false
	}
	return true
}

// answerBy is until when the attached client may answer; zero: nobody waits for
// that.
func (t *attempt) answerBy() session.Time {
	if t.stage != asking {
		return 0
	}
	return t.inquiry.since.Add(answerTime)
}

// issues is how many generations a resume issues: a cookie is good for all of
// its session's life.
func (g *game) issues() uint64 {
	if g.cfg.Kept {
		return 0
	}
	return 1
}

// returns is the client's connection on which it is back; start is the message
// that it goes on behind, and lost how many before were dropped since the last
// Pong.
func (g *game) returns(t *attempt, start, lost uint64) {
	l, c := t.link, g.cli
	if start > c.count {
		c.lost += start - c.count
		c.count = start
	}
	if l == nil {
		return
	}
	l.stated, l.lost = start-lost, lost
	l.next = g.core.Info().Received + 1 // what never arrived is not sent again: these are others
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

// noteReturn counts how a client has come back to a session that was as b says.
func (g *game) noteReturn(b session.Info, replay uint64) {
	c := &g.w.cov
	switch {
	case b.State == session.Attached:
		c.hit(KeptTakeover)
	case g.cli.count > g.ponged:
		c.hit(KeptTwice)
	case replay == 0:
		c.hit(KeptNothing)
	default:
		c.hit(KeptMissed)
	}
}

// cookie is the token that the answer to the first handshake carries.
func (g *game) cookie(p session.Pass) {
	if g.cfg.Kept && g.cli.token.gen == 0 {
		g.cli.token = parseToken(p.Token)
	}
}

// count is a Ping of the core's: it carries how many messages were written whole
// before it.
func (t *tap) count(p []byte) {
	g := t.l.g
	if !g.cfg.Kept {
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

// checkPongs: what a Pong that was read covers is acked, and nothing else is.
func (g *game) checkPongs(l *leg, c catch) {
	if !g.cfg.Kept || g.closesAt > 0 {
		return
	}
	if n := len(c.pongs); n > 0 && slices.Max(c.pongs) < l.tap.counted {
		g.w.cov.hit(PongOlder)
	}
	if acked := g.core.Info().Acked; acked != g.ponged {
		g.fail("section 9", "Pongs %d were read, acked is %d, want %d", c.pongs, acked, g.ponged)
	}
}

// noteAsk notes since when the client has been written what no Pong covers, and
// no Ping asks for.
func (g *game) noteAsk(i session.Info) {
	m, l := &g.seen, g.down
	switch {
	case !g.cfg.Kept || g.closesAt > 0 || i.State != session.Attached || l == nil || l.stale() || l.tap.n <= i.Acked || len(g.life.open) > 0:
		m.askOwed = 0
	case m.askOwed == 0:
		m.askOwed = g.w.now
	}
}

// checkAsked: within a second the client is asked how far it has come.
func (g *game) checkAsked() {
	if since := g.seen.askOwed; since > 0 && g.w.now > since.Add(time.Second+tardy) {
		g.fail("section 9", "no Ping since %d, and message %d of %d is acked", since, g.core.Info().Acked, g.down.tap.n)
	}
}

// afterClose: a client that was told Close may come back, if there is anything
// to come back to.
func (c *client) afterClose(code int) {
	if c.g.cfg.Kept && c.g.core.State() != session.Ended && c.token.gen > 0 && !c.closing && !c.g.w.calm && c.g.w.chance(500) {
		return
	}
	c.finish("close " + strconv.Itoa(code))
}

// checkTold: a session that ends since its upstream has ends when its client has
// all that came before, or has closed it on purpose. A Close 1001 of a page that
// is left cannot be told from the answer to the upstream's own.
func (g *game) checkTold() {
	if !g.cfg.Kept || !g.honest() || g.cli.closing || g.ups.code == 1001 {
		return
	}
	if i := g.core.Info(); g.cli.count < i.Sent {
		g.fail("section 9", "the upstream's end is delivered, and the client has %d of %d messages", g.cli.count, i.Sent)
	}
}
