package login

import (
	"sync"
	"time"
)

// A rounds decides when keys are read again, so that requests cause at most one read
// at a time, shared by all who wait, and none within the cooldown after another. A
// round is one read: requested, begun, finished.
type rounds struct {
	cooldown time.Duration // static
	wake     chan struct{} // one slot: a round is requested and not begun

	mu    sync.Mutex // guards the fields below
	open  bool       // a round is requested or begun
	last  time.Time  // when the last one was finished; zero before the first
	ended chan struct{}
}

func newRounds(cooldown time.Duration) *rounds {
	return &rounds{cooldown: cooldown, wake: make(chan struct{}, 1)}
}

// ask returns a channel that is closed when the present round is finished. If there is
// none it requests one; within the cooldown only if forced, else it returns nil.
func (r *rounds) ask(forced bool) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.open {
		if !forced && time.Since(r.last) < r.cooldown {
			return nil
		}
		r.openLocked()
		r.wake <- struct{}{} // the slot is free while no round is open
	}
	return r.ended
}

// begin is called by the only reader before it reads, woken or not.
func (r *rounds) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.open {
		r.openLocked()
	}
	select {
	case <-r.wake:
	default:
	}
}

func (r *rounds) openLocked() { r.open, r.ended = true, make(chan struct{}) }

// finish is called by the reader when it has read.
func (r *rounds) finish() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open, r.last = false, time.Now()
	close(r.ended)
}
