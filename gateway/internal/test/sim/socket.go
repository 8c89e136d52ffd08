package sim

import (
	"time"

	"reseat/gateway/session"
)

// lookBefore gives the core, before a Tick, the state of the client's socket if that is
// useful and available, as a driver does.
func (g *game) lookBefore() {
	if l := g.down; l != nil && !l.closed && !l.stale() && g.core.WatchesSocket(l.att) {
		g.look(l)
	}
}

// look gives the core the state of a client's socket. For some connections no state is
// available.
func (g *game) look(l *leg) {
	if g.blind {
		return
	}
	out, n := &l.conn.out, uint64(1<<62)
	if !g.w.calm && g.w.chance(400) {
		n = uint64(g.w.rng.IntN(300))
	}
	out.acknowledge(n)
	var rtt time.Duration
	if g.knowsTrip {
		rtt = (g.w.beat / 3).Truncate(time.Microsecond) // as the kernel has it
	}
	st := session.SocketState{RTT: rtt, Acked: out.acked, Queued: int(out.put - out.acked), Unread: l.conn.in.readable() > 0}
	if g.life.alive() && g.life.leg == l {
		g.life.looks(st)
	}
	g.core.Socket(g.w.now, l.att, st)
	g.sync(false)
}
