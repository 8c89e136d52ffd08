package sim

import (
	"fmt"

	"reseat/gateway/session"
)

// noteEdge counts an edge of the state table in session/transitions.go, from a state to the present one.
func (g *game) noteEdge(from session.State) {
	name := fmt.Sprintf("edge %v-%v", from, g.core.State())
	if g.cfg.Hard {
		name += ", hard"
	}
	g.w.cov.hit(name)
	g.state = g.core.State()
}

// noteUpstreamOver records that the core has learned of the upstream's end.
func (g *game) noteUpstreamOver(state session.State) {
	c, l := &g.w.cov, g.seen.newest
	switch {
	case state == session.Detached:
		c.hit("R10 in grace")
	case state == session.Connecting && g.detached.waits > 0:
		c.hit("next upstream over before the attach")
	case state == session.Connecting:
		c.hit("upstream over before the first attach")
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
