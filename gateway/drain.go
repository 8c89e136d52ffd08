package gateway

import (
	"cmp"
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"reseat/gateway/registry"
	"reseat/gateway/session"
	"reseat/gateway/transport"
)

// closeWait is how long closed sessions have to take leave of both their ends.
const closeWait = 3 * time.Second

// A drain is the time in which no new sessions are taken. There are two kinds:
// one that an operator has begun, which can be called off, and the last one of
// this process, which takes its place.
type drain struct {
	mu    sync.Mutex
	last  bool
	over  bool        // and its sessions have had their time
	timer *time.Timer // while an operator's runs; nil afterwards
	until time.Time   // when it fires
}

// DrainInfo is a drain as the control API shows it.
type DrainInfo struct {
	Draining bool `json:"draining"`
	// Until is when the sessions that are left then will be closed. Nil: they have
	// been, or no drain was begun, or the process is about to end.
	Until    *time.Time `json:"until"`
	Sessions int        `json:"sessions"`
}

// Draining reports whether new sessions are refused.
func (g *Gateway) Draining() bool { return g.draining.Load() }

// DrainInfo describes the drain, if there is one.
func (g *Gateway) DrainInfo() DrainInfo {
	g.drain.mu.Lock()
	defer g.drain.mu.Unlock()
	i := DrainInfo{Draining: g.draining.Load(), Sessions: g.reg.Count()}
	if g.drain.timer != nil {
		t := g.drain.until.UTC()
		i.Until = &t
	}
	return i
}

// BeginDrain refuses new sessions and goes on serving the others, resumes
// included. After the time of Config.Drain it closes those that remain with
// 4503; new ones are refused until CallOffDrain. Where a drain has begun already
// it does nothing.
func (g *Gateway) BeginDrain() {
	d := &g.drain
	d.mu.Lock()
	defer d.mu.Unlock()
	if g.draining.Swap(true) {
		return
	}
	g.log.Info("drain.begun", "time", g.cfg.Drain)
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
			g.closeRest()
		}
	})
	d.timer = own
}

// CallOffDrain takes new sessions again. It reports false where the process is
// about to end, which nothing calls off.
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

// endDrain begins this process's last drain. One that an operator has begun is
// over with it, and closes nothing.
func (g *Gateway) endDrain() {
	g.drain.mu.Lock()
	defer g.drain.mu.Unlock()
	g.draining.Store(true)
	g.drain.last = true
	g.drain.stopLocked()
}

func (d *drain) stopLocked() {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
}

// Drain is the last thing before Close. It refuses new sessions and goes on
// serving the others, resumes included, until none is left or takes leave, the
// time of Config.Drain is over, or ctx is done. Then it closes those that remain
// with 4503, all at once, and waits for a moment until both their ends have
// taken it in. Where some do not, it logs how many.
func (g *Gateway) Drain(ctx context.Context) {
	g.endDrain()
	limit := time.NewTimer(g.cfg.Drain)
	defer limit.Stop()
	select {
	case <-g.reg.None():
		return
	case <-limit.C:
	case <-ctx.Done():
	}
	g.closeRest()
	if !g.takenLeave() {
		g.log.Warn("drain.connections_aborted", "sessions", g.reg.Staying(), "time", closeWait)
	}
}

// takenLeave waits for a moment until no session lives or takes leave, and reports
// whether it came to that. Once it did not, it does not wait again.
func (g *Gateway) takenLeave() bool {
	g.drain.mu.Lock()
	over := g.drain.over
	g.drain.mu.Unlock()
	if over {
		return false
	}
	select {
	case <-g.reg.None():
		return true
	case <-time.After(closeWait):
	}
	g.drain.mu.Lock()
	g.drain.over = true
	g.drain.mu.Unlock()
	return false
}

// closeRest closes the sessions that a drain has left, one that is just being
// made as soon as it is.
func (g *Gateway) closeRest() {
	left := g.reg.All()
	g.log.Info("drain.over", "sessions", len(left))
	var all sync.WaitGroup
	share := len(left)/runtime.GOMAXPROCS(0) + 1
	for part := range slices.Chunk(left, share) {
		all.Go(func() {
			for _, e := range part {
				e.Do(func(core *session.Session, now session.Time) { core.Drain(now, spread()) })
			}
		})
	}
	all.Wait()
}

// spread is a random moment of some seconds, so that those who are sent away
// together do not come back together.
func spread() time.Duration { return time.Second + rand.N(4*time.Second) }

// noteExhausted is called when memory was refused for a replay buffer.
func (g *Gateway) noteExhausted() {
	select {
	case g.exhausted <- struct{}{}:
	default:
	}
}

// relieve ends the largest detached sessions when --buffer-total is exhausted,
// until a twentieth of it is free again.
func (g *Gateway) relieve(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.exhausted:
		}
		g.exhaustedLog.warn("buffer.total_exhausted", "bytes", g.store.Used(), "limit", g.store.Limit(), "text", "upstreams pause, the largest detached sessions end; see --buffer-total")
		for _, e := range g.largestDetached() {
			if g.store.Used() <= g.store.Limit()/20*19 {
				break
			}
			if d := e.Driver(); d != nil {
				d.Do(func(core *session.Session, now session.Time) { core.Evict(now) })
			}
		}
		select { // sessions that wait look again after a quarter of a second
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (g *Gateway) largestDetached() []*registry.Record {
	type sized struct {
		e     *registry.Record
		bytes int64
	}
	var list []sized
	all := g.reg.All()
	for i, info := range transport.Infos(registry.Drivers(all)) {
		if info.State == session.Detached {
			list = append(list, sized{all[i], info.BufferBytes})
		}
	}
	slices.SortFunc(list, func(a, b sized) int { return cmp.Compare(b.bytes, a.bytes) })
	entries := make([]*registry.Record, len(list))
	for i, s := range list {
		entries[i] = s.e
	}
	return entries
}
