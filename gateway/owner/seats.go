package owner

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"reseat/gateway/cluster"
	"reseat/gateway/dial"
	"reseat/gateway/gate"
	"reseat/gateway/registry"
	"reseat/gateway/session"
	"reseat/gateway/wire"
	"reseat/upstream"
)

// seatKeeper writes the seats of this node's durable sessions. A session whose seat says all that
// another node needs is covered; while the engine is away sessions go on, exposed.
//
// One write of a seat is under way at a time; it has the newest state.
type seatKeeper struct {
	*Options

	mu     sync.Mutex
	writes map[string]*seatWrite   // by session
	late   map[string]cluster.Seat // how sessions have ended whose seats do not say so yet
	looks  map[string]bool         // by session whose seat is read since somebody says that another node has it
	closed bool
}

// A seatWrite is the writes of one seat, as long as there are any.
type seatWrite struct {
	done chan struct{} // closed when the one under way is over
	next chan struct{} // the same for a further one; nil: none is wanted
	last *cluster.Seat // how the session has ended, which is written last; nil: it has not
}

const (
	// seatTime limits a client's wait for the write of a seat. After it the session is exposed.
	seatTime = time.Second
	// contactTime is how long after a sign of the engine's a node may act for absent players, or hope
	// for a write to succeed at once.
	contactTime = 5 * time.Second
	// exposedEvery is the interval of retries for seats that could not be written.
	exposedEvery = 2 * time.Second
	// seatsAtOnce bounds the retries in flight.
	seatsAtOnce = 16
	// The bounds of retry_after_ms of node_unreachable.
	unreachableRetryMin = 300 * time.Millisecond
	unreachableRetryMax = 1500 * time.Millisecond
)

// hasContact reports whether the engine was there a moment ago.
func (k *seatKeeper) hasContact() bool {
	return k.Seats != nil && time.Since(k.Seats.Contact()) < contactTime
}

// touch requests a write of e's seat, if e is durable. It does not wait: the channel is closed when a write
// that began after the call is over.
func (k *seatKeeper) touch(e *registry.Record) <-chan struct{} {
	if !e.Durable {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.touchLocked(e, nil)
}

// touchLocked is touch. last is how the session has ended, nil: it has not.
func (k *seatKeeper) touchLocked(e *registry.Record, last *cluster.Seat) <-chan struct{} {
	w := k.writes[e.ID]
	if w != nil {
		if w.next == nil {
			w.next = make(chan struct{})
		}
		w.last = cmp.Or(w.last, last)
		return w.next
	}
	w = &seatWrite{done: make(chan struct{}), last: last}
	if k.closed {
		close(w.done)
		return w.done
	}
	k.writes[e.ID] = w
	done := w.done
	k.Running.Go(func() { k.run(e, w) })
	return done
}

func (k *seatKeeper) run(e *registry.Record, w *seatWrite) {
	for again := true; again; {
		k.mu.Lock()
		last := w.last
		k.mu.Unlock()
		if last == nil {
			k.write(e)
		} else {
			last.Revision = e.Seat().Revision
			k.writeEnd(*last)
		}
		k.mu.Lock()
		close(w.done)
		w.done, w.next = w.next, nil
		if again = w.done != nil && last == nil; !again {
			delete(k.writes, e.ID)
			if w.done != nil { // of the end
				close(w.done)
			}
		}
		k.mu.Unlock()
	}
}

// close has no further writes begin.
func (k *seatKeeper) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
}

// settle is touch, and waits for the write, within seatTime. It reports whether e is covered.
func (k *seatKeeper) settle(ctx context.Context, v *gate.Visit, e *registry.Record) bool {
	if !e.Durable {
		return false
	}
	v.OutOfTurn(func() { k.wait(ctx, k.touch(e)) })
	return e.Seat().Covered
}

// changed has the seats of sessions written that a call has changed or ended, and waits for that, within
// seatTime: a node that dies behind the answer must not take the change with it.
func (k *seatKeeper) changed(all ...*registry.Record) {
	var written []<-chan struct{}
	for _, e := range all {
		if done := k.touch(e); done != nil {
			written = append(written, done)
		}
	}
	k.wait(k.Ctx, written...)
}

// wait waits for writes, within seatTime, and not at all while the engine is away.
func (k *seatKeeper) wait(ctx context.Context, written ...<-chan struct{}) {
	if len(written) == 0 || !k.hasContact() {
		return
	}
	limit := time.NewTimer(seatTime)
	defer limit.Stop()
	for _, done := range written {
		select {
		case <-done:
		case <-limit.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// write writes e's seat once.
func (k *seatKeeper) write(e *registry.Record) {
	release := e.Hold()
	defer release()
	k.writeHeld(e)
}

// writeHeld is write for a caller that holds e.
func (k *seatKeeper) writeHeld(e *registry.Record) {
	d := e.DriverBegun()
	if d == nil || k.Ctx.Err() != nil {
		return
	}
	i := d.Info()
	if k.HandedOver() { // what Info has returned may be nothing
		return
	}
	seat := k.seatOf(e, i)
	ctx, cancel := context.WithTimeout(k.Ctx, 2*seatTime)
	defer cancel()
	revision, err := k.Seats.Put(ctx, seat)
	if errors.Is(err, cluster.ErrSeatTaken) { // perhaps by a write of this node whose answer was lost
		revision, err = k.Seats.Renew(ctx, seat)
	}
	var was bool
	e.UpdateSeat(func(s *registry.Seat) {
		was, s.Covered = s.Covered, err == nil
		if err == nil {
			s.Revision = revision
		}
	})
	switch {
	case errors.Is(err, cluster.ErrSeatTaken):
		k.fence(e, "another node has written its seat")
	case err != nil && was:
		k.Watch.Limited.Warn("session.exposed", "session", e.ID, "err", err)
	case err == nil && !was && seat.Revision > 0:
		k.Watch.Limited.Info("session.covered", "session", e.ID)
	}
}

// Numbered is dial.Numbered for a session that dials again. A durable one also says how it came here, and which
// messages the upstream gets and is expected to send; its seat has the number before the upstream does.
func (o *Owner) Numbered(ctx context.Context, e *registry.Record, ask upstream.Request, want session.Resume) upstream.Request {
	ask = dial.Numbered(e, ask)
	d := e.Driver()
	if !e.Durable || d == nil {
		return ask
	}
	o.seats.settle(ctx, nil, e)
	var how string
	var up, down uint64
	d.Do(func(core *session.Session, _ session.Time) {
		how = core.MovedHere()
		up, down = core.Counts(want)
	})
	more := http.Header{"Reseat-Up-From": {strconv.FormatUint(up, 10)}, "Reseat-Down-From": {strconv.FormatUint(down, 10)}}
	if how != "" {
		more["Reseat-Resumed"] = []string{how}
	}
	ask.Header = dial.With(ask.Header, more)
	return ask
}

// seatOf is the seat of e now.
func (k *seatKeeper) seatOf(e *registry.Record, i session.Info) cluster.Seat {
	s := e.Seat()
	body := registry.SeatBody{
		Record: e.AppendShort(nil, k.Table.Route(e.Route).Upstream), Confirmed: i.Tokens.Confirmed(), Acked: i.Acked, Started: i.Started,
	}
	return cluster.Seat{
		Session: e.ID, Owner: k.Cluster.ID(), Epoch: s.Epoch, Handoff: s.Handoff(), Keep: e.Terms().LongestGrace(), Body: body.Encode(), Revision: s.Revision,
	}
}

// end writes how a session has ended, or deletes its seat: a resume then gets 4404.
func (k *seatKeeper) end(e *registry.Record, i session.Info) {
	last := k.seatOf(e, i)
	last.Ended, last.Reason = i.Ending.Code, i.Ending.Text
	if last.Ended == wire.CodeNodeUnreachable { // it ended silently: if it can be written, it was this node's
		last.Ended, last.Reason = wire.CodeNoSession, wire.Name(wire.CodeNoSession)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.closed { // else its seat can be claimed in a moment
		k.touchLocked(e, &last)
	}
}

// writeEnd has a seat say how its session has ended, now or once the engine is back.
func (k *seatKeeper) writeEnd(last cluster.Seat) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(k.Ctx), 2*seatTime)
	defer cancel()
	err := cluster.ErrSeatTaken
	if last.Ended == wire.CodeNoSession && last.Epoch == 0 { // else an older owner that wakes may write it again
		err = k.Seats.Delete(ctx, last.Session, last.Revision)
	}
	if errors.Is(err, cluster.ErrSeatTaken) {
		_, err = k.Seats.Renew(ctx, last)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.late, last.Session)
	if err != nil && !errors.Is(err, cluster.ErrSeatTaken) {
		k.Watch.Limited.Info("seat.not_ended", "session", last.Session, "err", err)
		if last.Revision > 0 { // else there is none, as far as is known
			k.late[last.Session] = last
		}
	}
}

// endLate writes the ends that could not be written.
func (k *seatKeeper) endLate() {
	k.mu.Lock()
	late := slices.Collect(maps.Values(k.late))
	k.mu.Unlock()
	each(k.Ctx, seatsAtOnce, late, k.writeEnd)
}

// fence releases a session that another node has.
func (k *seatKeeper) fence(e *registry.Record, why string) {
	d := e.Driver()
	if d == nil {
		return
	}
	fenced := false
	d.Do(func(core *session.Session, now session.Time) {
		if fenced = core.State() != session.Ended; fenced {
			core.Fence(now)
		}
	})
	if fenced {
		k.Watch.Metrics.Fenced.Inc()
		k.Watch.Limited.Warn("session.fenced", "session", e.ID, "epoch", e.Seat().Epoch, "why", why)
	}
}

// ask is askOwner in the background, unless the gateway closes.
func (k *seatKeeper) ask(e *registry.Record) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.closed {
		k.Running.Go(func() { k.askOwner(e) })
	}
}

// askOwner finds out whether this node still has e: the core has asked. Only a write decides: a node that stood
// still for two seconds may have been replaced, however fresh its contact with the engine seems to be.
func (k *seatKeeper) askOwner(e *registry.Record) {
	<-k.touch(e) // or e is fenced
	if e.Seat().Covered {
		e.Do(func(core *session.Session, now session.Time) { core.Owned(now) })
	}
}

// renew writes the seats of all, in case the engine has lost them. exposed alone: only those that could
// not be written.
func (k *seatKeeper) renew(all []*registry.Record, exposed bool) {
	due := slices.DeleteFunc(slices.Clone(all), func(e *registry.Record) bool {
		return !e.Durable || exposed && e.Seat().Covered || e.Driver() == nil
	})
	each(k.Ctx, seatsAtOnce, due, func(e *registry.Record) { <-k.touch(e) })
}

// watch writes what could not be written, until ctx is done.
func (k *seatKeeper) watch(all func() []*registry.Record) {
	tick := time.NewTicker(exposedEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if k.hasContact() {
				k.renew(all(), true)
				k.endLate()
			}
		case <-k.Ctx.Done():
			return
		}
	}
}

// unreachable refuses a resume that cannot be decided now.
func unreachable() *session.Refusal {
	ref := session.Refuse(wire.CodeNodeUnreachable, "")
	ref.Retry = unreachableRetryMin + rand.N(unreachableRetryMax-unreachableRetryMin)
	return ref
}

// get reads a seat, and lets a freeze of the sessions go on meanwhile.
func (k *seatKeeper) get(ctx context.Context, v *gate.Visit, id string) (seat cluster.Seat, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*seatTime)
	defer cancel()
	v.Away(func() { seat, err = k.Seats.Get(ctx, id) })
	return seat, err
}

// look reads the seat of e, in the background, and lets e go if another node has it. It reads a seat once at a time,
// however often it is called.
func (k *seatKeeper) look(e *registry.Record) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed || k.looks[e.ID] {
		return
	}
	k.looks[e.ID] = true
	k.Running.Go(func() {
		seat, err := k.get(k.Ctx, nil, e.ID)
		if err == nil && seat.Owner != k.Cluster.ID() && seat.Epoch > e.Seat().Epoch {
			k.fence(e, "another node has taken it")
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.looks, e.ID)
	})
}

// confirm reads the seat of a claimed session again, before its client gets a hello: of two claims that
// both seem to have succeeded, the later one counts.
func (k *seatKeeper) confirm(ctx context.Context, v *gate.Visit, e *registry.Record) *session.Refusal {
	if !e.Durable || !e.Seat().Unsure {
		return nil
	}
	seat, err := k.get(ctx, v, e.ID)
	switch {
	case err != nil && !errors.Is(err, cluster.ErrNoSeat):
		return unreachable()
	case err != nil || seat.Owner != k.Cluster.ID() || seat.Epoch != e.Seat().Epoch:
		k.fence(e, "another node has claimed it")
		return unreachable()
	}
	e.UpdateSeat(func(s *registry.Seat) { s.Unsure = false })
	return nil
}
