package sim

import (
	"time"

	"reseat/gateway/session"
)

// The closing handshake of plain clients, protocol section 1: a Close is forwarded, and
// data of the other side is relayed until its own Close, for at most closeWait.

const closeWait = 10 * time.Second

// sendsMore makes a plain client that has received a Close send something before its
// own, which may have another code.
func (c *client) sendsMore(l *link) bool {
	w := c.g.w
	if c.g.cfg.Resumable || w.calm || !w.chance(500) {
		return false
	}
	if !c.closing {
		for range w.rng.IntN(4) {
			c.queueOne()
		}
		c.close(pick(w, 1000, 3000, 4999), "")
	}
	l.mustClose = !c.done
	return l.mustClose
}

// checkClosed checks what a plain client that has closed its session receives:
// everything sent before, and then the upstream's own Close, or the client's own code
// after a timeout.
func (g *game) checkClosed(t *tap, code int) {
	u := g.ups
	inTime := code == u.code && u.over && t.n == g.nums.last() && len(u.items) == 0
	late := code == g.cli.bye && g.w.now >= g.closesAt.Add(closeWait)
	if !inTime && !late && !g.between {
		g.fail("section 1", "a plain client that closed with %d at %d got Close %d after message %d of %d; the upstream closed with %d after %d more", g.cli.bye, g.closesAt, code, t.n, g.nums.last(), u.code, len(u.items))
	}
}

// checkClosing checks that neither side waits longer than closeWait for the other's
// Close.
func (g *game) checkClosing() {
	now := g.w.now
	if g.closesAt > 0 && g.core.State() == session.Attached && now >= g.closesAt.Add(closeWait) {
		g.fail("section 1", "a plain client closed its session at %d, and it is still there", g.closesAt)
	}
	if !g.ups.replaced && g.seen.upOver && g.ups.ten.CloseMode() == session.Open && now >= g.seen.upOverAt.Add(closeWait) {
		g.fail("section 1", "the upstream closed at %d, and has no answer", g.seen.upOverAt)
	}
}

// noteClosing counts the ways in which sessions of plain clients are closed.
func (g *game) noteClosing(reason string) {
	switch c := &g.w.cov; {
	case g.cfg.Resumable:
	case reason == "bye" && g.closesAt > 0 && g.w.now >= g.closesAt.Add(closeWait):
		c.hit("plain close not answered")
	case reason == "bye" && g.closesAt > 0 && g.upOver() && g.cli.bye != g.ups.code:
		c.hit("plain close answered")
	case reason == "upstream_closed" && g.cli.closing && g.core.Info().Received == g.cli.queued:
		c.hit("upstream's close answered by a plain client")
	}
}
