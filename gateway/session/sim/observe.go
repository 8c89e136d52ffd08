package sim

import (
	"reseat/gateway/session"
)

// The calls of the core that tell something about a session as they are made:
// what they must and must not change, and which interleaving they are.

// events takes the core's events and holds them against what was seen.
func (g *game) events() {
	for _, e := range g.core.Events() {
		g.log("event", int64(e.Kind), int64(e.Epoch), e.Reason)
		g.event(e)
		if g.seen.overs > 0 && e.Kind != session.Over && e.Kind != session.Replayed {
			g.fail("I10", "event %d after the end", e.Kind)
		}
	}
}

func (g *game) event(e session.Event) {
	m := &g.seen
	switch e.Kind {
	case session.Over:
		m.overs++
		g.checkReason(e.Reason)
	case session.Dropped:
		g.noteGone()
	case session.Overflowed:
		m.paused = m.paused || g.cfg.Overflow == session.Pause
	case session.Renew:
		g.wantsToken = true
	case session.Created, session.Resumed, session.Superseded:
		if e.Reason, e.Epoch = "", 0; e != m.attach {
			g.fail("I13", "the attach is told as %+v, want %+v", e, m.attach)
		}
	case session.Replayed:
		if l := m.seat; l == nil || l.att.Epoch() != e.Epoch || l.tap.replaying() || !l.tap.hello || l.tap.told {
			g.fail("I7", "the replay of epoch %d is told as done", e.Epoch)
		}
		m.seat.tap.told = true
	}
}

// checkReason: a session ends for a reason that somebody has given.
func (g *game) checkReason(reason string) {
	c, u := g.cli, g.ups
	ok := g.w.cov.ended(reason)
	switch reason {
	case "bye":
		ok = c.closing && (u.over || g.seen.upOver || !g.honest() || g.core.Info().Received == c.queued)
		if u.over && u.code != 0 && !u.closed {
			g.w.cov.hit(R22)
		}
	case "grace_over":
		ok = g.cfg.Resumable
	case "client_gone":
		ok = !g.cfg.Resumable
	case "upstream_closed":
		ok = u.over && u.code != 0 || u.closed
	case "upstream_lost":
		ok = u.over || g.stillborn || g.cfg.UpstreamHeartbeat > 0 || g.slept || g.w.now >= u.doneAt.Add(unfinished)
	case "no_progress":
		ok = g.seen.gone >= 5
	case "window_exceeded":
		ok = g.cause.reason == reason || g.cfg.Overflow == session.EndSession
	case "ended", "draining", "internal_error":
		ok = g.cause.reason == reason
	case "protocol_error", "protocol_violation", "message_too_big", "invalid_utf8":
		ok = sins[c.rogue].reason == reason || reason == "protocol_violation" && !g.cfg.Resumable // it may rest in mid-message
	}
	if !ok {
		g.fail("I10", "the session ended with %q, for which there was no reason; sin %d", reason, c.rogue)
	}
}

// A catch is what ends in the bytes that a reader hands over.
type catch struct {
	messages int
	acks     int
	acked    uint64 // the newest of them
	ping     uint64 // the newest
	wsPing   bool
	answer   bool
}

// catch tells what ends in what was read.
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
		}
		link.marks = link.marks[1:]
	}
	return c
}

// clientRead hands over what l's reader has.
func (g *game) clientRead(l *leg) {
	c := l.catch()
	if l.stale() {
		before := g.snapshot()
		g.core.ClientRead(g.w.now, l.att, l.hand)
		g.unchanged(before, "a read of an old connection")
		if g.seen.seat != l && c.messages > 0 {
			g.w.cov.hit(R4)
		}
		if g.seen.seat != l && c.acks > 0 {
			g.w.cov.hit(R5)
		}
		return
	}
	l.lastIn = g.w.now
	before, full := g.core.Info(), g.full()
	g.core.ClientRead(g.w.now, l.att, l.hand)
	g.punished(l)
	if c.answer && g.core.State() != session.Ended {
		g.fail("section 6", "the client has answered the Close, and the session is %v", g.core.State())
	}
	if l.stale() || l.tap.link == nil {
		return
	}
	g.checkCatch(l, c, before)
	if full && !g.full() && c.acks > 0 {
		g.w.cov.hit(R13Ack)
	}
}

// checkCatch: what l's reader has handed over was taken in.
func (g *game) checkCatch(l *leg, c catch, before session.Info) {
	after := g.core.Info()
	switch {
	case !g.upOver() && after.Received != before.Received+uint64(c.messages):
		g.fail("I2", "%d messages read, received went from %d to %d", c.messages, before.Received, after.Received)
	case after.Acked != max(before.Acked, c.acked) && g.cfg.Resumable:
		g.fail("I5", "ack %d read, acked went from %d to %d", c.acked, before.Acked, after.Acked)
	}
	if l.tap.n < c.acked && !l.flying.up {
		g.fail("I5", "ack %d is let in, message %d is written", c.acked, l.tap.n)
	}
	if tokens := after.Tokens; g.cfg.Resumable && c.messages+c.acks > 0 && tokens.Confirmed() < l.gen {
		g.fail("I4", "the client has spoken with generation %d, confirmed is %d", l.gen, tokens.Confirmed())
	}
	if l.flying.up && l.flying.taken > 0 && after.Acked > max(l.reported, before.Acked) {
		g.w.cov.hit(R14)
	}
	if c.ping > 0 {
		l.tap.pongDue, l.tap.pongAfter = c.ping, before.Written
	}
	l.tap.wsPongDue = l.tap.wsPongDue || c.wsPing
}

// full: the upstream is not read since its messages have no room.
func (g *game) full() bool {
	return g.core.State() != session.Ended && !g.upOver() && !g.core.WantsUpstream(g.core.Upstream()) && !g.w.spent
}

// upOver: the core knows that nothing more comes from the upstream.
func (g *game) upOver() bool { return g.core.Upstream().Fate() != session.Open }

func (g *game) clientWrote(l *leg, n int, full bool) {
	if !l.stale() {
		g.core.ClientWrote(g.w.now, l.att, n, full)
		l.reported = l.tap.n
		return
	}
	before := g.snapshot()
	g.core.ClientWrote(g.w.now, l.att, n, full)
	g.unchanged(before, "a write to an old connection")
}

func (g *game) clientGone(l *leg, why string) {
	if !l.stale() {
		g.core.ClientGone(g.w.now, l.att, why)
		if g.core.State() == session.Attached {
			g.fail("I3", "a client that has gone is attached")
		}
		return
	}
	before := g.snapshot()
	g.core.ClientGone(g.w.now, l.att, why)
	g.unchanged(before, "the end of an old connection")
	if g.seen.seat != l {
		g.w.cov.hit(R3)
	}
}

func (g *game) upstreamGone() {
	g.core.UpstreamGone(g.w.now, g.core.Upstream(), "read failed")
	if g.core.Upstream().Fate() < session.Shut {
		g.fail("I10", "an upstream that has gone is not given up")
	}
	g.ups.gone = true
}

// afterUpstreamRead: every whole message is numbered, unless it has to wait.
func (g *game) afterUpstreamRead(before session.Info) {
	after := g.core.Info()
	if after.State == session.Ended {
		return
	}
	whole := g.ups.whole()
	if after.Sent > whole || g.core.WantsUpstream(g.core.Upstream()) && after.Sent != whole {
		g.fail("I1", "%d whole messages read, %d numbered", whole, after.Sent)
	}
	if l := g.seen.seat; l != nil && !l.stale() && l.tap.replaying() && after.Sent > before.Sent {
		g.w.cov.hit(R6)
	}
}

// attached: a resume has succeeded; before is how the session was.
func (g *game) attached(t *attempt, before snapshot) {
	b, i := before.info, g.core.Info()
	if !b.Tokens.Good(t.token.gen) || b.State == session.Ended || t.badN || t.received < b.Acked || i.Epoch != b.Epoch+1 || i.State != session.Attached {
		g.fail("I4", "generation %d with N %d was attached to %+v", t.token.gen, t.received, b)
	}
	if i.Tokens.Issued() != b.Tokens.Issued()+1 || i.Tokens.Confirmed() != max(t.token.gen, b.Tokens.Confirmed()) {
		g.fail("I4", "tokens went from %+v to %+v by generation %d", b.Tokens, i.Tokens, t.token.gen)
	}
	if t.link == nil {
		g.stolen = true
	}
	base := max(b.Sent-uint64(b.BufferMessages), t.received)
	g.seen.replayed += b.Sent - base
	g.seen.attach = session.Event{Kind: session.Superseded, Replay: b.Sent - base, Lost: base - t.received}
	if b.State == session.Detached {
		g.seen.attach.Kind, g.seen.attach.Took = session.Resumed, g.w.now.Sub(b.Detached)
	}
	if g.seen.paused || b.State == session.Attached && g.seen.full {
		g.w.cov.hit(R13Resume)
	}
	g.seen.paused = false
	for _, other := range g.tries {
		if other.token.gen == t.token.gen && other.gen > 0 {
			g.w.cov.hit(R1)
		}
	}
	if b.State == session.Detached && g.w.now == b.Detached.Add(g.cfg.Grace) {
		g.w.cov.hit(R2Resume)
	}
	if b.State == session.Attached {
		g.noteGone()
	}
}

// seated: l is the leg of the newest attach.
func (g *game) seated(t *attempt, old *leg) {
	l := g.down
	l.tap.link = t.link
	if p := g.seen.seat; p != nil {
		if p.tap.link != nil && p.tap.link.hello == 0 && p.tap.link.lostAt {
			g.w.cov.hit(R12)
		}
		if q := g.seen.older; q != nil && q.flying.up && p.flying.up && old != nil {
			g.w.cov.hit(R15)
		}
	}
	g.seen.older, g.seen.seat = g.seen.seat, l
}

// noteGone: the newest attach is over.
func (g *game) noteGone() {
	l := g.seen.seat
	g.seen.gone++
	if l == nil || !l.tap.replaying() {
		g.seen.cuts = 0
		return
	}
	g.seen.cuts++
	if g.seen.cuts >= 2 {
		g.w.cov.hit(R7)
	}
}

func (g *game) noteUpstreamOver(state session.State) {
	l := g.seen.seat
	switch {
	case state == session.Detached:
		g.w.cov.hit(R10Grace)
	case state == session.Attached && l != nil && l.tap.replaying() && l.tap.n == l.tap.stated+l.tap.lost:
		g.w.cov.hit(R10Accepted)
	case state == session.Attached && l != nil && l.tap.replaying():
		g.w.cov.hit(R10Replay)
	}
}

// noteInstant: an attempt meets a session that has ended in this very moment.
func (g *game) noteInstant() {
	if i := g.core.Info(); i.State == session.Ended && i.Ending.At == g.w.now && i.Ending.Reason == "grace_over" {
		g.w.cov.hit(R2Expiry)
	}
}

// checkRefusal: a client that keeps to the protocol, and has its token for
// itself, is refused only where its session has ended, or for a while.
func (g *game) checkRefusal(t *attempt, ref *session.Refusal) {
	i := g.core.Info()
	if i.State == session.Ended && i.Tokens.Good(t.token.gen) {
		if ref.Code != i.Ending.Code {
			g.fail("section 6", "refused with %d, the session ended with %d", ref.Code, i.Ending.Code)
		}
		return
	}
	if ref.Retry > 0 != (ref.Code == 4429) {
		g.fail("section 6", "refused with %d, retry %v", ref.Code, ref.Retry)
	}
	if g.honest() && t.live() && ref.Code != 4429 {
		g.fail("I4", "an honest resume with generation %d and N %d was refused: %s; %+v", t.token.gen, t.received, ref.Text, i)
	}
}
