//go:build linux

package main

import (
	"fmt"
	"math"
)

// How much may grow over the second half of a run. Memory is that of a gateway that
// still keeps the tombstones of the last half minute: of a short run all, and so they are
// taken off the heap.
const (
	tombstone    = 1 << 10 // bytes of heap
	heapRoom     = 6 << 20 // bytes, for any number of sessions
	residentRoom = 48 << 20
	countRoom    = 12 // for goroutines and descriptors
)

// judge returns what grew: it fits a line to the second half of the samples, and
// compares its rise over that half with the limits. At the very end, when all
// tombstones have expired, the heap must be near the first sample.
func judge(samples []sample) (faults []string) {
	later := samples[len(samples)/2:]
	for _, c := range []struct {
		name string
		of   func(sample) float64
		room float64
	}{
		{"live heap, bytes", func(s sample) float64 { return s.heap - tombstone*float64(s.tombstones) }, heapRoom},
		{"resident memory, bytes", func(s sample) float64 { return s.resident }, residentRoom},
		{"goroutines", func(s sample) float64 { return s.goroutines }, countRoom},
		{"descriptors", func(s sample) float64 { return s.descriptors }, countRoom},
		{"replay buffers, bytes", func(s sample) float64 { return s.buffers }, 0},
	} {
		if slope := fit(later, c.of); slope*span(later) > c.room {
			faults = append(faults, fmt.Sprintf("%s: grew by %.1f for each session over the last %.0f", c.name, slope, span(later)))
		}
		first, last := c.of(samples[0]), c.of(samples[len(samples)-1])
		if c.name != "resident memory, bytes" && last-first > c.room {
			faults = append(faults, fmt.Sprintf("%s: %.0f before the first session, %.0f after the last", c.name, first, last))
		}
	}
	return faults
}

func span(samples []sample) float64 {
	return float64(samples[len(samples)-1].sessions - samples[0].sessions)
}

// fit returns the slope, per session, of the least squares line. NaN, if there is none,
// is never above a limit.
func fit(samples []sample, of func(sample) float64) float64 {
	n := float64(len(samples))
	var x, y, xx, xy float64
	for _, s := range samples {
		sx, sy := float64(s.sessions), of(s)
		x, y, xx, xy = x+sx, y+sy, xx+sx*sx, xy+sx*sy
	}
	if d := n*xx - x*x; d != 0 {
		return (n*xy - x*y) / d
	}
	return math.NaN()
}
