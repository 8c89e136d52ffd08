package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"reseat/gateway/cluster"
	"reseat/gateway/registry"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

// This file hands durable sessions over to another node when this one drains, whole: nothing is lost or
// repeated in either direction. The game server's connection is closed and read to its end, the other
// node writes the seat, and only then is the client sent there.

const (
	// handoffsAtOnce is how many sessions are handed over at a time.
	handoffsAtOnce = 32
	// handoffTime is how long another node may take to answer.
	handoffTime = 5 * time.Second
	// handoffAgain is how often sessions are offered that no node has taken.
	handoffAgain = time.Second
	// handoffSpread is over how long the clients of a drain come back.
	handoffSpread = 2 * time.Second
	// maxHandoff bounds a session on its way, in bytes, besides the content of its buffers.
	maxHandoff = 16 << 20
)

// handOffAll offers all durable sessions to other nodes until ctx is done, or the drain is over.
func (g *Gateway) handOffAll(ctx context.Context) {
	if g.seats.store == nil {
		return
	}
	begun, done := time.Now(), 0
	tick := time.NewTicker(handoffAgain)
	defer tick.Stop()
	for g.draining.Load() {
		n := g.handOffOnce(ctx)
		if done += n; n > 0 {
			g.log.Info("drain.released", "sessions", done, "time", time.Since(begun).Round(time.Millisecond))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// handOffOnce offers each durable session once, and returns how many were taken.
func (g *Gateway) handOffOnce(ctx context.Context) (taken int) {
	var mu sync.Mutex
	var all sync.WaitGroup
	slots := make(chan struct{}, handoffsAtOnce)
	for _, e := range g.reg.All() {
		if !e.Durable || e.Driver() == nil {
			continue
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			all.Wait()
			return taken
		}
		all.Go(func() {
			defer func() { <-slots }()
			if g.handOff(ctx, e) {
				mu.Lock()
				taken++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return taken
}

// handOff hands one session over, and reports whether another node has it now.
func (g *Gateway) handOff(ctx context.Context, e *registry.Record) bool {
	takers := g.cfg.Cluster.Takers(e.ID)
	if len(takers) == 0 || !g.seats.hasContact() || !g.seats.settle(ctx, e) {
		return false
	}
	d := e.Driver()
	if d == nil || g.redials.dialling(e) || g.movedTo() != nil {
		return false
	}
	left := g.leaving.begin(e)
	if left == nil { // it is being handed over already
		return false
	}
	defer g.leaving.left(e)
	begun := false
	d.Do(func(core *session.Session, now session.Time) { begun = core.Leave(now) })
	if !begun {
		return false
	}
	select {
	case <-left:
	case <-ctx.Done():
	}
	release := e.Hold()
	defer release()
	h, err := g.freezeLeft(ctx, e, left)
	for _, node := range takers {
		if err != nil || !e.Alive() {
			break
		}
		if err = g.offer(ctx, e, node, h); err == nil {
			g.handedOver(e, node)
			return true
		}
		g.log.Warn("handoff.failed", "session", e.ID, "node", node, "err", err)
		if errors.Is(err, errTaken) {
			g.metrics.handoffs.WithLabelValues("lost").Inc()
			g.seats.fence(e, "another node has it")
			return false
		}
		if err = nil; !e.Seat().Covered {
			break
		}
	}
	g.metrics.handoffs.WithLabelValues("failed").Inc()
	d.Do(func(core *session.Session, now session.Time) { core.Stay(now) })
	return false
}

// offer hands a session over to one node: nil, errNotTaken, or errTaken if this node must not go on with it.
func (g *Gateway) offer(ctx context.Context, e *registry.Record, node string, h *Handoff) error {
	err := g.handOver(ctx, node, h)
	if err == nil || errors.Is(err, errNotTaken) {
		return err
	}
	conflict := errors.Is(err, errTaken)
	if err = g.afterFailedHandoff(ctx, e, node, h, err); !conflict || !errors.Is(err, errNotTaken) {
		return err
	}
	// It was a write of this node's own that came late, and h has its revision now.
	if err = g.handOver(ctx, node, h); err == nil || errors.Is(err, errNotTaken) {
		return err
	}
	return g.afterFailedHandoff(ctx, e, node, h, err)
}

// handOver is Cluster.HandOver with a limit.
func (g *Gateway) handOver(ctx context.Context, node string, h *Handoff) error {
	ctx, cancel := context.WithTimeout(ctx, handoffTime)
	defer cancel()
	return g.cfg.Cluster.HandOver(ctx, node, h)
}

// afterFailedHandoff finds out by the seat whether a node has taken a session whose answer was lost, or that says
// that somebody has written the seat, which may have been this node. nil: it has; errTaken: it or another node has, or
// may have; errNotTaken: h, with a new revision, can be given to another.
func (g *Gateway) afterFailedHandoff(ctx context.Context, e *registry.Record, node string, h *Handoff, cause error) error {
	seat, err := g.seats.get(ctx, e.ID)
	switch {
	case err != nil: // it may have been: this node must not go on with it
		return fmt.Errorf("%w: %w, and its seat cannot be read: %w", errTaken, cause, err)
	case seat.Owner == node && seat.Epoch == h.Epoch+1:
		return nil
	case seat.Owner != g.seats.self() || seat.Epoch != h.Epoch:
		return fmt.Errorf("%w: %w", errTaken, cause)
	}
	// That node may still be about to write it. A write of this node's own forestalls that.
	e.UpdateSeat(func(s *registry.Seat) { s.Covered = false })
	if g.seats.writeHeld(e); e.Seat().Covered {
		h.Revision = e.Seat().Revision
		return fmt.Errorf("%w: %v", errNotTaken, cause) // not errTaken, though the node may have said so
	}
	return fmt.Errorf("%w: %w", errTaken, cause)
}

// handedOver lets go of a session that another node has taken.
func (g *Gateway) handedOver(e *registry.Record, node string) {
	g.moves.add(e.ID, node, e.Terms().LongestGrace()+time.Minute)
	g.metrics.handoffs.WithLabelValues("ok").Inc()
	e.Do(func(core *session.Session, now session.Time) {
		core.HandedOver(now, time.Millisecond+rand.N(handoffSpread))
	})
}

// errStays is why a session is not handed over that its game server has ended meanwhile.
var errStays = errors.New("the game server has ended the session")

// freezeLeft waits until a session has left its game server, and returns a copy of it.
func (g *Gateway) freezeLeft(ctx context.Context, e *registry.Record, left <-chan struct{}) (*Handoff, error) {
	select {
	case <-left:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	begun := time.Now()
	for slow := false; ; {
		d := e.Driver()
		if d == nil {
			return nil, errors.New("it has ended")
		}
		s := e.Seat()
		h := &Handoff{Session: e.ID, Epoch: s.Epoch, Revision: s.Revision, Format: session.Formats[0]}
		err := session.ErrLater
		d.Do(func(core *session.Session, now session.Time) {
			if !core.HasLeft() {
				err = errStays
				return
			}
			var f session.Frozen
			if f, err = core.Freeze(h.Format); err != nil {
				return
			}
			h.At, h.State = now, f.State
			for _, p := range f.Content { // not ours after this call
				h.Content = append(h.Content, p...)
			}
		})
		switch {
		case err == nil:
			h.Record = e.AppendState(nil, g.table.byPattern[e.Route].Upstream)
			return h, nil
		case errors.Is(err, errStays), time.Since(begun) > handoffTime:
			return nil, err
		case !slow && time.Since(begun) > handoffTime/5: // its client takes what it is sent too slowly
			slow = true
			d.Do(func(core *session.Session, now session.Time) { core.CloseClient(now, wire.CodeServiceRestart, "") })
		}
		select {
		case <-time.After(settlePoll):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// HandoffPath is where a node takes sessions in: see ServeHandoff.
const HandoffPath = "/node/v1/sessions/"

// ServeHandoff takes in a session that another node hands over. The caller has made sure that a node asks.
// 204: taken; 409: another node has it; 504: unclear; any other status: not taken.
func (g *Gateway) ServeHandoff(w http.ResponseWriter, r *http.Request) {
	var h Handoff
	limit := maxHandoff + g.cfg.BufferTotal
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, limit)).Decode(&h); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ctx, leave, ok := g.Enter(r.Context())
	if !ok {
		http.Error(w, "an upgrade is under way", http.StatusServiceUnavailable)
		return
	}
	defer leave()
	switch err := g.takeIn(ctx, &h); {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, errTaken):
		http.Error(w, err.Error(), http.StatusConflict)
	case errors.Is(err, errNotTaken):
		g.log.Warn("handoff.refused", "session", h.Session, "err", err)
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	default:
		g.log.Warn("handoff.unclear", "session", h.Session, "err", err)
		http.Error(w, err.Error(), http.StatusGatewayTimeout)
	}
}

// takeIn takes in a session of another node: it writes its seat, and serves it from then on.
func (g *Gateway) takeIn(ctx context.Context, h *Handoff) error {
	if g.draining.Load() || g.seats.store == nil || g.memoryLow() {
		return fmt.Errorf("%w: this node takes no sessions now", errNotTaken)
	}
	s, err := registry.ReadState(h.Record)
	if err != nil {
		return fmt.Errorf("%w: %w", errNotTaken, err)
	}
	rt := g.table.byPattern[s.Route]
	if rt == nil || s.ID != h.Session {
		return fmt.Errorf("%w: no route %q", errNotTaken, s.Route)
	}
	core, err := session.Restore(h.Format, h.State, h.Content, g.store, registry.MaskingKey)
	if err == nil {
		if err = core.Arrive(g.clock.Now(), h.At, h.Epoch+1); err != nil {
			core.Discard()
		}
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errNotTaken, err)
	}
	end, ok := g.claims.begin(h.Session)
	if !ok || g.reg.Find(h.Session) != nil {
		if ok {
			end()
		}
		core.Discard()
		return fmt.Errorf("%w: it is here already", errTaken)
	}
	s.Durable = true
	s.Seat = registry.Seat{Epoch: h.Epoch + 1, Revision: h.Revision, Moved: wire.MovedHandoff}
	e, err := g.restoreRecord(s, rt, s.Terms.Apply(rt.terms))
	if err != nil {
		core.Discard()
		end()
		return fmt.Errorf("%w: %w", errNotTaken, err)
	}
	return g.takeArrived(ctx, &arrived{e, core, g.seats.seatOf(e, core.Info()), end})
}

// An arrived session is registered, and waits for its seat to be written. Its resumes wait until end.
type arrived struct {
	e    *registry.Record
	core *session.Session
	seat cluster.Seat
	end  func()
}

// arrivalTime is how long this node tries to find out whether it has written a seat.
const arrivalTime = 30 * time.Second

// takeArrived writes the seat of a session that has arrived whole, and serves it. If nobody knows whether the seat
// was written, the session is kept until that is known: the older node may let it go meanwhile.
func (g *Gateway) takeArrived(ctx context.Context, a *arrived) (err error) {
	var revision uint64
	away(ctx, func() { revision, err = g.seats.store.Put(ctx, a.seat) })
	switch {
	case err == nil:
		g.arrive(a, revision)
		return nil
	case errors.Is(err, cluster.ErrSeatTaken):
		g.turnAway(a)
		return fmt.Errorf("%w: %w", errTaken, err)
	}
	g.running.Go(func() { g.awaitSeat(a) })
	return fmt.Errorf("take in session %s: %w", a.e.ID, err)
}

// awaitSeat reads the seat of an arrived session until its owner is known.
func (g *Gateway) awaitSeat(a *arrived) {
	ctx, cancel := context.WithTimeout(g.ctx, arrivalTime)
	defer cancel()
	for ctx.Err() == nil {
		switch seat, err := g.seats.store.Get(ctx, a.e.ID); {
		case err == nil && seat.Owner == a.seat.Owner && seat.Epoch == a.seat.Epoch:
			g.arrive(a, seat.Revision)
			return
		case err == nil && seat.Revision != a.seat.Revision: // this node's write cannot succeed any more
			g.turnAway(a)
			return
		}
		select {
		case <-time.After(findPause):
		case <-ctx.Done():
		}
	}
	g.turnAway(a)
}

// arrive serves an arrived session, whose seat is written.
func (g *Gateway) arrive(a *arrived, revision uint64) {
	a.e.UpdateSeat(func(s *registry.Seat) { s.Revision, s.Covered = revision, true })
	g.adopt(a.e, a.core)
	a.end()
}

// turnAway forgets an arrived session, which another node has.
func (g *Gateway) turnAway(a *arrived) {
	g.reg.Release(a.e, g.store)
	a.core.Discard()
	a.end()
}
