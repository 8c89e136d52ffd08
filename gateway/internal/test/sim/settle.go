package sim

import (
	"fmt"
	"slices"
	"time"

	"reseat/gateway/session"
)

// The end of every run: the faults stop, everything possible is done at once, and all
// counts must match. First each live session must be resumed and all messages
// delivered; then it is ended in some way, and must release everything it held.

const (
	unfinished = 30 * time.Second // an upstream may pause this long within a message
	flushUp    = 10 * time.Second
	flushDown  = 5 * time.Second
	lingerFor  = time.Second

	calmRounds = 60000
	calmTime   = 5 * time.Minute
)

func flushFor(l *leg) time.Duration {
	if l.ups != nil {
		return flushUp
	}
	return flushDown
}

func (w *world) settle() {
	w.calm = true
	w.log0("calm")
	for _, g := range w.older {
		g.heal()
	}
	for _, g := range w.games {
		g.heal()
	}
	w.until("all messages are across", (*game).even)
	for _, g := range w.games {
		g.finale()
	}
	w.until("all sessions are over", (*game).over)
	for _, g := range w.games {
		if !g.dead {
			g.checkEnded()
		}
	}
	if n := w.store.Used(); n != 0 {
		w.games[0].fail("I9", "all sessions are over, and the store has lent %d bytes", n)
	}
}

func (w *world) log0(what string) {
	w.trace.add(line{step: w.steps, now: w.now, what: what})
}

// heal ends the permanent faults.
func (g *game) heal() {
	g.silent, g.cli.deadly = false, 0
	if keep := 30 * time.Second; g.keep() > keep {
		t := session.Terms{Grace: keep, GraceBeforeStart: keep, Overflow: g.terms.Overflow}
		switch {
		case g.dead: // the node that claims the session has them
			g.terms = t
		case !g.setTerms(t): // the token of a detached client expires earlier
			t.Grace, t.GraceBeforeStart = 0, 0
			g.setTerms(t)
		}
	}
	g.readSize = max(g.readSize, 4096)
	g.lineDown = false
	for _, c := range g.silentOnes() {
		c.in.hole, c.out.hole = false, false
	}
	for _, l := range g.legs {
		if l.tap.link == nil {
			l.conn.cut(g.w)
		}
		l.conn.in.cap, l.conn.out.cap = max(l.conn.in.cap, 4096), max(l.conn.out.cap, 4096)
	}
	for _, l := range g.uplegs {
		l.ups.stalled = false
		l.conn.in.cap, l.conn.out.cap = max(l.conn.in.cap, 4096), max(l.conn.out.cap, 4096)
	}
	g.w.pipes = max(g.w.pipes, 8192)
}

// until runs without faults until every game is done.
func (w *world) until(what string, done func(*game) bool) {
	limit := w.now.Add(calmTime)
	for range calmRounds {
		busy, left := false, (*game)(nil)
		for _, g := range slices.Clone(w.older) {
			for g.round() {
				busy = true
			}
			if w.look(g); slices.Contains(w.older, g) {
				left = g
			} else {
				busy = true
			}
		}
		for i := range w.games {
			for w.games[i].round() {
				busy = true
			}
			g := w.games[i]
			if !g.dead {
				g.check()
			}
			if !done(g) {
				left = g
			}
		}
		switch {
		case left == nil:
			return
		case w.now > limit:
			left.fail("liveness", "%s: not after %v; %s", what, calmTime, left.stuck())
		case !busy && !w.jump():
			left.fail("liveness", "%s: nothing happens any more; %s", what, left.stuck())
		}
	}
	w.games[0].fail("liveness", "%s: not after %d rounds; %s", what, calmRounds, w.games[0].stuck())
}

// round does everything possible for a game once, and reports whether there was
// anything.
func (g *game) round() bool {
	g.w.steps++
	if g.dead {
		return g.roundDead()
	}
	did := g.attachFirst() || g.reserve()
	did = g.roundOwner() || did
	for g.waits() {
		g.serve()
		did = true
	}
	for _, f := range calmly {
		if g.line.owner == g {
			did = f(g) || did
		}
	}
	did = g.renew() || did
	did = g.eachUpstream((*upstream).write) || did
	did = g.eachUpstream((*upstream).consume) || did
	did = g.dialEnds() || did
	did = g.redialEnds() || did
	for _, l := range g.allLegs() {
		did = g.roundLeg(l) || did
	}
	return g.deadlines() || did
}

var calmly = []func(*game) bool{
	func(g *game) bool { return g.clientResumes() },
	func(g *game) bool { return g.clientSends() },
	func(g *game) bool { return g.clientWrites() },
	func(g *game) bool { return g.cli.live != nil && g.cli.live.receive() },
	func(g *game) bool { return g.cli.trying != nil && g.cli.trying.receive() },
	func(g *game) bool { return g.relieve() },
}

// roundDead is what happens to a session whose node is dead: its client comes back.
func (g *game) roundDead() (did bool) {
	for _, f := range calmly[:5] {
		did = f(g) || did
	}
	return g.isClaimed() || did
}

// roundOwner does what durable sessions wait for.
func (g *game) roundOwner() bool {
	did := g.answerOwner() || g.answerPush()
	if g.line.owner != g {
		return did || g.fenceOlder()
	}
	return g.handOverSession() || did
}

func (g *game) roundLeg(l *leg) bool {
	did := l.read()
	did = l.handOver() || did
	did = l.drain() || did
	did = l.retry() || did
	if l.accept(true) {
		did = true
	}
	if l.flying.up && (l.flying.taken > 0 || l.flying.shut || l.closed) {
		l.report()
		did = true
	}
	return did
}

// waits reports whether a handshake can advance.
func (g *game) waits() bool {
	for _, t := range g.tries {
		switch {
		case t.stage == handshaking && t.conn.in.hole && !t.conn.deaf: // in flight
		case t.stage != asking, g.seen.pongs > t.inquiry.pongs, g.w.now >= t.answerBy():
			return true
		}
	}
	return false
}

// jump moves the clock to the next due time.
func (w *world) jump() bool {
	t := w.due()
	for _, g := range append(slices.Clone(w.older), w.games...) {
		for _, a := range g.tries {
			t = earlier(t, a.answerBy())
		}
		for _, l := range g.allLegs() {
			if l.parting && !l.closed {
				t = earlier(t, l.deadline)
			}
		}
	}
	if t == 0 {
		return false
	}
	w.advanceTo(max(t, w.now), nil)
	return true
}

// even reports whether everything sent has been received, or has no receiver.
func (g *game) even() bool {
	if g.dead {
		return g.cli.done
	}
	i, c, u := g.core.Info(), g.cli, g.ups
	if i.State == session.Ended {
		return true
	}
	if g.line.haunted() || g.leaving > 0 || c.done || u.over || c.closing || g.out.since > 0 {
		return false // it is about to end
	}
	return i.State == session.Attached && c.live != nil && g.first == nil &&
		c.count == i.Sent && len(u.items) == 0 && len(u.out) == 0 && g.expected.got == c.queued && u.read == u.received && u.ponged == u.pings &&
		(!g.cfg.PlainResume || i.Acked == i.Sent && i.BufferMessages == 0) &&
		(!g.cfg.Durable || !g.honest() || g.line.even(c.queued)) &&
		(!g.cfg.Resumable || c.acked == c.queued && i.Acked == i.Sent && i.BufferMessages == 0 && c.grace == g.keep().Milliseconds())
}

// finale ends a live session.
func (g *game) finale() {
	if g.dead || g.core.State() == session.Ended {
		if !g.cli.done {
			g.cli.finish("over")
		}
		g.cli.quit()
		return
	}
	if c := g.cli; c.upstream == "lost" {
		g.fail("redial", "the client believes that there is no upstream")
	}
	g.out.refusing = true
	switch g.w.rng.IntN(6) {
	case 0:
		g.upstreamLeaves()
	case 1:
		g.clientCloses()
	case 2:
		g.terminate()
	case 3:
		g.drain()
	case 4:
		g.ups.crash()
	default:
		g.clientQuits()
	}
}

// stuck describes a session's progress.
func (g *game) stuck() string {
	c, u := g.cli, g.ups
	s := fmt.Sprintf("client done=%v count=%d queued=%d sent=%d acked=%d live=%v trying=%v\n", c.done, c.count, c.queued, c.sent, c.acked, c.live != nil, c.trying != nil)
	s += fmt.Sprintf("upstream %d over=%v replaced=%v items=%d out=%d got=%d (all %d) read=%d, owed %d, dial %+v\n", u.no, u.over, u.replaced, len(u.items), len(u.out), u.received, g.expected.got, u.read, len(g.expected.list), g.dial)
	s += fmt.Sprintf("core %+v, next %d, wants upstream %v\n", g.core.Info(), g.core.Next(), g.core.WantsRead(u.ten))
	for _, l := range g.allLegs() {
		s += fmt.Sprintf("leg to %s: mode %d closed=%v writing=%v waiting=%v flying=%v over=%v found=%v hand=%d room=%d owes=%v lingering=%v\n",
			l.name(), l.closeMode(), l.closed, l.writing, l.waiting, l.flying.up, l.over, l.found, len(l.hand), len(l.room), l.owes, l.lingering)
	}
	return s
}
