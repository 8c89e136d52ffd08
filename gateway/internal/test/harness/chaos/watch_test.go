//go:build linux

package main

import (
	"testing"
	"testing/synctest"
	"time"
)

// bubbleClock returns a clock of the synctest bubble that it is made in.
func bubbleClock() func() int64 {
	began := time.Now().Add(-time.Hour)
	return func() int64 { return int64(time.Since(began)) }
}

// watched simulates a silent connection with one unacked message, checked every 10 ms,
// and returns when the first ping is due and when it is dead.
func watched(t *testing.T, answer, rtt time.Duration) (ping, dead time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWatch(bubbleClock())
		w.sent(1)
		for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
			asks, isDead := w.judge(answer, time.Minute, rtt)
			passed := time.Since(began)
			switch {
			case isDead:
				dead = passed
				return
			case asks:
				w.ping()
				if ping == 0 {
					ping = passed
				}
			case passed > 3*time.Minute:
				return
			}
		}
	})
	return ping, dead
}

func TestConnectionIsDeadOnceAnAnswerIsOverdue(t *testing.T) {
	for _, c := range []struct{ answer, rtt, ping, dead time.Duration }{
		{5 * time.Second, 100 * time.Millisecond, 2510 * time.Millisecond, 5010 * time.Millisecond},
		{5 * time.Second, 2 * time.Second, 2510 * time.Millisecond, 10520 * time.Millisecond},
		{time.Second, 0, 510 * time.Millisecond, 5010 * time.Millisecond},
		{0, time.Second, 60010 * time.Millisecond, 120010 * time.Millisecond},
	} {
		if ping, dead := watched(t, c.answer, c.rtt); ping != c.ping || dead != c.dead {
			t.Errorf("answer %v, round trip %v: pinged after %v, dead after %v; want %v and %v", c.answer, c.rtt, ping, dead, c.ping, c.dead)
		}
	}
}

func TestAnswerRestartsTheSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatch(bubbleClock())
		w.sent(1)
		time.Sleep(3 * time.Second)
		arg := w.ping()
		time.Sleep(time.Second)
		w.hear()
		if got := w.pong(arg); got != time.Second {
			t.Errorf("round trip %v, want 1s", got)
		}
		time.Sleep(4 * time.Second)
		if _, dead := w.judge(5*time.Second, time.Minute, time.Second); dead {
			t.Error("dead 4 s after it was heard")
		}
		w.acked(1)
		time.Sleep(20 * time.Second)
		if ping, dead := w.judge(5*time.Second, time.Minute, time.Second); dead || ping {
			t.Errorf("dead %v, ping %v, though nothing is owed", dead, ping)
		}
	})
}

func TestConnectionIsSuspectedAfterSeveralUsualGaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatch(bubbleClock())
		for range 50 {
			time.Sleep(100 * time.Millisecond)
			w.speaks()
		}
		time.Sleep(350 * time.Millisecond)
		if w.suspicious(4, 0) {
			t.Error("doubted after 3.5 gaps")
		}
		time.Sleep(100 * time.Millisecond)
		if !w.suspicious(4, 0) || w.suspicious(4, time.Second) {
			t.Error("after 4.5 gaps: want it doubted, unless it has a second")
		}
	})
}
