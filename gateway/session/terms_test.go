package session_test

import (
	"testing"
	"time"

	"reseat/gateway/session"
)

func kept(d time.Duration) session.Terms {
	return session.Terms{Grace: d, GraceBeforeStart: d}
}

// The token is valid for an hour. The timer pauses during the dial, so the grace period
// ends later.
func TestTermsBeyondTokenAreRefusedDuringDial(t *testing.T) {
	b := newTable(t, hardConfig())
	b.drop()
	b.s.BeginRedial(b.now)
	b.sleep(50 * time.Minute)
	if b.s.SetTerms(b.now, kept(15*time.Minute)) {
		t.Error("a grace period was accepted that ends 5 minutes after the token")
	}
	if !b.s.SetTerms(b.now, kept(9*time.Minute)) {
		t.Error("a grace period was refused that ends before the token")
	}
	b.s.CancelRedial(b.now)
	b.sleep(9*time.Minute - time.Second)
	b.wantState(session.Detached)
	b.sleep(time.Second)
	b.wantState(session.Ended)
}

func TestTermsAreAcceptedAfterSessionEndedDuringDial(t *testing.T) {
	b := newTable(t, hardConfig())
	b.drop()
	b.s.BeginRedial(b.now)
	b.s.Terminate(b.now, 1000, "over")
	if !b.s.SetTerms(b.now, kept(24*time.Hour)) {
		t.Error("refused for a token that no client needs")
	}
}
