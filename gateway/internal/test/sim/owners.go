package sim

import (
	"slices"
	"time"

	"reseat/gateway/session"
)

// Durable sessions, whose owners come one after the other. A node dies, or only seems to, and another one
// claims the session with what its client states: a new core, made by Claimed. The older core goes on if its
// node was only slow: it still has its connections, its client may still be there or come back, and it is
// fenced at last. A hand-off (handoff.go) moves the core as a whole.
//
// Each owner is a game of its own, with all invariants of a session. What must hold across them is checked
// here and by the client, which knows nothing of owners: see lineage.
//
//   - O1: a fenced owner lets go, and says nothing (F4).
//   - O2: a client takes no hello of an older owner than that of its token (F2).
//   - O3: it gets a prefix of what each upstream sends, and none of an older one after one of a newer.
//   - O4: its own messages are written in order, twice only by different owners, and not once they are settled; with
//     redelivery off never twice.
//   - O5: what the owner acks was written to a game server.
//   - F6: an owner that is not certain says nothing for a client that is not there.
//   - counts: a dial states the numbers of the first messages in both directions.

const (
	ownedFor  = time.Second     // how long a node acts for a player after it was certain to have the session,
	askWait   = 2 * time.Second // and how long it waits for that before it ends it
	leaveTime = 5 * time.Second // how long an upstream may take to close in a hand-off
	epochBits = 20

	keepaliveWait = 500 * time.Millisecond // how much later a keepalive is tried again that waits for certainty
)

// epochOf returns the epoch of the seat in which a generation was issued.
func epochOf(gen uint64) uint64 { return gen >> epochBits }

// A lineage is a session with all its owners.
type lineage struct {
	owner     *game // that has the seat
	epoch     uint64
	confirmed uint64 // newest generation that the seat says is confirmed
	redeliver bool   // --failover-redeliver

	// The game servers behind it, all of them together.
	dials  int     // so many stated where to go on
	newest int     // of which this one is the newest that was connected
	got    []wrote // got[n]: what became of the client's message n
	whole  uint64  // all up to it were written to some connection

	// A game server that counts, and keeps what it has sent.
	counting bool
	says     flow
	log      uint64 // messages that it has sent
	applied  uint64 // the client's messages that it has applied
}

// wrote says how often a message was written, and by whom at last.
type wrote struct {
	times int
	by    *game
}

// A promise is what a dial states to the upstream: the numbers of the first message of the client's
// that it gets, and of its own first.
type promise struct {
	dial     int // which dial of the session it is; 0: of no durable one
	up, down uint64
}

// counts are numbers of messages of both directions.
type counts struct{ up, down uint64 }

// A tally is what an owner has counted.
type tally struct {
	up, down           uint64
	upBytes, downBytes int64
}

func newLineage(g *game) *lineage {
	return &lineage{owner: g, got: make([]wrote, 1), redeliver: true}
}

// configureOwners draws whether the session is durable.
func (g *game) configureOwners() {
	w, line := g.w, g.line
	if !g.cfg.Resumable || !w.chance(w.durable) {
		return
	}
	g.cfg.Durable = true
	line.redeliver = w.chance(800)
	if line.counting = line.redeliver && w.chance(400); line.counting { // the gateway's own words are not numbered
		g.cfg.Notices, g.cfg.KeepaliveReplies, g.cfg.Keepalives = session.Notices{}, nil, nil
		line.says = flow{states: g.cfg.Newest != nil, seed: w.rng.Uint64(), texts: uint64(w.rng.IntN(17)), sizes: w.sizes, limit: int(w.maxMessage)}
	}
}

// ownership returns the actions that only durable sessions meet.
func ownership() []action {
	return []action{
		{"node dies", 10, false, 0, (*game).dies},
		{"a node claims", 300, false, nodeDead | onlyDead, (*game).isClaimed},
		{"node seems dead", 40, false, 0, (*game).seemsDead},
		{"doubt", 60, false, 0, (*game).doubt},
		{"break in a write", 40, false, 0, (*game).breakInWrite},
		{"leave in a write", 20, false, 0, (*game).leaveInWrite},
		{"fence", 15, false, formerOwner, (*game).fenceOlder},
		{"owner is notified", 100, false, formerOwner, (*game).answerOwner},
		{"leave", 15, false, 0, (*game).leave},
		{"hand over", 300, false, 0, (*game).handOverSession},
		{"hand-off is called off", 5, false, 0, (*game).callOff},
		{"hand-off is answered", 60, false, formerOwner, (*game).answerPush},
	}
}

// of reports whether a can happen to g.
func (a *action) of(g *game) bool {
	switch {
	case g.dead:
		return a.where&nodeDead != 0
	case g.line.owner != g:
		return a.where&formerOwner != 0
	}
	return a.where&onlyDead == 0
}

// ---- the end of an owner, and the next one

// dies makes the node vanish, with its core and its sockets. Some of what is in flight arrives.
func (g *game) dies() bool {
	c, w := g.cli, g.w
	if !g.cfg.Durable || c.token.gen == 0 || c.done || g.core.State() == session.Ended {
		return false
	}
	silent := w.chance(300) // the machine vanishes, not only the process: nobody hears anything
	g.log("node dies", int64(g.epoch), 0)
	for _, l := range g.legs {
		l.conn.vanish(w, silent)
	}
	for _, l := range g.uplegs {
		l.conn.vanish(w, false)
	}
	tries := g.tries
	g.tries = nil
	for _, t := range tries {
		if t.stage == handshaking && !t.lies && w.chance(500) { // it reaches another node
			g.tries = append(g.tries, t)
		} else {
			t.conn.vanish(w, silent)
		}
	}
	g.silenced = g.silenced || silent
	g.core.Discard()
	w.used = w.store.Used()
	g.dead, g.legs, g.uplegs, g.down, g.dial = true, nil, nil, nil, nil
	return true
}

// vanish ends a connection whose gateway has vanished.
func (c *conn) vanish(w *world, silent bool) {
	if silent {
		c.mute(true, true)
	} else {
		c.cut(w)
	}
	c.gateway = true
}

// buried replaces a session whose node is dead and whose client does not come back.
func (g *game) buried() {
	if g.cli.done && !g.w.calm {
		g.w.games[g.id] = newGame(g.w, g.id)
	}
}

// isClaimed claims the session of a dead node for one of the attempts that have arrived somewhere.
func (g *game) isClaimed() bool {
	for _, t := range g.tries {
		if t.conn.in.hole {
			continue
		}
		if g.w.chance(500) {
			t = g.tries[g.w.rng.IntN(len(g.tries))]
		}
		if t.conn.in.hole {
			return false
		}
		g.w.cov.hit("claim, node dead")
		g.claim(t)
		return true
	}
	return false
}

// seemsDead claims the session from a node that lives, and is only not heard.
func (g *game) seemsDead() bool {
	if !g.cfg.Durable || len(g.tries) == 0 || g.core.State() == session.Ended || len(g.w.older) > 4 {
		return false
	}
	t := g.tries[g.w.rng.IntN(len(g.tries))]
	if t.stage > checking || t.conn.in.hole || t.lies {
		return false
	}
	c := &g.w.cov
	c.hit("claim, node alive")
	if g.core.State() == session.Attached {
		c.hit("claim, client attached")
	}
	if g.movedHere() == "failover" {
		c.hit("claim of a claim")
	}
	if g.leaving > 0 {
		c.hit("claim in a hand-off")
	}
	g.claim(t)
	return true
}

// claim makes a new owner of what t states.
func (g *game) claim(t *attempt) {
	w, c := g.w, g.cli
	g.drop(t)
	t.conn.upgraded = true
	if t.token.gen < g.line.confirmed {
		g.turnAway(t, &session.Refusal{Code: 4401, Text: "superseded", Superseded: true})
		return
	}
	if !t.live() {
		w.cov.hit("claim for nobody")
	}
	n := g.successor("failover")
	cl := session.Claim{Epoch: n.epoch, Confirmed: g.line.confirmed, Received: t.received, Settled: t.settled, Started: g.started, Expires: g.expires}
	core, err := session.Claimed(n.cfg, w.now, cl)
	if err != nil {
		g.fail("claim", "%v", err)
	}
	g.log("claim", int64(n.epoch), int64(t.received))
	n.core = core
	n.nums = newNumbers()
	n.nums.fill(t.received)
	n.base = counts{t.settled, t.received}
	n.expected.received, n.expected.got = t.settled, t.settled
	n.detached = absence{since: w.now, reserved: true}
	c.claimed = true
	n.seen.data = w.now
	n.takesOver()
	if c.count > t.received {
		w.cov.hit("claim behind the client")
	}
	rest := g.tries
	g.tries = nil
	for _, other := range append(rest, t) {
		if other == t || g.dead && other.stage <= checking || other.stage <= handshaking && !other.lies && w.chance(500) {
			n.receivesAttempt(other)
		} else if !g.dead {
			g.tries = append(g.tries, other)
		}
	}
	if !g.dead {
		w.older = append(w.older, g)
	}
}

// successor makes the next owner's game, which has neither core nor connections yet.
func (g *game) successor(moved string) *game {
	w := g.w
	n := &game{
		w: w, id: g.id, cfg: g.cfg, cli: g.cli, line: g.line, keys: map[[4]byte]struct{}{}, moved: moved,
		style: g.style, readSize: g.readSize, blind: g.blind, ttl: g.ttl, silent: g.silent, beating: g.beating, partial: g.partial,
		terms: g.terms, started: g.started, expires: g.expires, confirmedExpiry: g.confirmedExpiry, lengthened: g.lengthened,
		stolen: g.stolen, slept: g.slept, silenced: g.silenced, lineDown: g.lineDown,
	}
	n.seen.dropping = g.seen.dropping
	n.cfg.Key, n.cfg.Terms = n.newKey, g.terms
	g.line.epoch++
	n.epoch, g.line.owner = g.line.epoch, n
	n.cli.g = n
	w.games[g.id] = n
	n.ups = g.ups // until takesOver: its number counts
	return n
}

// takesOver completes a successor that has a core. Its upstream is one that was replaced long ago.
func (n *game) takesOver() {
	u := &upstream{g: n, conn: newConn(0, 1), no: n.ups.no, replaced: true, over: true, doneAt: n.w.now, ten: n.core.Upstream()}
	u.conn.deaf = true
	u.leg = &leg{g: n, conn: u.conn, ups: u, closed: true, over: true}
	n.ups, n.up, n.state = u, u.leg, n.core.State()
	n.sync(false)
	n.seen.info = n.core.Info()
	n.check()
}

// receivesAttempt makes n serve an attempt that was made elsewhere.
func (n *game) receivesAttempt(t *attempt) {
	if t.dial != nil {
		t.dial.over = true
	}
	t.stage, t.dial = min(t.stage, checking), nil
	if t.link != nil {
		t.link.g = n
	}
	n.tries = append(n.tries, t)
}

// haunted reports whether an older owner still exists.
func (line *lineage) haunted() bool {
	for _, z := range line.owner.w.older {
		if z.line == line {
			return true
		}
	}
	return false
}

// forget removes an owner of which nothing is left.
func (w *world) forget(g *game) {
	kept := w.older[:0]
	for _, z := range w.older {
		if z != g {
			kept = append(kept, z)
		}
	}
	clear(w.older[len(kept):])
	w.older = kept
}

// ---- fencing

// fenceOlder makes a former owner learn that it is one.
func (g *game) fenceOlder() bool {
	if g.line.owner == g || g.core.State() == session.Ended || g.push == pushed {
		return false
	}
	g.fence()
	return true
}

// fence makes a former owner let the session go.
func (g *game) fence() {
	c := &g.w.cov
	if g.core.State() == session.Ended {
		g.inert("a fence after the end", func() { g.core.Fence(g.w.now) })
	} else {
		switch u := g.ups; {
		case u.replaced:
			c.hit("fenced without an upstream")
		case g.up.flying.up && !g.up.flying.final:
			c.hit("fenced while writing")
		case u.tap.torn():
			c.hit("fenced within a message")
		}
		if g.core.State() == session.Attached {
			c.hit("fenced with a client")
		}
		g.log("fence", int64(g.epoch), 0)
		g.cause, g.gives, g.out.since = cause{"moved", 1001}, !g.ups.replaced && !g.upOver(), 0
		g.core.Fence(g.w.now)
		g.sync(false)
		g.gives = false
		if g.core.State() != session.Ended {
			g.fail("O1", "a fenced session is %v", g.core.State())
		}
	}
	for _, t := range g.tries {
		if t.stage <= checking && !t.lies { // there, what it states would count
			g.line.owner.receivesAttempt(t)
			continue
		}
		t.tell(&session.Refusal{Code: 4504, Text: "node_unreachable", Retry: time.Second})
		t.conn.closeGateway(false)
	}
	g.tries, g.dial = nil, nil
	g.settle()
}

// ---- certainty (F6)

// certain reports whether the node is known to have the session.
func (g *game) certain() bool { return !g.cfg.Durable || g.w.now < g.ownedUntil }

// asksOwner handles AskOwner.
func (g *game) asksOwner() {
	if g.certain() || g.core.State() == session.Attached {
		g.fail("F6", "a node that is certain until %d asks, %v", g.ownedUntil, g.core.State())
	}
	g.asked = true
	if g.waitEnd <= g.w.now && g.timeOver() { // a wait that has passed was for a time that was not over after all
		g.waitEnd = g.w.now.Add(askWait)
	}
}

// timeOver reports whether the session would end now, without a client, if the node were certain.
func (g *game) timeOver() bool {
	if g.core.State() != session.Detached {
		return false
	}
	full := g.terms.Overflow == session.EndSession && g.seen.upOpen && !g.core.WantsRead(g.ups.ten)
	return g.w.now >= g.graceEnd() || g.cfg.Idle > 0 && g.w.now >= g.seen.data.Add(g.cfg.Idle) || full
}

// answerOwner tells a node whose session it is.
func (g *game) answerOwner() bool {
	if !g.asked {
		return false
	}
	g.asked = false
	switch {
	case !g.w.calm && g.w.chance(300): // the engine is away
		g.w.cov.hit("asked in vain")
	case g.core.State() == session.Ended:
	case g.line.owner != g:
		if g.push != pushed {
			g.w.cov.hit("fenced by its question")
			g.fence()
		}
	default:
		if g.waitEnd > 0 {
			g.w.cov.hit("end after an answer")
		}
		g.ownedUntil, g.waitEnd = g.w.now.Add(ownedFor), 0
		g.log("owned", int64(g.epoch), 0)
		g.core.Owned(g.w.now)
		g.sync(false)
		g.settle()
	}
	return true
}

// waitsForCertainty checks, after a Tick, that a session whose time is over ends once the wait for certainty is.
func (g *game) waitsForCertainty() bool {
	if g.certain() || !g.timeOver() {
		return false
	}
	if g.waitEnd == 0 && g.w.now >= g.graceEnd() || g.waitEnd > 0 && g.w.now >= g.waitEnd {
		g.fail("F6", "the session is over, asked: %v, waits until %d, and is still there", g.asked, g.waitEnd)
	}
	return true
}

// noteSilentEnd checks whether the session may end without a word, or must.
func (g *game) noteSilentEnd(reason string) {
	if g.certain() || g.detached.since == 0 || g.detached.waits > 0 || reason != "grace_over" && reason != "idle_timeout" && reason != "window_exceeded" {
		return
	}
	g.silentEnd = true
	g.w.cov.hit("silent end")
	if g.line.owner != g {
		g.w.cov.hit("silent end of an older owner")
	}
	if g.cause.reason != "window_exceeded" && (g.waitEnd == 0 || g.w.now < g.waitEnd) {
		g.fail("F6", "the session ends with %s at %d, and waits until %d", reason, g.w.now, g.waitEnd)
	}
}

// noteConfirmed records what the seat says of it, sooner or later.
func (g *game) noteConfirmed() {
	i := g.core.Info()
	if g.line.owner == g && g.w.chance(700) {
		g.line.confirmed = max(g.line.confirmed, i.Tokens.Confirmed())
	}
}

// ---- what the client states, and what a dial stated

// movedHere returns what hello says of how the session came here.
func (g *game) movedHere() string {
	tokens := g.core.Info().Tokens
	if epochOf(tokens.Confirmed()) >= g.epoch {
		return ""
	}
	return g.moved
}

// gotFurther reports whether t comes from a client that has accepted no number of this node's, and has got
// further elsewhere.
func (g *game) gotFurther(t *attempt) bool { return g.further(t.resume()) }

func (g *game) further(r session.Resume) bool {
	return g.movedHere() == "failover" && epochOf(r.Gen) < g.epoch && (r.Received > g.base.down || r.Settled > g.core.Info().Received)
}

// startsAgain precedes an attach that makes the core go on from what t states.
func (g *game) startsAgain(t *attempt) {
	c := &g.w.cov
	switch {
	case g.core.State() == session.Attached:
		c.hit("got further, attached")
	case t.dial != nil:
		c.hit("got further, dialled")
	}
	if t.received == g.base.down {
		c.hit("got further, up alone")
	}
	if g.upOver() {
		c.hit("got further, upstream over")
		return
	}
	g.gives = true
}

// startedAgain checks that it does.
func (g *game) startedAgain(t *attempt, ref *session.Refusal) {
	if ref == nil || ref.Code != 0 || !g.core.NeedsUpstream() || g.core.State() == session.Attached {
		g.fail("R2", "a client that got further, to %d from %d, gets %+v", t.received, g.base.down, ref)
	}
	g.log("starts again", int64(t.received), int64(t.settled))
	g.renumbered(t.resume(), false)
	g.out.since, g.out.until, g.out.back = 0, 0, 0
	g.sync(false)
	g.gives = false
	g.settle()
	g.w.cov.hit("got further")
	t.stage = checking
}

// renumbered records that the numbers go on from what r states.
func (g *game) renumbered(r session.Resume, keep bool) {
	if r.Received > g.base.down {
		old := g.nums
		g.nums = newNumbers()
		g.nums.fill(r.Received)
		for n := g.base.down + 1; keep && n <= old.last(); n++ {
			g.nums.keep(old, n)
		}
		g.base.down = r.Received
	}
	if r.Settled > g.expected.received {
		g.base.up, g.expected.received, g.expected.got = r.Settled, r.Settled, r.Settled
	}
	g.seen.info = g.core.Info()
}

// fill makes n numbers whose messages this owner never had.
func (l *numbers) fill(n uint64) {
	for l.last() < n {
		l.append(record{reply: -1}, 0)
	}
}

// keep gives message n of old the next number.
func (l *numbers) keep(old *numbers, n uint64) {
	l.append(old.list[n], old.sums[n]-old.sums[n-1])
}

// copy returns a list that goes on apart from l.
func (l *numbers) copy() *numbers {
	return &numbers{slices.Clone(l.list), slices.Clone(l.sums)}
}

// promises is a dial that tells these numbers.
func (line *lineage) promises(up, down uint64) promise {
	line.dials++
	return promise{line.dials, up, down}
}

// tells begins a dial: it returns what the dial states, for a client that states r. The seat is written before,
// which a former owner cannot.
func (g *game) tells(r session.Resume) promise {
	if g.line.owner != g {
		g.w.cov.hit("fenced by its dial")
		return promise{}
	}
	further := g.core.NeedsUpstream() && g.further(r)
	up, down := g.core.Counts(r)
	if further {
		g.renumbered(r, false)
	}
	g.sync(false)
	if i := g.core.Info(); up != i.Written+1 || down != i.Sent+1 {
		g.fail("counts", "the upstream is told %d and %d, written are %d, numbered %d", up, down, i.Written, i.Sent)
	}
	g.log("tells", int64(up), int64(down))
	return g.line.promises(up, down)
}

// mistold reports whether the current upstream was dialled with a Reseat-Up-From that does not hold.
func (g *game) mistold() bool {
	u := g.ups
	return g.cfg.Durable && u.told.dial > 0 && u.received == 0 && g.core.Info().Written+1 != u.told.up
}

// partsMoved records that the core has given up u, since the session goes on elsewhere, or from other numbers.
func (g *game) partsMoved(u *upstream) {
	u.byeText = "moved"
	g.detached.beats, g.seen.blocked = nil, false
	g.out.since, g.out.until, g.out.back = 0, 0, 0
	if g.mistold() && !g.gives {
		g.w.cov.hit("upstream mistold")
	}
	g.partsInHandOff(u)
	g.gives = false
}

// ---- the game servers, all together

// hears records what the dial of u stated.
func (u *upstream) hears(told promise) {
	line := u.g.line
	u.told = told
	line.newest = max(line.newest, told.dial)
	if line.counting {
		u.says, u.made = line.says, told.down-1
	}
}

// newest reports whether the game server sends on u: one that counts sends on the newest connection alone.
func (u *upstream) newest() bool { return !u.g.line.counting || u.told.dial == u.g.line.newest }

// logs records that u sends its next message.
func (line *lineage) logs(u *upstream) { line.log = max(line.log, u.made) }

// refuses reports whether a game server that counts refuses the connection: it has a newer one.
func (line *lineage) refuses(told promise) bool { return line.counting && told.dial < line.newest }

// number checks the number of u's next message, and says where it is from.
func (u *upstream) number(r *record, it item) {
	g := u.g
	u.nth++
	r.up, r.nth = u.told.dial, u.nth
	n := g.nums.last()
	switch {
	case !g.cfg.Durable:
	case u.nth == 1 && n != u.told.down:
		g.fail("counts", "upstream %d was told that its first message would be %d, and it is %d", u.no, u.told.down, n)
	case g.line.counting && it.made != n:
		g.fail("counts", "the game's message %d becomes number %d", it.made, n)
	}
}

// checkPromise checks that the client's message n is the one that the dial of u stated.
func (u *upstream) checkPromise(n uint64) {
	if u.g.cfg.Durable && u.received == 0 && n != u.told.up {
		u.g.fail("counts", "upstream %d was told that the first message would be %d, and it is %d", u.no, u.told.up, n)
	}
}

// writes records that the client's message n was written to u by g.
func (line *lineage) writes(g *game, u *upstream, n uint64) {
	if !g.cfg.Durable {
		return
	}
	for uint64(len(line.got)) <= n {
		line.got = append(line.got, wrote{})
	}
	m := &line.got[n]
	switch {
	case m.times == 0:
	case m.by == g || !line.redeliver && g.honest():
		g.fail("O4", "message %d is written a second time, redelivery %v", n, line.redeliver)
	case n <= g.base.up:
		g.fail("O4", "message %d is written again, and was settled", n)
	default:
		g.w.cov.hit("written by two owners")
	}
	m.times++
	m.by = g
	for line.whole+1 < uint64(len(line.got)) && line.got[line.whole+1].times > 0 {
		line.whole++
	}
	if line.counting {
		line.apply(g, u, n)
	}
}

// apply is how a game server that counts takes a message: the next is applied, a repeat skipped.
func (line *lineage) apply(g *game, u *upstream, n uint64) {
	switch k := u.told.up + u.received; {
	case k == line.applied+1:
		if line.applied++; k != n {
			g.fail("counts", "the game applies message %d as its %d", n, k)
		}
	case k > line.applied:
		g.fail("counts", "the game gets number %d, and has %d", k, line.applied)
	default:
		g.w.cov.hit("repeat skipped by the game")
	}
}

// ---- the client

// front returns the owner that a resume is led to: the present one, or a former one that does not know.
func (c *client) front() *game {
	for _, z := range c.g.w.older {
		if z.line == c.g.line && !c.g.w.calm && c.g.w.chance(300) {
			return z
		}
	}
	return c.g
}

// settled returns what a resume states of the client's own messages.
func (c *client) settled() uint64 {
	if c.g.line.redeliver {
		return c.held
	}
	return c.sent
}

// outdated handles a hello that the client does not take (R1): another node goes on with the session, and since
// the handshake something was taken in or settled on an older connection; with redelivery off, or sent. The
// client resumes with the numbers of now. It uses the older connection until that attempt has come to an end.
func (l *link) outdated(h helloArg) bool {
	c := l.c
	if h.Moved != "failover" || c.count == l.stated && c.held == l.held && (c.g.line.redeliver || c.sent == l.given) {
		return false
	}
	w := c.g.w
	w.cov.hit("hello outdated")
	c.g.log("cl outdated", int64(l.stated), int64(c.count))
	l.lostAt, c.trying, c.abandoned = true, nil, c.hellos
	l.hangUp()
	if old := c.live; old != nil && old.left {
		w.cov.hit("hello outdated again")
		old.drop()
	} else if old != nil {
		old.left = true
	}
	c.retryAt = 0
	c.resume()
	return true
}

// giveUpOld gives up the older connection once the attempt after an outdated hello is over.
func (c *client) giveUpOld() {
	if c.live != nil && c.live.left {
		c.live.drop()
	}
}

// checkEpoch checks that a hello which is taken comes from no older owner than the one before (O2).
func (l *link) checkEpoch(h helloArg) {
	c := l.c
	if t := parseToken(h.Token); epochOf(t.gen) < epochOf(c.token.gen) {
		l.g.fail("O2", "the client takes a hello of generation %d, and has taken %d", t.gen, c.token.gen)
	}
	if !l.g.cfg.Durable {
		return
	}
	if l.g.line.owner != l.g {
		c.g.w.cov.hit("hello of an older owner")
	}
}

// takes checks that a new message follows the one before (O3): of each upstream a prefix, and none of an older
// one after one of a newer.
func (c *client) takes(n uint64, r record) {
	if !c.g.cfg.Durable {
		return
	}
	switch {
	case r.up == c.from && r.nth == c.nth+1, r.up > c.from && r.nth == 1:
	default:
		c.g.fail("O3", "message %d of upstream %d comes as number %d, behind message %d of upstream %d", r.nth, r.up, n, c.nth, c.from)
	}
	c.from, c.nth = r.up, r.nth
}

// skips records that the messages up to n were reported as lost.
func (c *client) skips(n uint64, nums *numbers) {
	if r := nums.list[n]; c.g.cfg.Durable {
		c.from, c.nth = r.up, r.nth
	}
}

// checkHeld checks that what the gateway says it holds was written to a game server (O5).
func (c *client) checkHeld() {
	if g := c.g; g.cfg.Durable && g.line.redeliver && g.honest() && c.held > g.line.whole {
		g.fail("O5", "message %d is acked, and %d were written", c.held, g.line.whole)
	}
}

// unrepeated returns how many of the messages read are none that the core had already.
func (l *leg) unrepeated(messages int) uint64 {
	n := uint64(messages)
	k := min(n, l.repeats)
	if k > 0 {
		l.g.w.cov.hit("repeat dropped")
	}
	l.repeats -= k
	return n - k
}

// movesNumbers records that the messages of an upstream which has ended the session get the numbers that follow
// what t states; before is the session's state before that.
func (g *game) movesNumbers(t *attempt, before *snapshot) {
	b := &before.info
	by := t.received - min(t.received, g.base.down)
	g.line.counting = false // the game that ended it sent them with the older numbers
	g.renumbered(t.resume(), true)
	if b.Sent += by; by > 0 {
		b.Acked = t.received
	}
	g.seen.sent += by
}

// even reports whether all n messages of the client have been written to some connection, or with redelivery
// off at most once.
func (line *lineage) even(n uint64) bool {
	return !line.redeliver || line.whole == n && (!line.counting || line.applied == n)
}

// ---- what is rare by itself

// doubt makes the client resume beside its connection, and another node claim the session for that, while the
// older one goes on: whatever it brings now the claim does not know of.
func (g *game) doubt() bool {
	c, w := g.cli, g.w
	if !g.cfg.Durable || g.core.State() != session.Attached || c.live == nil || c.live.g != g || g.down.tap.link != c.live || c.trying != nil && c.trying.g != g || len(w.older) > 4 {
		return false
	}
	if w.chance(300) {
		g.writeOn()
	}
	if c.trying == nil && !c.resume() {
		return false
	}
	if c.trying.g != g {
		return false
	}
	for _, t := range g.tries {
		if t.link == c.trying && t.stage <= checking && !t.conn.in.hole {
			g.log("doubt", int64(t.conn.id), 0)
			w.cov.hit("claim, node alive")
			w.cov.hit("claim, client attached")
			g.claim(t)
			g.race()
			return true
		}
	}
	return false
}

// race lets a former owner go on with its client, while the present one serves the resume.
func (g *game) race() {
	c, w := g.cli, g.w
	up, ends := w.chance(300), w.chance(200) // only what the client sends is settled meanwhile; the next upstream ends the session
	for range w.rng.IntN(150) {
		if c.done || c.g.dead {
			return
		}
		n := c.g
		switch w.rng.IntN(8) {
		case 0, 1:
			n.serve()
		case 2:
			n.dialEnds()
		case 3:
			if l := n.down; l != nil {
				l.accept(true)
				n.reports()
			}
		case 4:
			if !up && g.core.State() == session.Attached {
				g.ups.send()
				g.rush()
			}
			g.goesOn()
		case 5:
			g.talkOn()
		case 6:
			if c.trying != nil {
				c.trying.receive()
			}
		case 7:
			if ends && !n.ups.replaced {
				n.ups.leave(4000, "over")
				n.rush()
			} else if c.trying != nil && w.chance(300) {
				c.abandon() // and comes again, while its dial goes on
				c.resume()
			}
		}
	}
}

// goesOn delivers what the owner has for its client.
func (g *game) goesOn() {
	l := g.down
	if l == nil || l.stale() {
		return
	}
	l.accept(true)
	if l.flying.up && l.flying.taken > 0 {
		l.report()
	}
	if c := g.cli; c.live != nil {
		for c.live != nil && c.live.receive() {
		}
		if c.live != nil {
			c.live.ack()
		}
	}
}

// talkOn delivers what the client has for its owner, and what that has for its upstream.
func (g *game) talkOn() {
	g.cli.queue()
	g.passUp()
	g.up.accept(true)
	if g.up.flying.up && g.up.flying.taken > 0 {
		g.up.report()
	}
	g.ups.consume()
	g.goesOn()
}

// breakInWrite breaks the upstream, or the client's connection, while a write to the upstream is in flight that is
// reported only when the next one has stated where to go on.
func (g *game) breakInWrite() bool {
	if !g.cfg.Durable || g.core.State() != session.Attached || g.ups.replaced || g.leaving > 0 {
		return false
	}
	old := g.up
	for range 5 {
		g.cli.queue()
		g.passUp()
	}
	if !old.accept(g.w.chance(500)) || !old.flying.up {
		return false
	}
	g.log("break in a write", int64(old.flying.taken), int64(old.flying.total))
	told := func() bool { return g.out.told.dial > 0 || g.dial != nil && g.dial.told.dial > 0 }
	switch {
	case g.cfg.Hard && g.w.chance(600):
		g.disconnect()
		g.cli.quit()
		g.cli.resume()
	case g.redials():
		g.ups.crash()
		g.rush()
	default:
		return true
	}
	for range 100 {
		if told() || g.core.State() == session.Ended {
			break
		}
		g.serve()
		g.dialEnds()
		g.redialEnds()
	}
	reports := g.w.rng.IntN(6)
	for i := range 6 {
		if i == reports && old.flying.up {
			old.report()
		}
		g.redialEnds()
		g.dialEnds()
		g.serve()
	}
	return true
}

// leaveInWrite begins a hand-off while a message is being written, or the upstream takes nothing.
func (g *game) leaveInWrite() bool {
	if !g.cfg.Durable || g.core.State() != session.Attached || g.ups.replaced || g.leaving > 0 || g.upOver() {
		return false
	}
	w, l := g.w, g.up
	g.ups.stalled = true
	for range 5 {
		g.cli.queue()
		g.passUp()
	}
	l.accept(false)
	if w.chance(500) && l.flying.up && l.flying.taken > 0 {
		l.report()
	}
	if g.core.State() != session.Attached || g.upOver() || !g.leave() {
		return true
	}
	switch w.rng.IntN(5) {
	case 0:
		w.advanceTo(g.leaving.Add(leaveTime), nil)
	case 1:
		g.ups.leave(pick(w, 1000, 1001, 1012, 4000), "")
		g.rush()
	case 2:
		g.ups.crash()
		g.rush()
	case 3:
		g.disconnect()
	}
	return true
}
