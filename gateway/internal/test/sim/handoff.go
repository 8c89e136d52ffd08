package sim

import (
	"errors"
	"reflect"
	"slices"
	"time"
	"unsafe"

	"reseat/gateway/session"
)

// Hand-offs of durable sessions: the upstream is closed and read to its end, the core is frozen, and goes on at
// another node with another clock. Nobody may take it, or the answer may be lost.

// A push says what has become of a session that was handed off.
type push uint8

const (
	notPushed push = iota
	pushed         // another node has it, and this one waits for the answer
	unheard        // the answer was lost
)

// leave begins a hand-off.
func (g *game) leave() bool {
	w := g.w
	if !g.cfg.Durable || g.leaving > 0 {
		return false
	}
	state := g.core.State()
	unheard := g.movedHere() == "failover" // its client may yet state more than the claim
	may := (state == session.Attached || state == session.Detached) && !g.upOver() && !unheard
	if !may {
		if unheard {
			w.cov.hit("no hand-off of an unaccepted claim")
		}
		before := g.snapshot()
		if g.core.Leave(w.now) {
			g.fail("hand-off", "a session is handed off that is %v, its upstream over: %v", state, g.upOver())
		}
		g.unchanged(before, "a hand-off that is none")
		return false
	}
	g.check()
	blocked := g.seen.blocked
	g.leaving, g.upDone, g.seen.unblocked, g.roomy = w.now, false, true, true
	if g.out.since > 0 {
		w.cov.hit("hand-off in an outage")
		g.out.since, g.out.until, g.out.back = 0, 0, 0
	}
	ok := g.core.Leave(w.now)
	g.log("leave", int64(state), 0)
	c := &w.cov
	switch {
	case !ok && !blocked:
		g.fail("hand-off", "a session is not handed off that is %v", state)
	case !ok:
	case blocked:
		c.hit("hand-off of a full buffer")
	case g.ups.replaced:
		c.hit("hand-off without an upstream")
	case g.up.flying.up:
		c.hit("hand-off while writing")
	}
	g.sync(false)
	if ok != (g.leaving > 0) {
		g.fail("hand-off", "Leave says %v, leaving since %d", ok, g.leaving)
	}
	g.settle()
	return true
}

// leftEvent checks Left: the upstream has said all that it will.
func (g *game) leftEvent() {
	u := g.ups
	if g.leaving == 0 || g.upDone {
		g.fail("hand-off", "left at %d, leaving since %d", g.w.now, g.leaving)
	}
	g.upDone = true
	g.gives = !u.replaced
}

// partsInHandOff checks why u is done with, and that nothing of it is missing.
func (g *game) partsInHandOff(u *upstream) {
	if g.leaving == 0 || !g.upDone {
		return
	}
	c := &g.w.cov
	late := g.w.now >= g.leaving.Add(leaveTime)
	switch {
	case len(u.items) > 0 && g.silence(): // nobody has read it for so long, and it counts as lost
		u.broken = true
		c.hit("hand-off, upstream breaks")
	case u.over && u.code != 0 && u.wrong == "" && !late:
		if len(u.items) > 0 {
			g.fail("hand-off", "%d messages of the upstream are missing", len(u.items))
		}
		if goesAway(u.code) && g.redials() && !u.closed {
			u.parting = u.code
		}
		c.hit("hand-off, close answered")
	case u.gone:
		u.broken = true
		c.hit("hand-off, upstream breaks")
	case g.silence():
		u.broken = true
	case late:
		c.hit("hand-off, close not answered")
		if u.tap.torn() {
			c.hit("hand-off within a message")
		}
	case u.leg.failing:
	default:
		g.fail("hand-off", "upstream %d is left after %v; over %v, code %d", u.no, g.w.now.Sub(g.leaving), u.over, u.code)
	}
}

// staysEvent checks that the upstream has ended the session itself.
func (g *game) staysEvent() {
	if g.leaving == 0 || g.upDone || !g.ups.ten.Over() {
		g.fail("hand-off", "the session stays, leaving since %d, left %v", g.leaving, g.upDone)
	}
	g.w.cov.hit("hand-off, session ended")
	g.leaving, g.ups.stays = 0, true
}

// roomyStill reports whether the buffer may hold more than its limit, since a hand-off has read everything.
func (g *game) roomyStill(i session.Info) bool {
	if g.leaving == 0 && i.BufferMessages <= g.cfg.BufferMessages && i.BufferBytes <= g.cfg.BufferBytes {
		g.roomy = false
	}
	return g.roomy
}

// callOff ends a hand-off before anybody has the session.
func (g *game) callOff() bool {
	if g.leaving == 0 || g.core.State() == session.Ended {
		return false
	}
	if g.upDone {
		g.w.cov.hit("hand-off, nobody takes it")
	} else {
		g.w.cov.hit("hand-off called off")
	}
	g.stay()
	return true
}

func (g *game) stay() {
	g.log("stay", 0, 0)
	g.gives = !g.ups.replaced
	g.core.Stay(g.w.now)
	g.leaving, g.upDone = 0, false
	g.sync(false)
	g.gives = false
	if s := g.core.State(); s != session.Detached && s != session.Ended && s != session.Connecting {
		g.fail("hand-off", "a session stays, and is %v", s)
	}
	g.settle()
}

// handOverSession gives the session to another node, or to none.
func (g *game) handOverSession() bool {
	w := g.w
	if !g.upDone || g.leaving == 0 || g.core.State() == session.Ended {
		return false
	}
	if w.chance(200) {
		return g.callOff()
	}
	frozen, err := g.core.Freeze(session.Formats[0])
	switch {
	case errors.Is(err, session.ErrBusy):
		return false
	case err != nil:
		g.fail("hand-off", "%v", err)
	}
	g.arrives(frozen)
	return true
}

// arrives makes the session go on at another node.
func (g *game) arrives(frozen session.Frozen) {
	w := g.w
	n := g.successor("handoff")
	core, err := session.Restore(session.Formats[0], frozen.State, slices.Concat(frozen.Content...), w.store, n.newKey)
	if err != nil {
		g.fail("hand-off", "%v", err)
	}
	n.core = core
	ahead := otherClock(w, core)
	if err := core.Arrive(w.now, w.now.Add(-ahead), n.epoch); err != nil {
		g.fail("hand-off", "%v", err)
	}
	g.log("arrives", int64(n.epoch), int64(ahead))
	for k := range g.keys { // what waits for the upstream is masked already
		n.keys[k] = struct{}{}
	}
	n.nums, n.base, n.did = g.nums.copy(), g.base, g.did
	n.expected.received, n.expected.got = g.expected.received, g.expected.got
	for _, x := range g.expected.list {
		if x.to == nil {
			n.expected.expect(x)
		}
	}
	n.detached = g.detached
	n.detached.waits, n.detached.beats = 0, nil
	if g.core.State() != session.Detached {
		n.detached = absence{since: w.now, reserved: g.detached.reserved}
	}
	n.trip, n.futile, n.ponged, n.roomy, n.bursts = g.trip, g.futile, g.ponged, true, g.bursts+1
	n.seen.data, n.seen.closedHeard, n.seen.replayed, n.seen.paused = g.seen.data, g.seen.closedHeard, g.seen.replayed, g.seen.paused
	c := &w.cov
	if g.seen.present {
		c.hit("hand-off, attached")
		for b, t := range g.life.heard {
			n.seen.closedHeard[b] = max(n.seen.closedHeard[b], t)
		}
	} else {
		c.hit("hand-off, away")
	}
	if len(n.expected.list) > 0 {
		c.hit("hand-off of waiting messages")
	}
	n.takesOver()
	g.push = pushed
	w.older = append(w.older, g)
	w.used = w.store.Used()
}

// otherClock makes the moments in a core those of another clock, and returns how far this one is ahead of it.
func otherClock(w *world, core *session.Session) time.Duration {
	first := w.now
	eachTime(reflect.ValueOf(core).Elem(), func(t *session.Time) {
		if *t > 0 {
			first = min(first, *t)
		}
	})
	var ahead time.Duration
	switch w.rng.IntN(3) {
	case 0:
		ahead = -time.Duration(w.rng.Int64N(int64(100 * time.Hour)))
	case 1:
		ahead = time.Duration(w.rng.Int64N(int64(first)))
	}
	eachTime(reflect.ValueOf(core).Elem(), func(t *session.Time) {
		if *t > 0 {
			*t -= session.Time(ahead)
		}
	})
	return ahead
}

// eachTime calls f for every moment in a core.
func eachTime(v reflect.Value, f func(*session.Time)) {
	switch {
	case v.Type() == reflect.TypeFor[session.Time]():
		f((*session.Time)(unsafe.Pointer(v.UnsafeAddr())))
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			if name == "Store" || name == "up" || name == "writer" || name == "to" || name == "ring" {
				continue
			}
			eachTime(v.Field(i), f)
		}
	case v.Kind() == reflect.Pointer && !v.IsNil():
		eachTime(v.Elem(), f)
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			eachTime(v.Index(i), f)
		}
	}
}

// answerPush brings the older node the answer, or it gives up waiting.
func (g *game) answerPush() bool {
	if g.push != pushed {
		return false
	}
	if g.core.State() == session.Ended {
		g.push = unheard
		return false
	}
	if g.w.chance(300) {
		g.w.cov.hit("hand-off, answer lost")
		g.push = unheard
		g.stay()
		return true
	}
	g.log("handed off", int64(g.epoch), 0)
	g.cause = cause{"moved", 0}
	g.core.HandedOff(g.w.now, time.Duration(g.w.rng.IntN(2000))*time.Millisecond)
	g.sync(false)
	if g.core.State() != session.Ended {
		g.fail("hand-off", "handed off, and %v", g.core.State())
	}
	g.fence()
	return true
}
