package sim

import "reseat/gateway/session"

// A backlog is what a driver that can look into a full socket knows of it. Bytes
// that the peer goes on taking count as heard, reseat.v1 section 5, though the
// socket may be said to have room only much later.
type backlog struct {
	full    bool         // the core was told so with the last write
	looked  bool         // since the socket was found full
	got     uint64       // what the peer had taken at the last look
	unsure  bool         // when some of what the socket had was not reported yet
	drained session.Time // when it was last found to have taken more
	perhaps session.Time // the same, or when that could first be looked at
}

// lookBacklog tells the core, before a Tick, what a full socket still holds. The
// style blocking has connections that nobody can look into.
func (g *game) lookBacklog() {
	l := g.down
	if l == nil || l.closed || !l.waiting || !l.backlog.full || l.stale() || g.style == blocking {
		if l != nil {
			l.backlog.looked = false
		}
		return
	}
	b, out := &l.backlog, &l.conn.out
	if b.looked && out.got > b.got && l.flying.taken == 0 { // else some of it is not reported yet
		if g.w.now >= max(l.lastIn, b.drained).Add(g.cfg.Heartbeat) {
			g.w.cov.hit(Drained)
		}
		b.drained, b.perhaps = g.w.now, g.w.now
	}
	if !b.looked || b.unsure {
		b.perhaps = g.w.now
	}
	b.looked, b.got, b.unsure = true, out.got, l.flying.taken > 0
	g.core.ClientSocket(g.w.now, l.att, session.SocketState{Acked: out.got, Queued: int(out.put - out.got)})
}

// checkSilent: a client that is dropped as silent has been, for twice the heartbeat,
// though it was read.
func (g *game) checkSilent(l *leg) {
	if heard := max(l.lastIn, l.backlog.drained); g.w.now < heard.Add(2*g.cfg.Heartbeat) {
		g.fail("section 5", "a client was dropped as silent, and was heard at %d", heard)
	}
}
