package session_test

import (
	"testing"

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
