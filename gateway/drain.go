package gateway

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"reseat/gateway/session"
	"reseat/gateway/watch"
)

// closeWait limits the closing handshakes of closed sessions.
const closeWait = 3 * time.Second

// Draining reports whether new sessions are refused.
func (g *Gateway) Draining() bool { return g.draining.Load() }

// DrainInfo describes the drain, if there is one.
func (g *Gateway) DrainInfo() watch.DrainInfo {
	g.drain.mu.Lock()
	defer g.drain.mu.Unlock()
	i := watch.DrainInfo{Draining: g.draining.Load(), Sessions: g.reg.Count()}
	if g.drain.timer != nil {
		t := g.drain.until.UTC()
		i.Until = &t
	}
	return i
}

// BeginDrain refuses new sessions and keeps serving the others, resumes included. After
// Config.Drain it closes the remaining sessions with 4503; new ones are refused until
// CallOffDrain. It does nothing if a drain is under way.
func (g *Gateway) BeginDrain() {
	d := &g.drain
	d.mu.Lock()
	defer d.mu.Unlock()
	if g.draining.Swap(true) {
		return
	}
	g.log.Info("drain.begun", "time", g.cfg.Drain)
	g.running.Go(func() { g.owner.HandOffAll(g.ctx) })
	d.until = time.Now().Add(g.cfg.Drain)
	var own *time.Timer
	own = time.AfterFunc(g.cfg.Drain, func() {
		d.mu.Lock()
		mine := d.timer == own
		if mine {
			d.timer = nil
		}
		d.mu.Unlock()
		if mine {
			g.closeRemaining()
		}
	})
	d.timer = own
}

// CallOffDrain accepts new sessions again. It reports false if the process is shutting
// down, which cannot be cancelled.
func (g *Gateway) CallOffDrain() bool {
	d := &g.drain
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last {
		return false
	}
	d.stopLocked()
	if g.draining.Swap(false) {
		g.log.Info("drain.cancelled")
	}
	return true
}

// endDrain begins the final drain. It stops the timer of an operator's drain, which then
// closes nothing.
func (g *Gateway) endDrain() {
	g.drain.mu.Lock()
	defer g.drain.mu.Unlock()
	g.draining.Store(true)
	g.drain.last = true
	g.drain.stopLocked()
}

// Drain runs the final drain, before Close. It refuses new sessions and keeps serving the
// others, resumes included, until all sessions have ended, Config.Drain has passed or ctx
// is done. Then it closes the remaining sessions with 4503, all at once, and waits up to
// three seconds for both legs of each to close. It logs how many did not.
func (g *Gateway) Drain(ctx context.Context) {
	g.endDrain()
	hand, stop := context.WithTimeout(ctx, g.cfg.Drain)
	defer stop()
	g.running.Go(func() { g.owner.HandOffAll(hand) })
	select {
	case <-g.reg.Drained():
		return
	case <-hand.Done():
	}
	g.closeRemaining()
	if !g.awaitClosed() {
		g.log.Warn("drain.connections_aborted", "sessions", g.reg.CountOpen(), "time", closeWait)
	}
}

// awaitClosed waits up to closeWait until both legs of all sessions are closed, and reports
// whether they are. Once it has timed out, later calls return at once.
func (g *Gateway) awaitClosed() bool {
	g.drain.mu.Lock()
	timedOut := g.drain.timedOut
	g.drain.mu.Unlock()
	if timedOut {
		return false
	}
	select {
	case <-g.reg.Drained():
		return true
	case <-time.After(closeWait):
	}
	g.drain.mu.Lock()
	g.drain.timedOut = true
	g.drain.mu.Unlock()
	return false
}

// closeRemaining closes the sessions that remain after a drain. A session that is still being
// created is closed as soon as it begins.
func (g *Gateway) closeRemaining() {
	left := g.reg.All()
	g.log.Info("drain.over", "sessions", len(left))
	var all sync.WaitGroup
	share := len(left)/runtime.GOMAXPROCS(0) + 1
	for part := range slices.Chunk(left, share) {
		all.Go(func() {
			for _, e := range part {
				e.Do(func(core *session.Session, now session.Time) {
					if e.Durable && e.Seat().Covered { // another node, or this one's next process, goes on with it
						core.Release(now, spread())
					} else {
						core.Drain(now, spread())
					}
				})
			}
		})
	}
	all.Wait()
}

// spread is a random delay of some seconds, so that clients that are disconnected
// together do not reconnect together.
func spread() time.Duration { return time.Second + rand.N(4*time.Second) }
