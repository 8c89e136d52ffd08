package webhook

import (
	"math/rand/v2"
	"time"
)

const (
	// After downAfter failures in a row the receiver counts as down. From
	// then on one post at a time probes it.
	downAfter = 3
	// The backoff between attempts doubles from minBackoff to maxBackoff; jitter
	// takes off up to a half.
	minBackoff, maxBackoff = time.Second, 5 * time.Minute
)

// health is the state of the receiver, over all sessions.
type health struct {
	failures int       // in a row
	until    time.Time // nothing is posted before
}

func (h *health) down() bool { return h.failures >= downAfter }

// may reports whether a post may start now while inFlight others are in flight.
func (h *health) may(now time.Time, inFlight int) bool {
	return !now.Before(h.until) && (!h.down() || inFlight == 0)
}

// succeeded records a response that shows that the receiver works.
func (h *health) succeeded() { *h = health{} }

// failed records a failure. Nothing is posted during retryAfter and, while the
// receiver is down, during a growing backoff.
func (h *health) failed(now time.Time, retryAfter time.Duration) {
	h.failures++
	wait := retryAfter
	if h.down() {
		wait = max(wait, backoff(h.failures-downAfter))
	}
	if t := now.Add(wait); t.After(h.until) {
		h.until = t
	}
}

// backoff returns the delay after n earlier ones, with jitter.
func backoff(n int) time.Duration {
	d := maxBackoff
	if n < 16 {
		d = min(minBackoff<<n, maxBackoff)
	}
	return d/2 + rand.N(d/2+1)
}
