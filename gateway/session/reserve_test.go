package session_test

import (
	"testing"

	"reseat/gateway/session"
)

// Messages that arrive before Reserve are treated as if they arrived right after it.
func TestReserveAppliesOverflowPolicyToFullBuffer(t *testing.T) {
	for policy, want := range map[session.Overflow]session.State{
		session.Pause: session.Detached, session.DropOldest: session.Detached, session.EndSession: session.Ended,
	} {
		t.Run(policy.String(), func(t *testing.T) {
			c := config()
			c.BufferMessages, c.Overflow = 2, policy
			b := connecting(t, c, []byte(text("a")+text("b")+text("c")))
			if b.s.WantsRead(b.up) {
				t.Fatal("the buffer is full, and more is read")
			}
			b.s.Reserve(b.now, b.pass())
			b.wantState(want)
			if reads := policy == session.DropOldest; b.s.WantsRead(b.up) != reads {
				t.Errorf("the upstream is read: %v, want %v", !reads, reads)
			}
			overflowed := false
			for _, e := range b.s.Events() {
				overflowed = overflowed || e.Kind == session.Overflowed
			}
			if !overflowed {
				t.Error("no Overflowed event")
			}
		})
	}
}

func TestReserveAnswersEarlierHeartbeat(t *testing.T) {
	c := config()
	c.KeepaliveReplies = []session.KeepaliveReply{{In: "2", Out: "3"}}
	b := connecting(t, c, []byte(text("welcome")+text("2")))
	b.s.Reserve(b.now, b.pass())
	b.wants(b.up, "3")
	b.game(text("2"))
	b.wants(b.up, "3")
	b.resume(0)
	if i := b.s.Info(); i.Sent != 2 {
		t.Errorf("%d messages, want the 2 that came before", i.Sent)
	}
}
