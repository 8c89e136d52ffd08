package session_test

import (
	"testing"
	"time"

	"reseat/gateway/session"
)

// Below one message a second, the burst of one second holds less than a message. A single
// one must still fit.
func TestSingleMessageFitsRateBelowOnePerSecond(t *testing.T) {
	c := keptConfig()
	c.PlainResume, c.Rate = false, session.Rate{Messages: 0.5}
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
