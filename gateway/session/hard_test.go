package session_test

import (
	"testing"
	"time"

	"reseat/gateway/frame"
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
		b.s.Wrote(b.now, b.up, len(lent), false)
		b.gets(lent, "one")
		want := []string{"close 1001 disconnected"}
		if word != "" {
			want = append([]string{word}, want...)
		}
		b.wants(b.up, want...)
		if f := b.up.CloseMode(); f != session.Linger {
			t.Errorf("fate %d", f)
		}
	}
}

// A client that asked for the upstream while another was attached has said so in
// vain; what is dialled for it is released all the same.
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

// The write to the first upstream is still under way when the second one has
// come and is released again: what the first was lent stays as it is, and is
// counted by what the first took of it.
func TestQueueIsLeftAloneWhileAnOlderUpstreamWritesIt(t *testing.T) {
	c := hardConfig()
	c.Words.Resume = "back"
	b := newTable(t, c)
	first := b.up
	for _, text := range []string{"one", "two", "three"} {
		b.says(text)
	}
	one := len(masked(frame.Text, "one"))
	begin := b.takes(first, one-1)
	lent := b.lend(first) // the rest of one, two and three
	b.drop()
	b.s.Await(b.now)
	second := b.s.Reconnect(b.now, nil)
	b.s.Forgo(b.now)
	b.wants(second, "back", "close 1001 disconnected")
	took := lent[:1+len(masked(frame.Text, "two"))]
	b.s.Wrote(b.now, first, len(took), false)
	b.gets(append(begin, took...), "one", "two")
	if i := b.s.Info(); i.Written != 2 {
		t.Errorf("written %d, want 2", i.Written)
	}
	b.s.Await(b.now)
	third := b.s.Reconnect(b.now, nil)
	b.wants(third, "back", "three")
}

// The session ends while the old upstream's write is under way. What that has
// taken half of is never followed by anything.
func TestUpstreamThatTookHalfOfAMessageGetsNoCloseBehindIt(t *testing.T) {
	for took, closed := range map[int]bool{0: true, 1: false, len(masked(frame.Text, "one")): true, len(masked(frame.Text, "one")) + 1: false} {
		b := newTable(t, hardConfig())
		b.says("one")
		b.says("two")
		lent := b.lend(b.up)
		b.drop()
		b.s.Terminate(b.now, 1000, "over")
		b.s.Wrote(b.now, b.up, took, false)
		if closed {
			b.gets(append(lent[:took:took], b.takes(b.up, 1<<30)...), append([]string{"one"}[:min(took, 1)], "close 1001 disconnected")...)
		} else {
			b.wants(b.up)
			if f := b.up.CloseMode(); f != session.Shut {
				t.Errorf("after %d bytes: fate %d, want it to be closed", took, f)
			}
		}
		b.wantNothingHeld()
	}
}

// The upstream is lost between the check of a resume and its attach.
func TestAttachIsRefusedWhileThereIsNoUpstream(t *testing.T) {
	b := newTable(t, hardConfig())
	want, p := session.Resume{Gen: b.s.Generation()}, b.pass()
	if ref := b.s.Check(b.now, want); ref != nil || b.s.NeedsUpstream() {
		t.Fatalf("refused: %v", ref)
	}
	b.drop()
	a, ref := b.s.Attach(b.now, want, p)
	if a != nil || ref == nil || ref.Code != 0 {
		t.Fatalf("attached: %v, refusal %v; want one to begin again after", a != nil, ref)
	}
	b.wantState(session.Detached)
	b.s.Await(b.now)
	b.up = b.s.Reconnect(b.now, nil)
	b.resume(0)
	b.says("there")
	b.wants(b.up, "there")
}

// What was queued for one upstream and is no message of the client's is not the
// next one's: an answer to a Ping or heartbeat that it has never sent.
func TestNextUpstreamGetsNothingThatWasForTheOneBefore(t *testing.T) {
	c := hardConfig()
	c.Replies = []session.Reply{{In: "2", Out: "3"}}
	b := connecting(t, c, nil)
	first := b.up
	b.s.Reserve(b.now, b.pass())
	b.game(text("2"))
	b.resume(0)
	b.says("one")
	b.game("\x89\x01A")
	lent := b.lend(first) // the answer to the heartbeat, one, the Pong
	b.says("two")
	b.drop()
	b.s.Await(b.now)
	second := b.s.Reconnect(b.now, nil)
	b.up = second
	b.game("\x89\x01B")
	b.lend(second) // the Pong is queued behind what the first is lent
	b.s.Wrote(b.now, first, 0, false)
	if len(lent) == 0 {
		t.Fatal("the first upstream was lent nothing")
	}
	b.resume(0)
	b.wants(second, "one", "two", "pong B")
}

// What waits for its turn waits for it with the next upstream as well.
func TestNextUpstreamIsNotSentWhatMustWaitForItsTurn(t *testing.T) {
	c := hardConfig()
	c.Rate.Messages = 1
	b := newTable(t, c)
	for _, text := range []string{"one", "two", "three"} {
		b.says(text)
	}
	b.wants(b.up, "one")
	b.drop()
	b.wants(b.up, "close 1001 disconnected")
	b.s.Await(b.now)
	b.up = b.s.Reconnect(b.now, nil)
	b.resume(0)
	b.wants(b.up)
	b.sleep(time.Second)
	b.wants(b.up, "two")
	b.sleep(time.Second)
	b.wants(b.up, "three")
}
