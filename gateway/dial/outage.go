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
	if d := dr.of[e]; d != nil {
		d.again = true
		return
	}
	dr.beginOutageLocked(e)
}

func (dr *Dialer) beginOutageLocked(e *registry.Record) {
	if dr.closed {
		return
	}
	ctx, cancel := context.WithCancel(dr.o.Ctx)
	d := &dialling{outage: true, cancel: cancel}
	dr.of[e] = d
	dr.o.Running.Go(func() {
		defer cancel()
		for dr.dialOutage(ctx, e) {
		}
		dr.end(e, d)
	})
}

// dialOutage waits and dials once. It reports whether another dial must follow.
func (dr *Dialer) dialOutage(ctx context.Context, e *registry.Record) (more bool) {
	since, until := outageOf(e)
	if since == 0 {
		return false
	}
	terms := e.Terms()
	began := until.Add(-terms.RedialFor) // of the first of several outages that came soon after each other
	wait := time.NewTimer(redialDelay(dr.o.Clock.Now().Sub(began)))
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
		return false
	}
	if now, _ := outageOf(e); now != since {
		return now > 0
	}
	left := until.Sub(dr.o.Clock.Now())
	attempt, cancel := context.WithTimeout(ctx, min(terms.DialTimeout, left))
	defer cancel()
	up, err := dr.redial(attempt, e, func() upstream.Request {
		var ask upstream.Request
		if !dr.enter(func() { ask = again(e) }) {
			cancel() // a successor has the session, and dials for it
			return ask
		}
		return dr.o.Numbered(attempt, e, ask, session.Resume{})
	})
	if here := dr.enter(func() { more = dr.result(ctx, e, since, up, err) }); !here && err == nil {
		up.Close()
	}
	upstream.Discard(err)
	return more
}

// result gives e the result of a dial in the outage that began at since, and reports whether another dial must
// follow. It discards the result of an outage that has ended: a later one needs another request, with numbers of its
// own.
func (dr *Dialer) result(ctx context.Context, e *registry.Record, since session.Time, up *upstream.Conn, err error) (again bool) {
	switch {
	case err == nil:
		if !reconnected(e, up, since) {
			up.Close()
		}
		return false
	case ctx.Err() != nil: // a client waits instead, or the session has ended
		return false
	case final(err):
		e.Do(func(core *session.Session, now session.Time) {
			if its, _ := core.Outage(); its == since {
				core.FailRedial(now, err.Error())
			}
		})
		fallthrough
	default:
		dr.o.Log.Info("upstream.redial_failed", "session", e.ID, "err", err)
	}
	now, _ := outageOf(e)
	return now > 0
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

// outageOf returns when e's outage began, and when it ends at the latest; zero: there is none.
func outageOf(e *registry.Record) (since, until session.Time) {
	if d := e.DriverBegun(); d != nil {
		d.Do(func(core *session.Session, _ session.Time) { since, until = core.Outage() })
	}
	return since, until
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
