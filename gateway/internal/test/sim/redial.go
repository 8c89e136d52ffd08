package sim

import (
	"encoding/json"
	"slices"
	"time"

	"reseat/gateway/session"
)

// --upstream-lost redial: an upstream whose connection breaks, or that goes away or restarts,
// is replaced while the session goes on. The model decides from what the upstream did whether
// it must be, for how long at most, and what the client hears of it and when.

// livingTime is how long an upstream must have lived for the time of a later outage to begin
// anew.
const livingTime = 10 * time.Second

// An interruption is an outage of the game server.
type interruption struct {
	since session.Time // zero: there is none
	until session.Time
	back  session.Time // the end of the last one
	sent  uint64       // messages numbered before it
	over  bool         // it ended without an upstream: the session has lost it

	said     []announcement // to whichever client was attached
	refusing bool           // every further dial is refused
	told     promise        // to the upstream that is being dialled
}

// An announcement is a notification that the client of an epoch must get behind message n.
type announcement struct {
	epoch uint64
	n     uint64
	back  bool
}

// redials reports whether a lost upstream of g is replaced.
func (g *game) redials() bool { return g.cfg.Resumable && g.cfg.Redial > 0 }

// outageEnd returns when an outage that begins now must end.
func (g *game) outageEnd() session.Time {
	if o := g.out; o.until > 0 && g.w.now < o.back.Add(livingTime) {
		return o.until
	}
	return g.w.now.Add(g.cfg.Redial)
}

// goesAway reports whether a Close with code asks for a replacement.
func goesAway(code int) bool { return code == 1001 || code == 1012 }

// lostEvent checks the beginning of an outage.
func (g *game) lostEvent(e session.Event) {
	o, u, c, now := &g.out, g.ups, &g.w.cov, g.w.now
	switch {
	case !g.redials():
		g.fail("redial", "an upstream is to be replaced under %+v", g.cfg)
	case o.since > 0 || o.over || u.replaced:
		g.fail("redial", "upstream %d, which the session does not have, is lost", u.no)
	}
	u.parting = 0
	ok := false
	switch e.Reason {
	case "read failed":
		ok = u.gone
		c.hit("outage, broken")
	case "upstream silent":
		ok = g.silence()
		c.hit("outage, silent")
	case "write failed":
		ok = u.leg.failing && g.w.scarce
	case "Reseat-Up-From does not hold":
		u.parting, u.partText = 1001, "moved"
		ok = g.mistold()
		c.hit("upstream mistold, outage")
	case "closed with 1001", "closed with 1012":
		u.parting = u.code
		ok = u.over && u.wrong == "" && goesAway(u.code)
		c.hit("outage, gone away")
	}
	if !ok {
		g.fail("redial", "upstream %d is lost: %q; over %v, code %d", u.no, e.Reason, u.over, u.code)
	}
	if o.until > 0 && now < o.back.Add(livingTime) {
		c.hit("outage, rest of the time")
	} else if o.until > 0 {
		c.hit("outage, new time")
	}
	i := g.core.Info()
	o.until = g.outageEnd()
	o.since, o.sent, o.told = now, i.Sent, promise{}
	g.announce(announcement{i.Epoch, i.Sent, false})
	g.noteOutage(i)
}

// noteOutage records in which state an outage began.
func (g *game) noteOutage(i session.Info) {
	c := &g.w.cov
	switch {
	case i.State == session.Attached && g.down != nil && g.down.tap.n < i.Sent:
		c.hit("outage of a slow client")
	case i.State == session.Detached && i.Epoch == 0:
		c.hit("outage, made ahead")
	case i.State == session.Detached:
		c.hit("outage while away")
	case i.State == session.Connecting && g.detached.waits > 0:
		c.hit("outage in a hard resume")
	case i.State == session.Connecting:
		c.hit("outage before the first attach")
	}
	if u := g.ups; len(u.items) > 0 && u.items[0].begin < u.handed && u.handed < u.items[0].end {
		c.hit("outage within a message")
	}
	if g.up.flying.up && !g.up.flying.final {
		c.hit("outage while writing")
	}
}

func (g *game) announce(a announcement) {
	if g.core.State() == session.Attached {
		g.out.said = append(g.out.said, a)
	}
}

// backEvent checks the end of an outage.
func (g *game) backEvent(e session.Event) {
	o := &g.out
	if o.since == 0 || e.Elapsed != g.w.now.Sub(o.since) {
		g.fail("redial", "an upstream is back after %v, lost at %d", e.Elapsed, o.since)
	}
	g.announce(announcement{g.core.Info().Epoch, o.sent, true})
	o.since, o.back = 0, g.w.now
}

// forgetOutage records that a detach has ended the outage: the resume is a hard one.
func (g *game) forgetOutage() {
	if o := &g.out; o.since > 0 {
		o.since, o.until, o.back = 0, 0, 0
		g.w.cov.hit("outage, hard detach")
	}
}

// checkOutage compares the core with the model.
func (g *game) checkOutage(i session.Info) {
	since, until := g.core.Outage()
	o := &g.out
	if i.State == session.Ended {
		o.since = 0
	}
	switch next := g.core.Next(); {
	case since != o.since || o.since > 0 && until != o.until:
		g.fail("redial", "an outage from %d to %d, want %d to %d", since, until, o.since, o.until)
	case g.core.TakesUpstream(max(o.since, 1)) != (o.since > 0), g.core.TakesUpstream(o.since + 1): // one of no other outage
		g.fail("redial", "an upstream would be taken: %v; outage %+v", o.since == 0, *o)
	case o.since > 0 && (next == 0 || next > o.until):
		g.fail("redial", "the outage ends at %d, but Next is %d", o.until, next)
	}
	if o.since == 0 {
		return
	}
	c := &g.w.cov
	if n := i.Received - i.Written; n > windowMessages-32 {
		c.hit("outage, window full") // the last that were written may not be acked
	} else if n > 1 && g.cli.sums[i.Received]-g.cli.sums[i.Written] > windowBytes/2 {
		c.hit("outage, window full")
	}
	if g.cfg.Rate.Messages > 0 && len(g.expected.list) > int(2*g.cfg.Rate.Messages) {
		c.hit("outage, paced")
	}
}

// checkLoss checks an upstream that is not replaced: its session goes on only until the client
// has been notified.
func (g *game) checkLoss() {
	u := g.ups
	if !g.redials() || g.out.over || g.seen.ends > 0 || g.outOfMemoryAtStart {
		return
	}
	if g.outageEnd() <= g.w.now {
		g.w.cov.hit("outage, no time left")
		return
	}
	if u.over && u.wrong == "" && (u.code == 0 || goesAway(u.code)) && g.w.now < u.doneAt.Add(unfinished) {
		g.fail("redial", "upstream %d with code %d is not replaced", u.no, u.code)
	}
	g.w.cov.hit("lost without an outage")
}

// noLonger records that the outage has ended without an upstream.
func (g *game) noLonger(here, away string) {
	if g.core.State() == session.Attached {
		g.w.cov.hit(here)
	} else {
		g.w.cov.hit(away)
	}
	g.out.since, g.out.over = 0, true
}

// redialEnds ends a dial of the outage: it succeeds, fails, or is refused for good.
func (g *game) redialEnds() bool {
	w := g.w
	if g.out.since == 0 || g.core.State() == session.Ended {
		return g.strayDial()
	}
	switch {
	case g.out.told.dial == 0 && g.cfg.Durable:
		if g.out.told = g.tells(session.Resume{}); g.out.told.dial == 0 {
			g.fence()
		}
	case g.out.refusing || !w.calm && w.chance(100) || g.line.refuses(g.out.told):
		g.core.FailRedial(w.now, "refused")
		g.noLonger("outage, dial refused", "outage, dial refused while away")
		g.log("redial refused", 0, 0)
		g.sync(false)
		g.settle()
	case !w.calm && w.chance(400):
		w.cov.hit("outage, dial fails") // it is dialled again: nothing that the core knows of
		g.out.told = promise{}
	default:
		g.replace()
	}
	return true
}

// strayDial is a dial that ends after its outage: nothing comes of it.
func (g *game) strayDial() bool {
	if !g.redials() || g.w.calm {
		return false
	}
	g.inert("a dial that ends after its outage", func() { g.core.FailRedial(g.w.now, "refused") })
	return false
}

// replace gives the session its next upstream.
func (g *game) replace() {
	i, w := g.core.Info(), g.w
	word, last := "", ""
	switch {
	case i.State == session.Detached && i.Epoch > 0:
		last = g.cfg.Notices.Detach
		w.cov.hit("outage, back while away")
	case i.State == session.Connecting && g.detached.waits > 0:
		word = g.cfg.Notices.Resume
	case i.State == session.Attached && g.down != nil && g.down.tap.n < i.Sent:
		w.cov.hit("outage, back for a slow client")
	}
	g.next(g.out.told, word, last, !w.calm && w.chance(150))
	w.cov.hit("outage, back")
	if !w.calm && w.chance(150) { // it breaks again at once
		g.ups.crash()
		g.rush()
	}
}

// noteOutageEnds records that the session ends during an outage.
func (g *game) noteOutageEnds(reason string) {
	switch {
	case g.out.since == 0:
	case reason == "bye":
		g.w.cov.hit("outage, bye")
	default:
		g.w.cov.hit("outage, end")
	}
}

// upstreamBreaks breaks the upstream of a session that replaces it, or has it go away.
func (g *game) upstreamBreaks() bool {
	switch {
	case !g.redials() || g.ups.replaced:
		return false
	case g.out.until > 0 && g.w.chance(200): // at the moment from which on the time begins anew
		if t := g.out.back.Add(livingTime); t > g.w.now {
			g.w.advanceTo(t-session.Time(g.w.rng.IntN(2)), nil)
			return g.ups.crash() && g.rush()
		}
	}
	if g.w.chance(500) {
		return g.ups.crash()
	}
	return g.ups.leave(pick(g.w, 1001, 1012), pick(g.w, "", "restart"))
}

// outageLasts moves the clock to the last moment of an outage.
func (g *game) outageLasts() bool {
	o := &g.out
	if o.since == 0 || o.until > g.w.now.Add(time.Minute) {
		return false
	}
	g.w.advanceTo(o.until-session.Time(g.w.rng.IntN(2)), g)
	if g.w.chance(500) {
		g.redialEnds()
		if g.out.since == 0 && g.w.chance(500) { // the next one breaks when little time is left, or none
			g.w.advanceTo(max(o.until, g.w.now)-session.Time(g.w.rng.IntN(2)), nil)
			return g.ups.crash() && g.rush()
		}
	}
	return true
}

// talk has the client send what it may, and the gateway read it.
func (g *game) talk(rounds int) {
	for range rounds {
		if !g.passUp() {
			return
		}
	}
}

// passUp moves something from the client's queue to the core, and reports whether there was anything.
func (g *game) passUp() bool {
	did := g.clientSends()
	did = g.clientWrites() || did
	if l := g.down; l != nil {
		did = l.read() || did
		did = l.handOver() || did
	}
	return did
}

// fillWindow has the client send all that it may.
func (g *game) fillWindow() bool {
	c := g.cli
	if c.done || c.closing || c.live == nil || g.cfg.Rate.End {
		return false
	}
	for range windowMessages + g.w.rng.IntN(100) {
		c.queueOne()
	}
	g.talk(5 * windowMessages)
	return true
}

// lostTalk does what races with the outage: the client leaves, comes back, sends all that it
// may, or ends the session.
func (g *game) lostTalk() bool {
	if g.out.since == 0 {
		return false
	}
	switch g.w.rng.IntN(10) {
	case 9:
		return g.leave()
	case 0:
		return g.awayAndBack()
	case 1:
		return g.burst()
	case 2, 8:
		return g.fillWindow()
	case 3:
		if g.clientCloses() {
			g.talk(300)
			return true
		}
	case 4:
		return g.disconnect()
	case 5:
		return g.w.chance(100) && g.drain()
	case 6:
		return g.w.chance(100) && g.terminate()
	case 7:
		if g.cfg.Idle > 0 {
			g.idleTime()
			return true
		}
	}
	return false
}

// What one connection hears.

// state checks the verb `upstream`: it changes what the connection has heard, behind the replay or where
// that was announced.
func (t *tap) state(arg string) {
	g := t.l.g
	var v struct{ State string }
	g.must(json.Unmarshal([]byte(arg), &v))
	if t.code != 0 || v.State != "lost" && v.State != "back" || v.State == t.lastState {
		g.fail("redial", "upstream %q is written behind %q and %s %d", v.State, t.lastState, t.verb, t.code)
	}
	announced := slices.ContainsFunc(g.out.said, func(a announcement) bool {
		return a.epoch == t.l.att.Epoch() && a.n == t.n && a.back == (v.State == "back")
	})
	if !announced && t.n != t.sent {
		g.fail("redial", "upstream %q is written behind message %d, not behind the replay, which ends with %d", v.State, t.n, t.sent)
	}
	if t.lastState == "" && v.State == "back" && !announced {
		g.w.cov.hit("attach after an outage")
	}
	t.lastState = v.State
}

// checkNews checks that before message n is written everything due was said. A client that has heard of
// nothing on this connection may know the state from an earlier one.
func (t *tap) checkNews(n uint64) {
	g := t.l.g
	if !g.cfg.Resumable || t.late || t.l.stale() && g.core.State() == session.Ended {
		return
	}
	want, announced := t.outage, false
	for i, said := 0, t.announcements(); i < len(said) && said[i].n < n; i++ {
		if a := said[i]; a.back && i+1 < len(said) && said[i+1].n == a.n { // the client need not hear that
			g.w.cov.hit("outages merged")
			i++
			continue
		}
		want, announced = !said[i].back, true
	}
	if name := map[bool]string{true: "lost", false: "back"}[want]; t.lastState != name && (announced || t.lastState != "") {
		g.fail("redial", "message %d is written, or nothing more, behind upstream %q, want %q", n, t.lastState, name)
	}
}

// announcements returns the announcements to t.
func (t *tap) announcements() (list []announcement) {
	for _, a := range t.l.g.out.said {
		if a.epoch == t.l.att.Epoch() {
			list = append(list, a)
		}
	}
	return list
}

// checkHeard checks that an idle connection was sent everything that is due.
func (t *tap) checkHeard() { t.checkNews(t.n + 1) }
