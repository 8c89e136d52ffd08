package session_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"reseat/gateway/session"
	"reseat/gateway/wire"
)

// An upstream that is not read because memory is exhausted is neither silent nor slow: it
// is read on, inside its message, once there is memory again.
func TestUpstreamSurvivesExhaustedStoreInsideMessage(t *testing.T) {
	c := config()
	c.UpstreamHeartbeat = 10 * time.Second
	b := newTable(t, c)
	message := text(strings.Repeat("x", 5000))
	b.game(message[:3900]) // the rest of the first chunk is too small for a read
	held := int(b.store.Limit())
	b.store.ShareReserve(0)
	b.store.Charge(held)
	for range 40 * 4 {
		if b.s.Room(b.up) != nil {
			t.Fatal("it is read though the store is exhausted")
		}
		if at := b.s.Next(); at <= b.now {
			t.Fatalf("it is tried again without a pause: Next is %d, it is %d", at, b.now)
		}
		b.sleep(250 * time.Millisecond)
		b.says("\x10ping")
	}
	b.store.Charge(-held)
	b.game(message[3900:])
	if i := b.s.Info(); i.State != session.Attached || i.Sent != 1 {
		t.Errorf("%v, %d messages; want attached and the one", i.State, i.Sent)
	}
}

// An upstream takes no more bytes, and its queue holds all the memory: it is still read to
// its end. With --disconnect hard the queue is for the next upstream, so this one is given
// up.
func TestQueueOfUnwritableUpstreamDoesNotBlockReadingItsEnd(t *testing.T) {
	for _, hard := range []bool{false, true} {
		t.Run(fmt.Sprintf("hard=%v", hard), func(t *testing.T) {
			c := config()
			c.Hard = hard
			b := newTable(t, c)
			b.s.WriteFailed(b.now, b.up, "write failed")
			room := b.store.Limit() - b.store.Used() - 20_000
			b.store.Charge(int(room))
			b.store.ShareReserve(0)
			for range 5 {
				b.says(strings.Repeat("x", 5000))
			}
			if b.s.Room(b.up) != nil {
				t.Fatal("the store is not exhausted")
			}
			b.sleep(time.Second)
			switch i := b.s.Info(); {
			case i.State != session.Attached:
				t.Errorf("the session is %v", i.State)
			case hard && (!b.up.Over() || b.up.CloseMode() != session.Shut):
				t.Error("the upstream is not lost")
			case !hard && b.s.Room(b.up) == nil:
				t.Error("the upstream is not read")
			}
			b.s.Terminate(b.now, 1000, "")
			b.store.Charge(-int(room))
			b.wantNothingHeld()
		})
	}
}

// A resume that had nothing to send says nothing about the client's progress.
func TestResumesWithNothingToSendAreNotFutile(t *testing.T) {
	b := newTable(t, config())
	b.reads() // hello
	for range 20 {
		b.sleep(3 * time.Second)
		b.drop()
		b.wantState(session.Detached)
		b.resume(0)
		b.reads()
		b.says("")
	}
}

// The token is checked first, protocol section 2: a superseded one learns nothing about how
// the session ended.
func TestSupersededTokenOfEndedSessionIsRefused(t *testing.T) {
	b := newTable(t, config())
	old := b.s.Generation()
	b.drop()
	b.resume(0)
	b.says("")
	b.s.Terminate(b.now, 4000, "the end")
	for gen, want := range map[uint64]int{old: wire.CodeBadToken, old + 1: wire.CodeEnded, old + 2: wire.CodeBadToken} {
		ref := b.s.Check(b.now, session.Resume{Gen: gen, Malformed: true, Received: 99})
		if ref == nil || ref.Code != want || ref.Superseded != (want == wire.CodeBadToken) {
			t.Errorf("generation %d: %+v, want %d", gen, ref, want)
		}
	}
}

// However many messages overflow during one detach, it is one event.
func TestRepeatedOverflowIsOneEvent(t *testing.T) {
	for policy, want := range map[session.Overflow]int{session.Pause: 1, session.DropOldest: 1} {
		t.Run(policy.String(), func(t *testing.T) {
			c := config()
			c.BufferMessages, c.Overflow = 2, policy
			b := newTable(t, c)
			b.drop()
			b.s.Events()
			for n := range 6 { // some in one read, some each in its own
				if b.s.WantsRead(b.up) {
					b.game(text(fmt.Sprint(n)) + text("more"))
				}
			}
			overflows := 0
			for _, e := range b.s.Events() {
				if e.Kind == session.Overflowed {
					overflows++
				}
			}
			if overflows != want {
				t.Errorf("%d events, want %d", overflows, want)
			}
		})
	}
}
