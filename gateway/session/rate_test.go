package session_test

import (
	"testing"
	"time"

	"reseat/gateway/session"
)

// A rate below one message a second lets a message through as often as it says:
// the burst of a second would not hold one.
func TestOneMessageAloneFitsIntoARateBelowOneASecond(t *testing.T) {
	c := keptConfig()
	c.Kept, c.Rate = false, session.Rate{Messages: 0.5}
	b := newKept(t, c)
	for _, said := range []string{"one", "two", "three"} {
		b.says(said)
		b.wants(b.up, said)
		b.says("too soon")
		b.wants(b.up)
		b.sleep(2 * time.Second)
		b.wants(b.up, "too soon")
		b.sleep(2 * time.Second)
	}
}
