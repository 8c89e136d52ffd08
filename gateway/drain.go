package gateway

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"reseat/gateway/drive"
	"reseat/gateway/session"
)

// closeWait is how long closed sessions have to take leave of both their ends.
const closeWait = 3 * time.Second

// Draining reports whether new sessions are refused.
func (g *Gateway) Draining() bool { return g.draining.Load() }

// Drain refuses new sessions and goes on serving the others, resumes included,
// until none is left or takes leave, the time of Config.Drain is over, or ctx is done. Then
// it closes those that remain with 4503, all at once, and waits for a moment
// until both their ends have taken it in.
func (g *Gateway) Drain(ctx context.Context) {
	g.draining.Store(true)
	limit := time.NewTimer(g.cfg.Drain)
	defer limit.Stop()
	select {
	case <-g.reg.none():
		return
	case <-limit.C:
	case <-ctx.Done():
	}
	left := g.reg.all()
	g.log.Info("drain is over", "sessions", len(left))
	for _, e := range left {
		if d := e.drive(); d != nil {
			d.Do(func(core *session.Session, now session.Time) { core.Drain(now, spread()) })
		}
	}
	select {
	case <-g.reg.none():
	case <-time.After(closeWait):
	}
}

// spread is a random moment of some seconds, so that those who are sent away
// together do not come back together.
func spread() time.Duration { return time.Second + rand.N(4*time.Second) }

// noteSpent is called by whoever was refused memory for a replay buffer.
func (g *Gateway) noteSpent() {
	select {
	case g.spent <- struct{}{}:
	default:
	}
}

// relieve ends the largest detached sessions when --buffer-total is spent,
// until a twentieth of it is free again.
func (g *Gateway) relieve(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.spent:
		}
		g.spentLog.warn("buffer-total is spent: upstreams pause, the largest detached sessions end", "bytes", g.store.Used(), "limit", g.store.Limit())
		for _, e := range g.largestDetached() {
			if g.store.Used() <= g.store.Limit()/20*19 {
				break
			}
			if d := e.drive(); d != nil {
				d.Do(func(core *session.Session, now session.Time) { core.Evict(now) })
			}
		}
		select { // sessions that wait look again after a quarter of a second
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (g *Gateway) largestDetached() []*entry {
	type sized struct {
		e     *entry
		bytes int64
	}
	var list []sized
	all := g.reg.all()
	for i, info := range drive.Infos(drivesOf(all)) {
		if info.State == session.Detached {
			list = append(list, sized{all[i], info.BufferBytes})
		}
	}
	slices.SortFunc(list, func(a, b sized) int { return cmp.Compare(b.bytes, a.bytes) })
	entries := make([]*entry, len(list))
	for i, s := range list {
		entries[i] = s.e
	}
	return entries
}
