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
		c.hit("edge attached-attached, hard")
	case b.State == session.Attached:
		c.hit("edge attached-attached")
	case b.Epoch == 0:
		c.hit("edge detached-attached, made ahead")
	case g.cfg.Hard && g.ups.no > 1:
		c.hit("edge connecting-attached, hard")
	default:
		c.hit("edge detached-attached")
	}
}

// noteGraceOver records an end by the grace period.
func (g *game) noteGraceOver() {
	c := &g.w.cov
	switch {
	case g.core.Info().Epoch == 0:
		c.hit("edge detached-ended, grace over, made ahead")
	case g.ups.replaced:
		c.hit("edge detached-ended, grace over, hard")
	default:
		c.hit("edge detached-ended, grace over")
	}
	if g.detached.rested > 0 {
		c.hit("edge detached-ended, grace over, rested")
	}
}

// noteIdle records an end by the idle timeout.
func (g *game) noteIdle() {
	c := &g.w.cov
	switch {
	case g.detached.waits > 0:
		c.hit("edge connecting-ended, idle")
	case g.detached.since > 0:
		c.hit("edge detached-ended, idle")
	default:
		c.hit("edge attached-ended, idle")
	}
}

// noteEnd records an end by the API or the gateway.
func (g *game) noteEnd() {
	c := &g.w.cov
	switch state := g.core.State(); {
	case state == session.Attached:
		c.hit("edge attached-ended")
	case state == session.Detached:
		c.hit("edge detached-ended")
	case g.detached.waits == 0:
		c.hit("edge connecting-ended")
	case g.ups.replaced:
		c.hit("edge connecting-ended, dial")
	default:
		c.hit("edge connecting-ended, dialled")
	}
}

// noteUpstreamOver records that the core has learned of the upstream's end.
func (g *game) noteUpstreamOver(state session.State) {
	c, l := &g.w.cov, g.seen.newest
	switch {
	case state == session.Detached:
		c.hit("R10 in grace")
	case state == session.Connecting && g.detached.waits > 0:
		c.hit("edge connecting, next upstream over")
	case state == session.Connecting:
		c.hit("edge connecting, upstream over")
	case state == session.Attached && l != nil && l.tap.replaying() && l.tap.n == l.tap.stated+l.tap.lost:
		c.hit("R10 before the first replayed byte")
	case state == session.Attached && l != nil && l.tap.replaying():
		c.hit("R10 in mid-replay")
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
			g.w.cov.hit("R16 its own session")
		} else {
			g.w.cov.hit("R16 another session")
		}
	}
}
