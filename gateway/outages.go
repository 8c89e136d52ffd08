package gateway

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"reseat/gateway/gate"
	"reseat/gateway/registry"
	"reseat/gateway/session"
	"reseat/gateway/transport"
	"reseat/gateway/watch"
	"reseat/upstream"
)

// outages dials new upstreams for sessions that go on without theirs, --upstream-lost
// redial. When an outage begins, how long it may last, and what it ends with is the core's
// decision.
type outages struct {
	ctx     context.Context // until Gateway.Close
	running *sync.WaitGroup
	dials   *dials
	gate    *gate.Gate
	clock   *transport.Clock
	log     *watch.LimitedLog
	seats   *seatKeeper

	mu     sync.Mutex // never held over a call of the driver
	of     map[*registry.Record]*outage
	closed bool
}

// An outage is the goroutine that dials for one session.
type outage struct {
	cancel context.CancelFunc
	again  bool // a further outage has begun meanwhile
}

// Delays between two dials for a session. A game server that restarts loses all its sessions
// at once, so the delays are random; they grow with the time that has passed, so that it needs
// no counter, and an upstream that answers and breaks again is not dialled faster.
const (
	minRedialPause = 100 * time.Millisecond
	maxRedialPause = 2 * time.Second
)

// redialDelay is the delay before the next dial, after that time without a lasting connection.
func redialDelay(passed time.Duration) time.Duration {
	d := min(max(passed/2, minRedialPause), maxRedialPause)
	return d/2 + rand.N(d/2)
}

// begin dials for e, whose upstream has been lost, until the outage is over.
func (o *outages) begin(e *registry.Record) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch r := o.of[e]; {
	case o.closed:
		return
	case r != nil:
		r.again = true
		return
	}
	ctx, cancel := context.WithCancel(o.ctx)
	r := &outage{cancel: cancel}
	o.of[e] = r
	o.running.Go(func() {
		defer cancel()
		for o.dial(ctx, e) || o.further(e, r) {
		}
	})
}

// close has no further dials begin.
func (o *outages) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
}

// further ends r, unless a further outage has begun.
func (o *outages) further(e *registry.Record, r *outage) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if r.again {
		r.again = false
		return true
	}
	delete(o.of, e)
	return false
}

// cancel ends the dials for e, whose session has ended.
func (o *outages) cancel(e *registry.Record) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if r := o.of[e]; r != nil {
		r.cancel()
	}
}

// dial waits and dials once. It reports whether the outage goes on.
func (o *outages) dial(ctx context.Context, e *registry.Record) bool {
	until, ok := outageOf(e)
	if !ok {
		return false
	}
	terms := e.Terms()
	began := until.Add(-terms.RedialFor)
	wait := time.NewTimer(redialDelay(o.clock.Now().Sub(began)))
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
		return false
	}
	if _, ok := outageOf(e); !ok {
		return false
	}
	left := until.Sub(o.clock.Now())
	attempt, cancel := context.WithTimeout(ctx, min(terms.DialTimeout, left))
	defer cancel()
	up, err := o.dials.dial(attempt, e, func() upstream.Request {
		var ask upstream.Request
		if !o.enter(func() { ask = o.request(e) }) {
			cancel() // a successor has the session, and dials for it
			return ask
		}
		return o.seats.numbered(attempt, e, ask, session.Resume{})
	})
	if err == nil && up.Protocol != e.Protocol() {
		up.Close()
		err = errOtherProtocol
	}
	again := true
	if here := o.enter(func() { again = o.result(e, up, err) }); !here {
		if err == nil {
			up.Close()
		}
		again = false
	}
	upstream.Discard(err)
	return again
}

// result gives e the result of a dial, and reports whether the outage goes on.
func (o *outages) result(e *registry.Record, up *upstream.Conn, err error) (again bool) {
	switch {
	case err == nil:
		if !reconnected(e, up, true) {
			up.Close()
		}
		return false
	case final(err):
		e.Do(func(core *session.Session, now session.Time) { core.FailRedial(now, err.Error()) })
	}
	o.log.Info("upstream.redial_failed", "session", e.ID, "err", err)
	_, again = outageOf(e)
	return again
}

// enter calls f while the sessions are here, and waits while they are frozen. It reports false
// if a successor has them.
func (o *outages) enter(f func()) bool {
	v := o.gate.Enter()
	if v == nil {
		return false
	}
	defer v.Leave()
	f()
	return true
}

// outageOf returns when e's outage ends at the latest.
func outageOf(e *registry.Record) (until session.Time, ok bool) {
	if d := e.DriverBegun(); d != nil {
		d.Do(func(core *session.Session, _ session.Time) { _, until = core.Outage() })
	}
	return until, until > 0
}

// request is the request of a redial: the first handshake's, with the headers of the newest.
func (o *outages) request(e *registry.Record) upstream.Request {
	ask := e.First()
	ask.Header = with(ask.Header, http.Header{"Reseat-Resumed": {"upstream"}})
	return ask
}

// final reports whether another dial would have the same result: the game server has refused
// this session, and not because it is busy or has not started yet.
func final(err error) bool {
	var refusal *upstream.Refusal
	switch {
	case errors.Is(err, errOtherProtocol):
		return true
	case !errors.As(err, &refusal):
		return false
	}
	return refusal.Status >= 400 && refusal.Status < 500 && refusal.Status != http.StatusTooManyRequests
}
