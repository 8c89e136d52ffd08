package sim

import (
	"reseat/gateway/session"
)

// What the game servers are owed, in order: the client's messages that the core has
// accepted, and the gateway's own texts between them. The list belongs to the session
// and not to one connection: all of them together receive each message completely,
// once.

// An expectation is one of these.
type expectation struct {
	n    uint64    // the client's message; 0: a text of the gateway's
	text string    //
	to   *upstream // its only possible recipient

	// perhaps is set where one call has both found the upstream's end, which had waited for room, and had a reason
	// for the text: it is sent only if the reason came first.
	perhaps bool
}

// backlog are everything owed.
type backlog struct {
	list     []expectation
	received uint64 // number of the client's messages accepted
	got      uint64 // and received completely
}

func (d *backlog) expect(x expectation) { d.list = append(d.list, x) }

// front returns what u must receive next.
func (d *backlog) front(u *upstream) (x expectation, ok bool) {
	for len(d.list) > 0 {
		x = d.list[0]
		if x.to == nil || x.to == u {
			return x, true
		}
		d.pop()
	}
	return x, false
}

// owed returns what u must receive next, without what it need not.
func (d *backlog) owed(u *upstream) (x expectation, ok bool) {
	for x, ok = d.front(u); ok && x.perhaps; x, ok = d.front(u) {
		d.pop()
	}
	return x, ok
}

func (d *backlog) pop() {
	d.list = d.list[1:]
	if len(d.list) == 0 {
		d.list = nil
	}
}

// expectText adds a text of the gateway's for the current upstream.
func (g *game) expectText(text string) {
	if text != "" && g.seen.upOpen {
		g.expected.expect(expectation{text: text, to: g.ups, perhaps: g.ups.ten != nil && g.ups.ten.Over()})
	}
}

// noteReceived adds what the core has accepted.
func (g *game) noteReceived(i session.Info) {
	for g.expected.received < i.Received {
		g.expected.received++
		g.did.up++
		g.did.upBytes += int64(g.cli.says.message(g.expected.received).size)
		g.expected.expect(expectation{n: g.expected.received})
		g.seen.data = g.w.now
	}
}

// data checks a message that an upstream received.
func (u *upstream) data(a arrival) {
	g := u.g
	switch {
	case u.first != "":
		u.word(a, u.first)
		u.first = ""
		return
	case u.leg.flying.final:
		u.word(a, u.last)
		u.last = ""
		return
	}
	d, ok := g.expected.front(u)
	if ok && d.perhaps && string(a.p) != d.text {
		d, ok = g.expected.owed(u)
	}
	switch {
	case !ok:
		g.fail("I2", "upstream %d got opcode %d of %d bytes %.30q, and is owed nothing", u.no, a.op, len(a.p), a.p)
	case d.n > 0:
		u.message(a, d.n)
	default:
		u.word(a, d.text)
	}
	g.expected.pop()
}

// wordLeft returns how much of the frame of its first text u has not received yet.
func (u *upstream) wordLeft() int {
	if u.first == "" {
		return 0
	}
	return 6 + len(u.first) - (len(u.tap.buf) - u.tap.at)
}

// word checks a text of the gateway's.
func (u *upstream) word(a arrival, want string) {
	if a.op != opText || string(a.p) != want || want == "" {
		u.g.fail("words", "upstream %d got opcode %d, %.40q, want the text %.40q", u.no, a.op, a.p, want)
	}
}

// message checks a client message.
func (u *upstream) message(a arrival, n uint64) {
	g := u.g
	if m := g.cli.says.message(n); m.op != a.op || !m.equal(a.p) {
		g.fail("I2", "upstream %d got opcode %d of %d bytes for message %d, want opcode %d of %d bytes", u.no, a.op, len(a.p), n, m.op, m.size)
	}
	u.checkPromise(n)
	g.line.writes(g, u, n)
	g.expected.got++
	g.checkPace(u)
	u.received++
	u.ends = append(u.ends, u.conn.out.put-uint64(len(u.tap.buf)-u.tap.at))
}

// gotClose records that only a next upstream is owed anything.
func (u *upstream) gotClose() {
	g := u.g
	if g.silentEnd && g.leaving == 0 && !u.replaced {
		g.fail("F6", "upstream %d gets Close %d %q from a node that ends the session without a word", u.no, u.gotCode, u.gotText)
	}
	switch {
	case u.replaced && u.parting > 0:
		if u.last != "" || u.first != "" || (u.gotCode != u.parting || u.gotText != u.partText) && (u.byeText != "moved" || u.gotCode != 1001 || u.gotText != u.byeText) {
			g.fail("words", "upstream %d went away with %d and got Close %d %q; the text %q is missing", u.no, u.parting, u.gotCode, u.gotText, u.first)
		}
		return
	case u.replaced:
		if u.last != "" || u.first != "" || u.gotCode != 1001 || u.gotText != u.byeText {
			g.fail("words", "upstream %d is replaced and got Close %d %q, want %q; the texts %q and %q are missing", u.no, u.gotCode, u.gotText, u.byeText, u.first, u.last)
		}
		return
	case g.leaving > 0 && (g.core.State() != session.Ended || u.gotText == "moved"),
		u.stays && u.gotText == "moved": // what waits was for the next one, which does not come: it has ended the session
		if u.first != "" || u.gotCode != 1001 || u.gotText != "moved" {
			g.fail("words", "upstream %d got Close %d %q in a hand-off; word %q", u.no, u.gotCode, u.gotText, u.first)
		}
		return
	}
	if d, ok := g.expected.owed(u); ok || u.first != "" {
		g.fail("I2", "upstream %d got Close, and message %d %q was admitted before; word %q", u.no, d.n, d.text, u.first)
	}
}

// noteParted checks whether the session has replaced its upstream.
func (g *game) noteParted() {
	u, lost := g.ups, g.out.since > 0
	if u.replaced || !g.core.NeedsUpstream() && !lost && !g.gives {
		return
	}
	moved := g.gives || !lost && g.mistold()
	if !g.cfg.Hard && !lost && !moved && !g.forgoes {
		g.fail("hard", "the session has replaced upstream %d, which must stay", u.no)
	}
	u.byeText = "disconnected"
	if g.borrowing() {
		g.w.cov.hit("replaced during a write to an older one")
	}
	u.replaced = true
	switch {
	case lost:
		u.broken = u.parting == 0
		g.seen.blocked = false
	case moved:
		g.partsMoved(u)
	default:
		u.last = g.cfg.Notices.Detach
	}
	if len(u.items) > 0 && u.items[0].begin < u.handed && u.handed < u.items[0].end {
		g.w.cov.hit("forgotten")
	}
	u.items = nil
	if u.leg.flying.up && !u.leg.flying.final {
		g.w.cov.hit("replaced while writing")
	} else {
		u.tear()
	}
}

// tear records that u gets nothing more from the queue. If it is within a message, its
// connection is useless, and the key of that frame is used up.
func (u *upstream) tear() {
	if u.torn = u.tap.torn() && !u.ownFrame(); u.torn {
		u.g.w.cov.hit("torn")
		if n := u.g.expected.got; u.g.seen.tornAt == n+1 {
			u.g.w.cov.hit("torn again")
		} else {
			u.g.seen.tornAt = n + 1
		}
		if h, ok, _ := parseHead(u.tap.buf[u.tap.at:]); ok {
			u.g.freshKey(h.key)
		}
	}
	u.g.checkTorn(u)
}

// ownFrame reports whether the incomplete frame is the gateway's own and may be
// continued: its first text, or a control frame outside the queue.
func (u *upstream) ownFrame() bool {
	rest := u.tap.buf[u.tap.at:]
	return u.first != "" || len(rest) > 0 && rest[0]&15 >= opClose && u.ten.CloseMode() < session.Shut
}

// finished checks that everything for u is written.
func (u *upstream) finished() {
	switch {
	case u.tap.torn():
		u.g.fail("I2", "upstream %d is closed cleanly within a message", u.no)
	case u.replaced && !u.closed:
		u.g.fail("I10", "upstream %d is left in order without a Close", u.no)
	}
}

// settled reports whether no writer has anything left for the current upstream, so that
// everything owed has been sent.
func (g *game) settled() {
	u, l := g.ups, g.up
	if u.replaced || l.writing || l.closed || l.failing || l.closeMode() != session.Open || g.borrowing() || g.leaving > 0 {
		return
	}
	d, ok := g.expected.owed(u)
	if ok && g.cfg.Rate != (session.Rate{}) {
		g.w.cov.hit("paced") // it waits for its turn
		return
	}
	if ok || u.first != "" {
		g.fail("I2", "nothing is written to upstream %d, and it is owed message %d %q; word %q", u.no, d.n, d.text, u.first)
	}
}

// checkPace checks that the game servers receive no more than the client's rate allows:
// a second's worth at once and, after each resume, what may have to be resent. At the
// end everything may be sent.
func (g *game) checkPace(u *upstream) {
	r := g.cfg.Rate
	if r.Messages == 0 || u.ten.CloseMode() != session.Open {
		return
	}
	i := g.core.Info()
	most := r.Messages*(g.w.now.Sub(i.Created).Seconds()+1+float64(g.bursts)) + float64(1+(i.Epoch)*windowMessages)
	if got := g.expected.got - g.base.up; float64(got) > most {
		g.fail("rate", "%d messages went out, at most %.1f may", got, most)
	}
}

// borrowing reports whether an older upstream's write of the queue is still in flight.
func (g *game) borrowing() bool {
	for _, l := range g.uplegs {
		if l.ups.replaced && l.flying.up && !l.flying.final {
			return true
		}
	}
	return false
}

// sync records what the core has just done. It follows every call.
func (g *game) sync(read bool) {
	i := g.core.Info()
	if i.State != g.state {
		g.noteEdge(g.state)
	}
	g.noteUnread()
	g.noteWanted()
	g.noteReceived(i)
	g.events()
	g.number(i, read)
	g.noteParted()
	g.seen.base, g.seen.held, g.seen.heldBytes = i.Sent-uint64(i.BufferMessages), i.BufferMessages, i.BufferBytes
	g.seen.upOpen = !g.ups.replaced && !g.upOver()
}
