package admin

import (
	"context"
	"slices"
	"sync"
	"time"

	"reseat/gateway"
	"reseat/gateway/watch"
)

const (
	// sampleEvery is the sampling interval. Each sample reads every session, as a scrape of
	// the metrics does.
	sampleEvery = 5 * time.Second
	// keptSamples cover a quarter of an hour.
	keptSamples = 180
)

// A Recorder keeps the totals of the last quarter of an hour, so that a dashboard shows the
// time before it was opened. A nil Recorder keeps nothing.
type Recorder struct {
	g *gateway.Gateway

	mu      sync.Mutex
	samples []watch.Totals // oldest first
}

// NewRecorder returns an empty Recorder. Run fills it.
func NewRecorder(g *gateway.Gateway) *Recorder { return &Recorder{g: g} }

// Run takes a sample every five seconds until ctx is done.
func (r *Recorder) Run(ctx context.Context) {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		r.add(r.g.Watch().Totals())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (r *Recorder) add(t watch.Totals) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.samples) == keptSamples {
		r.samples = slices.Delete(r.samples, 0, 1)
	}
	r.samples = append(r.samples, t)
}

// Samples returns all samples, for a successor.
func (r *Recorder) Samples() []watch.Totals { return r.since(time.Time{}) }

// Restore adds the Samples of an earlier process, if r is not nil.
func (r *Recorder) Restore(list []watch.Totals) {
	if r == nil {
		return
	}
	for _, t := range list {
		r.add(t)
	}
}

// since returns the samples taken after t.
func (r *Recorder) since(t time.Time) []watch.Totals {
	if r == nil {
		return []watch.Totals{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.samples)
	for n > 0 && r.samples[n-1].Time.After(t) {
		n--
	}
	return append([]watch.Totals{}, r.samples[n:]...)
}
