package sim

import (
	"strconv"

	"reseat/gateway/newest"
	"reseat/gateway/session"
)

// Messages that are states: --newest. Which of them are replaced is up to the core, within limits that are checked here: a
// message may be skipped only if it is a state and a newer one of its key is numbered, what is
// said and what is held agree with the numbers, and everything else comes as it always does.

// states are the leads of messages that are states.
var states = [...]string{"S0", "S1", "S2"}

// configureStates makes messages of some games states. Rules whose model must know what exactly is held are off then.
func (g *game) configureStates() {
	h := mix(g.w.seed, uint64(g.w.sessions))
	if often := g.w.partial && h&1 == 0; !g.cfg.Resumable || h&7 != 0 && !often {
		return
	}
	rules, err := newest.Parse([]string{"a=S0", "b=text:S1", "c=S2"})
	g.must(err)
	g.cfg.Newest = rules
	g.cfg.KeepaliveReplies, g.cfg.Redial, g.cfg.Answer = nil, 0, 0
}

// key returns the key of a message that is a state, "" for any other.
func (m message) key() string {
	for _, lead := range states {
		if m.op == opText && m.size >= len(lead) && m.lead == lead {
			return lead
		}
	}
	return ""
}

// replaced reports whether a newer message of the key of message n is numbered.
func (l *numbers) replaced(n uint64) bool {
	key := l.message(n).key()
	if key == "" {
		return false
	}
	for m := n + 1; m <= l.last(); m++ {
		if l.message(m).key() == key {
			return true
		}
	}
	return false
}

// skip checks the verb `skip`.
func (t *tap) skip(arg string) {
	g := t.l.g
	k, err := strconv.ParseUint(arg, 10, 64)
	switch {
	case err != nil || k == 0 || g.cfg.Newest == nil || t.parts.left > 0 || t.code != 0:
		g.fail("skip", "skip %q is written, with %d bytes of a message left, behind %q", arg, t.parts.left, t.verb)
	case t.n+k > t.nums.last():
		g.fail("skip", "messages %d to %d are skipped, %d are numbered", t.n+1, t.n+k, t.nums.last())
	}
	for n := t.n + 1; n <= t.n+k && !g.seen.dropping; n++ {
		if !t.nums.replaced(n) {
			g.fail("skip", "message %d is skipped, and no newer one replaces it", n)
		}
	}
	t.n += k
	t.skipped += k
	if t.skipped > t.announcedSkips {
		g.w.cov.hit("skip while attached")
	}
	g.w.cov.hit("skip")
}

// skip counts messages that were replaced as if they had come.
func (l *link) skip(arg string) {
	c := l.c
	k, err := strconv.ParseUint(arg, 10, 64)
	c.g.must(err)
	l.received += k
	if n := l.stated + l.lost + l.received; n > c.count {
		c.skips(n, l.nums)
		c.count = n
	}
	l.owesAck(0)
}

// attachedWithStates takes over what the core has found in its buffer at an attach, once the sum is right.
func (g *game) attachedWithStates(e session.Event) {
	m := &g.seen.attach
	if g.cfg.Newest == nil {
		return
	}
	if sum := e.Replay + e.Lost + e.Skipped; sum != m.Replay || e.Lost > 0 && !g.seen.dropping {
		g.fail("skip", "%d are replayed, %d lost, %d skipped, of %d", e.Replay, e.Lost, e.Skipped, m.Replay)
	}
	m.Replay, m.Lost, m.Skipped = e.Replay, e.Lost, e.Skipped
	g.seen.replayed += e.Replay
}
