package owner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"reseat/gateway/cluster"
	"reseat/gateway/gate"
	"reseat/gateway/registry"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

// This file hands durable sessions off to another node when this one drains, whole: nothing is lost or
// repeated in either direction. The game server's connection is closed and read to its end, the other
// node writes the seat, and only then is the client sent there.

const (
	// handoffsAtOnce bounds the hand-offs in flight.
	handoffsAtOnce = 32
	// handoffTime limits the answer of another node.
	handoffTime = 5 * time.Second
	// handoffAgain is the interval at which sessions are offered again that no node has taken.
	handoffAgain = time.Second
	// handoffSpread spreads the returning clients of a drain.
	handoffSpread = 2 * time.Second
	// leftPoll is the interval at which a leaving session is polled.
	leftPoll = time.Millisecond
	// maxHandoff bounds a session on its way, in bytes, besides the content of its buffers.
	maxHandoff = 16 << 20
)

// HandOffAll offers all durable sessions to other nodes until ctx is done, or the drain is over.
func (o *Owner) HandOffAll(ctx context.Context) {
	if o.Seats == nil {
		return
	}
	begun, done := time.Now(), 0
	tick := time.NewTicker(handoffAgain)
	defer tick.Stop()
	for o.Draining() {
		n := o.handOffOnce(ctx)
		if done += n; n > 0 {
			o.Log.Info("drain.released", "sessions", done, "time", time.Since(begun).Round(time.Millisecond))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// handOffOnce offers each durable session once, and returns how many were taken.
func (o *Owner) handOffOnce(ctx context.Context) int {
	durable := slices.DeleteFunc(o.Registry.All(), func(e *registry.Record) bool { return !e.Durable || e.Driver() == nil })
	var taken atomic.Int32
	each(ctx, handoffsAtOnce, durable, func(e *registry.Record) {
		if o.handOff(ctx, e) {
			taken.Add(1)
		}
	})
	return int(taken.Load())
}

// each calls f for each of a list, so many at a time, until ctx is done. It waits for those that it has called.
func each[T any](ctx context.Context, atOnce int, list []T, f func(T)) {
	slots := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	defer all.Wait()
	for _, one := range list {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		all.Go(func() {
			defer func() { <-slots }()
			f(one)
		})
	}
}

// handOff hands one session off, and reports whether another node has it now.
func (o *Owner) handOff(ctx context.Context, e *registry.Record) bool {
	takers := o.Cluster.Takers(e.ID)
	if len(takers) == 0 || !o.seats.hasContact() || !o.seats.settle(ctx, nil, e) {
		return false
	}
	d := e.Driver()
	if d == nil || o.Dialling(e) || o.HandedOver() {
		return false
	}
	left := o.leaving.begin(e)
	if left == nil { // it is being handed off already
		return false
	}
	defer o.leaving.end(e)
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
	h, err := o.freezeLeft(ctx, e, left)
	for _, node := range takers {
		if err != nil || !e.Alive() {
			break
		}
		if err = o.offer(ctx, e, node, h); err == nil {
			o.handedOff(e, node)
			return true
		}
		o.Log.Warn("handoff.failed", "session", e.ID, "node", node, "err", err)
		if errors.Is(err, errTaken) {
			o.Watch.Metrics.Handoffs.WithLabelValues("lost").Inc()
			o.seats.fence(e, "another node has it")
			return false
		}
		if err = nil; !e.Seat().Covered {
			break
		}
	}
	o.Watch.Metrics.Handoffs.WithLabelValues("failed").Inc()
	d.Do(func(core *session.Session, now session.Time) { core.Stay(now) })
	return false
}

// offer hands a session off to one node: nil, errNotTaken, or errTaken if this node must not go on with it.
func (o *Owner) offer(ctx context.Context, e *registry.Record, node string, h *Handoff) error {
	err := o.handOffTo(ctx, node, h)
	if err == nil || errors.Is(err, errNotTaken) {
		return err
	}
	conflict := errors.Is(err, errTaken)
	if err = o.afterFailedHandoff(ctx, e, node, h, err); !conflict || !errors.Is(err, errNotTaken) {
		return err
	}
	// It was a write of this node's own that came late, and h has its revision now.
	if err = o.handOffTo(ctx, node, h); err == nil || errors.Is(err, errNotTaken) {
		return err
	}
	return o.afterFailedHandoff(ctx, e, node, h, err)
}

// handOffTo is Cluster.HandOff with a limit.
func (o *Owner) handOffTo(ctx context.Context, node string, h *Handoff) error {
	ctx, cancel := context.WithTimeout(ctx, handoffTime)
	defer cancel()
	return o.Cluster.HandOff(ctx, node, h)
}

// afterFailedHandoff finds out by the seat whether a node has taken a session whose answer was lost, or that says
// that somebody has written the seat, which may have been this node. nil: it has; errTaken: it or another node has, or
// may have; errNotTaken: h, with a new revision, can be given to another.
func (o *Owner) afterFailedHandoff(ctx context.Context, e *registry.Record, node string, h *Handoff, cause error) error {
	seat, err := o.seats.get(ctx, nil, e.ID)
	switch {
	case err != nil: // it may have been: this node must not go on with it
		return fmt.Errorf("%w: %w, and its seat cannot be read: %w", errTaken, cause, err)
	case seat.Owner == node && seat.Epoch == h.Epoch+1:
		return nil
	case seat.Owner != o.Cluster.ID() || seat.Epoch != h.Epoch:
		return fmt.Errorf("%w: %w", errTaken, cause)
	}
	// That node may still be about to write it. A write of this node's own forestalls that.
	e.UpdateSeat(func(s *registry.Seat) { s.Covered = false })
	if o.seats.writeHeld(e); e.Seat().Covered {
		h.Revision = e.Seat().Revision
		return fmt.Errorf("%w: %v", errNotTaken, cause) // not errTaken, though that may have been the answer
	}
	return fmt.Errorf("%w: %w", errTaken, cause)
}

// handedOff releases a session that another node has taken.
func (o *Owner) handedOff(e *registry.Record, node string) {
	o.recipients.add(e.ID, node, e.Terms().LongestGrace()+time.Minute)
	o.Watch.Metrics.Handoffs.WithLabelValues("ok").Inc()
	e.Do(func(core *session.Session, now session.Time) {
		core.HandedOff(now, time.Millisecond+rand.N(handoffSpread))
	})
}

// errStays ends a hand-off whose game server has ended the session meanwhile.
var errStays = errors.New("the game server has ended the session")

// freezeLeft waits until a session has left its game server, and returns a copy of it.
func (o *Owner) freezeLeft(ctx context.Context, e *registry.Record, left <-chan struct{}) (*Handoff, error) {
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
			h.Record = e.AppendState(nil, o.Table.Route(e.Route).Upstream)
			return h, nil
		case errors.Is(err, errStays), time.Since(begun) > handoffTime:
			return nil, err
		case !slow && time.Since(begun) > handoffTime/5: // its client takes what it is sent too slowly
			slow = true
			d.Do(func(core *session.Session, now session.Time) { core.CloseClient(now, wire.CodeServiceRestart, "") })
		}
		if pause(ctx, nil, leftPoll); ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

// HandoffPath begins the paths at which a node takes sessions in: see ServeHandoff.
const HandoffPath = "/node/v1/sessions/"

// ServeHandoff takes in a session that another node hands off. The caller has made sure that a node asks.
// 204: taken; 409: another node has it; 504: unclear; any other status: not taken.
func (o *Owner) ServeHandoff(w http.ResponseWriter, r *http.Request) {
	var h Handoff
	limit := maxHandoff + o.Store.Limit()
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, limit)).Decode(&h); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	v := o.Gate.TryEnter()
	if v == nil {
		http.Error(w, "an upgrade is under way", http.StatusServiceUnavailable)
		return
	}
	defer v.Leave()
	switch err := o.takeIn(r.Context(), v, &h); {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, errTaken):
		http.Error(w, err.Error(), http.StatusConflict)
	case errors.Is(err, errNotTaken):
		o.Log.Warn("handoff.refused", "session", h.Session, "err", err)
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	default:
		o.Log.Warn("handoff.unclear", "session", h.Session, "err", err)
		http.Error(w, err.Error(), http.StatusGatewayTimeout)
	}
}

// takeIn takes in a session of another node: it writes its seat, and serves it from then on.
func (o *Owner) takeIn(ctx context.Context, v *gate.Visit, h *Handoff) error {
	if o.Draining() || o.Seats == nil || o.MemoryLow() {
		return fmt.Errorf("%w: this node takes no sessions now", errNotTaken)
	}
	s, err := registry.ReadState(h.Record)
	if err != nil {
		return fmt.Errorf("%w: %w", errNotTaken, err)
	}
	rt := o.Table.Route(s.Route)
	if rt == nil || s.ID != h.Session {
		return fmt.Errorf("%w: no route %q", errNotTaken, s.Route)
	}
	core, err := session.Restore(h.Format, h.State, h.Content, o.Store, registry.MaskingKey)
	if err == nil {
		if err = core.Arrive(o.Clock.Now(), h.At, h.Epoch+1); err != nil {
			core.Discard()
		}
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errNotTaken, err)
	}
	begun := o.arriving.begin(h.Session) != nil
	if !begun || o.Registry.Find(h.Session) != nil {
		if begun {
			o.arriving.end(h.Session)
		}
		core.Discard()
		return fmt.Errorf("%w: it is here already", errTaken)
	}
	s.Durable = true
	s.Seat = registry.Seat{Epoch: h.Epoch + 1, Revision: h.Revision, Moved: wire.MovedHandoff}
	e, err := rt.Restore(o.Registry, s, s.Terms.Apply(rt.Terms), o.Store)
	if err != nil {
		core.Discard()
		o.arriving.end(h.Session)
		return fmt.Errorf("%w: %w", errNotTaken, err)
	}
	return o.takeArrived(ctx, v, &arrived{e, core, o.seats.seatOf(e, core.Info())})
}

// An arrived session is registered, and waits for its seat to be written. Its resumes wait until arriving ends.
type arrived struct {
	e    *registry.Record
	core *session.Session
	seat cluster.Seat
}

// arrivalTime limits the attempts to find out whether this node has written a seat.
const arrivalTime = 30 * time.Second

// takeArrived writes the seat of a session that has arrived whole, and serves it. If nobody knows whether the seat
// was written, the session is kept until that is known: the older node may let it go meanwhile.
func (o *Owner) takeArrived(ctx context.Context, v *gate.Visit, a *arrived) (err error) {
	var revision uint64
	v.Away(func() { revision, err = o.Seats.Put(ctx, a.seat) })
	switch {
	case err == nil:
		o.arrive(a, revision)
		return nil
	case errors.Is(err, cluster.ErrSeatTaken):
		o.turnAway(a)
		return fmt.Errorf("%w: %w", errTaken, err)
	}
	o.Running.Go(func() { o.awaitSeat(a) })
	return fmt.Errorf("take in session %s: %w", a.e.ID, err)
}

// awaitSeat reads the seat of an arrived session until its owner is known.
func (o *Owner) awaitSeat(a *arrived) {
	ctx, cancel := context.WithTimeout(o.Ctx, arrivalTime)
	defer cancel()
	for ctx.Err() == nil {
		switch seat, err := o.Seats.Get(ctx, a.e.ID); {
		case err == nil && seat.Owner == a.seat.Owner && seat.Epoch == a.seat.Epoch:
			o.arrive(a, seat.Revision)
			return
		case err == nil && seat.Revision != a.seat.Revision: // this node's write cannot succeed any more
			o.turnAway(a)
			return
		}
		pause(ctx, nil, findPause)
	}
	o.turnAway(a)
}

// arrive serves an arrived session, whose seat is written.
func (o *Owner) arrive(a *arrived, revision uint64) {
	a.e.UpdateSeat(func(s *registry.Seat) { s.Revision, s.Covered = revision, true })
	o.adopt(a.e, a.core)
	o.arriving.end(a.e.ID)
}

// turnAway forgets an arrived session, which another node has.
func (o *Owner) turnAway(a *arrived) {
	o.Registry.Release(a.e, o.Store)
	a.core.Discard()
	o.arriving.end(a.e.ID)
}
