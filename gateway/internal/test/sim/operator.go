package sim

import (
	"time"

	"reseat/gateway/session"
)

// What operators, and the gateway when memory is exhausted, do to a session, and how it
// is expected to end.

// end ends the session with f, with an expected reason and Close for its upstream.
func (g *game) end(what string, want cause, f func()) bool {
	if g.core.State() == session.Ended {
		g.inert(what+" after the end", f)
		return false
	}
	g.log(what, int64(want.code), 0)
	for _, t := range g.tries {
		if t.stage == signing {
			g.w.cov.hit("R11")
			break
		}
	}
	g.cause = want
	f()
	g.sync(false)
	if g.core.State() != session.Ended {
		g.fail("I10", "%s did not end the session", what)
	}
	g.settle()
	return true
}

func (g *game) terminate() bool {
	code := pick(g.w, 1000, 1001, 3000, 4999)
	return g.end("terminate", cause{"ended", code}, func() { g.core.Terminate(g.w.now, code, "the game is over") })
}

func (g *game) drain() bool {
	if g.down != nil && g.core.State() == session.Attached && (len(g.down.hand) > 0 || g.core.Info().Received > g.core.Info().Written) {
		g.w.cov.hit("R20")
	}
	return g.end("drain", cause{"draining", 1001}, func() { g.core.Drain(g.w.now, time.Second) })
}

func (g *game) failCore() bool {
	return g.end("fail", cause{"internal_error", 1011}, func() { g.core.Fail(g.w.now) })
}

// maxFarewell is how much may wait for the upstream of an evicted session without being dropped with its
// connection. What it holds counts, up to twice the messages.
const maxFarewell = 64 << 10

func (g *game) evict() bool {
	if st := g.core.State(); st == session.Ended || st == session.Connecting {
		return false
	}
	i := g.core.Info()
	g.cutOff = g.cli.sums[i.Received]-g.cli.sums[i.Written] > maxFarewell/2
	return g.end("evict", cause{"window_exceeded", 1013}, func() {
		if !g.core.Evict(g.w.now, "much") && g.partial { // at first it forgets what has come of a large message
			g.core.Evict(g.w.now, "much")
		}
	})
}

func (g *game) disconnect() bool { return g.detach("disconnect", g.core.Disconnect) }

func (g *game) closeClient() bool {
	g.between = true
	return g.detach("close client", func(now session.Time) bool { return g.core.CloseClient(now, 1001, "closed by a proxy") })
}

// detach disconnects the client with f, which reports whether there was one.
func (g *game) detach(what string, f func(session.Time) bool) bool {
	attached := g.core.State() == session.Attached
	if f(g.w.now) != attached || g.core.State() == session.Attached {
		g.fail("I3", "%s: attached %v before, %v after", what, attached, g.core.State())
	}
	if attached {
		g.log(what, 0, 0)
		g.sync(false)
		g.settle()
	}
	return attached
}

// relieve ends the session that holds most when the store is exhausted, as the gateway does by memory, which depends on moves.
func (g *game) relieve() bool {
	w := g.w
	if !w.exhausted {
		return false
	}
	w.exhausted = false
	w.cov.hit("store exhausted")
	var largest *game
	for _, other := range w.games {
		if !other.dead && (largest == nil || other.core.Info().BufferBytes > largest.core.Info().BufferBytes) {
			largest = other
		}
	}
	return largest != nil && w.store.Used() > w.limit/20*19 && largest.evict()
}
