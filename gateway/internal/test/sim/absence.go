package sim

import (
	"time"

	"reseat/gateway/session"
)

// How long a detached session is kept, and what the upstream is sent meanwhile.

// An absence is the time since the client was disconnected, or since the session was
// pre-created.
type absence struct {
	since    session.Time // zero: a client is attached
	waits    session.Time // since when a client waits for the upstream (hard); zero: none waits
	rested   time.Duration
	reserved bool // pre-created
	beats    []session.Time
}

// keep returns how long a detached session is kept, as announced to its client.
func (g *game) keep() time.Duration { return keeps(g.terms, g.started) }

func keeps(t session.Terms, started bool) time.Duration {
	if started {
		return t.Grace
	}
	return t.GraceBeforeStart
}

// kept returns how long the session is kept under terms t. Protocol section 6 has a
// special case: a session whose hello was not confirmed. A cookie has none to confirm.
func (g *game) kept(t session.Terms) time.Duration {
	d := keeps(t, g.started)
	if i := g.core.Info(); i.Tokens.Confirmed() == 0 && !g.detached.reserved {
		if g.cfg.Resumable {
			return min(d, g.cfg.GraceUnconfirmed)
		}
		return min(d, 2*g.cfg.Heartbeat)
	}
	return d
}

// graceEnd returns when the detached session must end.
func (g *game) graceEnd() session.Time {
	return g.detached.since.Add(g.detached.rested + g.kept(g.terms))
}

// clientDetached records that no client is attached any more.
func (g *game) clientDetached(replaced bool) {
	g.detached.since, g.detached.rested, g.detached.waits = g.w.now, 0, 0
	g.detached.beats = g.detached.beats[:0]
	if !replaced {
		g.startBeats()
	}
}

// clientAttached records that a client is attached.
func (g *game) clientAttached() { g.detached.since, g.detached.waits, g.detached.beats = 0, 0, nil }

func (g *game) startBeats() {
	for _, b := range g.cfg.Keepalives {
		g.detached.beats = append(g.detached.beats, g.w.now.Add(b.Every))
	}
}

// tickBeats requires the detached texts that are due to be sent to a connected
// upstream, unless it has not yet accepted earlier output (busy).
func (g *game) tickBeats(busy bool) {
	n, waits := 0, !busy && !g.certain()
	for i, at := range g.detached.beats {
		if g.w.now < at {
			continue
		}
		if waits { // F6
			g.w.cov.hit("beat not sent, uncertain")
			g.detached.beats[i] = g.w.now.Add(keepaliveWait)
			continue
		}
		g.detached.beats[i] = g.w.now.Add(g.cfg.Keepalives[i].Every)
		if busy {
			g.w.cov.hit("beat held back")
			continue
		}
		n++
		g.log("beat", int64(i), int64(g.w.now))
		g.expected.expect(expectation{text: g.cfg.Keepalives[i].Text, to: g.ups})
		g.w.cov.hit("beat")
	}
	if n > 1 {
		g.w.cov.hit("beats together")
	}
}

// skipBeats records that the texts that are due during an outage have nobody to go to.
func (g *game) skipBeats() {
	for i, at := range g.detached.beats {
		if g.w.now >= at {
			g.detached.beats[i] = g.w.now.Add(g.cfg.Keepalives[i].Every)
		}
	}
}

// nextBeat returns when the next detached text is due; zero: never.
func (g *game) nextBeat() (t session.Time) {
	if g.seen.upOpen {
		for _, at := range g.detached.beats {
			t = earlier(t, at)
		}
	}
	return t
}

// checkAway checks that the detached session ends in time, and that due texts are sent.
func (g *game) checkAway(i session.Info) {
	next := g.core.Next()
	switch {
	case i.Detached != g.detached.since:
		g.fail("I9", "detached since %d, want %d", i.Detached, g.detached.since)
	case i.State != session.Detached:
	case next == 0 || next > max(g.graceEnd(), g.waitEnd):
		g.fail("I9", "the grace period ends at %d, but Next is %d", g.graceEnd(), next)
	case g.nextBeat() > 0 && next > g.nextBeat():
		g.fail("words", "a text is due at %d, but Next is %d", g.nextBeat(), next)
	case g.seen.blocked && g.seen.upOpen && g.terms.Overflow != session.Pause && g.waitEnd == 0:
		g.fail("I13", "the upstream waits for room under %v", g.terms.Overflow)
	case g.cfg.Hard && i.Epoch > 0 && !g.core.NeedsUpstream() && !g.upOver() && g.leaving == 0:
		g.fail("hard", "detached, and the upstream is there")
	}
	if g.cfg.Idle > 0 && i.State != session.Ended && (next == 0 || next > max(g.seen.data.Add(g.cfg.Idle), g.waitEnd)) {
		g.fail("idle", "nothing was said since %d, but Next is %d", g.seen.data, next)
	}
}

// reserve makes the session wait for a client, as a pre-created session does.
func (g *game) reserve() bool {
	if !g.precreated {
		return false
	}
	g.precreated = false
	if g.core.State() == session.Ended {
		p := g.pass(1, 0)
		g.inert("Reserve after the end", func() { g.core.Reserve(g.w.now, p) })
		return true
	}
	p := g.pass(1, 0)
	p.Durable = g.cfg.Durable
	g.detached.reserved = true
	g.clientDetached(false)
	g.seen.attach = session.Event{Kind: session.Created}
	g.seen.unblocked = true
	g.core.Reserve(g.w.now, p)
	g.issued(p)
	g.answerKept(0)
	g.sync(false)
	if g.core.State() != session.Detached && g.seen.ends == 0 {
		g.fail("reserve", "a session made ahead is %v", g.core.State())
	}
	g.cli.token = parseToken(p.Token)
	g.settle()
	return true
}
