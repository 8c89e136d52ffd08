package session_test

import (
	"slices"
	"testing"
	"time"

	"reseat/gateway/session"
)

func TestBeatsDueTogetherAreAllSent(t *testing.T) {
	c := config()
	c.Keepalives = []session.Keepalive{{Every: 5 * time.Second, Text: "one"}, {Every: 5 * time.Second, Text: "two"}, {Every: 10 * time.Second, Text: "three"}}
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

// A heartbeat is answered once, wherever in it the client is disconnected. If its beginning
// was already numbered for the client, the client gets it as well.
func TestHeartbeatSplitByDisconnectIsAnsweredOnce(t *testing.T) {
	for name, bytes := range map[string]string{
		"whole":     text("ping"),
		"in pieces": "\x01\x01p\x00\x02in\x89\x00\x80\x01g", // with a Ping between
		"with DLE":  text("\x10beat"),
	} {
		for cut := 0; cut <= len(bytes); cut++ {
			c := config()
			c.KeepaliveReplies = []session.KeepaliveReply{{In: "2", Out: "3"}, {In: "ping", Out: "pong"}, {In: "\x10beat", Out: "pong"}}
			b := newTable(t, c)
			b.game(text("before") + bytes[:cut])
			b.drop()
			b.game(bytes[cut:])
			b.game(text("behind"))
			got := frames(t, b.takes(b.up, 1<<30))
			got = slices.DeleteFunc(got, func(s string) bool { return s == "pong " })
			if !slices.Equal(got, []string{"pong"}) {
				t.Errorf("%s, cut at %d: the upstream got %q, want one pong", name, cut, got)
			}
			want := uint64(2)
			if begun := cut > 2; begun || name == "in pieces" {
				want = 3
			}
			if i := b.s.Info(); i.Sent != want {
				t.Errorf("%s, cut at %d: %d messages numbered, want %d", name, cut, i.Sent, want)
			}
		}
	}
}

func TestUnackedFragmentedHeartbeatIsAnswered(t *testing.T) {
	c := config()
	c.KeepaliveReplies = []session.KeepaliveReply{{In: "ping", Out: "pong"}}
	b := newTable(t, c)
	b.game("\x01\x01p\x00\x00\x80\x03ing" + text("ping") + text("pin"))
	b.drop()
	b.wants(b.up, "pong", "pong")
}

// Without a grace period a disconnect is a detach and an end at once: both messages are sent.
func TestDetachMessagePrecedesImmediateExpiry(t *testing.T) {
	for _, hard := range []bool{false, true} {
		c := config()
		c.Hard, c.Terms = hard, session.Terms{}
		c.Notices = session.Notices{Detach: "away", Expire: "gone"}
		b := newTable(t, c)
		b.drop()
		b.wantState(session.Ended)
		b.wants(b.up, "away", "gone", "close 1001 grace period over")
	}
}
