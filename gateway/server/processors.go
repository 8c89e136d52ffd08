package server

import (
	"context"
	"runtime"
	"time"
)

// Where goroutines relay messages, each message makes a goroutine runnable, and the scheduler wakes an idle
// processor for it. While fewer processors suffice, that is wasted, so GOMAXPROCS follows the load: it is
// raised to all processors at once when those in use are busy, and lowered after a quiet second. Processor
// time for a message by workloads W1 and W2 (docs/performance.md), times nginx's: 1.7 and 1.35 on two
// processors, 1.3 and 1.25 with this. Event loops hold their processors, and don't need it.
const (
	loadEvery  = 50 * time.Millisecond
	idleEvery  = 200 * time.Millisecond // below idle: waking an idle machine is expensive
	loadWindow = time.Second            // how long fewer processors must suffice

	busy  = 0.95 // load per processor in use that raises GOMAXPROCS
	spare = 0.8  // max load per remaining processor; it becomes some 0.6, since wake-ups are saved
	idle  = 0.1  // processors
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

// A fitter decides GOMAXPROCS.
type fitter struct {
	all   int           // available processors
	using int           // GOMAXPROCS
	need  int           // max that was needed since the last decision
	since time.Duration // time since then
}

// look returns the new GOMAXPROCS, after a span in which the process used load processors on average.
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
