package epoll

import (
	"sync"

	"reseat/gateway/session"
)

// A notifier calls Observers, in order, so that the loop never waits for one. A session
// whose Observer is more than maxPending events behind is not read, so the queue is
// bounded.
type notifier struct {
	mu     sync.Mutex
	queue  []notice
	closed bool
	wake   chan struct{} // one slot
}

// A notice is one call of an Observer.
type notice struct {
	of     *Session
	events []session.Event
	fault  *fault
	over   bool
}

// maxSpare is the max capacity of a queue that is kept for reuse.
const maxSpare = 256

// A fault is a panic in a session's code.
type fault struct {
	value any
	stack []byte
}

func newNotifier() *notifier { return &notifier{wake: make(chan struct{}, 1)} }

// put queues notices. It never blocks.
func (t *notifier) put(list []notice) {
	t.mu.Lock()
	t.queue = append(t.queue, list...)
	t.mu.Unlock()
	t.ring()
}

// close makes run return once the queue is empty.
func (t *notifier) close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.ring()
}

func (t *notifier) ring() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

func (t *notifier) run() {
	var spare []notice
	for range t.wake {
		list, closed := t.take(spare)
		for _, n := range list {
			n.deliver()
		}
		clear(list)
		if spare = list[:0]; cap(spare) > maxSpare {
			spare = nil
		}
		if closed {
			return
		}
	}
}

// take returns the queue, and replaces it by next, which is empty.
func (t *notifier) take(next []notice) (list []notice, closed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	list, t.queue = t.queue, next
	return list, t.closed
}

func (n notice) deliver() {
	switch {
	case n.fault != nil:
		n.of.watch.Panicked(n.fault.value, n.fault.stack)
	case n.over:
		n.of.watch.Closed()
	default:
		n.of.watch.Events(n.events)
		n.of.caughtUp(len(n.events))
	}
}
