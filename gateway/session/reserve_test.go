package session_test

import (
	"testing"

	"reseat/gateway/session"
)

// What comes before a session that is made ahead of its client begins to wait
// for it is treated as if it came then.
func TestReserveAppliesThePolicyToWhatFilledTheBufferBefore(t *testing.T) {
	for policy, want := range map[session.Overflow]session.State{
		session.Pause: session.Detached, session.DropOldest: session.Detached, session.EndSession: session.Ended,
	} {
		t.Run(policy.String(), func(t *testing.T) {
			c := config()
			c.BufferMessages, c.Overflow = 2, policy
			b := connecting(t, c, []byte(text("a")+text("b")+text("c")))
			if b.s.Wants(b.up) {
				t.Fatal("the buffer is full, and more is read")
			}
			b.s.Reserve(b.now, b.pass())
			b.wantState(want)
			if reads := policy == session.DropOldest; b.s.Wants(b.up) != reads {
				t.Errorf("the upstream is read: %v, want %v", !reads, reads)
			}
			told := false
			for _, e := range b.s.Events() {
				told = told || e.Kind == session.Overflowed
			}
			if !told {
				t.Error("nobody is told of the overflow")
			}
		})
	}
}

func TestReserveAnswersAHeartbeatThatCameBefore(t *testing.T) {
	c := config()
	c.Replies = []session.Reply{{In: "2", Out: "3"}}
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
