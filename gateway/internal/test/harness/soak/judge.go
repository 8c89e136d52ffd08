//go:build linux

package main

import (
	"fmt"
	"math"
)

// What may grow over the later part of a run. Memory is that of a gateway that
// still remembers how the sessions of the last half minute ended.
const (
	heapRoom     = 6 << 20 // bytes, whatever the number of sessions
	residentRoom = 48 << 20
	countRoom    = 12 // goroutines, descriptors
)

// judge says what grew: a line is fitted to the later half of the samples, and
// what it rises over that half is held against what may be. At the very end,
// when nothing is remembered any more, the heap has to be near the first sample.
func judge(samples []sample) (faults []string) {
	later := samples[len(samples)/2:]
	for _, c := range []struct {
		name string
		of   func(sample) float64
		room float64
	}{
		{"live heap, bytes", func(s sample) float64 { return s.heap }, heapRoom},
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

// fit is the slope of the line with the least squares, for each session. NaN,
// where there is none, compares as nothing.
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
