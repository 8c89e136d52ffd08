package session_test

import (
	"testing"
	"time"

	"reseat/gateway/session"
)

func TestUpstreamWhoseWriteIsUnderWayIsClosedOnceThoughTheDialFails(t *testing.T) {
	for _, word := range []string{"", "away"} {
		c := hardConfig()
		c.Words.Detach = word
		b := newTable(t, c)
		b.says("one")
		lent := b.lend(b.up)
		b.drop()
		for range 2 { // dials that come to nothing
			b.s.Await(b.now)
			b.s.Forgo(b.now)
		}
		b.s.UpstreamWrote(b.now, b.up, len(lent))
		b.gets(lent, "one")
		want := []string{"close 1001 disconnected"}
		if word != "" {
			want = append([]string{word}, want...)
		}
		b.wants(b.up, want...)
		if f := b.up.Fate(); f != session.Linger {
			t.Errorf("fate %d", f)
		}
	}
}

// A client that asked for the upstream while another was attached has said so in
// vain; what is dialled for it is parted from all the same.
func TestForgoPartsFromAnUpstreamThatCameWhileNobodyWaited(t *testing.T) {
	b := newTable(t, hardConfig())
	b.s.Await(b.now) // somebody is attached: nothing
	b.wantState(session.Attached)
	b.drop()
	b.wants(b.up, "close 1001 disconnected")
	u := b.s.Reconnect(b.now, nil)
	b.wantState(session.Connecting)
	b.s.Forgo(b.now)
	b.wantState(session.Detached)
	b.wants(u, "close 1001 disconnected")
	if !b.s.NeedsUpstream() {
		t.Error("detached, and the upstream is there")
	}
	b.sleep(30 * time.Second)
	b.wantState(session.Ended)
	b.wantNothingHeld()
}
