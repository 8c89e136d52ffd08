package session_test

import (
	"testing"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/session"
)

func TestUpstreamWithWriteInFlightIsClosedOnceWhenDialFails(t *testing.T) {
	for _, word := range []string{"", "away"} {
		c := hardConfig()
		c.Notices.Detach = word
		b := newTable(t, c)
		b.says("one")
		output := b.lend(b.up)
		b.drop()
		for range 2 { // dials that fail
			b.s.BeginRedial(b.now)
			b.s.CancelRedial(b.now)
		}
		b.s.Wrote(b.now, b.up, len(output), false)
		b.gets(output, "one")
		want := []string{"close 1001 disconnected"}
		if word != "" {
			want = append([]string{word}, want...)
		}
		b.wants(b.up, want...)
		if f := b.up.CloseMode(); f != session.Linger {
			t.Errorf("close mode %d", f)
		}
	}
}

// A client that asks for an upstream while another one is attached waits for nothing; an
// upstream dialled for it must still be released.
func TestForgoReleasesUpstreamThatNoClientAwaits(t *testing.T) {
	b := newTable(t, hardConfig())
	b.s.BeginRedial(b.now) // no effect: a client is attached
	b.wantState(session.Attached)
	b.drop()
	b.wants(b.up, "close 1001 disconnected")
	u := b.s.Reconnect(b.now, nil)
	b.wantState(session.Connecting)
	b.s.CancelRedial(b.now)
	b.wantState(session.Detached)
	b.wants(u, "close 1001 disconnected")
	if !b.s.NeedsUpstream() {
		t.Error("detached, and the upstream is there")
	}
	b.sleep(30 * time.Second)
	b.wantState(session.Ended)
	b.wantNothingHeld()
}

// The write to the first upstream is still in flight when the second one has connected and
// been released again: the bytes in flight stay as they are, and count by what the first
// one took of them.
func TestQueueIsUntouchedWhileOlderUpstreamWritesIt(t *testing.T) {
	c := hardConfig()
	c.Notices.Resume = "back"
	b := newTable(t, c)
	first := b.up
	for _, text := range []string{"one", "two", "three"} {
		b.says(text)
	}
	one := len(masked(frame.Text, "one"))
	begin := b.takes(first, one-1)
	output := b.lend(first) // the rest of one, two and three
	b.drop()
	b.s.BeginRedial(b.now)
	second := b.s.Reconnect(b.now, nil)
	b.s.CancelRedial(b.now)
	b.wants(second, "back", "close 1001 disconnected")
	took := output[:1+len(masked(frame.Text, "two"))]
	b.s.Wrote(b.now, first, len(took), false)
	b.gets(append(begin, took...), "one", "two")
	if i := b.s.Info(); i.Written != 2 {
		t.Errorf("written %d, want 2", i.Written)
	}
	b.s.BeginRedial(b.now)
	third := b.s.Reconnect(b.now, nil)
	b.wants(third, "back", "three")
}

// The session ends while a write to the old upstream is in flight. Nothing may follow half
// of a message.
func TestHalfWrittenMessageIsFollowedByNoClose(t *testing.T) {
	for took, closed := range map[int]bool{0: true, 1: false, len(masked(frame.Text, "one")): true, len(masked(frame.Text, "one")) + 1: false} {
		b := newTable(t, hardConfig())
		b.says("one")
		b.says("two")
		output := b.lend(b.up)
		b.drop()
		b.s.Terminate(b.now, 1000, "over")
		b.s.Wrote(b.now, b.up, took, false)
		if closed {
			b.gets(append(output[:took:took], b.takes(b.up, 1<<30)...), append([]string{"one"}[:min(took, 1)], "close 1001 disconnected")...)
		} else {
			b.wants(b.up)
			if f := b.up.CloseMode(); f != session.Shut {
				t.Errorf("after %d bytes: close mode %d, want it to be closed", took, f)
			}
		}
		b.wantNothingHeld()
	}
}

// The upstream is released between the check of a resume and its attach.
func TestAttachIsRefusedWithoutUpstream(t *testing.T) {
	b := newTable(t, hardConfig())
	want, p := session.Resume{Gen: b.s.Generation()}, b.pass()
	if ref := b.s.Check(b.now, want); ref != nil || b.s.NeedsUpstream() {
		t.Fatalf("refused: %v", ref)
	}
	b.drop()
	a, ref := b.s.Attach(b.now, want, p)
	if a != nil || ref == nil || ref.Code != 0 {
		t.Fatalf("attached: %v, refusal %v; want a retry after", a != nil, ref)
	}
	b.wantState(session.Detached)
	b.s.BeginRedial(b.now)
	b.up = b.s.Reconnect(b.now, nil)
	b.resume(0)
	b.says("there")
	b.wants(b.up, "there")
}

// Frames of the gateway that were queued for one upstream are not for the next one: it
// never sent the Ping or heartbeat that they answer.
func TestNextUpstreamGetsNoControlFramesOfPreviousOne(t *testing.T) {
	c := hardConfig()
	c.KeepaliveReplies = []session.KeepaliveReply{{In: "2", Out: "3"}}
	b := connecting(t, c, nil)
	first := b.up
	b.s.Reserve(b.now, b.pass())
	b.game(text("2"))
	b.resume(0)
	b.says("one")
	b.game("\x89\x01A")
	output := b.lend(first) // the answer to the heartbeat, one, the Pong
	b.says("two")
	b.drop()
	b.s.BeginRedial(b.now)
	second := b.s.Reconnect(b.now, nil)
	b.up = second
	b.game("\x89\x01B")
	b.lend(second) // the Pong is queued behind the output in flight
	b.s.Wrote(b.now, first, 0, false)
	if len(output) == 0 {
		t.Fatal("Out returned nothing for the first upstream")
	}
	b.resume(0)
	b.wants(second, "one", "two", "pong B")
}

// Messages that the rate limit holds back are held for the next upstream as well.
func TestRateLimitHoldsMessagesForNextUpstream(t *testing.T) {
	c := hardConfig()
	c.Rate.Messages = 1
	b := newTable(t, c)
	for _, text := range []string{"one", "two", "three"} {
		b.says(text)
	}
	b.wants(b.up, "one")
	b.drop()
	b.wants(b.up, "close 1001 disconnected")
	b.s.BeginRedial(b.now)
	b.up = b.s.Reconnect(b.now, nil)
	b.resume(0)
	b.wants(b.up)
	b.sleep(time.Second)
	b.wants(b.up, "two")
	b.sleep(time.Second)
	b.wants(b.up, "three")
}
