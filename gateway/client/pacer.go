package client

import (
	"math/rand/v2"
	"time"
)

const (
	minBackoff, maxBackoff = time.Second, 5 * time.Second
	minPause               = 50 * time.Millisecond // between two attempts, at least
	// After maxUnproductive useless connections in a row a hello no longer resets the
	// backoff.
	maxUnproductive = 3
)

// A pacer computes the backoff: none after a useful connection, then a random part of a
// delay that doubles from 1 s to 5 s, and after long to a twentieth of the time away.
type pacer struct{ tries, unproductive int }

// next returns the delay before the next attempt of a client that has been away for so long.
func (p *pacer) next(away time.Duration) time.Duration {
	p.tries++
	if p.tries == 1 {
		return 0
	}
	span := min(minBackoff<<min(p.tries-2, 8), max(maxBackoff, away/20))
	return max(minPause, rand.N(span))
}

// lost records the end of a connection that had its hello. It was useful if it lasted
// for goodAfter or brought anything new.
func (p *pacer) lost(useful bool) {
	p.unproductive++
	if useful {
		p.unproductive = 0
	}
	p.tries = max(0, p.unproductive-maxUnproductive)
}
