package sim

import (
	"time"

	"reseat/gateway/session"
)

// Suspicion, protocol section 5: a client that suspects its connection starts a resume
// beside it, and continues with the one that shows activity first.

const (
	suspectEvery = 4 * time.Second // min interval between attempts, and max time for a 101
	usualGaps    = 3               // a connection is suspected after this many usual gaps
)

// suspects starts a resume beside the live connection, if the client has reason to.
func (c *client) suspects() bool {
	l, w := c.live, c.g.w
	if l == nil || !c.g.cfg.Resumable || l.byeSent || l.gap == 0 || w.now < c.suspectAt || w.now < l.heard.Add(usualGaps*l.gap) || !c.resume() {
		return false
	}
	c.trying.suspicion = true
	c.suspectAt = w.now.Add(suspectEvery << min(c.falseAlarms, 8))
	c.g.log("cl suspects", int64(l.id), int64(c.trying.id))
	c.noteSuspicion(l)
	return true
}

// noteSuspicion records what else was in progress.
func (c *client) noteSuspicion(l *link) {
	g := c.g
	if g.dead {
		return
	}
	if d := g.down; g.core.State() == session.Attached && d.tap.link != l {
		g.w.cov.hit("R24") // another of its attempts has taken over, without its knowledge
	}
	for _, t := range g.tries {
		if t.stage > handshaking && t.link != c.trying && g.core.State() == session.Attached {
			g.w.cov.hit("R24")
		}
	}
	if g.dial != nil {
		g.w.cov.hit("R25")
	}
}

// relax handles activity on l. A client that suspected it may abandon the new attempt
// while that has no 101.
func (c *client) relax(l *link) {
	t := c.trying
	if t == nil || !t.suspicion || l != c.live || !l.active || l.left {
		return
	}
	if t.upgraded {
		c.g.w.cov.hit("R23 after the 101")
		return
	}
	if c.g.w.chance(700) {
		c.falseAlarms++
		c.g.w.cov.hit("R23 before the 101")
		c.abandon()
	}
}

// clientSuspects lets time pass in which the client receives nothing, if that is what
// suspicion needs.
func (g *game) clientSuspects() bool {
	c := g.cli
	l := c.live
	if l == nil || c.trying != nil || c.done || l.gap == 0 {
		return false
	}
	if due := max(c.suspectAt, l.heard.Add(usualGaps*l.gap)); due > g.w.now && due < g.w.now.Add(2*suspectEvery) && g.w.chance(300) {
		g.w.advanceTo(due, nil)
	}
	return c.suspects()
}
