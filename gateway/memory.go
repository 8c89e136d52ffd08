package gateway

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"reseat/gateway/registry"
	"reseat/gateway/replay"
	"reseat/gateway/session"
	"reseat/gateway/transport"
	"reseat/gateway/watch"
)

// This file frees memory when --buffer-total runs out. All sessions share it, so
// the ones that fill it must pay, and never one that reads what it gets:
//
//   - Each session has a reserve of its own: see replay.Store. It needs no more while its client
//     reads and acks.
//   - Sessions that hold most and whose client does not read end with 4408, whether or not that
//     client is attached: first those of addresses that hold more than their share.
//
// Nothing of this costs a message anything: who holds what is asked only under pressure.

const (
	addressShare  = 4                      // one address (or /64) may hold a quarter of the memory before others pay
	reliefPause   = 250 * time.Millisecond // between two looks at all sessions
	unreadAtOnce  = time.Second            // a client that has not read for so long is not busy reading
	unreadForever = 10 * time.Second       // nor does it catch up
)

// A relief ends sessions when memory runs out.
type relief struct {
	store   *replay.Store
	reg     *registry.Registry
	clock   *transport.Clock
	watch   *watch.Watch
	log     *slog.Logger
	pressed chan struct{} // one slot
}

// low reports whether the replay buffers use so much memory that new sessions are
// refused. Their clients hold nothing, so memory is taken from those that do not need it.
func (r *relief) low() bool {
	if r.store.Used() < r.store.Limit()/10*9 {
		return false
	}
	r.press()
	return true
}

// press has run look for memory. It is called when the store has refused some, or has lent more
// than its limit.
func (r *relief) press() {
	select {
	case r.pressed <- struct{}{}:
	default:
	}
}

// run frees memory under pressure, until ctx is done.
func (r *relief) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.pressed:
		}
		r.once()
		select {
		case <-ctx.Done():
		case <-time.After(reliefPause):
		}
	}
}

// A holder is a session, and what it held at one moment.
type holder struct {
	e      *registry.Record
	state  session.State
	bytes  int64
	known  int64        // of these, what its core knows of
	unread session.Time // since when it holds the oldest of them; zero: nothing waits
}

// once ends sessions until new ones are accepted again.
func (r *relief) once() {
	all := r.reg.All()
	r.store.ShareReserve(max(len(all), 1))
	low := r.store.Limit() / 20 * 17
	exhausted := r.store.Exhausted()
	if exhausted {
		r.watch.MemoryExhausted()
	}
	holders, of := r.holders(all)
	for _, overShare := range []bool{true, false} {
		for _, h := range holders {
			from := h.e.Block()
			switch {
			case r.store.Used() <= low:
				return
			case overShare && (!from.IsValid() || of[from] <= r.store.Limit()/addressShare):
			case h.mayEvict(r.clock.Now(), exhausted, overShare) && r.evict(h):
				of[from] -= h.bytes
			}
		}
	}
}

// holders lists the sessions that hold memory, the fullest first, and counts what each address holds.
func (r *relief) holders(all []*registry.Record) (list []holder, of map[netip.Prefix]int64) {
	of = make(map[netip.Prefix]int64)
	for i, info := range transport.Infos(registry.Drivers(all)) {
		e := all[i]
		h := holder{e: e, state: info.State, bytes: info.Memory, known: info.Memory, unread: info.Unread}
		if besides := e.Memory(); besides > 0 {
			h.bytes += besides
			if besides > info.Memory { // which it holds for as long as it lives
				h.unread = info.Created
			}
		}
		if h.bytes > 0 {
			list = append(list, h)
			of[e.Block()] += h.bytes
		}
	}
	slices.SortStableFunc(list, func(a, b holder) int { return cmp.Compare(b.bytes, a.bytes) })
	return list, of
}

// mayEvict reports whether h's session may be ended: while memory is exhausted, if its client
// does not read. While there is some left, only for new sessions, if its client has read nothing
// for long though it is attached, or its address holds more than its share.
func (h *holder) mayEvict(now session.Time, exhausted, overShare bool) bool {
	unread := h.unreadFor(now)
	if exhausted {
		return unread >= unreadAtOnce
	}
	return (h.state == session.Attached || overShare) && unread >= unreadForever
}

func (h *holder) unreadFor(now session.Time) time.Duration {
	if h.unread == 0 {
		return 0
	}
	return now.Sub(h.unread)
}

// evict ends h's session, unless it has given back most of what it held.
func (r *relief) evict(h holder) (done bool) {
	d := h.e.Driver()
	if d == nil {
		return false
	}
	unread := h.unreadFor(r.clock.Now()).Round(time.Millisecond)
	d.Do(func(core *session.Session, now session.Time) {
		if i := core.Info(); 2*i.Memory >= h.known {
			h.state = i.State
			done = core.Evict(now, fmt.Sprintf("%d bytes held, %v, unread for %v", h.bytes, h.state, unread))
		}
	})
	if done {
		r.watch.Metrics.Evicted.WithLabelValues(h.state.String()).Inc()
		r.log.Warn("buffer.session_evicted", "session", h.e.ID, "player", h.e.Player, "peer", h.e.Peer(), "route", h.e.Route,
			"bytes", h.bytes, "state", h.state.String(), "unread", unread)
	}
	return done
}
