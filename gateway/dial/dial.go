// Package dial dials the game servers for sessions: the first time, again for a client that waits
// (--disconnect hard, and durable sessions that come from a lost node), and again in an outage
// (--upstream-lost redial).
package dial

import (
	"context"
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

// Options are what a Dialer needs. All are required.
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
	// want is what the client has asked for that waits; zero: none does.
	Numbered func(ctx context.Context, e *registry.Record, ask upstream.Request, want session.Resume) upstream.Request
}

// A Dialer makes all connections of sessions to their game servers. Its methods may be called
// from any goroutine.
type Dialer struct {
	o      Options
	queues queues

	mu      sync.Mutex // never held over a call of the driver
	redials map[*registry.Record]*redial
	outages map[*registry.Record]*outage
	closed  bool
}

// New returns a Dialer.
func New(o Options) *Dialer {
	return &Dialer{o: o, redials: make(map[*registry.Record]*redial), outages: make(map[*registry.Record]*outage)}
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

// Usage counts the sessions with a client that waits, and the upstreams with dials in flight.
func (dr *Dialer) Usage() (waiting, upstreams int) {
	dr.mu.Lock()
	defer dr.mu.Unlock()
	dr.queues.mu.Lock()
	defer dr.queues.mu.Unlock()
	return len(dr.redials), len(dr.queues.of)
}
