package dial

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"time"

	"reseat/gateway/front"
	"reseat/gateway/registry"
	"reseat/gateway/session"
	"reseat/gateway/wire"
	"reseat/upstream"
)

// An Arrival is a returning client, by token or by cookie, that has its 101.
type Arrival struct {
	Request *front.Request
	Conn    net.Conn
	Early   []byte       // what it sent after its handshake
	At      session.Time // of its handshake
	Want    session.Resume
}

// An outcome is the result of the dials for a client.
type outcome struct {
	up  *upstream.Conn
	err error
}

// A waiter is a client that waits for its session's upstream.
type waiter struct {
	*Arrival
	outcome      chan outcome
	replaced     chan struct{} // closed when another resume replaces it
	disconnected chan struct{} // closed when its client disconnects
	stopped      chan struct{} // closed when watch returns
}

const (
	// maxEarly bounds what a client may send before its hello, in bytes.
	maxEarly = 64 << 10
	// retryRedial is the minimum delay of a client's retry after a failed redial, and half
	// of the maximum.
	retryRedial = time.Second
)

var (
	errReplaced     = errors.New("another resume replaced this one")
	errDisconnected = errors.New("the client disconnected while its upstream was dialled")
)

// Reconnect dials a new upstream for e while the client a waits, and adds what the client
// sends meanwhile to a.Early. If err is nil, the caller must call finish once the client
// is attached or refused.
func (dr *Dialer) Reconnect(e *registry.Record, a *Arrival) (finish func(), err error) {
	w := &waiter{
		Arrival: a, outcome: make(chan outcome, 1),
		replaced: make(chan struct{}), disconnected: make(chan struct{}), stopped: make(chan struct{}),
	}
	d := dr.join(e, w)
	if d == nil {
		return func() {}, nil
	}
	go w.watch()
	defer w.stop()
	var out outcome
	a.Request.Visit.Away(func() { out, err = dr.await(d, w) })
	if err != nil {
		return nil, err
	}
	w.stop()
	if out.err == nil && !reconnected(e, out.up, 0) {
		out.up.Close()
	}
	if out.err != nil {
		dr.finish(e, d)
		return nil, out.err
	}
	return func() { dr.finish(e, d) }, nil
}

// await waits for the outcome of d, unless w is replaced or disconnects.
func (dr *Dialer) await(d *dialling, w *waiter) (outcome, error) {
	select {
	case out := <-w.outcome:
		return out, nil
	case <-w.replaced:
		return outcome{}, errReplaced
	case <-w.disconnected:
	}
	if dr.leave(d, w) {
		return outcome{}, errDisconnected
	}
	select { // the outcome is already on its way
	case out := <-w.outcome:
		return out, nil
	case <-w.replaced:
		return outcome{}, errReplaced
	}
}

// join makes w the client that waits for e's upstream, unless the present one arrived
// later, and begins to dial if no other client waits. It returns nil if another client was
// being attached; join has waited for that.
func (dr *Dialer) join(e *registry.Record, w *waiter) *dialling {
	dr.mu.Lock()
	d := dr.of[e]
	switch {
	case d == nil || d.outage:
		d = dr.beginLocked(e, w)
		dr.mu.Unlock()
		e.Do(func(core *session.Session, now session.Time) { core.BeginRedial(now) })
		dr.o.Running.Go(func() { dr.dialForClient(e, d) })
		return d
	case d.decided:
		dr.mu.Unlock()
		w.Request.Visit.Away(func() { <-d.done })
		return nil
	}
	out := d.waiter
	if out != nil && out.At > w.At {
		out = w
	} else {
		d.waiter, d.ask = w, dr.requestAgain(e, w.Request)
	}
	dr.mu.Unlock()
	if out != nil {
		close(out.replaced)
	}
	return d
}

// beginLocked begins a dialling for the client w. It takes the place of one for an outage, which is over, or
// the client would not wait. If a further outage has begun since w was found to wait, it is dialled for again
// afterwards.
func (dr *Dialer) beginLocked(e *registry.Record, w *waiter) *dialling {
	d := &dialling{waiter: w, done: make(chan struct{}), ask: dr.requestAgain(e, w.Request)}
	if before := dr.of[e]; before != nil {
		before.cancel()
		d.again = true
	}
	dr.of[e] = d
	return d
}

// leave removes w and cancels the dial. It reports false if w has been replaced, or the
// dial is over.
func (dr *Dialer) leave(d *dialling, w *waiter) bool {
	dr.mu.Lock()
	defer dr.mu.Unlock()
	if d.decided || d.waiter != w {
		return false
	}
	d.waiter = nil
	if d.cancel != nil {
		d.cancel()
	}
	return true
}

// finish ends d, whatever its outcome: the client has been attached or refused.
func (dr *Dialer) finish(e *registry.Record, d *dialling) {
	e.Do(func(core *session.Session, now session.Time) { core.CancelRedial(now) })
	dr.end(e, d)
	close(d.done)
}

// requestAgain is the request of a hard resume: path, query and subprotocols of the first
// handshake, headers of the latest one.
func (dr *Dialer) requestAgain(e *registry.Record, r *front.Request) upstream.Request {
	return dr.FirstAgain(e, r, http.Header{"Reseat-Resumed": {"hard"}})
}

// FirstAgain is e's first request with the headers of r, and more.
func (dr *Dialer) FirstAgain(e *registry.Record, r *front.Request, more http.Header) upstream.Request {
	first := e.First()
	ask := dr.o.Request(e, r, first.Protocols, more)
	ask.Path, ask.RawQuery, ask.ForceQuery = first.Path, first.RawQuery, first.ForceQuery
	return ask
}

// dialForClient dials until d has an outcome or no client waits.
func (dr *Dialer) dialForClient(e *registry.Record, d *dialling) {
	for {
		out, again := dr.dialOnce(e, d)
		switch {
		case again:
		case out == nil:
			dr.finish(e, d)
			return
		default:
			d.waiter.outcome <- *out
			return
		}
	}
}

// dialOnce dials once. out is nil if no client waits for it. again is true if the dial was
// cancelled and a client has joined since.
func (dr *Dialer) dialOnce(e *registry.Record, d *dialling) (out *outcome, again bool) {
	ctx, cancel := context.WithTimeout(dr.o.Ctx, e.Terms().DialTimeout)
	defer cancel()
	dr.mu.Lock()
	d.cancel = cancel
	if d.waiter == nil {
		cancel()
	}
	dr.mu.Unlock()
	up, err := dr.redial(ctx, e, func() upstream.Request {
		dr.mu.Lock()
		ask, want := d.ask, session.Resume{}
		if d.waiter != nil {
			want = d.waiter.Want
		}
		dr.mu.Unlock()
		return dr.o.Numbered(ctx, e, ask, want)
	})
	dr.mu.Lock()
	defer dr.mu.Unlock()
	switch {
	case d.waiter == nil:
		if err == nil {
			up.Close()
		}
		d.decided = true
		return nil, false
	case err != nil && errors.Is(ctx.Err(), context.Canceled) && e.Driver() != nil && dr.o.Ctx.Err() == nil:
		return nil, true
	}
	d.decided = true
	return &outcome{up, err}, false
}

// watch reads what the client sends while it waits, and notices that it disconnects.
func (w *waiter) watch() {
	defer close(w.stopped)
	buf := make([]byte, 512)
	for {
		n, err := w.Conn.Read(buf)
		w.Early = append(w.Early, buf[:n]...)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return
		case err != nil, len(w.Early) > maxEarly:
			close(w.disconnected)
			return
		}
	}
}

// stop ends watch. It may be called twice.
func (w *waiter) stop() {
	w.Conn.SetReadDeadline(time.Unix(1, 0))
	<-w.stopped
	w.Conn.SetReadDeadline(time.Time{})
}

// Refusal is the refusal for a client whose upstream could not be reached.
func Refusal(err error) *session.Refusal {
	if errors.Is(err, errReplaced) {
		return session.Refuse(wire.CodeSuperseded, "")
	}
	ref := session.Refuse(wire.CodeUpstreamLost, "")
	ref.Retry = retryRedial + rand.N(retryRedial) // jitter: all sessions of an upstream lose it at once
	return ref
}
