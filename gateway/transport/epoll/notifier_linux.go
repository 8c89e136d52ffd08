package epoll

import (
	"sync"

	"reseat/gateway/session"
)

// A notifier calls Observers with what has happened, in its order, so that the loop
// never waits for one. A session whose Observer is behind by maxUntold events is not
// read meanwhile, so what waits is bounded.
type notifier struct {
	mu     sync.Mutex
	queue  []news
	closed bool
	wake   chan struct{} // one slot
}

// A news is one call of an Observer.
type news struct {
	of     *Session
	events []session.Event
	fault  *fault
	over   bool
	then   func() // instead of all that
}

// A fault is a panic in a session's code.
type fault struct {
	value any
	stack []byte
}

func newNotifier() *notifier { return &notifier{wake: make(chan struct{}, 1)} }

// put has all of list told. It never blocks.
func (t *notifier) put(list []news) {
	t.mu.Lock()
	t.queue = append(t.queue, list...)
	t.mu.Unlock()
	t.ring()
}

// close ends run once all is told.
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
	for range t.wake {
		list, closed := t.take()
		for _, n := range list {
			n.tell()
		}
		if closed {
			return
		}
	}
}

func (t *notifier) take() (list []news, closed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	list, t.queue = t.queue, nil
	return list, t.closed
}

func (n news) tell() {
	switch {
	case n.then != nil:
		n.then()
	case n.fault != nil:
		n.of.watch.Panicked(n.fault.value, n.fault.stack)
	case n.over:
		n.of.watch.Closed()
	default:
		n.of.watch.Events(n.events)
		n.of.caughtUp(len(n.events))
	}
}
