package demo

import "time"

// The rate limit of a client's inputs. The burst accepts what a client has queued during
// two minutes without a connection, sent at once when it reconnects.
const (
	inputRate  = 50 // a second
	inputBurst = 2400
)

// A bucket is a token bucket: rate tokens a second, at most burst at once.
type bucket struct {
	rate, burst float64
	tokens      float64
	at          time.Time
}

// newBucket returns a full bucket.
func newBucket(rate, burst float64, now time.Time) bucket {
	return bucket{rate: rate, burst: burst, tokens: burst, at: now}
}

// take removes one token and reports whether there was one.
func (b *bucket) take(now time.Time) bool {
	b.tokens = min(b.burst, b.tokens+b.rate*now.Sub(b.at).Seconds())
	b.at = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}
