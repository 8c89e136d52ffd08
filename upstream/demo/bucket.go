package demo

import "time"

// The limit of a client's inputs. The burst takes what a client has kept during
// two minutes without a connection, sent at once when it is back.
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

// newBucket is a full bucket.
func newBucket(rate, burst float64, now time.Time) bucket {
	return bucket{rate: rate, burst: burst, tokens: burst, at: now}
}

// take takes one token and says whether there was one.
func (b *bucket) take(now time.Time) bool {
	b.tokens = min(b.burst, b.tokens+b.rate*now.Sub(b.at).Seconds())
	b.at = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}
