package dial

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"reseat/gateway/registry"
	"reseat/gateway/session"
	"reseat/upstream"
)

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

// BeginOutage dials for e, which goes on without its upstream, until the outage is over:
// --upstream-lost redial. When an outage begins, how long it may last, and what it ends with is
// the core's decision.
func (dr *Dialer) BeginOutage(e *registry.Record) {
	dr.mu.Lock()
	defer dr.mu.Unlock()
	switch r := dr.outages[e]; {
	case dr.closed:
		return
	case r != nil:
		r.again = true
		return
	}
	ctx, cancel := context.WithCancel(dr.o.Ctx)
	r := &outage{cancel: cancel}
	dr.outages[e] = r
	dr.o.Running.Go(func() {
		defer cancel()
		for dr.dialOutage(ctx, e) || dr.further(e, r) {
		}
	})
}

// Close has no further outages begin.
func (dr *Dialer) Close() {
	dr.mu.Lock()
	defer dr.mu.Unlock()
	dr.closed = true
}

// further ends r, unless a further outage has begun.
func (dr *Dialer) further(e *registry.Record, r *outage) bool {
	dr.mu.Lock()
	defer dr.mu.Unlock()
	if r.again {
		r.again = false
		return true
	}
	delete(dr.outages, e)
	return false
}

// dialOutage waits and dials once. It reports whether the outage goes on.
func (dr *Dialer) dialOutage(ctx context.Context, e *registry.Record) bool {
	until, ok := outageOf(e)
	if !ok {
		return false
	}
	terms := e.Terms()
	began := until.Add(-terms.RedialFor)
	wait := time.NewTimer(redialDelay(dr.o.Clock.Now().Sub(began)))
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
		return false
	}
	if _, ok := outageOf(e); !ok {
		return false
	}
	left := until.Sub(dr.o.Clock.Now())
	attempt, cancel := context.WithTimeout(ctx, min(terms.DialTimeout, left))
	defer cancel()
	up, err := dr.dial(attempt, e, func() upstream.Request {
		var ask upstream.Request
		if !dr.enter(func() { ask = again(e) }) {
			cancel() // a successor has the session, and dials for it
			return ask
		}
		return dr.o.Numbered(attempt, e, ask, session.Resume{})
	})
	if err == nil && up.Protocol != e.Protocol() {
		up.Close()
		err = errOtherProtocol
	}
	again := true
	if here := dr.enter(func() { again = dr.result(e, up, err) }); !here {
		if err == nil {
			up.Close()
		}
		again = false
	}
	upstream.Discard(err)
	return again
}

// result gives e the result of a dial, and reports whether the outage goes on.
func (dr *Dialer) result(e *registry.Record, up *upstream.Conn, err error) (again bool) {
	switch {
	case err == nil:
		if !reconnected(e, up, true) {
			up.Close()
		}
		return false
	case final(err):
		e.Do(func(core *session.Session, now session.Time) { core.FailRedial(now, err.Error()) })
	}
	dr.o.Log.Info("upstream.redial_failed", "session", e.ID, "err", err)
	_, again = outageOf(e)
	return again
}

// enter calls f while the sessions are here, and waits while they are frozen. It reports false
// if a successor has them.
func (dr *Dialer) enter(f func()) bool {
	v := dr.o.Gate.Enter()
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

// again is the request of an outage: the first handshake's, with the headers of the newest.
func again(e *registry.Record) upstream.Request {
	ask := e.First()
	ask.Header = With(ask.Header, http.Header{"Reseat-Resumed": {"upstream"}})
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
