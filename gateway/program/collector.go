package program

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"time"
)

// The garbage collector runs for handshakes alone: nothing on the way of a
// message allocates. So it may run often while there are many sessions, and
// memory is then close to what they hold; but not so often while there are few
// that a storm of handshakes pays for it.
const (
	heapGrowth  = 25       // percent, between two collections
	ballastSize = 24 << 20 // bytes that count as heap and are never touched
)

// And since nothing allocates in between, what a storm has left behind would
// stay: it is collected once all is calm.
const (
	lookEvery = time.Second
	storming  = 1 << 20 // bytes allocated between two looks: not calm
	leastGain = 4 << 20 // bytes for which a collection is worth it,
	gainShare = 8       // and this part of what is alive
)

// tuneCollector sees to all that until undo is called; used is what the replay
// buffers hold, in bytes. It leaves an operator's own GOGC alone.
func tuneCollector(environ []string, used func() int64) (undo func()) {
	if slices.ContainsFunc(environ, func(v string) bool { return strings.HasPrefix(v, "GOGC=") }) {
		return func() {}
	}
	ballast, was := make([]byte, ballastSize), debug.SetGCPercent(heapGrowth)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tidyUp(ctx, used)
	}()
	return func() {
		stop()
		<-done
		debug.SetGCPercent(was)
		runtime.KeepAlive(ballast)
	}
}

// tidyUp collects what storms leave behind, until ctx ends.
func tidyUp(ctx context.Context, used func() int64) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var t tidier
	samples := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		metrics.Read(samples)
		value := func(i int) int64 { return int64(samples[i].Value.Uint64()) }
		if t.look(heap{allocs: value(0), live: value(1), free: value(2), used: used()}) {
			runtime.GC() // pools let go of what they hold at the second collection
			debug.FreeOSMemory()
		}
	}
}

// A heap is what one look at it finds.
type heap struct {
	allocs int64 // bytes ever allocated
	live   int64 // bytes that were alive at the last collection
	free   int64 // bytes that the system could have back
	used   int64 // bytes that replay buffers hold
}

// A tidier decides when a collection is worth it. What has been allocated since
// its own last one counts, whatever the runtime has collected by itself in
// between: that may have been in the middle of a storm, when buffers were in use
// that are in a pool now.
type tidier struct {
	tidy  heap // as it was at the first look after our last collection
	last  heap
	stale bool // tidy is from before it
}

// look reports whether to collect now.
func (t *tidier) look(h heap) (collect bool) {
	if t.stale {
		t.tidy = h
	}
	calm := h.allocs-t.last.allocs < storming
	gain := h.allocs - t.tidy.allocs + h.free + max(t.tidy.used-h.used, 0)
	collect = calm && gain >= max(leastGain, h.live/gainShare)
	t.last, t.stale = h, collect
	return collect
}
