package gateway

import (
	"context"
	"maps"
	"net/http"
	"sync"

	"reseat/gateway/listen"
	"reseat/gateway/registry"
	"reseat/upstream"
)

// dialsAtOnce is the maximum number of concurrent dials to one upstream. Others wait.
const dialsAtOnce = 64

// dials are the dials in flight, by upstream address.
type dials struct {
	conns *listen.ConnTracker // can free a descriptor

	mu     sync.Mutex
	queues map[string]*dialQueue
}

// A dialQueue limits the dials to one upstream.
type dialQueue struct {
	slots chan struct{}
	users int // dialling or waiting; guarded by dials.mu
}

// join returns the queue of an upstream. The caller calls done when it is done.
func (d *dials) join(addr string) (slots chan struct{}, done func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.queues == nil {
		d.queues = make(map[string]*dialQueue)
	}
	l := d.queues[addr]
	if l == nil {
		l = &dialQueue{slots: make(chan struct{}, dialsAtOnce)}
		d.queues[addr] = l
	}
	l.users++
	return l.slots, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(d.queues, addr)
		}
	}
}

// dialFirst dials for a session's first handshake.
func (ds *dials) dialFirst(ctx context.Context, e *registry.Record) (*upstream.Conn, error) {
	first := e.First()
	return ds.dial(ctx, e, func() upstream.Request { return numbered(e, first) })
}

// numbered returns ask with the header Reseat-Epoch, by which a game server tells an older
// connection of a session from a newer one. Only sessions that may be dialled again have it.
func numbered(e *registry.Record, ask upstream.Request) upstream.Request {
	if e.Redials() {
		ask.Epoch = e.NextEpoch()
	}
	return ask
}

// with returns a copy of h, which may be nil, with the fields of more.
func with(h, more http.Header) http.Header {
	n := make(http.Header, len(h)+len(more))
	maps.Copy(n, h)
	maps.Copy(n, more)
	return n
}

// dial waits for a free slot, dials e's upstream and sends the request that ask returns
// then. ctx limits the wait too.
func (ds *dials) dial(ctx context.Context, e *registry.Record, ask func() upstream.Request) (*upstream.Conn, error) {
	target := &e.Target
	slots, done := ds.join(target.Address())
	defer done()
	select {
	case slots <- struct{}{}:
	case <-ctx.Done():
		return nil, target.Late(ctx)
	}
	defer func() { <-slots }()
	up, err := target.Dial(ctx, ask())
	if listen.NoDescriptor(err) && ds.conns.FreeOne() {
		return target.Dial(ctx, ask())
	}
	return up, err
}
