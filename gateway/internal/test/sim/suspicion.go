package sim

import (
	"time"

	"reseat/gateway/session"
)

// Suspicion, protocol section 5: a client that doubts its connection begins a resume
// beside it, and goes on with whichever speaks first.

const (
	suspectEvery = 4 * time.Second // at most one attempt, and for its 101
	usualGaps    = 3               // so many times as long as usual a connection is silent before it is suspected
)

// suspects begins a resume beside the live connection, if the client has reason to.
func (c *client) suspects() bool {
	l, w := c.live, c.g.w
	if l == nil || !c.g.cfg.Resumable || l.byeing || l.gap == 0 || w.now < c.suspectAt || w.now < l.heard.Add(usualGaps*l.gap) || !c.resume() {
		return false
	}
	c.trying.suspicion = true
	c.suspectAt = w.now.Add(suspectEvery << min(c.falseAlarms, 8))
	c.g.log("cl suspects", int64(l.id), int64(c.trying.id))
	c.noteSuspicion(l)
	return true
}

// noteSuspicion: what else was going on.
func (c *client) noteSuspicion(l *link) {
	g := c.g
	if d := g.down; g.core.State() == session.Attached && d.tap.link != l {
		g.w.cov.hit(R24) // another of its attempts has taken over, and it does not know
	}
	for _, t := range g.tries {
		if t.stage > knocking && t.link != c.trying && g.core.State() == session.Attached {
			g.w.cov.hit(R24)
		}
	}
	if g.dial != nil {
		g.w.cov.hit(R25)
	}
}

// relax: something came on l. Where the client suspects it, and the new connection has
// not been answered with 101, it may drop that.
func (c *client) relax(l *link) {
	t := c.trying
	if t == nil || !t.suspicion || l != c.live || !l.speaks {
		return
	}
	if t.shaken {
		c.g.w.cov.hit(R23After)
		return
	}
	if c.g.w.chance(700) {
		c.falseAlarms++
		c.g.w.cov.hit(R23)
		c.abandon()
	}
}

// clientSuspects has some time pass in which the client hears nothing, if that is what
// is missing.
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
