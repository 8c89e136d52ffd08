package session_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/session"
)

// reads lets the client take all output.
func (b *table) reads() {
	n := 0
	for _, p := range b.s.Out(b.now, b.att, nil) {
		n += len(p)
	}
	b.s.Wrote(b.now, b.att, n, false)
}

// closes is a Close frame of the client.
func (b *table) closes(code int) {
	b.s.Read(b.now, b.att, masked(frame.Close, string(frame.ClosePayload(code, ""))))
}

// A page that is being left sends Close 1001 without having read the game server's Close:
// unacked messages must be sent again. Protocol section 11.
func TestGoingAwayCloseIsNoAnswerWhileMessagesAreUnacked(t *testing.T) {
	for acked, want := range map[uint64]session.State{0: session.Detached, 1: session.Detached, 2: session.Ended} {
		b := newTable(t, config())
		b.game(text("one") + text("two") + string(frame.Append(nil, frame.Close, frame.ClosePayload(4000, ""))))
		b.reads()
		b.reads() // and the Close
		b.says(fmt.Sprint("\x10ack ", acked))
		b.closes(1001)
		if got := b.s.State(); got != want {
			t.Errorf("%d of 2 messages acked: %v, want %v", acked, got, want)
		}
	}
}

// A client that only ever sends Close frames makes no progress.
func TestCloseFrameAloneCountsAsHeardForNoProgress(t *testing.T) {
	b := newTable(t, config())
	b.game(text("boom"))
	b.closes(1001)
	for range 5 {
		b.wantState(session.Detached)
		b.resume(0)
		b.reads()
		b.now = b.now.Add(3 * time.Second)
		b.closes(1001)
	}
	b.wantState(session.Ended)
}

// An upstream is pinged after each silence, not only after the first.
func TestUpstreamIsPingedAfterEachSilence(t *testing.T) {
	c := config()
	c.UpstreamHeartbeat = 10 * time.Second
	b := newTable(t, c)
	for range 5 {
		b.sleep(10 * time.Second)
		b.wants(b.up, "ping")
		b.game("\x8a\x00") // its Pong
		b.says("")         // keeps the client attached
		b.reads()
	}
	b.wantState(session.Attached)
}

// The next takeover is allowed once the oldest of the last twenty is ten seconds old.
func TestTooManyTakeoversReturnRetryDelay(t *testing.T) {
	b := newTable(t, config())
	for range 20 {
		b.resume(0)
		b.sleep(100 * time.Millisecond)
	}
	ref := b.s.Check(b.now, session.Resume{Gen: b.s.Generation()})
	if ref == nil || ref.Code != 4429 || ref.Retry != 8*time.Second {
		t.Fatalf("refusal %+v, want 4429 for 8 s", ref)
	}
	b.now = b.now.Add(ref.Retry - 1)
	if ref := b.s.Check(b.now, session.Resume{Gen: b.s.Generation()}); ref == nil {
		t.Error("a takeover is let in before its time")
	}
	b.now++
	b.resume(0)
}

// A client whose acks never arrive still makes progress, as the N of its resumes shows.
func TestResumesWithRisingCountAreProgress(t *testing.T) {
	b := newTable(t, config())
	for n := range uint64(8) {
		b.game(text("tick"))
		b.says("\x10ping")
		b.reads()
		b.sleep(3 * time.Second)
		b.drop()
		b.wantState(session.Detached)
		b.resume(n + 1)
	}
}

// A client with unacked messages has a minute from its newest ack to answer the game
// server's Close.
func TestEachAckRestartsCloseAnswerTimeout(t *testing.T) {
	b := newTable(t, config())
	b.game(text("one") + text("two") + text("three") + string(frame.Append(nil, frame.Close, frame.ClosePayload(4000, ""))))
	b.reads()
	b.reads() // and the Close
	for n := range 3 {
		for range 5 {
			b.sleep(10 * time.Second)
			b.says("\x10ping")
			b.wantState(session.Attached)
		}
		if n < 2 {
			b.says(fmt.Sprint("\x10ack ", n+1))
		}
	}
	b.sleep(10 * time.Second)
	b.wantState(session.Detached)
}

// The game server closes behind a large message, which takes minutes on a slow line. The client says again what
// it has.
func TestClientThatReceivesLargeMessageKeepsCloseAnswerTimeout(t *testing.T) {
	for size, want := range map[int]session.State{session.PartBytes: session.Detached, session.PartBytes + 1: session.Attached} {
		b := newTable(t, config())
		for rest := text(strings.Repeat("x", size)) + string(frame.Append(nil, frame.Close, frame.ClosePayload(4000, ""))); rest != ""; {
			n := min(len(rest), 1000)
			b.game(rest[:n])
			rest = rest[n:]
		}
		b.reads()
		b.reads() // and the Close
		for range 8 {
			b.sleep(10 * time.Second)
			b.says("\x10ack 0")
		}
		b.wantState(want)
	}
}

// Overflowed is emitted once per detach, not once per session.
func TestOverflowIsReportedOncePerDetach(t *testing.T) {
	c := config()
	c.BufferMessages = 1
	b := newTable(t, c)
	for n := range uint64(3) {
		b.drop()
		b.s.Events()
		b.game(text("kept") + text("waits"))
		reported := 0
		for _, e := range b.s.Events() {
			if e.Kind == session.Overflowed {
				reported++
			}
		}
		if reported != 1 {
			t.Errorf("detach %d: reported %d times, want once", n+1, reported)
		}
		b.resume(2 * n)
		b.reads()
		b.says(fmt.Sprint("\x10ack ", 2*n+1))
		b.reads()
		b.says(fmt.Sprint("\x10ack ", 2*n+2))
	}
}
