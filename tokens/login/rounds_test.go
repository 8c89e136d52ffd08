package login

import (
	"testing"
	"testing/synctest"
	"time"
)

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestRoundIsSharedByAllWhoAsk(t *testing.T) {
	r := newRounds(time.Second)
	first := r.ask(false)
	if first == nil || r.ask(false) != first || r.ask(true) != first || len(r.wake) != 1 {
		t.Fatal("the first round is not shared, or not announced once")
	}
	r.begin()
	if r.ask(false) != first || len(r.wake) != 0 || isClosed(first) {
		t.Fatal("a request during a round does not join it")
	}
	r.finish()
	if !isClosed(first) {
		t.Error("the end is not announced")
	}
}

func TestCooldownRunsFromTheEndOfARound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRounds(10 * time.Second)
		r.begin() // by the timer: without a request
		time.Sleep(time.Minute)
		r.finish()
		time.Sleep(10*time.Second - 1)
		if r.ask(false) != nil || len(r.wake) != 0 {
			t.Error("a round was opened within the cooldown")
		}
		if r.ask(true) == nil {
			t.Error("who forces it is refused")
		}
		r.begin()
		r.finish()
		time.Sleep(10 * time.Second)
		if r.ask(false) == nil {
			t.Error("refused after the cooldown")
		}
	})
}

// The timer and a request may come at the same time: one round, not two.
func TestTimerConsumesThePendingWake(t *testing.T) {
	r := newRounds(time.Second)
	asked := r.ask(false)
	r.begin() // by the timer, the wake still in its slot
	r.finish()
	if len(r.wake) != 0 || !isClosed(asked) {
		t.Error("the round will be read twice")
	}
}
