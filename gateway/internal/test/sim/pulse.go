package sim

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"reseat/gateway/session"
)

// When a silent client is dead, protocol section 5, derived only from what passed
// between the core and its driver. The model detects a core that detaches too early or
// too late, or that sends a ping too few or too many.
//
// Most of it is known exactly. Where it is not (the core may have composed a ping while
// a write was in flight, for example), there are two answers, the early and the late
// one, and the core must lie between them.

const (
	pingEvery = 30 * time.Second // max interval, so that the round trip is known
	pingFirst = 15 * time.Second // the same before the first pong
	leastWait = 5 * time.Second  // for an answer, while the round trip is unknown
	manyPings = 8                // unanswered pings that the core remembers
)

// A span is the earliest and the latest time of an event.
type span [2]session.Time

const (
	early = 0
	late  = 1
)

func exactly(t session.Time) span { return span{t, t} }

func (s span) exact() bool { return s[early] == s[late] }

// A ping is a ping that the core has sent to a client.
type ping struct {
	sent span
	arg  string // "": it has not been seen yet
	end  uint64 // offset of its end in what is written
}

// A pulse is what is known about the activity of one client connection, from its attach
// on.
type pulse struct {
	g       *game
	leg     *leg // nil until the driver has it
	since   session.Time
	resumed bool
	ackedAt uint64 // acked by the client before the attach

	// Sent to the client.
	sight    walker       // over what was reported as written
	dataFrom uint64       // offset at which the first message starts; zero: none yet
	asked    session.Time // when the core was last asked for output
	sent     session.Time // when bytes were last accepted, or the heartbeat was due
	unacked  []unacked
	reported uint64 // the newest message that was reported as written

	// Pings.
	open    []*ping // unanswered, oldest first
	unseen  []*ping // due, and not handed out yet
	known   uint64  // offset of the end of the newest that was handed out
	through uint64  // offset of the end of the write that contained the newest ping
	probes  []span  // when each was sent since the last activity
	pinged  span    // when the newest was sent
	last    string  // the argument of the newest pong,
	lastAt  session.Time
	expect  []span // send times of pings whose pongs were read, and whose events are still to come
	crowded bool   // it is unknown which are open, for example because there were more than the core remembers
	may     bool   // the core may have composed one since it was last asked

	// Received from the client.
	heard  span
	spoken session.Time // when its own bytes last arrived
	words  walker
	began  session.Time // when the first part of a message arrived; zero: none
	spoke  bool         // a whole message has arrived, or a Close frame
	greets bool         // the first ack has arrived

	clogged span // when the line was last seen to be clogged

	socket socketPulse
}

// An unacked is a message that was written and not acked.
type unacked struct {
	n  uint64
	at session.Time
}

// A socketPulse is what the driver has reported about the socket.
type socketPulse struct {
	known   bool // acked is
	acked   uint64
	full    bool         // the last write was short
	waits   bool         // the write in flight waits for it
	waiting session.Time // since when
	refuses bool         // and its state shows that it is full
	drained session.Time // when it last accepted bytes, with more queued
	rtt     time.Duration
}

// newPulse returns the pulse of the client that is being attached.
func (g *game) newPulse(resumed bool) *pulse {
	now := g.w.now
	return &pulse{g: g, since: now, resumed: resumed, ackedAt: g.core.Info().Acked, sent: now, asked: now, heard: exactly(now), spoken: now}
}

// alive reports whether p is the attached client's.
func (p *pulse) alive() bool {
	return p != nil && p.leg != nil && !p.leg.stale() && p.g.closesAt == 0
}

// hear records activity; unless sure, it may or may not count.
func (p *pulse) hear(sure bool) {
	p.heard[late] = p.g.w.now
	if !sure {
		return
	}
	p.heard[early] = p.g.w.now
	p.probes = p.probes[:0]
}

// lively returns the start of the client's silence.
func (p *pulse) lively(b int) session.Time {
	t := max(p.heard[b], p.g.seen.excused)
	if !p.g.cfg.Resumable || b == late { // one that is crowded begins anew with some Tick
		t = max(t, p.g.seen.unread)
	}
	return t
}

// unsettled reports whether the core may have composed output that was not requested
// yet: a write is in flight, or a reader is processing its input.
func (p *pulse) unsettled() bool { return p.leg != nil && (p.leg.writing || p.g.up.owner == p.leg) }

// hidden returns the earliest time at which a ping may have been composed that was not
// handed out yet; zero: none can have been.
func (p *pulse) hidden() session.Time {
	if p.may && p.unsettled() {
		return p.asked
	}
	return 0
}

// hiding returns the max number of pings composed and not handed out yet.
func (p *pulse) hiding() int {
	from, every := p.hidden(), p.g.cfg.Heartbeat
	if from == 0 {
		return 0
	}
	if half := p.g.cfg.Answer / 2; half > 0 {
		every = min(every, half)
	}
	return 2 + int(p.g.w.now.Sub(from)/every) // the first for the ack of a full window
}

// oldest returns when the oldest unanswered thing was sent.
func (p *pulse) oldest(b int) (t session.Time) {
	if len(p.unacked) > 0 {
		t = p.unacked[0].at
	}
	for _, q := range p.open {
		t = earlier(t, q.sent[b])
	}
	if b == early {
		t = earlier(t, p.hidden())
	}
	return t
}

// clock returns since when the client owes an answer and is silent; zero: it owes none.
func (p *pulse) clock(b int) session.Time {
	t := p.oldest(b)
	if t == 0 {
		return 0
	}
	return max(t, p.lively(b))
}

// probe returns when the first ping since the last activity was sent; zero: none was.
// One at the same instant does not count.
func (p *pulse) probe(b int) (t session.Time) {
	lively := p.lively(b)
	for _, s := range p.probes {
		switch {
		case b == early && s[late] > lively:
			t = earlier(t, max(s[early], lively))
		case b == late && s[early] > lively:
			t = earlier(t, s[late])
		}
	}
	if h := p.hidden(); b == early && h > 0 {
		t = earlier(t, max(h, lively))
	}
	return t
}

// dead returns when the client is dead.
func (p *pulse) dead(b int) session.Time {
	return earlier(p.unanswered(b), p.lively(b).Add(2*p.g.cfg.Heartbeat))
}

// unanswered returns when it is dead because it owes an answer; zero: never. Once the
// upstream has ended it may have been sent its last message.
func (p *pulse) unanswered(b int) session.Time {
	g, since, probe := p.g, p.clock(b), p.probe(b)
	if g.cfg.Answer == 0 || since == 0 || probe == 0 || b == late && (g.upOver() || p.crowded) {
		return 0
	}
	rtt := g.core.Info().RTT
	if rtt == 0 {
		rtt = p.socket.rtt
	}
	return max(since.Add(p.answerTime()), probe.Add(4*rtt))
}

// answerTime returns how long an answer may take, apart from round trips.
func (p *pulse) answerTime() time.Duration {
	if p.g.core.Info().RTT > 0 {
		return p.g.cfg.Answer
	}
	return p.firstAnswerTime() << min(p.g.trip.silent, 3)
}

// firstAnswerTime is answerTime for the first connection.
func (p *pulse) firstAnswerTime() time.Duration {
	c := &p.g.cfg
	if c.Resumable {
		return max(c.Answer, leastWait)
	}
	return min(max(c.Answer, leastWait), c.Heartbeat+c.Answer)
}

// quiet returns after which silence a ping is due.
func (p *pulse) quiet() time.Duration {
	if p.g.cfg.Answer == 0 || p.g.core.Info().RTT > 0 {
		return p.g.cfg.Heartbeat
	}
	return max(p.g.cfg.Heartbeat+p.g.cfg.Answer-p.firstAnswerTime(), 0)
}

// exact reports whether both answers agree.
func (p *pulse) exact() bool {
	ok := !p.g.trip.perhapsPinged && p.heard.exact() && p.lively(early) == p.lively(late) && p.pinged.exact() && p.hidden() == 0 && !p.crowded
	for _, q := range p.open {
		ok = ok && q.sent.exact()
	}
	return ok
}

// pingDue returns when the next ping must be sent, if that is known exactly.
func (p *pulse) pingDue() session.Time {
	g, pinged := p.g, p.pinged[late]
	half := g.cfg.Answer / 2
	t := p.sent.Add(g.cfg.Heartbeat)
	if p.began > 0 && half > 0 {
		t = earlier(t, max(p.sent, pinged, p.began).Add(half))
	}
	if !g.core.WantsRead(p.leg.att) {
		return t
	}
	if since := p.clock(late); since > 0 && half > 0 {
		t = earlier(t, max(since, pinged).Add(half))
	}
	if p.probe(late) == 0 {
		quiet := p.lively(late).Add(p.quiet())
		if pinged > 0 {
			quiet = max(quiet, pinged.Add(half))
		}
		t = earlier(t, quiet)
	}
	every := pingEvery
	if !g.trip.pinged && len(p.open) == 0 {
		every = pingFirst
	}
	return earlier(t, max(p.since, pinged).Add(every))
}

// compose records that the core has composed a ping.
func (p *pulse) compose(sent span) {
	q := &ping{sent: sent}
	p.open, p.unseen, p.probes = append(p.open, q), append(p.unseen, q), append(p.probes, sent)
	p.pinged = sent
	if !sent.exact() || p.g.largeUnacked() {
		p.clogs(false)
	}
	p.crowded = p.crowded || len(p.open) > manyPings
}

// ticks runs before a Tick, and the function that it returns after it.
func (p *pulse) ticks() (after func()) {
	if !p.alive() {
		return func() {}
	}
	over := p.g.upOver()                                                  // in that case it is unknown whether the last frame is composed
	sure, blocked := p.exact() && !over, !p.g.core.WantsRead(p.g.ups.ten) // and may wait for an ack
	due := sure && p.g.w.now >= p.pingDue()
	return func() {
		if !p.alive() {
			return
		}
		if due {
			p.compose(exactly(p.g.w.now))
		}
		p.may = p.may || !sure || blocked
		if !over && p.g.w.now >= p.sent.Add(p.g.cfg.Heartbeat) {
			p.sent = p.g.w.now // once per interval, accepted or not
		}
	}
}

// asks checks the core's Ping: a ping, unless one is in flight.
func (g *game) asks() bool {
	asked := g.core.Ping(g.w.now)
	if p := g.life; asked && p.alive() {
		if p.hidden() > 0 || p.crowded {
			p.may = true
		} else if len(p.open) == 0 {
			p.compose(exactly(g.w.now))
		}
	}
	g.sync(false)
	g.settle()
	return asked
}

// handed examines what the core has just handed out: every frame of its own that is
// due.
func (p *pulse) handed(bufs [][]byte) {
	var fresh []ping
	resumable := p.g.cfg.Resumable
	w := p.sight
	see := func(f walked) {
		if p.dataFrom == 0 && f.data(resumable) {
			p.dataFrom = f.begin + 1
		}
		if arg, ok := f.isPing(resumable); ok && f.end > p.known {
			p.known = f.end
			fresh = append(fresh, ping{arg: arg, end: f.end})
		}
	}
	for _, b := range bufs {
		w.walk(b, see)
	}
	if f, ok := w.present(); ok && p.dataFrom == 0 && f.data(resumable) {
		p.dataFrom = f.begin + 1
	}
	p.match(fresh)
	p.asked, p.may = p.g.w.now, false
}

func (f walked) isPing(resumable bool) (arg string, ok bool) {
	if !resumable {
		return string(f.lead), f.op == opPing
	}
	rest, ok := bytes.CutPrefix(f.lead, []byte("\x10ping"))
	arg = strings.TrimPrefix(string(rest), " ")
	return arg, ok && f.op == opText && !strings.HasPrefix(arg, "upstream") // that asks whether the verb was heard, and nothing else
}

// match compares the pings handed out with those that were due.
func (p *pulse) match(fresh []ping) {
	if len(fresh) < len(p.unseen) {
		p.g.fail("section 5", "no ping is sent to the client, which was due at %d", p.unseen[len(fresh)].sent[late])
	}
	if more := len(fresh) - len(p.unseen); more > 0 {
		p.checkUnforeseen(more)
		when := span{p.asked, p.g.w.now}
		if len(p.unseen) > 0 { // it is unknown which of them is which
			for _, q := range p.unseen {
				q.sent = when
			}
			for i := range p.probes {
				p.probes[i][early] = min(p.probes[i][early], p.asked)
			}
		}
		for range more {
			p.compose(when)
		}
	}
	for i, q := range p.unseen {
		q.arg, q.end = fresh[i].arg, fresh[i].end
		if q.arg == p.last && q.sent[early] <= p.lastAt { // pings with the same count look alike
			p.crowded = true
		}
	}
	p.unseen = p.unseen[:0]
}

// checkUnforeseen checks that a ping that is not due by time asks for the ack of a full
// window, or for a plain client's count.
func (p *pulse) checkUnforeseen(n int) {
	g := p.g
	if !p.may && !g.partial && !g.cfg.PlainResume && !g.seen.full && g.core.WantsRead(g.ups.ten) {
		g.fail("section 5", "%d pings are sent to the client, and none is due: %s", n, p)
	}
}

// composes records whether the core may now compose a ping that the model can't
// foresee.
func (p *pulse) composes() {
	if g := p.g; g.partial || g.cfg.PlainResume || g.seen.full || !g.core.WantsRead(g.ups.ten) {
		p.may = true
	}
}

// waits records that the new write waits for the socket.
func (p *pulse) waits() { p.socket.waits, p.socket.waiting = true, p.g.w.now }

// waitsLong reports whether the write in flight has waited so long that the socket must
// be full.
func (p *pulse) waitsLong() bool {
	every := p.g.cfg.Heartbeat
	if p.g.cfg.Answer > 0 {
		every = min(every, p.g.cfg.Answer)
	}
	return p.socket.waits && p.g.w.now.Sub(max(p.socket.waiting, p.pinged[late])) > every/4+2*maxLateness
}

// writes processes what is about to be reported as written.
func (p *pulse) writes(n int, full bool) {
	now, k := p.g.w.now, &p.socket
	if n > 0 {
		p.sent = now
		if k.full || k.waits {
			p.hear(k.full || k.refuses)
		}
	}
	if full || k.full || k.waits {
		p.clogs(full || k.full || k.refuses)
	}
	k.full, k.waits, k.refuses = full, false, false
	p.leg.each(0, n, func(b []byte) { p.sight.walk(b, nil) })
	t := p.leg.tap
	p.reported = max(p.reported, t.stated+t.lost)
	for acked := p.g.core.Info().Acked; p.reported < t.n; {
		if p.reported++; p.g.cfg.Resumable && p.reported > acked {
			p.unacked = append(p.unacked, unacked{p.reported, now})
		}
	}
}

// marks records that the driver reads the socket's state because a ping was just
// written. What was acknowledged before the ping says nothing about the ping, unless
// the socket was full.
func (p *pulse) marks() { p.through, p.socket.known = p.sight.at, p.socket.full }

// looks processes the socket's state before the core gets it.
func (p *pulse) looks(st session.SocketState) {
	k, g := &p.socket, p.g
	takes := k.known && st.Acked > k.acked
	k.known, k.acked, k.rtt = true, st.Acked, st.RTT
	if takes && st.Queued > 0 {
		k.drained = g.w.now
	}
	sure := k.full || k.refuses
	if q := p.newest(); q != nil {
		sure = sure || st.Acked < q.end
	}
	switch {
	case st.Unread:
		p.hear(true)
	case takes && (sure || k.waits || st.Acked < p.through):
		p.noteDrained(sure)
		p.hear(sure)
	default:
		k.refuses = k.refuses || p.waitsLong()
	}
}

// newest returns the newest ping that was written and is unanswered; nil: none.
func (p *pulse) newest() *ping {
	for i := len(p.open) - 1; i >= 0; i-- {
		if q := p.open[i]; q.end > 0 && q.end <= p.through {
			return q
		}
	}
	return nil
}

// noteDrained records that a client that sends nothing accepts bytes.
func (p *pulse) noteDrained(sure bool) {
	g := p.g
	if sure && g.w.now >= p.spoken.Add(g.cfg.Heartbeat) {
		g.w.cov.hit("drained slowly")
	}
	if owes := p.oldest(late); sure && owes > 0 && g.cfg.Answer > 0 && p.probe(late) > 0 && g.w.now >= max(owes, p.spoken).Add(g.cfg.Answer) {
		g.w.cov.hit("R26")
	}
}

// reads processes the client's input, before the core does.
func (p *pulse) reads(b []byte) {
	p.hear(true)
	if p.spoken = p.g.w.now; !p.words.between() {
		p.clogs(true)
	}
	whole := false
	p.words.walk(b, func(f walked) {
		whole = whole || f.op < opClose && f.fin
		p.spoke = p.spoke || f.op < opClose && f.fin || f.op == opClose
	})
	switch {
	case p.words.between():
		p.began = 0
	case p.began == 0 || whole:
		p.began = p.g.w.now
	}
}

// answered processes a pong: it answers the newest ping with the same argument, and
// those before it.
func (p *pulse) answered(n uint64) {
	p.crowded = p.crowded || len(p.open)+p.hiding() > manyPings
	arg := strconv.FormatUint(n, 10)
	same := func(q *ping) bool { return q.arg == arg }
	first := slices.IndexFunc(p.open, same)
	if first < 0 {
		if h := p.hidden(); h > 0 && arg == p.last { // it may be taken for a ping with the same count that was not handed out yet
			p.crowded = true
			p.expect = append(p.expect, span{h, p.g.w.now})
		}
		return
	}
	last := first
	for last+1 < len(p.open) && same(p.open[last+1]) {
		last++
	}
	p.expect = append(p.expect, span{p.open[first].sent[early], p.open[last].sent[late]})
	p.open, p.last, p.lastAt = p.open[last+1:], arg, p.g.w.now
}

// measured checks the core's event for a pong that was read.
func (p *pulse) measured(took time.Duration) {
	at := p.g.w.now.Add(-took)
	for len(p.expect) > 0 {
		sent := p.expect[0]
		p.expect = p.expect[1:]
		switch {
		case at >= sent[early] && at <= sent[late]:
			p.measures(took, sent)
			return
		case !p.crowded: // otherwise that one was forgotten
			p.g.fail("section 5", "a round trip of %v is reported, and the ping was sent at %d", took, sent)
		}
	}
	p.g.fail("section 5", "a round trip of %v is reported, and no pong was read", took)
}

// acks records that the client has acked up to n.
func (p *pulse) acks(n uint64) {
	for len(p.unacked) > 0 && p.unacked[0].n <= n {
		p.unacked = p.unacked[1:]
	}
}

// greeted records the first ack, the answer to hello.
func (p *pulse) greeted() {
	if !p.greets && p.g.cfg.Resumable {
		p.greets = true
		p.g.trip.sample(p.g.w.now.Sub(p.since), false)
	}
}

// checkSilent checks that a client detached as silent is dead.
func (g *game) checkSilent() {
	p := g.life
	dropped := !g.cfg.Resumable && g.upOver() // output was queued for the upstream: it is unknown since when the client is read again
	switch {
	case g.w.now < p.dead(early) && !dropped:
		g.fail("section 5", "a client was dropped as silent that is not dead before %d: %s", p.dead(early), p)
	case !g.cfg.Resumable && !g.seen.read && !dropped:
		g.fail("section 5", "a client was dropped as silent that is not read")
	}
	if g.w.now < p.lively(early).Add(2*g.cfg.Heartbeat) {
		g.w.cov.hit("answer overdue")
		if p.leg.conn.out.proxy {
			g.w.cov.hit("answer overdue behind a proxy")
		}
	}
}

// checkWoken checks that the core wants to be called when something is due to the
// client, or the client is dead.
func (g *game) checkWoken(i session.Info) {
	p := g.life
	if !p.alive() {
		if i.State != session.Attached && (i.Heard < g.seen.closedHeard[early] || i.Heard > g.seen.closedHeard[late]) {
			g.fail("I13", "heard at %d is reported for a client that was heard at %d", i.Heard, g.seen.closedHeard)
		}
		return
	}
	if i.Heard < p.heard[early] || i.Heard > p.heard[late] {
		g.fail("I13", "heard at %d is reported for a client that was heard at %d", i.Heard, p.heard)
	}
	if p.unsettled() { // a ping composed in this call postpones the next one
		p.composes()
	}
	var want session.Time
	if g.core.WantsRead(p.leg.att) {
		want = p.dead(late)
	}
	if p.exact() && !g.upOver() {
		want = earlier(want, p.pingDue())
	}
	if next := g.core.Next(); want > 0 && (next == 0 || next > want) {
		g.fail("timers", "Next is %d, and something is due at %d: %s", next, want, p)
	}
}

// String describes the pulse, for a failure's report.
func (p *pulse) String() string {
	return fmt.Sprintf("attached at %d, heard at %d, sent to at %d, pinged at %d, since then at %d, %d open, owes since [%d %d], a part of a message since %d, ping due %d, dead [%d %d], round trip %v, answer %v, exact %v",
		p.since, p.heard, p.sent, p.pinged, p.probes, len(p.open), p.clock(early), p.clock(late), p.began, p.pingDue(), p.dead(early), p.dead(late), p.g.core.Info().RTT, p.g.cfg.Answer, p.exact())
}

// A trip bounds the smoothed round trip to a client, over all connections of a session.
// The core may choose how fast it follows, within bounds.
type trip struct {
	low, high time.Duration
	pinged    bool // a ping has measured it
	silent    int  // connections in a row that ended as silent before it was known
	// perhapsPinged: perhaps a ping has, and pinged is false.
	perhapsPinged bool
}

// sample adds a measurement. The first ping replaces the estimate from hello.
func (t *trip) sample(d time.Duration, byPing bool) {
	d = max(d, 1)
	if t.high == 0 || byPing && !t.pinged && !t.perhapsPinged {
		t.low, t.high = d, d
	} else {
		toward := func(from time.Duration, sixteenths time.Duration) time.Duration {
			return from + (d-from)*sixteenths/16
		}
		low := min(toward(t.low, 1), toward(t.low, 12), toward(t.high, 1), toward(t.high, 12))
		t.low, t.high = low, max(toward(t.low, 1), toward(t.low, 12), toward(t.high, 1), toward(t.high, 12))
	}
	if byPing && t.perhapsPinged { // or it replaces the estimate
		t.low, t.high, t.perhapsPinged = min(t.low, d), max(t.high, d), false
	}
	t.pinged = t.pinged || byPing
}

// check compares it with the core's value.
func (t *trip) check(g *game) {
	const rounding = 16
	rtt := g.core.Info().RTT
	if rtt < t.low-rounding || rtt > t.high+rounding || rtt == 0 && t.low > 0 || rtt > 0 && t.high == 0 {
		g.fail("section 5", "the round trip is %v, and must be from %v to %v", rtt, t.low, t.high)
	}
	t.low, t.high = rtt, rtt
	if rtt > 0 {
		t.silent = 0
	}
}
