package sim

import (
	"time"

	"reseat/gateway/session"
)

// An action is one thing that can happen to a session; do reports whether it was
// possible. Each world draws its own faults, and most worlds lack most of them.
type action struct {
	name   string
	weight int
	fault  bool
	where  where
	do     func(*game) bool
}

// A where says to which sessions an action can happen besides those that their owner has.
type where uint8

const (
	nodeDead    where = 1 << iota // those whose node is dead
	onlyDead                      // and no other
	formerOwner                   // those of former owners
)

var actions, ownerActions []action

func init() {
	ownerActions = ownership()
	actions = append(append(courses(), troubles()...), ownerActions...)
}

// courses returns the actions that happen in every session.
func courses() []action {
	return []action{
		{"client queues", 300, false, nodeDead, func(g *game) bool { return g.cli.queue() }},
		{"client sends", 600, false, nodeDead, (*game).clientSends},
		{"client writes", 800, false, nodeDead, (*game).clientWrites},
		{"client receives", 1100, false, nodeDead, (*game).clientReceives},
		{"client acks", 50, false, nodeDead, func(g *game) bool { return g.cli.live != nil && g.cli.live.ack() }},
		{"client pings", 30, false, nodeDead, (*game).clientPings},
		{"client resumes", 300, false, nodeDead, (*game).clientResumes},
		{"upstream sends", 500, false, formerOwner, func(g *game) bool { return g.someUpstream().send() }},
		{"upstream writes", 700, false, formerOwner, func(g *game) bool { return g.someUpstream().write() }},
		{"upstream reads", 900, false, formerOwner, func(g *game) bool { return g.someUpstream().consume() }},
		{"first attach", 400, false, 0, (*game).attachFirst},
		{"made ahead", 200, false, 0, (*game).reserve},
		{"dial ends", 150, false, formerOwner, (*game).dialEnds},
		{"redial ends", 30, false, formerOwner, (*game).redialEnds},
		{"gateway serves", 500, false, formerOwner, (*game).serve},
		{"gateway renews", 200, false, formerOwner, (*game).renew},
		{"driver reads", 2000, false, formerOwner, (*game).reads},
		{"driver hands over", 2000, false, formerOwner, (*game).handsOver},
		{"network accepts", 1500, false, formerOwner, (*game).accepts},
		{"driver reports", 1500, false, formerOwner, (*game).reports},
		{"driver settles", 100, false, formerOwner, func(g *game) bool { g.settle(); return true }},
		{"deadlines", 200, false, formerOwner, (*game).deadlines},
		{"relief", 200, false, 0, (*game).relieve},
		{"time", 250, false, nodeDead | formerOwner, func(g *game) bool { g.w.advance(); return true }},
		{"early tick", 10, false, formerOwner, func(g *game) bool { g.tick(); return true }},
	}
}

// troubles returns the actions that are faults.
func troubles() []action {
	return []action{
		{"burst", 10, true, 0, (*game).burst},
		{"cut", 30, true, 0, (*game).cut},
		{"half-open", 8, true, 0, (*game).halfOpen},
		{"silence", 12, true, 0, (*game).fallSilent},
		{"silence ends", 40, true, 0, (*game).silenceEnds},
		{"client hangs up", 15, true, nodeDead, (*game).clientHangsUp},
		{"close in between", 8, true, 0, (*game).closeInBetween},
		{"client abandons", 60, true, nodeDead, func(g *game) bool { return g.cli.abandon() }},
		{"client moves", 60, true, nodeDead, (*game).clientMoves},
		{"client quits", 2, true, nodeDead, (*game).clientQuits},
		{"client closes", 2, true, 0, (*game).clientCloses},
		{"client breaks rules", 10, true, 0, (*game).clientMisbehaves},
		{"upstream stalls", 20, true, formerOwner, func(g *game) bool { u := g.someUpstream(); u.stalled = !u.stalled; return true }},
		{"upstream leaves", 2, true, formerOwner, (*game).upstreamLeaves},
		{"upstream breaks", 8, true, formerOwner, (*game).upstreamBreaks},
		{"outage lasts", 20, true, 0, (*game).outageLasts},
		{"talk in the outage", 60, true, 0, (*game).lostTalk},
		{"upstream crashes", 1, true, formerOwner, func(g *game) bool { return g.someUpstream().crash() }},
		{"upstream breaks rules", 1, true, 0, func(g *game) bool { return g.someUpstream().misbehave() }},
		{"steal", 2, true, 0, (*game).steal},
		{"storm", 1, true, 0, (*game).storm},
		{"lie", 6, true, 0, (*game).lie},
		{"terminate", 1, true, 0, (*game).terminate},
		{"disconnect", 8, true, 0, (*game).disconnect},
		{"close client", 4, true, 0, (*game).closeClient},
		{"evict", 4, true, 0, (*game).evict},
		{"drain", 1, true, 0, (*game).drain},
		{"fail", 1, true, 0, (*game).failCore},
		{"supersede", 1, true, 0, (*game).supersede},
		{"terms change", 15, true, 0, (*game).changeTerms},
		{"started", 10, true, 0, (*game).setStarted},
		{"ask", 10, true, 0, (*game).ask},
		{"the last moment", 30, true, 0, (*game).lastMoment},
		{"the last change", 20, true, 0, (*game).lastChange},
		{"away and back", 30, true, 0, (*game).awayAndBack},
		{"trouble in the replay", 150, true, 0, (*game).troubleInReplay},
		{"both leave", 1, true, 0, (*game).bothLeave},
		{"sleep", 1, true, 0, (*game).sleep},
	}
}

func (g *game) clientSends() bool {
	c := g.cli
	if c.live == nil || c.done {
		return false
	}
	return c.send(c.live) || c.sendBye()
}

func (g *game) clientWrites() bool { return g.cli.live != nil && g.cli.live.write() }

func (g *game) clientReceives() bool {
	c := g.cli
	first, second := c.live, c.trying
	if g.w.chance(500) {
		first, second = second, first
	}
	return first != nil && first.receive() || second != nil && second.receive()
}

func (g *game) clientPings() bool {
	l := g.cli.live
	if l == nil || l.closed || l.byeSent {
		return false
	}
	if g.cfg.Resumable && g.w.chance(700) {
		l.ping()
	} else {
		l.wsPing("are you there?")
	}
	return true
}

// clientResumes starts an attempt if the client has no connection.
func (g *game) clientResumes() bool {
	return (g.cli.live == nil || g.cli.live.left) && g.cli.resume()
}

// clientMoves starts an attempt although the client has a connection.
func (g *game) clientMoves() bool { return g.cli.live != nil && g.cli.resume() }

// burst makes the application send many messages at once.
func (g *game) burst() bool {
	if g.w.chance(500) {
		c := g.cli
		if c.done || c.closing || c.live == nil || g.cfg.Rate != (session.Rate{}) {
			return false
		}
		for range g.w.rng.IntN(1200) {
			c.queueOne()
		}
		for c.send(c.live) {
		}
		return true
	}
	for range g.w.rng.IntN(60) {
		if !g.ups.send() {
			return false
		}
	}
	return true
}

// anyLink returns one of the client's connections.
func (g *game) anyLink() *link {
	c := g.cli
	switch {
	case c.live == nil || c.trying != nil && g.w.chance(500):
		return c.trying
	}
	return c.live
}

func (g *game) cut() bool {
	l := g.anyLink()
	if l == nil || l.in.rst {
		return false
	}
	g.log("cut", int64(l.id), int64(len(l.out.buf)))
	l.conn.cut(g.w)
	return true
}

func (g *game) halfOpen() bool {
	l := g.anyLink()
	if l == nil || l.in.hole || !g.keeps() {
		return false
	}
	g.log("half-open", int64(l.id), 0)
	g.silenced = true
	l.mute(true, true)
	return true
}

func (g *game) clientHangsUp() bool {
	l := g.cli.live
	if l == nil {
		return false
	}
	g.log("hang up", int64(l.id), 0)
	l.lostAt = true
	l.hangUp()
	g.cli.live, g.cli.disconnectedAt = nil, g.w.now
	if g.cli.token.gen == 0 {
		g.cli.finish("1006")
	}
	return true
}

// closeInBetween sends a Close frame without a bye. A plain client with a cookie does
// so when its page is left.
func (g *game) closeInBetween() bool {
	l := g.cli.live
	if l == nil || l.closed || l.byeSent || !g.keeps() {
		return false
	}
	code := 1001
	if g.cfg.Resumable {
		code = pick(g.w, 1000, 1001, 1005, 4409, 4000)
	}
	g.log("close in between", int64(l.id), int64(code))
	l.frame(0x80|opClose, closeFrame(code, ""))
	l.closed = true
	return true
}

// clientQuits makes the client disconnect for good.
func (g *game) clientQuits() bool {
	if g.cli.done {
		return false
	}
	g.cli.finish("gone")
	g.cli.quit()
	return true
}

func (g *game) clientCloses() bool {
	return g.cli.close(pick(g.w, 1000, 1000, 1001, 3000, 4999), pick(g.w, "", "bye \"now\""))
}

func (g *game) upstreamLeaves() bool {
	return g.ups.leave(pick(g.w, 1000, 1005, 1001, 3456, 1012), pick(g.w, "", "game over"))
}

// someUpstream returns the current upstream, or an earlier one.
func (g *game) someUpstream() *upstream {
	if len(g.uplegs) > 1 && g.w.chance(300) {
		return g.uplegs[g.w.rng.IntN(len(g.uplegs))].ups
	}
	return g.ups
}

// eachUpstream calls f for every upstream, and reports whether one call returned true.
func (g *game) eachUpstream(f func(*upstream) bool) (did bool) {
	for _, l := range g.uplegs {
		did = f(l.ups) || did
	}
	return did
}

// awayAndBack disconnects the client and resumes at once, while the effects of the
// disconnect are still in flight.
func (g *game) awayAndBack() bool {
	if !g.keeps() || g.core.State() != session.Attached {
		return false
	}
	if g.w.chance(700) {
		g.writeOn()
	}
	g.log("away and back", 0, 0)
	for range 1 + g.w.rng.IntN(3) {
		if g.w.chance(50) {
			g.steal()
		}
		g.disconnect()
		if g.w.chance(20) {
			g.terminate()
		}
		g.cli.quit()
		g.cli.resume()
		for range g.w.rng.IntN(50) {
			g.advanceResume()
		}
	}
	return true
}

// writeOn advances the write to the upstream that is in flight, perhaps not to its end.
func (g *game) writeOn() {
	g.ups.stalled = g.ups.stalled || g.w.chance(500)
	for range g.w.rng.IntN(10) {
		g.cli.queue()
		g.passUp()
	}
	if l := g.up; l.accept(g.w.chance(300)) && l.flying.up && g.w.chance(500) {
		l.report() // the rest of it starts at once
		for range 100 {
			l.retry()
		}
		l.accept(false)
	}
	if g.w.chance(300) {
		g.halfHeartbeat()
	}
}

// halfHeartbeat delivers a part of an application heartbeat.
func (g *game) halfHeartbeat() {
	u := g.ups
	if len(g.cfg.KeepaliveReplies) == 0 || u.replaced || u.over || len(u.out) > 0 || u.conn.in.readable() > 0 || g.up.room != nil {
		return
	}
	beating := g.beating
	g.beating = 1000
	sent := u.send()
	g.beating = beating
	if !sent {
		return
	}
	n := min(g.w.rng.IntN(len(u.out)), u.conn.in.room())
	u.conn.in.write(u.out[:n])
	u.out = u.out[n:]
	for g.up.read() || g.up.handOver() {
	}
}

// advanceResume advances what a resume needs, or what delays it.
func (g *game) advanceResume() {
	switch g.w.rng.IntN(12) {
	case 0, 1, 2, 3, 4:
		g.serve()
	case 5, 6, 7, 8:
		g.dialEnds()
	case 9:
		if g.w.chance(300) {
			g.reports()
		}
		g.accepts()
	case 10:
		g.reads()
		g.handsOver()
	default:
		if g.w.chance(400) {
			g.trouble()
		}
	}
}

// idleTime lets the idle timeout pass, unless it is as long as a client has for its acks: no driver reads meanwhile.
func (g *game) idleTime() {
	if g.cfg.Idle < time.Minute {
		g.w.advanceTo(g.w.now.Add(g.cfg.Idle), nil)
	}
}

// trouble injects a fault while a resume is in flight.
func (g *game) trouble() {
	switch g.w.rng.IntN(6) {
	case 0:
		g.ups.crash()
		g.rush()
	case 1:
		g.upstreamLeaves()
		g.rush()
	case 2:
		g.terminate()
	case 3:
		g.changeTerms()
	case 4:
		g.cut()
	case 5:
		g.idleTime()
	}
}

// someLeg returns one of the driver's legs.
func (g *game) someLeg() *leg {
	n := g.w.rng.IntN(len(g.legs) + 3)
	switch {
	case n < len(g.legs):
		return g.legs[n]
	case n == len(g.legs) && g.down != nil:
		return g.down
	case n == len(g.legs)+1 && len(g.uplegs) > 1:
		return g.uplegs[g.w.rng.IntN(len(g.uplegs))]
	}
	return g.up
}

func (g *game) reads() bool {
	l := g.someLeg()
	return l.read() || l.drain()
}

func (g *game) handsOver() bool { return g.someLeg().handOver() }

func (g *game) accepts() bool { return g.someLeg().accept(g.w.chance(300)) }

// reports ends a write: when everything was accepted, when the socket is full, or at a
// random moment.
func (g *game) reports() bool {
	l := g.someLeg()
	if l.retry() {
		return true
	}
	f := &l.flying
	if !f.up || f.taken < f.total && !f.shut && !l.closed && !g.w.chance(300) {
		return false
	}
	l.report()
	return true
}

func (g *game) deadlines() bool {
	did := false
	for _, l := range g.allLegs() {
		did = l.late() || did
	}
	g.reap()
	return did || g.peersLeave()
}

// peersLeave closes the sockets of peers that have received a Close.
func (g *game) peersLeave() bool {
	if g.eachUpstream((*upstream).leaves) {
		return true
	}
	if g.cli.done && (g.cli.live != nil || g.cli.trying != nil) {
		g.cli.quit()
		return true
	}
	return false
}

// lastMoment moves the clock to the moment at which a detached session ends, so that a
// resume races with the end.
func (g *game) lastMoment() bool {
	if g.core.State() != session.Detached {
		return false
	}
	end := g.graceEnd()
	if end > g.w.now.Add(time.Minute) || !g.cli.resume() && len(g.tries) == 0 {
		return false
	}
	g.w.advanceTo(end-session.Time(g.w.rng.IntN(2)), g)
	for range 1 + g.w.rng.IntN(3) {
		g.serve()
	}
	return true
}

// troubleInReplay injects a fault before the whole replay is written.
func (g *game) troubleInReplay() bool {
	l := g.seen.newest
	if l == nil || l.stale() || !l.tap.replaying() {
		return false
	}
	switch g.w.rng.IntN(8) {
	case 0:
		return g.cut()
	case 1:
		return g.upstreamLeaves() && g.rush()
	case 2:
		return g.ups.crash() && g.rush()
	default:
		return g.ups.send() && g.rush()
	}
}

// rush passes to the core everything that the upstream has sent.
func (g *game) rush() bool {
	for range 10 {
		g.ups.write()
		g.up.read()
		g.up.handOver()
	}
	return true
}

// bothLeave makes bye and the upstream's Close cross.
func (g *game) bothLeave() bool {
	return g.cli.live != nil && g.clientCloses() && g.upstreamLeaves()
}

// sleep suspends all clients, upstreams and the gateway for a while.
func (g *game) sleep() bool {
	g.log("sleep", 0, 0)
	g.w.now = g.w.now.Add(time.Duration(g.w.rng.IntN(60)) * time.Second)
	for _, other := range g.w.games {
		other.slept = true
		if !other.dead {
			other.tick()
		}
		other.cli.tick(g.w.now)
	}
	for _, other := range g.w.older {
		other.slept = true
		other.tick()
	}
	return true
}
