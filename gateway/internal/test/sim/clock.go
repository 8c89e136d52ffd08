package sim

import (
	"time"

	"reseat/gateway/session"
)

// Only actions move the clock, from one due time to the next, so that no deadline is
// missed by more than the lateness that a timer may have.

// maxLateness is the max lateness of a timer.
const maxLateness = 300 * time.Millisecond

// standstill is the lateness of a call that shows that the process was suspended: the
// clients' input has not been read yet.
const standstill = 500 * time.Millisecond

// advance moves the clock a little, or to the next due time.
func (w *world) advance() {
	var d time.Duration
	switch {
	case w.chance(w.jumps):
		if t := w.due(); t > w.now {
			d = min(t.Sub(w.now), time.Minute)
		}
	case w.chance(100):
		d = time.Duration(w.rng.Int64N(20*int64(w.pace)) + 1)
	default:
		d = time.Duration(w.rng.Int64N(int64(w.pace)) + 1)
	}
	w.advanceTo(w.now.Add(d), nil)
}

// advanceTo moves the clock to t, and does everything due on the way. spared, if set,
// is not ticked at t itself.
func (w *world) advanceTo(t session.Time, spared *game) {
	for {
		next := w.due()
		if next == 0 || next > t {
			next = t
		}
		w.now = max(w.now, next)
		last := w.now >= t
		for _, g := range w.games {
			if g == spared && last {
				continue
			}
			g.cli.tick(w.now)
			g.onTime()
		}
		for _, g := range w.older {
			g.onTime()
		}
		if last {
			return
		}
	}
}

// onTime does what a node does by itself.
func (g *game) onTime() {
	if g.dead {
		return
	}
	g.renew()
	g.answerOwner()
	if d := g.due(); d != 0 && d <= g.w.now {
		g.wake()
	}
}

// wake ticks a core that is due, or lets its timer be late.
func (g *game) wake() {
	if g.seen.late == 0 && !g.w.calm && g.w.chance(150) {
		g.seen.late = g.w.now.Add(time.Duration(1 + g.w.rng.Int64N(int64(maxLateness))))
		return
	}
	g.seen.late = 0
	g.tick()
}

// due returns when g's core must be ticked; zero: never.
func (g *game) due() session.Time {
	if g.dead {
		return 0
	}
	next := g.core.Next()
	if next == 0 {
		return 0
	}
	return max(next, g.seen.late)
}

// due returns when the next core or client must be called; zero: never.
func (w *world) due() session.Time {
	var t session.Time
	for _, g := range w.games {
		t = earlier(t, g.due())
		t = earlier(t, g.cli.due())
	}
	for _, g := range w.older {
		t = earlier(t, g.due())
	}
	return t
}
