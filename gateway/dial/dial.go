// Package dial dials the game servers for sessions.
//
// The upstream of a session is open, or there is none, or it is dialled. Dials differ in who asks, and in
// what the request says (Reseat-Resumed):
//
//	First        the handshake that creates the session, or a call of the API; nothing
//	Reconnect    a client that comes back and waits: "hard" with --disconnect hard; "failover" or
//	             "handoff" for a durable session that comes from another node
//	BeginOutage  the session, which goes on with its client (--upstream-lost redial): "upstream"
//
// The core decides whether a session needs an upstream, and takes the one that was dialled only if what it
// was dialled for still holds.
package dial

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"sync"

	"reseat/gateway/front"
	"reseat/gateway/gate"
	"reseat/gateway/listen"
	"reseat/gateway/registry"
	"reseat/gateway/session"
	"reseat/gateway/transport"
	"reseat/gateway/watch"
	"reseat/upstream"
)

// Options configure a Dialer. All are required.
type Options struct {
	Ctx     context.Context // until the gateway closes
	Running *sync.WaitGroup // of the dials
	Conns   *listen.ConnTracker
	Gate    *gate.Gate
	Clock   *transport.Clock
	Log     *watch.LimitedLog
	// Request builds the request of a handshake with an upstream, for the client's r.
	Request func(e *registry.Record, r *front.Request, protocols []string, more http.Header) upstream.Request
	// Numbered adds to a request what a game server needs to tell the connections of a session apart.
	// want is the resume of the waiting client; zero: no client waits.
	Numbered func(ctx context.Context, e *registry.Record, ask upstream.Request, want session.Resume) upstream.Request
}

// A Dialer makes all connections of sessions to their game servers. Its methods may be called
// from any goroutine.
type Dialer struct {
	o      Options
	queues queues

	mu     sync.Mutex                     // never held over a call of the driver
	of     map[*registry.Record]*dialling // those that have begun and are dialled for again
	closed bool
}

// A dialling dials for a session that has no upstream, until it has one or dialling has become pointless. A session
// has one at a time. All fields but done are guarded by Dialer.mu.
type dialling struct {
	outage bool               // the session asks; else a client waits
	cancel context.CancelFunc // ends the dial in flight; nil before the first
	again  bool               // an outage has begun meanwhile, or may have: it is dialled for next

	// Of a client that waits. A later resume replaces it, and inherits its dial.
	waiter  *waiter          // nil if none is left
	ask     upstream.Request // from its handshake
	decided bool             // the outcome is delivered: the waiter can no longer be replaced
	done    chan struct{}    // closed when the waiter has been attached or refused
}

// New returns a Dialer.
func New(o Options) *Dialer {
	return &Dialer{o: o, of: make(map[*registry.Record]*dialling)}
}

// First dials for a session's first handshake.
func (dr *Dialer) First(ctx context.Context, v *gate.Visit, e *registry.Record) (up *upstream.Conn, err error) {
	first := e.First()
	v.Away(func() { up, err = dr.dial(ctx, e, func() upstream.Request { return Numbered(e, first) }) })
	return up, err
}

// dial waits for a free slot, dials e's upstream and sends the request that ask returns
// then. ctx limits the wait too.
func (dr *Dialer) dial(ctx context.Context, e *registry.Record, ask func() upstream.Request) (*upstream.Conn, error) {
	target := &e.Target
	done, ok := dr.queues.turn(ctx, target.Address(), caller{e.Block(), e.Path})
	if !ok {
		return nil, target.Late(ctx)
	}
	defer done()
	up, err := target.Dial(ctx, ask())
	if listen.NoDescriptor(err) && dr.o.Conns.FreeOne() {
		return target.Dial(ctx, ask())
	}
	return up, err
}

var errOtherProtocol = errors.New("the upstream chose another subprotocol than before")

// redial dials once for a session that had an upstream before.
func (dr *Dialer) redial(ctx context.Context, e *registry.Record, ask func() upstream.Request) (*upstream.Conn, error) {
	up, err := dr.dial(ctx, e, ask)
	if err == nil && up.Protocol != e.Protocol() {
		up.Close()
		return nil, errOtherProtocol
	}
	return up, err
}

// reconnected gives e its new upstream, dialled in the outage that began then; zero: for a waiting client.
// It reports false if the session does not take it any more.
func reconnected(e *registry.Record, up *upstream.Conn, outage session.Time) bool {
	d := e.Driver()
	return d != nil && d.Reconnect(up.Conn, up.Early, outage)
}

// Dialling reports whether a client waits for e's new upstream.
func (dr *Dialer) Dialling(e *registry.Record) bool {
	dr.mu.Lock()
	defer dr.mu.Unlock()
	d := dr.of[e]
	return d != nil && !d.outage
}

// Cancel ends the dial for e, whose session has ended.
func (dr *Dialer) Cancel(e *registry.Record) {
	dr.mu.Lock()
	defer dr.mu.Unlock()
	if d := dr.of[e]; d != nil && d.cancel != nil {
		d.cancel()
	}
}

// end ends d, unless another has taken its place.
func (dr *Dialer) end(e *registry.Record, d *dialling) {
	dr.mu.Lock()
	defer dr.mu.Unlock()
	if dr.of[e] != d {
		return
	}
	delete(dr.of, e)
	if d.again {
		dr.beginOutageLocked(e)
	}
}

// Close has no further outages begin.
func (dr *Dialer) Close() {
	dr.mu.Lock()
	defer dr.mu.Unlock()
	dr.closed = true
}

// Numbered returns ask with the header Reseat-Epoch, by which a game server tells an older
// connection of a session from a newer one. Only sessions that may be dialled again have it.
func Numbered(e *registry.Record, ask upstream.Request) upstream.Request {
	if e.Redials() {
		ask.Epoch = e.NextEpoch()
	}
	return ask
}

// With returns a copy of h, which may be nil, with the fields of more.
func With(h, more http.Header) http.Header {
	n := make(http.Header, len(h)+len(more))
	maps.Copy(n, h)
	maps.Copy(n, more)
	return n
}

// Usage counts the sessions that are dialled for again, and the upstreams with dials in flight.
func (dr *Dialer) Usage() (sessions, upstreams int) {
	dr.mu.Lock()
	defer dr.mu.Unlock()
	dr.queues.mu.Lock()
	defer dr.queues.mu.Unlock()
	return len(dr.of), len(dr.queues.of)
}
