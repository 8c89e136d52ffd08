package sim

import "reseat/gateway/session"

// How long a client was silent and detached, according to the events.

// heard follows a read from the attached client, and compares the pulse with the core.
func (g *game) heard(l *leg) {
	if l.stale() {
		g.life.expect = nil
		return
	}
	if len(g.life.expect) > 0 && !g.life.crowded {
		g.fail("section 5", "a pong was read, and no round trip is reported")
	}
	g.life.expect = nil
	g.life.acks(g.core.Info().Acked)
	g.trip.check(g)
}

// attachedEvent records that a client is attached.
func (g *game) attachedEvent(e session.Event) {
	g.checkAbsence(e)
	g.life, g.seen.present = g.newPulse(e.Epoch > 1), true
}

// detachedEvent records that the attached client is detached.
func (g *game) detachedEvent(e session.Event) {
	g.checkSilence(e)
	g.futile.ended(g.life, g.core.Info().Acked)
	g.leaveBehind()
}

// leaveBehind records the end of the newest connection.
func (g *game) leaveBehind() {
	g.seen.present = false
	for b, t := range g.life.heard {
		g.seen.closedHeard[b] = max(g.seen.closedHeard[b], t)
	}
}

// checkSilence checks the client's silence in an event.
func (g *game) checkSilence(e session.Event) {
	if heard := g.w.now.Add(-e.Silent); heard < g.life.heard[early] || heard > g.life.heard[late] {
		g.fail("I13", "silent for %v is reported for a client that was heard at %d", e.Silent, g.life.heard)
	}
}

// checkOver checks the same if the session ends with a client attached.
func (g *game) checkOver(e session.Event) {
	switch {
	case g.seen.present:
		g.checkSilence(e)
		g.leaveBehind()
	case e.Silent != 0:
		g.fail("I13", "silent for %v is said where no client was attached", e.Silent)
	}
}

// checkAbsence checks the absence in the event of an attach.
func (g *game) checkAbsence(e session.Event) {
	now, want := g.w.now, g.seen.closedHeard
	switch {
	case e.Kind == session.Created:
		want = exactly(now)
	case e.Kind == session.Superseded:
		want = g.life.heard
		g.leaveBehind()
	case g.life == nil && want == span{}: // pre-created, or claimed
		want = exactly(now.Add(-e.Elapsed))
	}
	if heard := now.Add(-e.Outage); heard < want[early] || heard > want[late] {
		g.fail("I13", "away for %v is reported for a client that was heard at %d", e.Outage, want)
	}
}
