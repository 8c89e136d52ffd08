package sim

import (
	"reseat/gateway/session"
)

// Which edge of the state table in session/transitions.go was taken.

// noteEdge records that t was attached to a session in the state b.
func (g *game) noteEdge(t *attempt, b session.Info) {
	c := &g.w.cov
	switch {
	case b.State == session.Attached && g.cfg.Hard:
		c.hit(EdgeTakeoverHard)
	case b.State == session.Attached:
		c.hit(EdgeTakeover)
	case b.Epoch == 0:
		c.hit(EdgeResumeAhead)
	case g.cfg.Hard && g.ups.no > 1:
		c.hit(EdgeResumeHard)
	default:
		c.hit(EdgeResume)
	}
}

// noteGraceOver records an end by the grace period.
func (g *game) noteGraceOver() {
	c := &g.w.cov
	switch {
	case g.core.Info().Epoch == 0:
		c.hit(EdgeGraceAhead)
	case g.ups.replaced:
		c.hit(EdgeGraceHard)
	default:
		c.hit(EdgeGrace)
	}
	if g.detached.rested > 0 {
		c.hit(EdgeGraceRested)
	}
}

// noteIdle records an end by the idle timeout.
func (g *game) noteIdle() {
	c := &g.w.cov
	switch {
	case g.detached.waits > 0:
		c.hit(EdgeIdleDial)
	case g.detached.since > 0:
		c.hit(EdgeIdleDetached)
	default:
		c.hit(EdgeIdleAttached)
	}
}

// noteEnd records an end by the API or the gateway.
func (g *game) noteEnd() {
	c := &g.w.cov
	switch state := g.core.State(); {
	case state == session.Attached:
		c.hit(EdgeEndAttached)
	case state == session.Detached:
		c.hit(EdgeEndDetached)
	case g.detached.waits == 0:
		c.hit(EdgeEndFirst)
	case g.ups.replaced:
		c.hit(EdgeEndDial)
	default:
		c.hit(EdgeEndDialled)
	}
}

// noteUpstreamOver records that the core has learned of the upstream's end.
func (g *game) noteUpstreamOver(state session.State) {
	c, l := &g.w.cov, g.seen.newest
	switch {
	case state == session.Detached:
		c.hit(R10Grace)
	case state == session.Connecting && g.detached.waits > 0:
		c.hit(EdgeOverDialled)
	case state == session.Connecting:
		c.hit(EdgeOverFirst)
	case state == session.Attached && l != nil && l.tap.replaying() && l.tap.n == l.tap.stated+l.tap.lost:
		c.hit(R10Accepted)
	case state == session.Attached && l != nil && l.tap.replaying():
		c.hit(R10Replay)
	}
}

// noteSlow records that a resume is served while another client, or the previous one,
// does not read its replay. The core has no lock that such a client could hold; tests
// of the code with locks show the rest.
func (g *game) noteSlow() {
	for _, other := range g.w.games {
		if l := other.seen.newest; l == nil || !l.waiting || !l.tap.replaying() {
			continue
		}
		if other == g {
			g.w.cov.hit(R16Own)
		} else {
			g.w.cov.hit(R16)
		}
	}
}
