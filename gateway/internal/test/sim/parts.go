package sim

import (
	"encoding/json"
	"time"
)

// Large messages that come in parts, protocol section 3.

// partBytes is the size of a part that every hello names to a client that offers to take them.
const partBytes = 4096

type partsArg struct {
	Bytes *int  `json:"bytes"`
	Text  *bool `json:"text"`
}

// An assembly puts the parts of a message together.
type assembly struct {
	left int // 0: no message is coming in parts
	op   byte
	p    []byte
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
	m.left, m.op, m.p = *v.Bytes, opBinary, m.p[:0]
	if *v.Text {
		m.op = opText
	}
	return ""
}

// add adds a data message. It returns what has come whole, and why it may not come.
func (m *assembly) add(a arrival, taken bool) (whole arrival, ok bool, bad string) {
	switch {
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

// parted acks once more while a large message comes, at most once a second: a long one is no silence.
func (l *link) parted() {
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
