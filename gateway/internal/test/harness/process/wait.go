//go:build linux

package process

import (
	"context"
	"math/rand/v2"
	"time"
)

// Sleep sleeps; it returns false if the context has ended.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Await waits until nothing is missing, and returns what still is after the limit.
func Await(ctx context.Context, limit time.Duration, missing func() string) (what string) {
	for until := time.Now().Add(limit); ; {
		if what = missing(); what == "" || time.Now().After(until) || !Sleep(ctx, 50*time.Millisecond) {
			return what
		}
	}
}

// Span draws a duration.
func Span(r *rand.Rand, from, to time.Duration) time.Duration {
	return (from + time.Duration(r.Int64N(int64(to-from)+1))).Round(time.Millisecond)
}
