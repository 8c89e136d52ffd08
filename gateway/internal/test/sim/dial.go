package sim

import (
	"time"

	"reseat/gateway/session"
)

// What the gateway does for a session without an upstream, --disconnect hard: it dials
// one for a waiting client. One dial is in flight at a time; a later resume replaces
// the waiting one.

// A dial is the dial of the next upstream.
type dial struct {
	waiter *attempt // nil: no client waits any more
	taken  bool     // its outcome belongs to the waiter
	told   promise  // to the upstream
	over   bool     // the waiter has been attached, or refused
}

// retryDial is the retry delay for a client whose upstream could not be reached.
const retryDial = time.Second

// join makes t wait for a dial.
func (g *game) join(t *attempt) {
	d := g.dial
	switch {
	case d == nil:
		g.dial = &dial{waiter: t}
		g.await()
		t.stage = waiting
	case d.taken:
		g.w.cov.hit("dial queued for")
		t.stage = queuing
	case d.waiter == nil:
		d.waiter, t.stage = t, waiting
	default:
		g.replaceWaiter(d, t)
	}
}

// replaceWaiter gives the dial to the later of two waiting clients.
func (g *game) replaceWaiter(d *dial, t *attempt) {
	old := d.waiter
	if old.conn.id > t.conn.id {
		old, t = t, old
		g.w.cov.hit("dial kept from an older one")
	} else {
		g.w.cov.hit("dial taken over")
	}
	d.waiter, t.stage = t, waiting
	g.stolen = g.stolen || t.link == nil
	g.turnAway(old, session.Refuse(4409, ""))
}

// await records that a client waits, which stops the grace timer.
func (g *game) await() {
	was := g.core.State()
	if was == session.Detached && g.leaving == 0 {
		g.detached.waits = g.w.now
	}
	g.core.BeginRedial(g.w.now)
	g.log("await", int64(was), 0)
	g.sync(false)
	if s := g.core.State(); was == session.Detached && s != session.Connecting && g.leaving == 0 || was != session.Detached && s != was {
		g.fail("hard", "a client waits, and the session that was %v is %v", was, s)
	}
	g.settle()
}

// watch lets t wait; its client may disconnect.
func (g *game) watch(t *attempt) bool {
	if !t.conn.in.ended() && !t.conn.in.rst || !g.w.calm && g.w.chance(500) {
		return g.dialEnds() // it is connected, or its disconnect goes unnoticed for now
	}
	g.dial.waiter = nil
	g.left(t)
	return true
}

// left records that the client of t has disconnected.
func (g *game) left(t *attempt) {
	g.drop(t)
	g.log("waiter left", int64(t.conn.id), 0)
	t.conn.closeGateway(false)
}

// dialEnds ends the dial: it succeeded or failed, or no client needs it.
func (g *game) dialEnds() bool {
	d := g.dial
	switch {
	case d == nil:
		return false
	case d.over:
		g.finishDial()
		return true
	case d.taken || !g.w.calm && !g.w.chance(300):
		return false
	case d.told.dial == 0 && d.waiter != nil && g.cfg.Durable:
		if d.told = g.tells(d.waiter.resume()); d.told.dial == 0 {
			g.fence()
		}
		return true
	case d.waiter == nil:
		g.finishDial()
		return true
	}
	d.taken = true
	d.waiter.dial = d
	if g.core.State() == session.Ended || !g.w.calm && g.w.chance(300) || g.line.refuses(d.told) {
		g.dialFails(d)
		return true
	}
	if g.core.TakesUpstream(0) {
		g.reconnect(d.told)
	} else {
		g.w.cov.hit("dial unneeded")
	}
	d.waiter.stage = checking
	if !g.w.calm && g.w.chance(100) { // its disconnect is noticed only now
		g.drop(d.waiter)
		d.waiter.conn.cut(g.w)
		d.waiter.conn.closeGateway(false)
		d.over = true
	}
	return true
}

// dialFails makes the waiting client retry, unless the session has ended.
func (g *game) dialFails(d *dial) {
	g.finishDial()
	if ref := g.core.Check(g.w.now, d.waiter.resume()); ref != nil {
		g.refuse(d.waiter, ref)
		return
	}
	g.turnAway(d.waiter, &session.Refusal{Code: 4502, Text: "upstream_lost", Retry: retryDial})
}

// hangUpDial disconnects the upstream that was dialed for t.
func (g *game) hangUpDial(t *attempt) {
	if t.dial != nil && g.dial == t.dial {
		g.finishDial()
	}
	t.dial = nil
}

// finishDial records that no client waits for the upstream any more.
func (g *game) finishDial() {
	g.dial = nil
	before, waited := g.core.State(), g.detached.waits > 0
	if waited {
		g.detached.rested += g.w.now.Sub(g.detached.waits)
		g.detached.waits = 0
	}
	g.forgoes = g.cfg.Durable
	g.core.CancelRedial(g.w.now)
	if waited && before != session.Ended {
		g.forgetOutage()
	}
	g.log("forgo", int64(before), 0)
	g.sync(false)
	g.forgoes = false
	if s := g.core.State(); waited && before != session.Ended && s != session.Detached {
		g.fail("hard", "no client waits, and the session that was %v is %v", before, s)
	}
	g.settle()
}

// reconnect gives the session the next upstream, for which a client waits.
func (g *game) reconnect(told promise) {
	if g.detached.since > 0 && g.detached.waits == 0 {
		g.detached.waits = g.w.now // it has been detached while it waited
	}
	g.next(told, g.cfg.Notices.Resume, "", g.redials() && !g.w.calm && g.w.chance(150))
}

// next gives the session its next upstream, which first gets word, and last after what waits for it. With
// leaves that goes away again at once.
func (g *game) next(told promise, word, last string, leaves bool) {
	old := g.up
	u := newUpstream(g, told)
	u.no = old.ups.no + 1
	early := u.early(leaves)
	u.first = word
	g.log("reconnect", int64(u.no), int64(len(early)))
	g.connect(u, g.core.Reconnect(g.w.now, early))
	g.seen.upOpen = true // for what it has sent already
	g.expectText(last)
	g.sync(true)
	g.brokenOff(old)
	g.flush(old)
	g.settle()
}

// brokenOff aborts writes to the old upstream once the next one is connected; until
// then no other write gets the session's queue.
func (g *game) brokenOff(old *leg) {
	if !old.flying.up || old.flying.final {
		return
	}
	old.ups.replace = true
	g.w.cov.hit("next one while writing")
	if old.ups.ten.CloseMode() == session.Open { // otherwise only a control frame was lent, not the queue
		g.fail("hard", "upstream %d is there, and the write to %s goes on", g.ups.no, old.name())
	}
}
