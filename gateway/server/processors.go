package server

import (
	"context"
	"runtime"
	"time"
)

// Where goroutines relay messages, each message wakes another one, and with it another processor if one
// is idle: that takes more time than the message. So the scheduler gets as many processors (GOMAXPROCS) as
// the load needs, and all of them once it keeps those busy. Processor time for a message, by workloads W1
// and W2 (docs/performance.md), times nginx's: 1.7 and 1.35 on two processors, 1.3 and 1.25 with this.
// Event loops don't wake each other, and stay on their processors.
const (
	loadEvery  = 50 * time.Millisecond
	idleEvery  = 200 * time.Millisecond // instead, since waking up an idle machine for nothing is expensive
	loadWindow = time.Second            // of lower load, before there are fewer processors

	busy  = 0.95 // of the processors in use, from which on all are used
	spare = 0.8  // of those that would be left; there the same traffic is a load of some 0.6
	idle  = 0.1  // of one processor
)

// fitProcessors fits GOMAXPROCS to the load until undo is called, which waits for its goroutine. It does
// nothing if the operator set GOMAXPROCS, or the system does not report processor time.
func fitProcessors(environ []string) (undo func()) {
	if _, err := processorTime(); err != nil || isSet(environ, "GOMAXPROCS") {
		return func() {}
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		followLoad(ctx)
	}()
	return func() {
		stop()
		<-done
		runtime.SetDefaultGOMAXPROCS()
	}
}

// followLoad sets GOMAXPROCS until ctx ends.
func followLoad(ctx context.Context) {
	tick := time.NewTimer(loadEvery)
	defer tick.Stop()
	f := fitter{all: runtime.GOMAXPROCS(0), using: runtime.GOMAXPROCS(0)}
	last := time.Now()
	before, _ := processorTime()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := time.Now()
		used, _ := processorTime()
		load := float64(used-before) / float64(now.Sub(last))
		if load < idle {
			tick.Reset(idleEvery)
		} else {
			tick.Reset(loadEvery)
		}
		switch n := f.look(now.Sub(last), load); {
		case n == runtime.GOMAXPROCS(0):
		case n == f.all:
			runtime.SetDefaultGOMAXPROCS() // and the runtime follows the container's limit again
			n = runtime.GOMAXPROCS(0)
			f = fitter{all: n, using: n}
		default:
			runtime.GOMAXPROCS(n)
		}
		last, before = now, used
	}
}

// A fitter decides how many processors the scheduler gets.
type fitter struct {
	all   int // that there are
	using int
	need  int           // the most that was needed
	since time.Duration // within this time
}

// look returns the number of processors to use, after a span in which load of them were used.
func (f *fitter) look(span time.Duration, load float64) int {
	if load >= busy*float64(f.using) {
		*f = fitter{all: f.all, using: f.all}
		return f.all
	}
	f.need = max(f.need, 1+int(load/spare))
	if f.since += span; f.since >= loadWindow {
		*f = fitter{all: f.all, using: min(f.using, f.need)}
	}
	return f.using
}
