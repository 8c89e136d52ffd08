package gateway

import (
	"context"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"sync"

	"reseat/gateway/listen"
	"reseat/gateway/registry"
	"reseat/upstream"
)

// dialsAtOnce is the maximum number of concurrent dials to one upstream. Others wait.
//
// A game server may leave handshakes unanswered, and anyone can begin some. So a dial begins
// only while all dials and those of its client's address together are fewer, where those of
// the same path count a quarter more: one address never has more than 32, one path of it not
// more than 29, and the next address up to half of what is left.
const dialsAtOnce = 64

// dials are the dials in flight, by upstream address.
type dials struct {
	conns *listen.ConnTracker // can free a descriptor

	mu     sync.Mutex
	queues map[string]*dialQueue
}

// A dialQueue limits the dials to one upstream. It is guarded by dials.mu.
type dialQueue struct {
	dialling int
	of       map[any]int // the same by address, and by caller
	waiting  []*dialTurn // in order of arrival
}

// A caller is whose turn it is to dial.
type caller struct {
	from netip.Prefix // of the client; zero if unknown
	path string
}

// A dialTurn is a dial that waits.
type dialTurn struct {
	caller
	granted chan struct{} // closed when it may begin
}

// load is what a dial for c must wait for: see dialsAtOnce.
func (q *dialQueue) load(c caller) int { return q.dialling + q.of[c.from] + q.of[c]/4 }

// add counts a dial for c that begins, or with -1 one that has ended.
func (q *dialQueue) add(c caller, n int) {
	q.dialling += n
	for _, k := range []any{c.from, c} {
		if q.of[k] += n; q.of[k] == 0 {
			delete(q.of, k)
		}
	}
}

// grant lets dials begin: those whose callers have the fewest first, then the oldest.
func (q *dialQueue) grant() {
	for {
		best, least := -1, dialsAtOnce
		for i, t := range q.waiting {
			if l := q.load(t.caller); l < least {
				best, least = i, l
			}
		}
		if best < 0 {
			return
		}
		t := q.waiting[best]
		q.waiting = slices.Delete(q.waiting, best, best+1)
		q.add(t.caller, 1)
		close(t.granted)
	}
}

// turn waits until c may dial addr, and reports false if ctx was done before. The caller calls
// done once the dial has ended.
func (d *dials) turn(ctx context.Context, addr string, c caller) (done func(), ok bool) {
	d.mu.Lock()
	if d.queues == nil {
		d.queues = make(map[string]*dialQueue)
	}
	q := d.queues[addr]
	if q == nil {
		q = &dialQueue{of: make(map[any]int)}
		d.queues[addr] = q
	}
	t := &dialTurn{c, make(chan struct{})}
	q.waiting = append(q.waiting, t)
	q.grant()
	d.mu.Unlock()
	done = func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if i := slices.Index(q.waiting, t); i >= 0 {
			q.waiting = slices.Delete(q.waiting, i, i+1)
		} else {
			q.add(c, -1)
			q.grant()
		}
		if q.dialling+len(q.waiting) == 0 && d.queues[addr] == q {
			delete(d.queues, addr)
		}
	}
	select {
	case <-t.granted:
		return done, true
	case <-ctx.Done():
		done()
		return nil, false
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
	done, ok := ds.turn(ctx, target.Address(), caller{e.Block(), e.Path})
	if !ok {
		return nil, target.Late(ctx)
	}
	defer done()
	up, err := target.Dial(ctx, ask())
	if listen.NoDescriptor(err) && ds.conns.FreeOne() {
		return target.Dial(ctx, ask())
	}
	return up, err
}
