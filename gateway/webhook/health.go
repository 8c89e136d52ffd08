package webhook

import (
	"math/rand/v2"
	"time"
)

const (
	// downAfter is how many failures in a row make a receiver one that is down: then
	// only one post at a time asks whether it still is.
	downAfter = 3
	// The pauses between attempts: they double from the first to the last, and up to
	// a half of each is left out at random.
	firstPause, lastPause = time.Second, 5 * time.Minute
)

// health is what the last attempts say of the receiver as a whole.
type health struct {
	failures int       // in a row, over all sessions
	until    time.Time // nothing is posted before
}

func (h *health) down() bool { return h.failures >= downAfter }

// may reports whether a post may be begun now while others are under way.
func (h *health) may(now time.Time, underWay int) bool {
	return !now.Before(h.until) && (!h.down() || underWay == 0)
}

// well notes an answer that shows that somebody is there.
func (h *health) well() { *h = health{} }

// ill notes a failure, after which nobody is asked for as long as the receiver
// wants, or, where it is down, for a while that grows.
func (h *health) ill(now time.Time, retryAfter time.Duration) {
	h.failures++
	wait := retryAfter
	if h.down() {
		wait = max(wait, pause(h.failures-downAfter))
	}
	if t := now.Add(wait); t.After(h.until) {
		h.until = t
	}
}

// pause is how long to wait after n earlier pauses.
func pause(n int) time.Duration {
	d := lastPause
	if n < 16 {
		d = min(firstPause<<n, lastPause)
	}
	return d/2 + rand.N(d/2+1)
}
