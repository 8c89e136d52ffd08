package epoll

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"reseat/gateway/session"
)

// Loops are the loops of a Driver. The first inUse of them take new sessions; the others take none, and
// hand on those that they still have.
type Loops struct {
	clock  Clock
	list   []*Loop
	auto   bool
	inUse  atomic.Int32
	paused atomic.Int32 // while it is positive, no session leaves its loop

	threadTime func() int64 // ns of processor time of the calling thread

	mu       sync.Mutex // guards what follows
	reviewed session.Time
}

// A loop's share is the part of its time for which a processor works on its turns, in thousandths.
const (
	window = 100 * time.Millisecond // a share is of this long or longer

	busy     = 700 // with more, a loop hands on sessions
	wanted   = 500 // what they have on average after another loop was taken into use
	quiet    = 350 // with less on average in one loop fewer, one goes out of use
	gap      = 200 // a session only goes to a loop whose share is less by this
	staleAge = 3 * window
)

// Start starts so many loops, or one for each processor if n is zero: then as many are in use as the load needs.
// Close stops them. If some cannot be started, there are fewer; it is an error if none can.
func Start(clock Clock, n int) (*Loops, error) {
	all := &Loops{clock: clock, auto: n == 0, threadTime: threadTime}
	if n == 0 {
		n = runtime.GOMAXPROCS(0) // by default what a container may use
	}
	for range n {
		l, err := all.newLoop(len(all.list))
		if err == nil {
			all.list = append(all.list, l)
		} else if len(all.list) == 0 {
			return nil, err
		}
	}
	if all.auto && everyTurn == 0 {
		all.use(1)
	} else {
		all.use(len(all.list))
	}
	for _, l := range all.list {
		l.begin()
	}
	return all, nil
}

// use takes the first n loops into use. GOMAXPROCS leaves room for one thread more, so that handshakes never wait
// for the loops.
func (all *Loops) use(n int) {
	if runtime.GOMAXPROCS(0) < n+1 {
		runtime.GOMAXPROCS(n + 1)
	}
	all.inUse.Store(int32(n))
}

// Place returns the loop for a new session: of those in use the one with the fewest.
func (all *Loops) Place() *Loop {
	best := all.list[0]
	for _, l := range all.list[1:all.inUse.Load()] {
		if l.load.Load() < best.load.Load() {
			best = l
		}
	}
	return best
}

// review adapts the number of loops in use to their shares.
func (all *Loops) review(now session.Time) {
	if !all.auto || !all.mu.TryLock() {
		return
	}
	defer all.mu.Unlock()
	if now.Sub(all.reviewed) < window {
		return
	}
	all.reviewed = now
	total := int64(0)
	for _, l := range all.list {
		total += l.shareAt(now)
	}
	if n := loopsFor(total, int64(all.inUse.Load()), int64(len(all.list))); n != int64(all.inUse.Load()) {
		all.use(int(n))
	}
}

// loopsFor returns how many loops to use for a total share, while there are n.
func loopsFor(total, n, most int64) int64 {
	switch {
	case total > busy*n:
		return min((total+wanted-1)/wanted, most)
	case n > 1 && total < quiet*(n-1):
		return n - 1
	}
	return n
}

// Close stops the loops, each once its last session has ended. It does not wait.
func (all *Loops) Close() {
	for _, l := range all.list {
		l.close()
	}
}

// Wait waits until all loops have stopped and all Observers have been notified.
func (all *Loops) Wait() {
	for _, l := range all.list {
		l.running.Wait()
	}
}

// Stats describes all loops.
func (all *Loops) Stats() []Stats {
	list := make([]Stats, len(all.list))
	for i, l := range all.list {
		list[i] = Stats{
			InUse: i < int(all.inUse.Load()), Sessions: int(l.load.Load()), Busy: time.Duration(l.busy.Load()), Moved: l.moved.Load(),
		}
	}
	return list
}
