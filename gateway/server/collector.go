package server

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"time"
)

// Tuning of the runtime. Relaying a message does not allocate, so the collector runs for
// handshakes only. A low GOGC keeps memory close to what sessions hold, and a lower one makes
// a mass reconnect expensive, since all sessions are marked again and again: by workload W7
// (docs/performance.md), 25 % cost 106 µs of processor time for each client, and 50 % cost 89.
// The ballast keeps collections rare while there are few sessions: at W8 a connection costs 162 µs
// [158–182] with it, 192 [182–200] with a GOGC of 100 instead, and 182 [160–196] with 200.
const (
	heapGrowth  = 50       // percent, between two collections
	ballastSize = 24 << 20 // bytes that count as heap and are never touched
)

// Nothing allocates between bursts, so the garbage of a burst would stay. It is collected
// once allocation has calmed down: an idle session of W6 takes 5.5 KiB then, and 11.7 without.
const (
	lookEvery = time.Second
	burstSize = 1 << 20 // bytes allocated between two looks during a burst
	minGain   = 4 << 20 // a collection must free this many bytes,
	gainShare = 8       // and this fraction of the live heap
)

// tuneCollector applies the tuning until ctx ends. used returns the memory of the replay buffers
// in bytes. It does nothing if the operator set GOGC.
func tuneCollector(ctx context.Context, environ []string, used func() int64) {
	if slices.ContainsFunc(environ, func(v string) bool { return strings.HasPrefix(v, "GOGC=") }) {
		return
	}
	ballast, was := make([]byte, ballastSize), debug.SetGCPercent(heapGrowth)
	tidyUp(ctx, used)
	debug.SetGCPercent(was)
	runtime.KeepAlive(ballast)
}

// tidyUp collects the garbage of bursts, until ctx ends.
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
			runtime.GC() // pools are emptied by the second collection
			debug.FreeOSMemory()
		}
	}
}

// A heap is the state of the heap at one look.
type heap struct {
	allocs int64 // bytes ever allocated
	live   int64 // bytes that were alive at the last collection
	free   int64 // bytes that could be returned to the system
	used   int64 // bytes that replay buffers hold
}

// A tidier decides when a collection is worth it. It counts all allocations since its
// own last one, even if the runtime has collected since: that may have happened within a
// burst, while buffers that are pooled now were in use.
type tidier struct {
	tidy  heap // the first look after our last collection
	last  heap
	stale bool // tidy predates the last collection
}

// look reports whether to collect now.
func (t *tidier) look(h heap) (collect bool) {
	if t.stale {
		t.tidy = h
	}
	calm := h.allocs-t.last.allocs < burstSize
	gain := h.allocs - t.tidy.allocs + h.free + max(t.tidy.used-h.used, 0)
	collect = calm && gain >= max(minGain, h.live/gainShare)
	t.last, t.stale = h, collect
	return collect
}
