package client

import (
	"math/rand/v2"
	"time"
)

const (
	firstSpan, lastSpan = time.Second, 5 * time.Second
	breath              = 50 * time.Millisecond // between two attempts, at least
	// forgiven is how many connections in a row may come to nothing before a new
	// hello no longer means that the next attempt comes at once.
	forgiven = 3
)

// A pacer says when to try again: at once after a good connection, then after a
// random part of a span that doubles from 1 s to 5 s.
type pacer struct{ tries, barren int }

// next is the pause before the next attempt.
func (p *pacer) next() time.Duration {
	p.tries++
	if p.tries == 1 {
		return 0
	}
	span := min(firstSpan<<min(p.tries-2, 8), lastSpan)
	return max(breath, rand.N(span))
}

// lost notes the end of a connection that had its hello; useful is one that held
// for a while, or brought anything.
func (p *pacer) lost(useful bool) {
	p.barren++
	if useful {
		p.barren = 0
	}
	p.tries = max(0, p.barren-forgiven)
}
