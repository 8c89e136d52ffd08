package session

import (
	"testing"
	"time"
)

// A grant raises the level to n at least. The part above one second's worth neither grows
// nor is cut off by time, and a fuller bucket keeps its level.
func TestBucketAfterGrant(t *testing.T) {
	const rate, full = 10.0, 10.0
	for name, c := range map[string]struct {
		level   float64 // before
		grant   float64
		granted float64       // right after
		wait    time.Duration // and then
		want    float64
	}{
		"empty":                           {0, 100, 100, 0, 100},
		"owing":                           {-50, 100, 100, 0, 100},
		"surplus is kept":                 {0, 100, 100, time.Hour, 100},
		"surplus does not grow":           {0, 11, 11, time.Second, 11},
		"less than a second's worth":      {0, 5, 5, 200 * time.Millisecond, 7},
		"it fills up to a second's worth": {0, 5, 5, time.Minute, full},
		"less than it holds":              {8, 5, 8, 0, 8},
		"less than an older grant":        {100, 50, 100, 0, 100},
	} {
		t.Run(name, func(t *testing.T) {
			now := Time(time.Hour)
			b := bucket{c.level, now}
			b.grant(now, rate, c.grant)
			if b.level != c.granted {
				t.Errorf("%v in it, want %v", b.level, c.granted)
			}
			now = now.Add(c.wait)
			b.fill(now, rate)
			if b.level != c.want || b.at != now {
				t.Errorf("after %v: %v in it, want %v", c.wait, b.level, c.want)
			}
		})
	}
}

// The time before a grant counts first, and only once.
func TestGrantAccruesEarlierTimeOnce(t *testing.T) {
	now := Time(time.Hour)
	b := bucket{-20, now}
	now = now.Add(time.Second)
	b.grant(now, 10, 0) // it owed 20, one second paid back 10, and the grant forgives the rest
	if b.level != 0 || b.at != now {
		t.Errorf("%v in it, want 0", b.level)
	}
	b.grant(now, 10, -5)
	if wait := b.take(now, 10, 5); wait != 500*time.Millisecond {
		t.Errorf("5 wait for %v, want half a second", wait)
	}
	if wait := b.take(now.Add(time.Second), 10, 0); wait != 0 || b.level != 5 {
		t.Errorf("a second later: %v in it, wait %v; want 5 and none", b.level, wait)
	}
}
