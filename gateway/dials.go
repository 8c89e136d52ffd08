package gateway

import (
	"context"
	"sync"

	"reseat/gateway/listen"
	"reseat/gateway/registry"
	"reseat/upstream"
)

// dialsAtOnce is how many dials to one upstream are under way at once: when all
// come at the same moment, the others wait for their turn.
const dialsAtOnce = 64

// dials are the dials in flight, by the upstream's address.
type dials struct {
	conns *listen.ConnTracker // that may free a descriptor

	mu    sync.Mutex
	lines map[string]*line
}

// A line is where the dials to one upstream wait for their turn.
type line struct {
	turns chan struct{}
	users int // that dial or wait; guarded by the dials' mu
}

// enter gives the line of an upstream, and what leaves it again.
func (d *dials) enter(addr string) (turns chan struct{}, leave func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lines == nil {
		d.lines = make(map[string]*line)
	}
	l := d.lines[addr]
	if l == nil {
		l = &line{turns: make(chan struct{}, dialsAtOnce)}
		d.lines[addr] = l
	}
	l.users++
	return l.turns, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(d.lines, addr)
		}
	}
}

// dialFirst is dial for the first handshake.
func (ds *dials) dialFirst(ctx context.Context, e *registry.Record) (*upstream.Conn, error) {
	first := e.First()
	return ds.dial(ctx, &e.Target, func() upstream.Request { return first })
}

// dial reaches the session's game server, when it is its turn, and asks it what
// ask then gives. Waiting counts in the time that ctx leaves.
func (ds *dials) dial(ctx context.Context, target *upstream.Target, ask func() upstream.Request) (*upstream.Conn, error) {
	turns, leave := ds.enter(target.Address())
	defer leave()
	select {
	case turns <- struct{}{}:
	case <-ctx.Done():
		return nil, target.Late(ctx)
	}
	defer func() { <-turns }()
	up, err := target.Dial(ctx, ask())
	if listen.NoDescriptor(err) && ds.conns.FreeOne() {
		return target.Dial(ctx, ask())
	}
	return up, err
}
