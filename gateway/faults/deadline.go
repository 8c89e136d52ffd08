package faults

import (
	"sync"
	"time"
)

// A deadline is that of reading or writing: done is closed while it has passed.
type deadline struct {
	mu    sync.Mutex
	timer *time.Timer
	set   int // how often it was set
	done  chan struct{}
}

func newDeadline() *deadline { return &deadline{done: make(chan struct{})} }

// at sets the deadline; zero is none.
func (d *deadline) at(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	select {
	case <-d.done:
		d.done = make(chan struct{})
	default:
	}
	d.set++
	if t.IsZero() {
		return
	}
	left := time.Until(t)
	if left <= 0 {
		close(d.done)
		return
	}
	this := d.set
	d.timer = time.AfterFunc(left, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.set == this { // not set anew meanwhile
			close(d.done)
		}
	})
}

// passed returns the channel that is closed when the deadline passes.
func (d *deadline) passed() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.done
}
