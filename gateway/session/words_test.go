package session_test

import (
	"testing"
	"time"

	"reseat/gateway/session"
)

func TestBeatsThatAreDueTogetherAllGoOut(t *testing.T) {
	c := config()
	c.Beats = []session.Beat{{Every: 5 * time.Second, Text: "one"}, {Every: 5 * time.Second, Text: "two"}, {Every: 10 * time.Second, Text: "three"}}
	b := newTable(t, c)
	b.drop()
	b.sleep(5 * time.Second)
	b.wants(b.up, "one", "two")
	b.sleep(5 * time.Second)
	b.wants(b.up, "one", "two", "three")
	b.sleep(5 * time.Second)
	b.sleep(5 * time.Second) // nothing was taken meanwhile, so nothing is added
	b.wants(b.up, "one", "two")
}
