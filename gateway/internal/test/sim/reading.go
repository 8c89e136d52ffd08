package sim

import (
	"reseat/gateway/session"
)

// The reading side of the model driver: a reader for each socket that reads, and passes
// on what it has some time later.

// read makes l's reader read once.
func (l *leg) read() bool {
	switch {
	case l.room != nil:
		return l.roomN < 0 && l.fill()
	case l.over || l.hand != nil || l.found || l.owes:
		return false
	case l.closed || l.closeMode() != session.Open:
		l.stop()
		return true
	case l.ups != nil:
		return l.readUpstream()
	case !l.g.core.WantsRead(l.att):
		return false
	case l.conn.in.readable() > 0:
		if l.g.w.calm && len(l.buf) < l.g.readSize {
			l.buf = make([]byte, l.g.readSize)
		}
		n := min(l.g.w.piece(l.conn.in.readable()), len(l.buf))
		l.hand = l.buf[:copy(l.buf, l.conn.in.read(n))]
		if l.g.style == poll {
			return l.handOver()
		}
		return true
	case l.conn.in.ended():
		l.found = true
		return true
	}
	return false
}

// stop ends reading for the core. The reader waits for the peer's end.
func (l *leg) stop() {
	if l.over {
		return
	}
	l.over = true
	l.drain()
	l.g.settle()
}

// drain discards what a closed leg's peer still sends, until its end.
func (l *leg) drain() bool {
	if !l.over || l.closed {
		return false
	}
	if l.closeMode() != session.Linger {
		l.close(session.Shut)
		return true
	}
	if n := l.conn.in.readable(); n > 0 {
		l.conn.in.read(n)
		return true
	}
	if l.conn.in.ended() {
		l.close(session.Shut)
		return true
	}
	return false
}

// readUpstream borrows room; fill reads into it, now or later.
func (l *leg) readUpstream() bool {
	g, ten := l.g, l.ups.ten
	if !g.core.WantsRead(ten) || g.style != blocking && l.conn.in.readable() == 0 && !l.conn.in.ended() {
		return false
	}
	if l.room = g.core.Room(ten); l.room == nil {
		if g.core.WantsRead(ten) {
			g.fail("I8", "no room for the upstream, and it is wanted")
		}
		return true
	}
	l.roomN = -1
	g.w.garbage(l.room)
	return g.style != poll || l.fill()
}

// fill reads from the upstream into the room.
func (l *leg) fill() bool {
	g := l.g
	n := min(l.conn.in.readable(), len(l.room))
	g.w.offers = append(g.w.offers, offer{g.w.trace.sum, n})
	if n == 0 && g.style == blocking && !l.conn.in.ended() && !l.closed && !l.parting {
		return false
	}
	if n > 0 {
		n = g.w.piece(n)
		copy(l.room, l.conn.in.read(n))
	}
	l.roomN = n
	l.roomSum = sumOf([][]byte{l.room[:n]})
	if g.style == poll {
		return l.handOver()
	}
	return true
}

// handOver passes to the core what was last read.
func (l *leg) handOver() bool {
	switch {
	case l.found:
		l.handEnd()
	case l.room != nil && l.roomN >= 0:
		l.handUpstream()
	case l.hand != nil && !l.owes:
		l.handClient()
	default:
		return false
	}
	return true
}

func (l *leg) handEnd() {
	l.found = false
	l.g.log("end of "+l.name(), 0, 0)
	if l.ups != nil {
		l.g.upstreamGone(l)
	} else {
		l.g.clientGone(l)
	}
	l.stop()
	l.g.settle()
}

func (l *leg) handUpstream() {
	g, n := l.g, l.roomN
	if sumOf([][]byte{l.room[:n]}) != l.roomSum {
		g.fail("I14", "what was read from %s changed before it was handed over", l.name())
	}
	p := l.room[:n]
	l.room = nil
	g.log("upstream read", int64(n), 0)
	g.upstreamRead(l, p)
	if l.conn.in.ended() && n == 0 {
		l.found = true
	}
	g.settle()
}

// handClient flushes the upstream from the reader's buffer, and retains what it does
// not accept.
func (l *leg) handClient() {
	g := l.g
	g.log("client read", int64(len(l.hand)), int64(l.conn.id))
	g.clientRead(l)
	l.owes = true
	idle := !g.up.writing
	g.flush(g.up)
	if idle && g.up.flying.up && g.style == raw {
		g.up.owner = l
		return
	}
	g.finishRead(l)
	g.settle()
}

// finishRead returns the reader's buffer.
func (g *game) finishRead(l *leg) {
	g.core.Retain()
	g.w.garbage(l.hand)
	l.hand, l.owes = nil, false
	g.flush(l)
}
