package sim

import (
	"slices"
	"time"

	"reseat/gateway/session"
)

// The invariants I1 to I14 that can be checked at the core. What is written and read is
// checked where it passes (tap.go, upstream.go, receive.go); this file checks the
// session as a whole, after each step.

// memory is the state of a session's invariants.
type memory struct {
	info        session.Info
	sent        uint64        // numbered before the attach in progress
	outage      bool          // there was an outage before it
	newest      *leg          // of the newest attach
	older       *leg          // and of the one before
	ends        int           // SessionEnded events
	attach      session.Event // the expected event of the newest attach
	replayed    uint64        // sum of all replays announced
	replayCuts  int           // consecutive attaches that ended within the replay
	upHeard     session.Time  // or when reading it was last paused
	upWanted    bool
	unread      session.Time // when reading the client was last paused
	read        bool
	excused     session.Time // when a call was so late that the process was suspended
	upOver      bool         // the core knows that the upstream is over,
	upOverAt    session.Time // since when,
	wasSilent   bool         // since it was silent
	paused      bool         // an overflow has paused the upstream
	full        bool         // reading the upstream was paused for lack of room at the last check
	ackOwed     session.Time // since when message ackOwedN is written and not acked
	ackOwedN    uint64
	ackLeg      *leg
	late        session.Time // Tick is delayed until then
	pongs       int          // Pong events
	askOwed     session.Time // since when a plain client with a cookie must be pinged
	present     bool         // a client is attached, as the events say
	closedHeard span         // last activity of any client whose connection is closed; zero: none

	data      session.Time // time of the last data message
	upOpen    bool         // texts can be sent to the upstream
	base      uint64       // newest message that was released
	held      int          // messages
	heldBytes int64
	blocked   bool   // input that was read and not processed waits for room
	unblocked bool   // the core processes it in this call
	dropping  bool   // --overflow drop-oldest is in effect
	starts    bool   // it is being marked as started
	tornAt    uint64 // the message that was last disconnected within
}

// A snapshot is what a call without effect must not change.
type snapshot struct {
	info      session.Info
	next      session.Time
	closeMode session.CloseMode
	up        session.CloseMode
}

func (g *game) snapshot() snapshot {
	g.sync(false)
	s := snapshot{info: g.core.Info(), next: g.core.Next()}
	s.info.Memory, s.info.Unread = 0, 0 // an old write may give memory back
	if !g.ups.replaced {
		s.up = g.ups.ten.CloseMode()
	}
	if g.down != nil {
		s.closeMode = g.down.att.CloseMode()
	}
	return s
}

// inert checks that f changes nothing.
func (g *game) inert(what string, f func()) {
	before := g.snapshot()
	f()
	g.unchanged(before, what)
}

func (g *game) unchanged(s snapshot, what string) {
	if n := len(g.core.Events()); n > 0 {
		g.fail("I6", "%s made %d events", what, n)
	}
	if now := g.snapshot(); now != s {
		g.fail("I6", "%s changed the session from %+v to %+v", what, s, now)
	}
}

// check runs after every step.
func (g *game) check() {
	g.sync(false)
	i, p := g.core.Info(), g.seen.info
	g.checkCounts(i, p)
	g.checkHeld(i, p)
	g.checkState(i)
	g.seen.info = i
	g.checkWoken(i)
	g.noteOwed(i)
	g.noteAsk(i)
	g.seen.full = g.full()
}

// noteUnread records that the client is not read: its silence is the gateway's doing.
func (g *game) noteUnread() {
	l := g.down
	if l == nil || l.stale() {
		return
	}
	reads := g.core.WantsRead(l.att)
	if !reads || !g.seen.read {
		g.seen.unread = g.w.now
	}
	g.seen.read = reads
}

// noteWanted records that the upstream is not read: its silence is the gateway's doing.
func (g *game) noteWanted() {
	if g.upOver() {
		return
	}
	wanted := g.core.WantsRead(g.ups.ten)
	if !wanted || !g.seen.upWanted {
		g.seen.upHeard = g.w.now
	}
	g.seen.upWanted = wanted
}

// checkCounts checks I5, and the statistics, I13.
func (g *game) checkCounts(i, p session.Info) {
	switch {
	case i.Acked < p.Acked || i.Acked > i.Sent:
		g.fail("I5", "acked went from %d to %d, sent %d", p.Acked, i.Acked, i.Sent)
	case g.honest() && g.keeps() && g.closesAt == 0 && i.Acked > g.cli.count:
		g.fail("I5", "acked %d, the client has taken in %d", i.Acked, g.cli.count)
	case i.Received < p.Received || i.Written < p.Written || i.Written > i.Received || i.Sent < p.Sent:
		g.fail("I5", "counts went from %+v to %+v", p, i)
	case i.Received > g.cli.sent || i.Sent != g.nums.last():
		g.fail("I13", "received %d of %d, numbered %d of %d", i.Received, g.cli.sent, i.Sent, g.nums.last())
	case i.Written > g.expected.got || g.expected.got > i.Received:
		g.fail("I13", "written %d, the upstreams got %d, received %d", i.Written, g.expected.got, i.Received)
	}
	if n := i.Received - i.Written; g.cfg.Resumable && (n > windowMessages || n > 1 && g.cli.sums[i.Received]-g.cli.sums[i.Written] > windowBytes) {
		g.fail("section 5", "%d messages are admitted and not written, the window is %d", n, windowMessages)
	}
	want := session.Stats{
		ToClient: g.did.down, ToClientBytes: uint64(g.did.downBytes),
		ToUpstream: g.did.up, ToUpstreamBytes: uint64(g.did.upBytes),
		Replayed: g.seen.replayed, Dropped: i.Stats.Dropped, Skipped: i.Stats.Skipped,
	}
	if i.Stats != want || i.Stats.Dropped < p.Stats.Dropped || i.Stats.Skipped < p.Stats.Skipped || i.Stats.Skipped > 0 && g.cfg.Newest == nil {
		g.fail("I13", "statistics %+v, want %+v", i.Stats, want)
	}
}

// checkHeld checks that only acked or dropped messages are released, I5 and I13, and
// that the buffer is within its limits, I8.
func (g *game) checkHeld(i, p session.Info) {
	if i.State == session.Ended {
		if i.BufferBytes != 0 || i.BufferMessages != 0 {
			g.fail("I9", "an ended session holds %d messages", i.BufferMessages)
		}
		return
	}
	base, before := i.Sent-uint64(i.BufferMessages), p.Sent-uint64(p.BufferMessages)
	dropped := i.Stats.Dropped - p.Stats.Dropped
	low, high := max(before+dropped, i.Acked), max(before, i.Acked)+dropped
	switch {
	case g.cfg.Newest == nil && (base < low || base > high):
		g.fail("I13", "%d numbered, %d held: forgotten went from %d to %d, acked %d, dropped %d more", i.Sent, i.BufferMessages, before, base, i.Acked, dropped)
	case dropped > 0 && (g.terms.Overflow != session.DropOldest || !g.keeps()):
		g.fail("I5", "%d messages dropped under %v", dropped, g.terms.Overflow)
	case g.cfg.Newest == nil && i.BufferBytes != g.nums.sums[i.Sent]-g.nums.sums[base]:
		g.fail("I13", "%d bytes held, want %d", i.BufferBytes, g.nums.sums[i.Sent]-g.nums.sums[base])
	case g.roomyStill(i):
	case i.BufferMessages > max(g.cfg.BufferMessages, 1):
		g.fail("I8", "%d messages held, the limit is %d", i.BufferMessages, g.cfg.BufferMessages)
	case i.BufferMessages > 1 && i.BufferBytes > g.cfg.BufferBytes+1: // a DLE is not counted in advance
		g.fail("I8", "%d bytes held, the limit is %d", i.BufferBytes, g.cfg.BufferBytes)
	}
	if dropped > 0 && i.State == session.Detached && i.Acked == p.Acked && g.cfg.Newest == nil {
		g.checkDropped(i, base)
	}
	if used := g.w.store.Used(); used < 0 || used > g.w.limit+g.w.slack() {
		g.fail("I8", "the store has lent %d, its limit is %d", used, g.w.limit)
	}
}

// checkDropped checks that no more messages than necessary were dropped, the newest of
// them message last. The size of an incomplete message is unknown here.
func (g *game) checkDropped(i session.Info, last uint64) {
	u := g.ups
	if s := g.nums.sums; u.between() && i.BufferMessages < g.cfg.BufferMessages && s[i.Sent]-s[last-1] <= g.cfg.BufferBytes {
		g.fail("I5", "message %d was dropped, and there was room for it: %d messages, %d bytes held", last, i.BufferMessages, i.BufferBytes)
	}
}

// slack is what sessions may hold beyond the store's limit: memory that is not checked
// against the limit first, the client's unacked messages and the rest of a message.
func (w *world) slack() int64 {
	return int64(len(w.games)+len(w.older)) * 2 * (windowBytes + w.maxMessage + 64<<10)
}

// checkState checks I3 and I10.
func (g *game) checkState(i session.Info) {
	open := 0
	for _, l := range g.legs {
		if !l.stale() {
			open++
		}
	}
	if want := i.State == session.Attached; open > 1 || want != (open == 1) {
		g.fail("I3", "%v with %d live connections", i.State, open)
	}
	if ended := i.State == session.Ended; g.seen.ends > 1 || ended != (g.seen.ends == 1) {
		g.fail("I10", "%v after %d ends", i.State, g.seen.ends)
	}
	if i.State == session.Ended && g.core.Next() != 0 {
		g.fail("I9", "an ended session wants to be called at %d", g.core.Next())
	}
	if g.upOver() && !g.seen.upOver {
		g.seen.upOver, g.seen.upOverAt, g.seen.wasSilent = true, g.w.now, g.silence()
		g.noteUpstreamOver(i.State)
		g.checkLoss()
	}
	g.checkOutage(i)
	if slices.Equal(i.Terms.Newest.Values(), g.terms.Newest.Values()) { // a restored session has its own
		i.Terms.Newest = g.terms.Newest
	}
	if i.Terms != g.terms || i.Grace != g.keep() || i.Started != g.started {
		g.fail("terms", "%+v, %v, started %v; want %+v, %v, %v", i.Terms, i.Grace, i.Started, g.terms, g.keep(), g.started)
	}
	if needs := g.core.NeedsUpstream(); needs && i.State == session.Attached && g.leaving == 0 {
		g.fail("hard", "attached, and there is no upstream")
	}
	g.checkAway(i)
}

// tick calls Tick as a driver does at the time of Next. Afterwards Next must be in the
// future: otherwise a driver's timer would fire forever.
func (g *game) tick() {
	g.settle()
	for i := 0; ; i++ {
		_, owes := g.expected.front(g.ups)
		unsent := g.leaving > 0 && g.up.failing && !g.ups.closed // a hand-off's Close frame
		busy, open := g.up.writing || owes || unsent, g.seen.upOpen
		g.lookBefore()
		if due := g.core.Next(); due > 0 && g.w.now.Sub(due) > standstill {
			g.seen.excused = g.w.now
		}
		after := g.life.ticks()
		if !g.timeOver() {
			g.waitEnd = 0
		}
		timeOver := g.out.since > 0 && g.w.now >= g.out.until
		g.core.Tick(g.w.now)
		if timeOver && g.core.State() != session.Ended && !g.core.NeedsUpstream() {
			g.noLonger("outage, time over", "outage, time over while away")
		}
		g.sync(false)
		after()
		switch {
		case g.core.State() != session.Detached:
		case open:
			g.tickBeats(busy)
		case g.out.since > 0:
			g.skipBeats()
		}
		g.settle()
		g.settle() // caused by a failing write
		g.check()
		g.settled()
		next := g.core.Next()
		if next == 0 || next > g.w.now {
			break
		}
		if i == 3 {
			g.fail("timers", "Next stays at %d, which is past", next)
		}
	}
	g.afterTick()
}

// afterTick checks that everything due has been done, as far as Next does not say it: that is in the future, and
// checkAway, checkOutage and checkWoken bound it.
func (g *game) afterTick() {
	switch state := g.core.State(); {
	case state == session.Ended:
		return
	case g.waitsForCertainty():
	case state == session.Attached:
		if l := g.down; !l.writing && l.tap.code == 0 && !g.seen.upOver && g.closesAt == 0 {
			g.afterTickIdle(l)
		}
	}
	g.checkClosing()
	if g.core.WantsRead(g.ups.ten) && g.silence() && g.closesAt == 0 && g.leaving == 0 {
		g.fail("heartbeat", "an upstream silent since %d is kept", g.seen.upHeard)
	}
}

// afterTickIdle checks that everything owed to l is written, if nothing blocks it.
func (g *game) afterTickIdle(l *leg) {
	now := g.w.now
	if now >= l.lastOut.Add(g.cfg.Heartbeat) {
		g.fail("section 5", "nothing was written to the client since %d", l.lastOut)
	}
	g.checkAsked()
	if !g.cfg.Resumable {
		return
	}
	l.tap.checkHeard()
	if len(l.tap.graces) > 0 {
		g.fail("terms", "the client did not get %d ms", l.tap.graces[0])
	}
	if since := g.seen.ackOwed; since > 0 && now > since.Add(time.Second+maxLateness) {
		g.fail("section 5", "written messages not acked since %d", since)
	}
	if t := l.tap; t.pongDue > 0 || t.wsPongDue {
		g.fail("section 5", "a ping is not answered")
	} else if t.hello && !t.first && !t.announced && t.link != nil && t.parts.left == 0 { // or it waits for `part`
		g.fail("I13", "the end of the replay is not reported")
	}
	if w := g.core.Info().Written; w >= max(l.tap.acked, l.tap.older)+32 {
		g.fail("section 5", "%d written, only %d acked", w, l.tap.acked)
	}
}

// noteOwed records since when the client is owed an ack.
func (g *game) noteOwed(i session.Info) {
	l := g.down
	switch m := &g.seen; {
	case l == nil || i.State != session.Attached || i.Written <= l.tap.acked:
		m.ackOwed = 0
	case m.ackOwed == 0 || m.ackOwedN <= l.tap.acked || m.ackLeg != l:
		m.ackOwed, m.ackOwedN, m.ackLeg = g.w.now, i.Written, l
	}
}

// checkEnded checks a session that has ended.
func (g *game) checkEnded() {
	i := g.core.Info()
	g.log("over", int64(g.seen.ends), 0, i.Ending.Reason)
	u := g.ups
	if u.replaced {
		u.checkEnded()
	} else if u.closed {
		g.checkUpstreamClose(i.Ending.Reason)
	} else if c := u.conn; !g.silentEnd && !g.cutOff && !g.mistold() && !c.out.rst && !c.deaf && !u.over && !g.up.flying.shut && i.Ending.Reason != "client_gone" && !g.upLate && !g.outOfMemoryAtStart && g.cfg.UpstreamHeartbeat == 0 {
		g.fail("I10", "the upstream got no Close when the session ended with %s", i.Ending.Reason)
	}
	for _, l := range g.allLegs() {
		if l != g.down && !l.idle() {
			g.fail("I9", "the connection to %s is not closed", l.name())
		}
	}
}

// checkEnded checks an upstream that the session has replaced.
func (u *upstream) checkEnded() {
	l, c := u.leg, u.conn
	if u.replaced && !u.closed && !u.torn && !u.replace && !u.broken && (!u.over || u.parting > 0) && !l.overdue && !l.failing && !l.flying.shut && !c.out.rst && !c.deaf {
		u.g.fail("I10", "upstream %d got no Close when the session replaced it", u.no)
	}
}

// checkUpstreamClose checks that the upstream got the right Close.
func (g *game) checkUpstreamClose(reason string) {
	u, want := g.ups, g.upstreamCode(reason)
	if u.over && u.wrong == "" && u.gotCode == u.code && u.code != 0 {
		return // its own code, echoed
	}
	if g.closesAt > 0 && u.gotCode == g.cli.bye {
		return // the client's, which was forwarded
	}
	if want != 0 && u.gotCode != want && !g.lostUpstream(u.gotCode) {
		g.fail("section 6", "the upstream got Close %d %q when the session ended with %s, want %d", u.gotCode, u.gotText, reason, want)
	}
}

// lostUpstream reports whether the gateway closed the upstream with code before the
// session's end.
func (g *game) lostUpstream(code int) bool {
	return code == 1002 || code == 1009 || code == 1001
}

func (g *game) upstreamCode(reason string) int {
	switch reason {
	case "bye":
		return g.cli.bye
	case "upstream_closed": // a plain client may answer the upstream's with another code
		if !g.cfg.Resumable && g.ups.code != 0 {
			return g.cli.bye
		}
	case "grace_over", "no_progress", "idle_timeout":
		return 1001
	case "window_exceeded":
		return 1013
	case "message_too_big":
		return 1009
	case "protocol_error", "protocol_violation", "invalid_utf8", "too_fast":
		return 1008
	case "ended", "draining", "internal_error", "superseded":
		return g.cause.code
	}
	return 0
}
