package gateway

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"reseat/gateway/registry"
	"reseat/gateway/session"
	"reseat/gateway/wire"
	"reseat/upstream"
)

// A redialer dials upstreams anew for sessions that have none, --disconnect hard.
type redialer struct {
	ctx     context.Context // until Gateway.Close
	running *sync.WaitGroup // of the dials
	dials   *dials
	// request is what an upstream is asked for a handshake.
	request func(e *registry.Record, r *http.Request, protocols []string, more http.Header) upstream.Request

	mu sync.Mutex // never held over a call of the driver
	of map[*registry.Record]*redial
}

// An arrival is a client that comes back, by token or by cookie, and has its 101.
type arrival struct {
	r     *http.Request
	conn  net.Conn
	early []byte       // what it has sent behind its handshake
	at    session.Time // of its handshake
	want  session.Resume
	peer  string // its address, as believed
}

// A redial is the dial of an upstream for a session that has none, --disconnect
// hard, and the client that waits for it. One is under way for a session at a
// time: a later resume takes the waiting client's place, and its dial.
//
// All but done is guarded by the redialer's mu.
type redial struct {
	ask    upstream.Request // by the handshake of the client that waits
	waiter *waiter          // nil: nobody waits any more
	taken  bool             // the outcome is the waiter's: nobody takes its place now
	cancel context.CancelFunc
	done   chan struct{} // closed when the waiter has been attached, or not
}

// An outcome is what a redial came to.
type outcome struct {
	up  *upstream.Conn
	err error
}

// A waiter is a client that waits for its session's upstream.
type waiter struct {
	*arrival
	outcome  chan outcome
	replaced chan struct{} // closed when another resume has taken its place
	gone     chan struct{} // closed when its connection has ended
	stopped  chan struct{} // closed when nobody reads it any more
}

const (
	// maxEarly is what a client may send before its hello.
	maxEarly = 64 << 10
	// retryRedial is when to come back at the earliest where the upstream could not
	// be reached, and twice as long at the latest.
	retryRedial = time.Second
)

var (
	errReplaced = errors.New("another resume took its place")
	errLeft     = errors.New("client gone while its upstream was dialled")
)

// reconnect gives a session that has no upstream a new one, for a client that waits
// meanwhile; what that sends is added to a.early. Where err is nil, finish must be
// called once the client is attached, or not.
func (rd *redialer) reconnect(e *registry.Record, a *arrival) (finish func(), err error) {
	w := &waiter{
		arrival: a, outcome: make(chan outcome, 1),
		replaced: make(chan struct{}), gone: make(chan struct{}), stopped: make(chan struct{}),
	}
	d := rd.join(e, w)
	if d == nil {
		return func() {}, nil
	}
	go w.watch()
	defer w.stop()
	out, err := rd.await(d, w)
	if err != nil {
		return nil, err
	}
	w.stop()
	if out.err == nil && !reconnected(e, out.up) {
		out.up.Close()
	}
	if out.err != nil {
		rd.finish(e, d)
		return nil, out.err
	}
	return func() { rd.finish(e, d) }, nil
}

// reconnected hands a new upstream over. It reports false where the session
// needs none any more.
func reconnected(e *registry.Record, up *upstream.Conn) bool {
	d := e.Driver()
	return d != nil && d.Reconnect(up.Conn, up.Early)
}

// await waits for the outcome of d, unless w loses its place.
func (rd *redialer) await(d *redial, w *waiter) (outcome, error) {
	select {
	case out := <-w.outcome:
		return out, nil
	case <-w.replaced:
		return outcome{}, errReplaced
	case <-w.gone:
	}
	if rd.leave(d, w) {
		return outcome{}, errLeft
	}
	select { // it was too late to leave
	case out := <-w.outcome:
		return out, nil
	case <-w.replaced:
		return outcome{}, errReplaced
	}
}

// join puts w in place of the client that waits for the session's upstream, unless
// that came later, and has it dialled where nobody does. It is nil where somebody
// else was just being attached: it has been waited for.
func (rd *redialer) join(e *registry.Record, w *waiter) *redial {
	rd.mu.Lock()
	d := rd.of[e]
	switch {
	case d == nil:
		d = &redial{waiter: w, done: make(chan struct{}), ask: rd.requestAgain(e, w.r)}
		rd.of[e] = d
		rd.mu.Unlock()
		e.Do(func(core *session.Session, now session.Time) { core.Await(now) })
		rd.running.Go(func() { rd.redialFor(e, d) })
		return d
	case d.taken:
		rd.mu.Unlock()
		<-d.done
		return nil
	}
	out := d.waiter
	if out != nil && out.at > w.at {
		out = w
	} else {
		d.waiter, d.ask = w, rd.requestAgain(e, w.r)
	}
	rd.mu.Unlock()
	if out != nil {
		close(out.replaced)
	}
	return d
}

// leave gives up w's place, and breaks the dial off. It reports false where the
// place is not w's any more, or the dial is over.
func (rd *redialer) leave(d *redial, w *waiter) bool {
	rd.mu.Lock()
	defer rd.mu.Unlock()
	if d.taken || d.waiter != w {
		return false
	}
	d.waiter = nil
	if d.cancel != nil {
		d.cancel()
	}
	return true
}

// finish ends d, whatever came of it.
func (rd *redialer) finish(e *registry.Record, d *redial) {
	e.Do(func(core *session.Session, now session.Time) { core.Forgo(now) })
	rd.mu.Lock()
	delete(rd.of, e)
	rd.mu.Unlock()
	close(d.done)
}

// requestAgain is what the upstream is asked at a hard resume: path, query and
// subprotocols of the first handshake, the newest one's header.
func (rd *redialer) requestAgain(e *registry.Record, r *http.Request) upstream.Request {
	first := e.First()
	ask := rd.request(e, r, first.Protocols, http.Header{"Reseat-Resumed": {"hard"}})
	ask.Path, ask.RawQuery = first.Path, first.RawQuery
	return ask
}

// redialFor dials for d, until it is known the outcome or nobody waits.
func (rd *redialer) redialFor(e *registry.Record, d *redial) {
	for {
		out, again := rd.dialOnce(e, d)
		switch {
		case again:
		case out == nil:
			rd.finish(e, d)
			return
		default:
			d.waiter.outcome <- *out
			return
		}
	}
}

// dialOnce dials. The outcome is nil where nobody waits for it, and again true
// where somebody has come since it was broken off.
func (rd *redialer) dialOnce(e *registry.Record, d *redial) (out *outcome, again bool) {
	ctx, cancel := context.WithTimeout(rd.ctx, e.Terms().DialTimeout)
	defer cancel()
	rd.mu.Lock()
	d.cancel = cancel
	if d.waiter == nil {
		cancel()
	}
	rd.mu.Unlock()
	up, err := rd.dials.dial(ctx, &e.Target, func() upstream.Request {
		rd.mu.Lock()
		defer rd.mu.Unlock()
		return d.ask
	})
	if err == nil && up.Protocol != e.Protocol() {
		up.Close()
		err = errors.New("the upstream chose another subprotocol than before")
	}
	rd.mu.Lock()
	defer rd.mu.Unlock()
	switch {
	case d.waiter == nil:
		if err == nil {
			up.Close()
		}
		d.taken = true
		return nil, false
	case err != nil && errors.Is(ctx.Err(), context.Canceled) && e.Driver() != nil && rd.ctx.Err() == nil:
		return nil, true
	}
	d.taken = true
	return &outcome{up, err}, false
}

// breakOff ends the dial for e, whose session has ended.
func (rd *redialer) breakOff(e *registry.Record) {
	rd.mu.Lock()
	defer rd.mu.Unlock()
	if d := rd.of[e]; d != nil && d.cancel != nil {
		d.cancel()
	}
}

// watch reads what the client sends while it waits, and notices that it goes.
func (w *waiter) watch() {
	defer close(w.stopped)
	buf := make([]byte, 512)
	for {
		n, err := w.conn.Read(buf)
		w.early = append(w.early, buf[:n]...)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return
		case err != nil, len(w.early) > maxEarly:
			close(w.gone)
			return
		}
	}
}

// stop ends watch. It may be called twice.
func (w *waiter) stop() {
	w.conn.SetReadDeadline(time.Unix(1, 0))
	<-w.stopped
	w.conn.SetReadDeadline(time.Time{})
}

// unreached is what a client is told whose upstream could not be had.
func unreached(err error) *session.Refusal {
	if errors.Is(err, errReplaced) {
		return session.Refuse(wire.CodeSuperseded, "")
	}
	ref := session.Refuse(wire.CodeUpstreamLost, "")
	ref.Retry = retryRedial + rand.N(retryRedial) // all of its sessions lost it at once
	return ref
}
