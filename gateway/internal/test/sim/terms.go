package sim

import (
	"time"

	"reseat/gateway/session"
)

// What operators and the game server change during a session.

// changeTerms changes the grace periods, the policy, or both.
func (g *game) changeTerms() bool {
	t := g.terms
	if g.w.chance(800) {
		t.Grace = g.someGrace()
		t.GraceBeforeStart = t.Grace
	}
	if g.w.chance(300) {
		t.GraceBeforeStart = g.someGrace()
	}
	if g.w.chance(300) {
		t.Overflow = pick(g.w, session.Pause, session.DropOldest, session.EndSession)
	}
	g.setTerms(t)
	return true
}

// someGrace returns a grace period, now and then one that outlasts every token, or that
// ends together with the client's token.
func (g *game) someGrace() time.Duration {
	w := g.w
	if a := g.detached; a.since > 0 && w.chance(200) {
		return max(g.expires.Sub(a.since)-a.rested-g.resting()+time.Duration(w.rng.IntN(3)-1), 0)
	}
	return pick(w, 0, w.beat/2, w.beat, 3*w.beat, 30*time.Second, 30*time.Second, 100*time.Second, 2*time.Hour)
}

func (g *game) setTerms(t session.Terms) bool {
	g.check()
	before, old, kept, blocked := g.snapshot(), g.terms, g.keep(), g.seen.blocked
	may, must := g.mayChange(t)
	g.terms = t
	g.seen.dropping = g.seen.dropping || t.Overflow == session.DropOldest
	g.seen.unblocked = t.Overflow != old.Overflow
	ok := g.core.SetTerms(g.w.now, t)
	g.log("terms", int64(t.Grace), int64(t.GraceBeforeStart), t.Overflow.String())
	switch {
	case !ok:
		g.terms = old
		g.seen.unblocked = false
		g.unchanged(before, "a refused change of terms")
		g.w.cov.hit("terms refused")
		if must {
			g.fail("terms", "%+v was refused: away %+v, token until %d", t, g.detached, g.expires)
		}
		return false
	case !may:
		g.fail("terms", "%+v was accepted: away %+v, token until %d", t, g.detached, g.expires)
	}
	g.retold(kept, before)
	if t.Overflow != old.Overflow && blocked && (!g.seen.blocked || g.core.State() == session.Ended) {
		g.w.cov.hit("terms end an overflow")
	}
	g.settle()
	return true
}

// mayChange reports whether the terms may be changed, and whether they must be: not
// while the client is detached with a token that expires earlier.
func (g *game) mayChange(t session.Terms) (may, must bool) {
	state := g.core.State()
	if g.detached.since == 0 || state == session.Ended || keeps(t, g.started) == g.keep() {
		return true, true
	}
	end := g.detached.since.Add(g.detached.rested + g.resting() + g.kept(t))
	return end <= max(g.expires, g.confirmedExpiry), end <= min(g.expires, g.confirmedExpiry)
}

// resting returns how long the timer has been stopped.
func (g *game) resting() time.Duration {
	if g.detached.waits == 0 {
		return 0
	}
	return g.w.now.Sub(g.detached.waits)
}

// retold checks that a changed grace period applies at once, and that the client is
// notified.
func (g *game) retold(kept time.Duration, before snapshot) {
	if g.keep() > kept {
		g.lengthened = true
	}
	state := before.info.State
	if g.keep() != kept && state == session.Attached && g.cfg.Resumable {
		g.down.tap.graces = append(g.down.tap.graces, g.keep().Milliseconds())
	}
	g.sync(false)
	if g.keep() == kept {
		return
	}
	switch state {
	case session.Attached:
		g.checkRenewal()
	case session.Detached:
		g.w.cov.hit("terms away")
		if end := g.graceEnd(); g.w.now >= end != (g.core.State() == session.Ended) && g.seen.ends == 0 && g.waitEnd == 0 {
			g.fail("terms", "the grace period ends at %d, and the session is %v", end, g.core.State())
		}
	case session.Connecting:
		if g.detached.waits > 0 {
			g.w.cov.hit("terms in the dial")
		}
	}
}

// checkRenewal checks that the client gets a token that outlives the new grace period.
func (g *game) checkRenewal() {
	if soon := g.w.now.Add(2*g.cfg.Heartbeat + g.keep()); g.cfg.Resumable && !g.upOver() && g.expires < soon && !g.wantsToken && g.renewing == 0 {
		g.fail("terms", "the token expires at %d, and no other is asked for", g.expires)
	}
}

// setStarted marks the session as started, or not started again.
func (g *game) setStarted() bool {
	g.check()
	before, kept, started := g.snapshot(), g.keep(), !g.started
	if g.w.chance(100) || before.info.State == session.Ended {
		g.core.SetStarted(g.w.now, g.started)
		g.unchanged(before, "a mark that was there")
		return false
	}
	g.log("started", 0, 0)
	g.started, g.seen.starts = started, started
	g.core.SetStarted(g.w.now, started)
	g.retold(kept, before)
	if g.seen.starts {
		g.fail("terms", "started, and not announced")
	}
	g.w.cov.hit("started")
	g.settle()
	return true
}

// ask pings the client.
func (g *game) ask() bool {
	state, over := g.core.State(), g.upOver() || g.closesAt > 0
	asked := g.asks()
	if asked != (state == session.Attached) && !over {
		g.fail("ask", "%v, and asked: %v", state, asked)
	}
	if !asked {
		return false
	}
	g.w.cov.hit("asked")
	return true
}

// supersede starts another session of the same player.
func (g *game) supersede() bool {
	return g.end("supersede", cause{"superseded", 1001}, func() { g.core.Supersede(g.w.now) })
}

// lastChange moves the clock to the moment at which a detached session ends, and
// changes the grace period then.
func (g *game) lastChange() bool {
	if g.core.State() != session.Detached {
		return false
	}
	end := g.graceEnd()
	if end > g.w.now.Add(time.Minute) {
		return false
	}
	g.w.advanceTo(end, g)
	if g.core.State() != session.Detached || g.w.now != end {
		return false
	}
	if g.w.chance(400) {
		g.tick()
	}
	before, kept := g.core.State(), g.keep()
	g.changeTerms()
	switch {
	case before == session.Ended:
		g.w.cov.hit("R21 late")
	case g.core.State() == session.Ended && g.keep() != kept:
		g.w.cov.hit("R21 shorter")
	case g.keep() > kept:
		g.w.cov.hit("R21 longer")
	}
	return true
}
