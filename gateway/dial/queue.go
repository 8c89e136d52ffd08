package dial

import (
	"container/list"
	"context"
	"math"
	"net/netip"
	"sync"
)

// dialsAtOnce is the maximum number of concurrent dials to one upstream. Others wait.
//
// A game server may leave handshakes unanswered, and anyone can begin some. So a dial begins
// only while all dials and those of its client's address together are fewer, where those of
// the same path count a quarter more: one address never has more than 32, one path of it not
// more than 29, and the next address up to half of what is left.
const dialsAtOnce = 64

// queues are the dials in flight, by upstream address.
type queues struct {
	mu sync.Mutex
	of map[string]*dialQueue
}

// A dialQueue limits the dials to one upstream. It is guarded by queues.mu.
//
// A grant looks at few of those that wait: at most dialsAtOnce addresses have a dial in flight, so the
// search for one with the fewest ends at the first that has none; likewise among the paths of an address.
type dialQueue struct {
	dialling int
	addrs    map[netip.Prefix]*dialAddr // those that dial or wait
	waiting  list.List                  // of *dialAddr; one that was granted a dial goes to the back
}

// A dialAddr is one client address of a dialQueue.
type dialAddr struct {
	dialling int
	paths    map[string]*dialPath // those that are dialled or waited for
	waiting  list.List            // of *dialPath, likewise
	elem     *list.Element        // in dialQueue.waiting; nil: none waits
}

// A dialPath is one path that an address asks for.
type dialPath struct {
	dialling int
	waiting  list.List     // of *dialTurn, in order of arrival
	elem     *list.Element // in dialAddr.waiting; nil: none waits
}

// A caller is whose turn it is to dial.
type caller struct {
	from netip.Prefix // of the client; zero if unknown
	path string
}

// A dialTurn is a dial that waits.
type dialTurn struct {
	addr    *dialAddr
	path    *dialPath
	elem    *list.Element // in dialPath.waiting; nil: it was granted
	granted chan struct{} // closed when it may begin
}

// add makes a turn of c wait.
func (q *dialQueue) add(c caller) *dialTurn {
	a := q.addrs[c.from]
	if a == nil {
		a = &dialAddr{paths: make(map[string]*dialPath)}
		q.addrs[c.from] = a
	}
	p := a.paths[c.path]
	if p == nil {
		p = new(dialPath)
		a.paths[c.path] = p
	}
	t := &dialTurn{addr: a, path: p, granted: make(chan struct{})}
	t.elem = p.waiting.PushBack(t)
	if p.elem == nil {
		p.elem = a.waiting.PushBack(p)
	}
	if a.elem == nil {
		a.elem = q.waiting.PushBack(a)
	}
	return t
}

// unqueue takes t out of what waits. Those that wait beside it go to the back.
func (q *dialQueue) unqueue(t *dialTurn) {
	t.path.waiting.Remove(t.elem)
	t.elem = nil
	t.path.elem = requeue(&t.addr.waiting, t.path.elem, t.path.waiting.Len() > 0)
	t.addr.elem = requeue(&q.waiting, t.addr.elem, t.addr.waiting.Len() > 0)
}

// requeue moves an element to the back of l, or removes it. It returns what the element is then.
func requeue(l *list.List, e *list.Element, waits bool) *list.Element {
	if waits {
		l.MoveToBack(e)
		return e
	}
	l.Remove(e)
	return nil
}

// begin and end count a dial.
func (q *dialQueue) begin(t *dialTurn) { q.count(t, 1) }
func (q *dialQueue) end(t *dialTurn)   { q.count(t, -1) }

func (q *dialQueue) count(t *dialTurn, n int) {
	q.dialling += n
	t.addr.dialling += n
	t.path.dialling += n
}

// forget drops what c has no dial and no turn of.
func (q *dialQueue) forget(c caller, t *dialTurn) {
	if t.path.dialling+t.path.waiting.Len() == 0 && t.addr.paths[c.path] == t.path {
		delete(t.addr.paths, c.path)
	}
	if len(t.addr.paths) == 0 && q.addrs[c.from] == t.addr {
		delete(q.addrs, c.from)
	}
}

// grant lets dials begin: those of the address, and of its path, with the fewest first.
func (q *dialQueue) grant() {
	for q.waiting.Len() > 0 {
		a := fewest(&q.waiting, func(a *dialAddr) int { return a.dialling })
		p := fewest(&a.waiting, func(p *dialPath) int { return p.dialling / 4 })
		if q.dialling+a.dialling+p.dialling/4 >= dialsAtOnce {
			return
		}
		t := p.waiting.Front().Value.(*dialTurn)
		q.unqueue(t)
		q.begin(t)
		close(t.granted)
	}
}

// fewest returns the first element with the smallest load.
func fewest[T any](l *list.List, load func(T) int) (best T) {
	least := math.MaxInt
	for e := l.Front(); e != nil && least > 0; e = e.Next() {
		if v := e.Value.(T); load(v) < least {
			best, least = v, load(v)
		}
	}
	return best
}

// turn waits until c may dial addr, and reports false if ctx was done before. The caller calls
// done once the dial has ended.
func (d *queues) turn(ctx context.Context, addr string, c caller) (done func(), ok bool) {
	d.mu.Lock()
	if d.of == nil {
		d.of = make(map[string]*dialQueue)
	}
	q := d.of[addr]
	if q == nil {
		q = &dialQueue{addrs: make(map[netip.Prefix]*dialAddr)}
		d.of[addr] = q
	}
	t := q.add(c)
	q.grant()
	d.mu.Unlock()
	done = func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if t.elem != nil {
			q.unqueue(t)
		} else {
			q.end(t)
			q.grant()
		}
		q.forget(c, t)
		if len(q.addrs) == 0 && d.of[addr] == q {
			delete(d.of, addr)
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
