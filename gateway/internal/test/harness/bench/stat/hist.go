// Package stat summarizes latencies, medians and spreads.
package stat

import (
	"math/bits"
	"time"
)

const (
	fine    = 6 // bits: a value is kept to 1 part in 64
	buckets = (64 - fine) << fine
)

// A Hist counts durations, each to within 1.6 percent. Recording allocates nothing.
type Hist struct {
	counts [buckets]uint32
	n      uint64
	max    int64
}

// Record counts d nanoseconds.
func (h *Hist) Record(d int64) {
	d = max(d, 0)
	h.counts[bucket(d)]++
	h.n++
	h.max = max(h.max, d)
}

func bucket(d int64) int {
	shift := max(bits.Len64(uint64(d))-fine-1, 0)
	return shift<<fine + int(d>>shift)
}

// middle returns the value that represents a bucket.
func middle(i int) int64 {
	if i < 2<<fine {
		return int64(i)
	}
	shift := i>>fine - 1
	low := int64(i-shift<<fine) << shift
	return low + int64(1)<<shift/2
}

// Reset discards everything.
func (h *Hist) Reset() { *h = Hist{} }

// Add adds everything that another one counted.
func (h *Hist) Add(other *Hist) {
	for i, n := range other.counts {
		h.counts[i] += n
	}
	h.n += other.n
	h.max = max(h.max, other.max)
}

// N returns how many were recorded.
func (h *Hist) N() uint64 { return h.n }

// Quantile returns the value at or below which a share p of the values lies; 0 if there
// are none.
func (h *Hist) Quantile(p float64) time.Duration {
	want, seen := p*float64(h.n), uint64(0)
	for i, c := range h.counts {
		seen += uint64(c)
		if c > 0 && float64(seen) >= want {
			return time.Duration(min(middle(i), h.max))
		}
	}
	return time.Duration(h.max)
}

// Quantiles summarize a Hist, in microseconds.
type Quantiles struct {
	N        uint64
	P50, P99 float64
}

// Quantiles summarizes h.
func (h *Hist) Quantiles() Quantiles {
	us := func(p float64) float64 { return float64(h.Quantile(p)) / 1e3 }
	return Quantiles{h.n, us(.5), us(.99)}
}
