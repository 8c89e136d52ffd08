package sim

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"reseat/gateway/session"
)

// Large messages that come in parts, protocol section 3.

// partBytes is the size of a part that every hello names to a client that offers to take them.
const partBytes = 4096

// partWait is how long a client waits with `part`.
const partWait = 250 * time.Millisecond

type partsArg struct {
	Bytes *int  `json:"bytes"`
	Text  *bool `json:"text"`
	From  int   `json:"from"`
}

// partialArg is a member of hello: what need not be sent again.
type partialArg struct {
	Down int `json:"down"`
	Up   int `json:"up"`
}

// An assembly puts the parts of a message together.
type assembly struct {
	left int // 0: no message is coming in parts
	op   byte
	p    []byte
	held []byte // what the client has of the first message, as hello has said; nil: nothing, or that has begun
}

// announce begins a message; it returns why it may not.
func (m *assembly) announce(arg string, max int64) (bad string) {
	var v partsArg
	if err := json.Unmarshal([]byte(arg), &v); err != nil || v.Bytes == nil || v.Text == nil {
		return "parts " + arg
	}
	if m.left > 0 || *v.Bytes <= partBytes || int64(*v.Bytes) > max+1 {
		return "parts out of place, or of a message that needs none"
	}
	if v.From != len(m.held) {
		return fmt.Sprintf("parts go on from %d, and hello has said %d", v.From, len(m.held))
	}
	m.left, m.op, m.p, m.held = *v.Bytes-v.From, opBinary, append(m.p[:0], m.held...), nil
	if *v.Text {
		m.op = opText
	}
	return ""
}

// add adds a data message. It returns what has come whole, and why it may not come.
func (m *assembly) add(a arrival, taken bool) (whole arrival, ok bool, bad string) {
	switch {
	case len(m.held) > 0:
		return a, false, "hello says that a message is gone on with, and another comes"
	case m.left == 0 && taken && len(a.p) > partBytes:
		return a, false, "a large message comes whole"
	case m.left == 0:
		return a, true, ""
	case a.op != opBinary || len(a.p) == 0 || len(a.p) > partBytes || len(a.p) > m.left:
		return a, false, "no part of the message that was announced"
	}
	m.p = append(m.p, a.p...)
	if m.left -= len(a.p); m.left > 0 {
		return a, false, ""
	}
	return arrival{m.op, m.p}, true, ""
}

// offers draws whether a new connection offers to take parts.
func (c *client) offers() bool { return c.g.cfg.Resumable && c.g.w.chance(c.g.w.parts) }

// configureParts makes clients go on inside messages. Rules whose model must know what exactly is owed
// are off then.
func (g *game) configureParts() {
	if g.partial = g.cfg.Resumable && g.w.partial; !g.partial {
		return
	}
	g.cfg.Answer = 0
	if mix(g.w.seed, uint64(g.w.sessions))%3 == 0 { // what the client has a part of is often dropped
		g.cfg.Overflow, g.cfg.BufferMessages = session.DropOldest, 3
	}
}

// hold returns what the client holds of the first message that it lacks.
func (c *client) hold() []byte {
	if c.begunN != c.count+1 {
		return nil
	}
	return slices.Clone(c.begun)
}

// goesOn takes over what hello says of the message that the client holds a part of.
func (l *link) goesOn(h *partialArg) {
	c := l.c
	if (h != nil) != l.partial || h != nil && h.Down != 0 && h.Down != len(l.holds) {
		c.g.fail("parts", "hello.partial %+v, the client offered %v and holds %d", h, l.partial, len(l.holds))
	}
	if h == nil {
		return
	}
	if l.up = h.Up; l.up > 0 && l.next > c.sent {
		c.g.fail("parts", "hello says that %d bytes of message %d have come, the client has sent %d", l.up, l.next, c.sent)
	}
	if h.Down == 0 {
		c.begunN = 0
		return
	}
	c.g.w.cov.hit("message gone on with")
	l.parts.held = l.holds
}

// sendParts sends message n in parts. It goes on where the gateway says, or begins anew.
func (l *link) sendParts(n uint64, text bool, p []byte) {
	w, from := l.c.g.w, l.up
	l.up = 0
	switch {
	case from >= len(p):
		l.c.g.fail("parts", "hello says that %d bytes of message %d have come, which has %d", from, n, len(p))
	case from > 0 && w.chance(100):
		from = 0
	case from > 0:
		w.cov.hit("client's message gone on with")
	}
	l.sendControl(fmt.Sprintf(`parts {"bytes":%d,"text":%v,"from":%d}`, len(p), text, from))
	for p = p[from:]; len(p) > 0; {
		k := min(len(p), partBytes)
		if w.chance(100) {
			k = 1 + w.rng.IntN(k)
		}
		l.frame(0x80|opBinary, p[:k])
		if p = p[k:]; len(p) > 0 && w.chance(50) {
			l.ping()
		}
	}
}

// sayPart says how much of a message has come.
func (l *link) sayPart() {
	if l.partSince = 0; l == l.c.live && l.parts.left > 0 && !l.closed && !l.byeSent && !l.lostAt {
		l.sendControl(fmt.Sprint("part ", len(l.parts.p)))
	}
}

// parted keeps what has come of a large message, and says so. A client that does not go on inside messages
// acks once more, at most once a second: a long one is no silence.
func (l *link) parted() {
	if c, w := l.c, l.c.g.w; l.partial {
		c.begunN, c.begun = l.stated+l.lost+l.received+1, l.parts.p
		if l.partSince == 0 {
			l.partSince = w.now
		}
		if w.calm || w.chance(300) {
			l.sayPart()
		}
		return
	}
	if now := l.c.g.w.now; now >= l.partAcked.Add(time.Second) && l == l.c.live && !l.closed && !l.byeSent {
		l.partAcked = now
		l.sendAck(l.acked)
	}
}

// largeUnacked reports whether a large message may be numbered and not acked.
func (g *game) largeUnacked() bool {
	i, sums := g.core.Info(), g.nums.sums
	for n := i.Acked + 1; n <= min(i.Sent, g.nums.last()); n++ {
		if sums[n]-sums[n-1] > partBytes {
			return true
		}
	}
	return i.Sent > g.nums.last()
}

// clogs records that the line is clogged: a pong measures its queue, and not the round trip. Unless sure,
// the core may not know it.
func (p *pulse) clogs(sure bool) {
	p.clogged[late] = p.g.w.now
	if sure {
		p.clogged[early] = p.g.w.now
	}
}

// measures adds a round trip, of a ping that was sent then, unless the line was clogged since.
func (p *pulse) measures(took time.Duration, sent span) {
	switch t := &p.g.trip; {
	case sent[early] > p.clogged[late]:
		t.sample(took, true)
	case sent[late] <= p.clogged[early]:
		p.g.w.cov.hit("a pong on a clogged line")
	default:
		t.perhaps(took)
	}
}

// perhaps is sample for a measurement that the core need not take.
func (t *trip) perhaps(d time.Duration) {
	with := *t
	with.sample(d, true)
	t.low, t.high = min(t.low, with.low), max(t.high, with.high)
	t.perhapsPinged = t.perhapsPinged || !t.pinged
}
