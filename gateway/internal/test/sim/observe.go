package sim

import (
	"reseat/gateway/session"
)

// Calls of the core that reveal something about a session: what they may change, and
// which interleaving they are.

// events compares the core's events with what the model has seen.
func (g *game) events() {
	list := g.core.Events()
	for n, e := range list {
		g.log("event", int64(e.Kind), int64(e.Epoch), e.Reason)
		if g.seen.ends > 0 && e.Kind != session.Replayed {
			g.fail("I10", "event %d after the end", e.Kind)
		}
		g.event(e, list[n+1:])
	}
}

// event checks one event; after are the following events of the same call.
func (g *game) event(e session.Event, after []session.Event) {
	m := &g.seen
	switch e.Kind {
	case session.SessionEnded:
		m.ends++
		g.noteSilentEnd(e.Reason)
		g.noteOutageEnds(e.Reason)
		g.checkOver(e)
		g.checkReason(e.Reason)
		if e.Reason == "grace_over" && !g.silentEnd {
			g.expectText(g.cfg.Notices.Expire)
		}
	case session.Disconnected:
		if e.Reason == "silent" {
			g.checkSilent()
			if g.core.Info().RTT == 0 {
				g.trip.silent++
				g.w.cov.hit("silent before its round trip is known")
			}
		}
		g.detachedEvent(e)
		g.noteDetached()
		g.dropped(after)
	case session.Overflowed:
		m.paused = m.paused || g.terms.Overflow == session.Pause
	case session.Renew:
		g.wantsToken = true
	case session.Started:
		if !m.starts {
			g.fail("terms", "started without a request")
		}
		m.starts = false
	case session.Pong:
		g.life.measured(e.Elapsed)
		m.pongs++
		m.askOwed = 0
	case session.Created, session.Resumed, session.Superseded:
		epoch := e.Epoch
		if e.Kind != session.Created || !g.detached.reserved {
			g.attachedEvent(e)
		}
		g.waitEnd = 0
		if e.Kind != session.Created {
			g.attachedWithStates(e)
		}
		if e.Reason, e.Epoch, e.Outage = "", 0, 0; e != m.attach {
			g.fail("I13", "the attach is reported as %+v, want %+v", e, m.attach)
		}
		if e.Kind == session.Resumed && epoch > 1 && !g.cfg.Hard && g.detached.waits == 0 {
			g.expectText(g.cfg.Notices.Resume)
		}
	case session.AskOwner:
		g.asksOwner()
	case session.Confirmed:
		g.noteConfirmed()
	case session.Left:
		g.leftEvent()
	case session.Stays:
		g.staysEvent()
	case session.UpstreamLost:
		g.lostEvent(e)
	case session.UpstreamBack:
		g.backEvent(e)
	case session.Replayed:
		if l := m.newest; l == nil || l.att.Epoch() != e.Epoch || l.tap.replaying() || !l.tap.hello || l.tap.announced {
			g.fail("I7", "the replay of epoch %d is reported as done", e.Epoch)
		}
		m.newest.tap.announced = true
	}
}

// dropped checks that the client is detached, and that the upstream is notified and
// answered in its place.
func (g *game) dropped(after []session.Event) {
	reason := ""
	for _, e := range after {
		if e.Kind == session.SessionEnded {
			reason = e.Reason
		}
	}
	if g.partial && reason != "no_progress" { // `part` is progress, too
		g.futile.over = false
	}
	if g.futile.over != (reason == "no_progress") {
		g.fail("section 6", "%d resumes came to nothing since %d, and the session ends with %q", g.futile.n, g.futile.since, reason)
	}
	replaced := g.core.NeedsUpstream()
	if g.cfg.Hard && reason == "" && !g.gives {
		g.forgetOutage()
	}
	g.clientDetached(replaced || g.leaving > 0 && g.cfg.Hard) // that one is closed, too
	if reason == "no_progress" || replaced {
		return
	}
	if g.leaving == 0 || !g.cfg.Hard || reason == "grace_over" {
		g.expectText(g.cfg.Notices.Detach)
	}
	if reason == "grace_over" {
		return
	}
	g.answerKept(g.core.Info().Acked)
	g.seen.unblocked = true
}

// checkReason checks that a session ends for a reason that occurred.
func (g *game) checkReason(reason string) {
	c, u := g.cli, g.ups
	g.w.cov.hit("end with " + reason)
	ok := true
	g.noteClosing(reason)
	switch reason {
	case "bye":
		ok = c.closing && (u.over || g.seen.upOver || !g.honest() || g.core.Info().Received == c.queued)
		if u.over && u.code != 0 && !u.closed {
			g.w.cov.hit("R22")
		}
	case "grace_over":
		ok = g.keeps() && g.detached.since > 0 && g.detached.waits == 0 && g.w.now >= g.graceEnd()
		if g.detached.rested > 0 {
			g.w.cov.hit("grace over after a dial")
		}
	case "too_fast":
		ok = g.cfg.Rate.End && g.cfg.Rate != session.Rate{End: true}
	case "idle_timeout":
		ok = g.cfg.Idle > 0 && g.w.now >= g.seen.data.Add(g.cfg.Idle)
	case "client_gone":
		ok = !g.keeps()
	case "upstream_closed":
		ok = u.over && u.code != 0 || u.closed
		g.checkTold()
	case "upstream_lost":
		g.checkTold()
		ok = u.over || g.out.over || g.outOfMemoryAtStart || g.seen.wasSilent || g.silence() || g.w.now >= u.doneAt.Add(unfinished)
	case "no_progress":
		ok = g.futile.over
	case "moved":
		ok = g.cause.reason == reason && g.line.owner != g
	case "window_exceeded":
		ok = g.cause.reason == reason || g.terms.Overflow == session.EndSession
	case "ended", "draining", "internal_error", "superseded":
		ok = g.cause.reason == reason
	case "protocol_error", "protocol_violation", "message_too_big", "invalid_utf8":
		ok = violations[c.rogue].reason == reason ||
			reason == "protocol_violation" && !g.cfg.Resumable // the session may pause within a message
	}
	if !ok {
		g.fail("I10", "the session ended with %q, for which there was no reason; sin %d", reason, c.rogue)
	}
}

// silence reports whether the upstream was silent for twice its heartbeat, although it
// was read.
func (g *game) silence() bool {
	hb := g.cfg.UpstreamHeartbeat
	return hb > 0 && g.w.now >= max(g.seen.upHeard, g.up.lastIn, g.seen.excused).Add(2*hb)
}

// A catch is what ends in the bytes that a reader passes to the core.
type catch struct {
	messages int
	acks     int
	acked    uint64 // the newest of them
	ping     uint64 // the newest
	wsPing   bool
	answer   bool
	pongs    []uint64 // their arguments
	closed   bool     // a plain client's Close
}

// catch finds what ends in the bytes read.
func (l *leg) catch() (c catch) {
	link := l.tap.link
	if link == nil {
		return c
	}
	for len(link.marks) > 0 && link.marks[0].end <= l.conn.in.got {
		switch m := link.marks[0]; m.kind {
		case markData:
			c.messages++
		case markAck:
			c.acks++
			c.acked = max(c.acked, m.n)
		case markPing:
			c.ping = m.n
		case markWSPing:
			c.wsPing = true
		case markAnswer:
			c.answer = true
		case markPong:
			c.pongs = append(c.pongs, m.n)
		case markClose:
			c.closed = true
		}
		link.marks = link.marks[1:]
	}
	return c
}

// clientRead passes to the core what l's reader has.
func (g *game) clientRead(l *leg) {
	c := l.catch()
	if l.stale() {
		g.inert("a read of an old connection", func() { g.core.Read(g.w.now, l.att, l.hand) })
		if g.seen.newest != l && c.messages > 0 {
			g.w.cov.hit("R4")
		}
		if g.seen.newest != l && c.acks > 0 {
			g.w.cov.hit("R5")
		}
		if g.cfg.PlainResume && len(c.pongs) > 0 {
			g.w.cov.hit("pong late")
		}
		return
	}
	l.lastIn = g.w.now
	before, full := g.core.Info(), g.full()
	if g.cfg.PlainResume {
		for _, n := range c.pongs {
			g.ponged = max(g.ponged, n)
		}
	}
	if c.acks > 0 {
		g.life.greeted()
	}
	for _, n := range c.pongs {
		g.life.answered(n)
	}
	g.life.composes()
	if c.closed {
		g.closesAt = g.w.now
	}
	g.feed(l)
	g.heard(l)
	g.checkViolation(l)
	if c.answer && g.core.State() != session.Ended {
		g.fail("section 6", "the client has answered the Close, and the session is %v", g.core.State())
	}
	if l.stale() || l.tap.link == nil {
		return
	}
	g.checkCatch(l, c, before)
	if full && !g.full() && c.acks > 0 {
		g.w.cov.hit("R13 ack")
	}
}

// feed passes to the core what l's reader has. While an application heartbeat waits
// there for room, it goes byte by byte: an ack makes room, and a Close after it in the
// same call would hide which client the heartbeat was taken from.
func (g *game) feed(l *leg) {
	size := len(l.hand)
	if g.awaitsHeartbeat() {
		size = 1
	}
	for b := l.hand; len(b) > 0; b = b[min(size, len(b)):] {
		g.life.reads(b[:min(size, len(b))])
		g.core.Read(g.w.now, l.att, b[:min(size, len(b)):min(size, len(b))])
		g.sync(false)
	}
}

// checkCatch checks that the core has processed what l's reader passed to it.
func (g *game) checkCatch(l *leg, c catch, before session.Info) {
	after := g.core.Info()
	switch {
	case (g.out.since > 0 || !g.ups.replaced && g.ups.ten.CloseMode() == session.Open) && after.Received != before.Received+l.unrepeated(c.messages):
		g.fail("I2", "%d messages read, received went from %d to %d, %d more repeats are to come", c.messages, before.Received, after.Received, l.repeats)
	case after.Acked != max(before.Acked, c.acked) && g.cfg.Resumable:
		g.fail("I5", "ack %d read, acked went from %d to %d", c.acked, before.Acked, after.Acked)
	}
	g.checkPongs(l, c)
	if l.tap.n < c.acked && !l.flying.up {
		g.fail("I5", "ack %d is let in, message %d is written", c.acked, l.tap.n)
	}
	if tokens := after.Tokens; g.keeps() && c.messages+c.acks+len(c.pongs) > 0 && tokens.Confirmed() < l.gen {
		g.fail("I4", "the client has spoken with generation %d, confirmed is %d", l.gen, tokens.Confirmed())
	}
	if l.flying.up && l.flying.taken > 0 && after.Acked > max(l.reported, before.Acked) {
		g.w.cov.hit("R14")
	}
	if c.ping > 0 {
		l.tap.pongDue, l.tap.pongAfter = c.ping, before.Written
	}
	l.tap.wsPongDue = l.tap.wsPongDue || c.wsPing
}

// full reports whether the upstream is not read because its messages have no room.
func (g *game) full() bool {
	return g.core.State() != session.Ended && !g.upOver() && !g.ups.replaced && !g.core.WantsRead(g.ups.ten) && !g.w.exhausted
}

// upOver records that the core knows of the upstream's end.
func (g *game) upOver() bool {
	return g.out.over || !g.ups.replaced && (g.ups.ten.CloseMode() != session.Open || g.ups.ten.Over())
}

func (g *game) clientWrote(l *leg, n int, full bool) {
	if !l.stale() {
		g.life.writes(n, full)
		g.life.composes()
		look := g.core.Wrote(g.w.now, l.att, n, full)
		l.reported = l.tap.n
		g.sync(false)
		if look {
			g.life.marks()
			g.look(l)
		}
		return
	}
	g.inert("a write to an old connection", func() { g.core.Wrote(g.w.now, l.att, n, full) })
}

func (g *game) clientGone(l *leg) {
	g.clientEnds(l, func() { g.core.Disconnected(g.w.now, l.att, "read failed") })
}

func (g *game) clientDeaf(l *leg) {
	g.clientEnds(l, func() { g.core.WriteFailed(g.w.now, l.att, "write failed") })
	if l.closeMode() < session.Shut {
		g.fail("I10", "a client that takes nothing is not given up")
	}
}

func (g *game) clientEnds(l *leg, f func()) {
	if !l.stale() {
		f()
		g.sync(false)
		if g.core.State() == session.Attached {
			g.fail("I3", "a client that has gone is attached")
		}
		return
	}
	before := g.snapshot()
	f()
	if g.down == l {
		before.closeMode = l.closeMode() // its own connection closes at once
	}
	g.unchanged(before, "the end of an old connection")
	if g.seen.newest != l {
		g.w.cov.hit("R3")
	}
}

// old checks that events of u, which the session has replaced, change nothing.
func (g *game) old(u *upstream, what string, met string, f func()) {
	g.inert(what+" of an old upstream", f)
	g.w.cov.hit(met)
}

func (g *game) upstreamGone(l *leg) {
	l.ups.gone = true
	f := func() { g.core.Disconnected(g.w.now, l.ups.ten, "read failed") }
	if l.ups.replaced {
		g.old(l.ups, "the end", "old end", f)
	} else {
		f()
		g.sync(false)
	}
	if l.ups.ten.CloseMode() < session.Shut {
		g.fail("I10", "an upstream that has gone is not given up")
	}
}

func (g *game) upstreamDeaf(l *leg) {
	f := func() { g.core.WriteFailed(g.w.now, l.ups.ten, "write failed") }
	if l.ups.replaced {
		g.old(l.ups, "the deafness", "old write error", f)
		return
	}
	f()
	g.sync(false)
}

func (g *game) upstreamWrote(l *leg, n int) {
	u := l.ups
	f := func() { g.core.Wrote(g.w.now, u.ten, n, false) }
	if l.flying.final && u.replaced {
		g.old(u, "a last write", "old last words", f)
		return
	}
	f()
	g.sync(false)
	if u.replaced {
		g.w.cov.hit("old write")
		u.tear()
	}
}

// checkTorn checks that a connection that has accepted half of a message is reset, and
// that any other gets a Close.
func (g *game) checkTorn(u *upstream) {
	switch f := u.ten.CloseMode(); {
	case u.torn && f < session.Shut:
		g.fail("I2", "upstream %d has half of a message, which goes to the next one, and is written on", u.no)
	case f == session.Open:
		g.fail("hard", "upstream %d is replaced and left open", u.no)
	}
}

// upstreamRead passes to the core what l's reader has.
func (g *game) upstreamRead(l *leg, p []byte) {
	u, n := l.ups, len(p)
	f := func() { g.core.Read(g.w.now, u.ten, p) }
	if u.replaced {
		g.old(u, "a read", "old read", f)
		return
	}
	before := g.core.Info()
	takes := n > 0 && before.State != session.Ended && !g.upOver()
	if takes {
		l.lastIn = g.w.now
		u.handed += uint64(n)
	}
	f()
	g.sync(takes)
	g.afterUpstreamRead(before)
}

// afterUpstreamRead checks that every complete message is numbered, or answered, unless
// it has to wait.
func (g *game) afterUpstreamRead(before session.Info) {
	after, u := g.core.Info(), g.ups
	if after.State == session.Ended {
		return
	}
	if len(u.items) > 0 && u.items[0].end <= u.handed && g.core.WantsRead(u.ten) {
		g.fail("I1", "a message of %d bytes was read and not taken in, %d are numbered", u.items[0].m.size, after.Sent)
	}
	if l := g.seen.newest; l != nil && !l.stale() && l.tap.replaying() && after.Sent > before.Sent {
		g.w.cov.hit("R6")
	}
}

// attached checks a successful resume; before is the session's state before it.
func (g *game) attached(t *attempt, before snapshot, end session.Time) {
	b, i := before.info, g.core.Info()
	if g.cfg.PlainResume {
		t.received = g.ponged // it can't state a count
	}
	if b.State == session.Attached {
		g.futile.ended(g.life, b.Acked)
		g.futile.over = false // only a disconnect checks it
	}
	if t.received > b.Acked {
		g.futile = futility{}
	}
	stays := i.State == session.Attached || g.cfg.PlainResume && i.Ending.Reason == "upstream_lost" // only the end announces it
	if !b.Tokens.Good(t.token.gen) || b.State == session.Ended || t.badN || t.received < b.Acked || i.Epoch != b.Epoch+1 || !stays {
		g.fail("I4", "generation %d with N %d was attached to %+v", t.token.gen, t.received, b)
	}
	if i.Tokens.Issued() != b.Tokens.Issued()+g.issues() || i.Tokens.Confirmed() != max(t.token.gen, b.Tokens.Confirmed()) {
		g.fail("I4", "tokens went from %+v to %+v by generation %d", b.Tokens, i.Tokens, t.token.gen)
	}
	if t.link == nil {
		g.stolen = true
	}
	base := max(b.Sent-uint64(b.BufferMessages), t.received)
	if g.cfg.Newest != nil {
		base = t.received // see attachedWithStates
	} else {
		g.seen.replayed += b.Sent - base
	}
	g.seen.attach = session.Event{Kind: session.Superseded, Replay: b.Sent - base, Lost: base - t.received, Moved: g.movedHere()}
	if b.State != session.Attached {
		g.seen.attach.Kind, g.seen.attach.Elapsed = session.Resumed, g.w.now.Sub(b.Detached)
	}
	if b.State == session.Attached {
		g.noteEdge(b.State)
	}
	if g.cfg.PlainResume {
		g.noteReturn(b, b.Sent-base)
		g.returns(t, base, base-t.received)
		g.ponged = base
	}
	if g.seen.paused || b.State == session.Attached && g.seen.full {
		g.w.cov.hit("R13 resume")
	}
	g.seen.paused = false
	for _, other := range g.tries {
		if other.token.gen == t.token.gen && other.stage == signing {
			g.w.cov.hit("R1")
		}
	}
	if b.State == session.Detached && g.w.now == end {
		g.w.cov.hit("R2 resume first")
	}
	if b.State == session.Attached {
		g.noteDetached()
	}
}

// noteAttached checks that l is the leg of the newest attach.
func (g *game) noteAttached(t *attempt, old *leg) {
	l := g.down
	l.tap.link = t.link
	if g.life != nil && g.life.leg == nil { // otherwise the session has ended before
		g.life.leg = l
	}
	if p := g.seen.newest; p != nil {
		if p.tap.link != nil && p.tap.link.hello == 0 && p.tap.link.lostAt {
			g.w.cov.hit("R12")
		}
		if q := g.seen.older; q != nil && q.flying.up && p.flying.up && old != nil {
			g.w.cov.hit("R15")
		}
	}
	g.noteSlow()
	g.seen.older, g.seen.newest = g.seen.newest, l
}

// noteDetached records the end of the newest attach.
func (g *game) noteDetached() {
	l := g.seen.newest
	if l == nil || !l.tap.replaying() {
		g.seen.replayCuts = 0
		return
	}
	g.seen.replayCuts++
	if g.seen.replayCuts >= 2 {
		g.w.cov.hit("R7")
	}
}

// noteInstant records an attempt that meets a session that has just ended.
func (g *game) noteInstant() {
	if i := g.core.Info(); i.State == session.Ended && i.Ending.At == g.w.now && i.Ending.Reason == "grace_over" {
		g.w.cov.hit("R2 expiry first")
	}
}

// checkRefusal checks that a client that follows the protocol, and whose token nobody
// else has, is refused only if its session has ended, or temporarily.
func (g *game) checkRefusal(t *attempt, ref *session.Refusal) {
	i := g.core.Info()
	if i.State == session.Ended && i.Tokens.Good(t.token.gen) {
		if ref.Code != i.Ending.Code {
			g.fail("section 6", "refused with %d, the session ended with %d", ref.Code, i.Ending.Code)
		}
		if elsewhere := i.Ending.Reason == "moved" || g.silentEnd; elsewhere && (ref.Code != 4504 || ref.Retry == 0) {
			g.fail("O1", "a session that may go on elsewhere refuses its client with %d", ref.Code)
		}
		return
	}
	if ref.Retry > 0 != (ref.Code == 4429 || ref.Code == 4504) {
		g.fail("section 6", "refused with %d, retry %v", ref.Code, ref.Retry)
	}
	if g.closesAt > 0 && ref.Code == 4404 { // it has sent a bye
		return
	}
	if ref.Code == 4504 && g.leaving > 0 {
		g.w.cov.hit("resume in a hand-off")
		return
	}
	if g.honest() && t.live() && ref.Code != 4429 {
		g.fail("I4", "an honest resume with generation %d and N %d was refused: %s; %+v", t.token.gen, t.received, ref.Text, i)
	}
}
