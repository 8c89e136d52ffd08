package sim

import (
	"reseat/gateway/session"
)

// The upstreams' messages as the core processes them: a message is numbered, or it is
// an application heartbeat and answered for a detached client. The model decides which,
// from the core's position in the stream and whether a client is attached.

// An item is a message in an upstream's stream.
type item struct {
	m          message
	made       uint64 // which of the connection's it is
	reply      int    // which of the Replies it asks for; -1: none
	begin, end uint64 // its position in the stream
	single     bool   // in one frame
	begun      bool   // the core has treated its first bytes as the client's
}

// A record is a numbered message.
type record struct {
	m        message
	reply    int
	answered int // how often the gateway has answered it
	up, nth  int // which of the upstreams it is from, and which of the numbered messages of that
}

// numbers are the messages of all upstreams, as numbered: list[n] is message n, sums[n]
// the payload of the messages up to n as the replay buffer holds them, including an
// escaping DLE.
type numbers struct {
	list []record
	sums []int64
}

func newNumbers() *numbers { return &numbers{list: make([]record, 1), sums: make([]int64, 1)} }

// last returns the newest number.
func (l *numbers) last() uint64 { return uint64(len(l.list) - 1) }

func (l *numbers) message(n uint64) message { return l.list[n].m }

func (l *numbers) add(it item, escapes bool) *record {
	kept := int64(it.m.size)
	if escapes && it.m.escaped() {
		kept++
	}
	return l.append(record{m: it.m, reply: it.reply}, kept)
}

// append gives r the next number; kept is its payload in the replay buffer.
func (l *numbers) append(r record, kept int64) *record {
	n := l.last()
	l.sums, l.list = append(l.sums, l.sums[n]+kept), append(l.list, r)
	return &l.list[n+1]
}

// number records what the core has processed: either the input of this very call, or
// input that had waited for room.
func (g *game) number(i session.Info, read bool) {
	u := g.ups
	more := i.Sent - g.nums.last()
	away := i.State == session.Detached || i.State == session.Ended && i.Ending.Reason == "window_exceeded"
	looked := g.looked(read)
	for len(u.items) > 0 && u.items[0].end <= u.handed {
		it := u.items[0]
		silent := away && it.reply >= 0 && it.single && !it.begun
		if !silent && more == 0 || silent && !looked {
			break
		}
		u.items, u.doneTo, looked = u.items[1:], it.end, true
		if !g.upOver() {
			u.doneAt = g.w.now
		}
		if silent {
			g.w.cov.hit("heartbeat answered")
			g.expectText(g.cfg.KeepaliveReplies[it.reply].Out)
			continue
		}
		more--
		g.numbered(it, away)
	}
	if more > 0 {
		g.fail("I1", "%d messages more are numbered than upstream %d has sent whole", more, u.no)
	}
	g.begins(i, looked)
}

// looked reports whether the core has examined unprocessed input: in a read, or because
// its buffer has room again.
func (g *game) looked(read bool) bool {
	m := &g.seen
	was, wanted := m.blocked, g.core.WantsRead(g.ups.ten)
	if read || wanted {
		m.blocked = !wanted && !g.upOver()
	}
	again := m.unblocked && was && (g.leaving > 0 || g.terms.Overflow != session.Pause || 2*m.held <= g.cfg.BufferMessages && 2*m.heldBytes <= g.cfg.BufferBytes)
	m.unblocked = false
	return read || was && wanted || again
}

// numbered records that the core has numbered it.
func (g *game) numbered(it item, away bool) {
	r := g.nums.add(it, g.cfg.Resumable)
	g.did.down++
	g.did.downBytes += int64(it.m.size)
	g.ups.number(r, it)
	g.seen.data = g.w.now
	if away && it.reply >= 0 {
		if it.begun {
			g.w.cov.hit("heartbeat cut by the drop")
		} else {
			g.w.cov.hit("heartbeat in pieces")
		}
		g.answer(r)
	}
}

// answer records that the gateway answers a heartbeat that is also kept for the client.
func (g *game) answer(r *record) {
	g.expectText(g.cfg.KeepaliveReplies[r.reply].Out)
	r.answered++
	if r.answered > 1 {
		g.w.cov.hit("R19 gateway again")
	}
}

// begins records that the core treats the first frame header of a heartbeat as the
// client's, and for a resumable client its first byte, which may need escaping; while
// the client is detached the core waits for the whole message.
func (g *game) begins(i session.Info, looked bool) {
	u := g.ups
	if !looked || len(u.items) == 0 || u.items[0].reply < 0 || u.handed <= u.items[0].begin {
		return
	}
	it := &u.items[0]
	first := uint64(2)
	if it.m.size > 125 {
		first = 4
	}
	if g.cfg.Resumable {
		first++
	}
	switch {
	case i.State == session.Detached:
		g.w.cov.hit("heartbeat split")
	case it.single && u.handed >= it.begin+first && !g.seen.blocked:
		it.begun = true
	}
}

// awaitsHeartbeat reports whether the core holds an unprocessed heartbeat.
func (g *game) awaitsHeartbeat() bool {
	for _, it := range g.ups.items {
		if it.begin >= g.ups.handed {
			return false
		}
		if it.reply >= 0 {
			return true
		}
	}
	return false
}

// answerKept records that the client is detached, and that the gateway answers the
// heartbeats that it has not acked.
func (g *game) answerKept(acked uint64) {
	if !g.seen.upOpen {
		return
	}
	for n := max(g.seen.base, acked) + 1; n <= g.nums.last(); n++ {
		if r := &g.nums.list[n]; r.reply >= 0 {
			g.w.cov.hit("heartbeat kept")
			g.answer(r)
		}
	}
}

// heartbeat returns an application heartbeat now and then, or something similar.
func (g *game) heartbeat() (m message, ok bool) {
	if len(g.cfg.KeepaliveReplies) == 0 || !g.w.chance(g.beating) {
		return m, false
	}
	text, op := pick(g.w, g.cfg.KeepaliveReplies...).In, byte(opText)
	switch g.w.rng.IntN(12) {
	case 0:
		text += "!"
	case 1:
		text = text[:len(text)-1] + "\x00"
	case 2:
		text = text[:len(text)-1]
	case 3:
		op = opBinary
	}
	return message{op: op, lead: text, size: len(text)}, len(text) <= int(g.cfg.MaxMessage)
}

// replyTo returns which of the Replies m asks for; -1: none.
func (g *game) replyTo(m message) int {
	for i, r := range g.cfg.KeepaliveReplies {
		if m.op == opText && m.size == len(r.In) && m.equal([]byte(r.In)) {
			return i
		}
	}
	return -1
}
