package session_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/session"
)

// Plain clients that come back by a cookie, protocol section 9.

func keptConfig() session.Config {
	c := config()
	c.Resumable, c.PlainResume = false, true
	return c
}

// newKept returns a session whose plain client is attached.
func newKept(t *testing.T, c session.Config) *table {
	b := connecting(t, c, nil)
	b.att = b.s.AttachFirst(b.now, b.pass())
	return b
}

// back attaches a client that returns with its cookie.
func (b *table) back() {
	b.t.Helper()
	a, ref := b.s.Attach(b.now, session.Resume{Gen: b.s.Generation()}, session.Pass{})
	if ref != nil {
		b.t.Fatalf("cookie refused: %v", ref)
	}
	b.att = a
}

// sees lets the client take all output, and checks that it is these frames.
func (b *table) sees(want ...string) {
	b.t.Helper()
	out := bytes.Join(b.s.Out(b.now, b.att, nil), nil)
	b.s.Wrote(b.now, b.att, len(out), false)
	if got := frames(b.t, out); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		b.t.Fatalf("the client got %q, want %q", got, want)
	}
}

// pongs is the client's answer to a Ping.
func (b *table) pongs(count string) {
	b.s.Read(b.now, b.att, masked(frame.Pong, count))
	b.s.Retain()
}

func TestResumeReplaysOnlyWhatPongDoesNotCover(t *testing.T) {
	b := newKept(t, keptConfig())
	b.game(text("one") + text("two"))
	b.sees("one", "two")
	b.sleep(time.Second)
	b.sees("ping 2")
	b.game(text("three"))
	b.sees("three")
	b.pongs("2")
	b.drop()
	b.game(text("four"))
	b.back()
	b.sees("three", "four")
}

// Several Pings may be unanswered, as when a heartbeat is due before an answer arrives.
// Each answer covers what its Ping carried, in any order.
func TestPongToOlderPingCoversItsCount(t *testing.T) {
	b := newKept(t, keptConfig())
	b.game(text("one"))
	b.sees("one")
	b.sleep(time.Second)
	b.sees("ping 1")
	b.game(text("two"))
	b.sees("two")
	b.sleep(15 * time.Second)
	b.sees("ping 2")
	b.pongs("1")
	b.drop()
	b.back()
	b.sees("two")
}

// An unsolicited Pong acks nothing: neither messages that no Ping asked about, nor messages
// that were never written.
func TestPongBeyondNewestPingCoversNothing(t *testing.T) {
	for _, count := range []string{"2", "3", "18446744073709551615", "-1", "", "1x"} {
		b := newKept(t, keptConfig())
		b.game(text("one"))
		b.sees("one")
		b.sleep(time.Second)
		b.sees("ping 1")
		b.game(text("two"))
		b.sees("two")
		b.pongs(count)
		b.wantState(session.Attached)
		if i := b.s.Info(); i.Acked != 0 {
			t.Errorf("Pong %q: acked %d, want 0", count, i.Acked)
		}
	}
}

// A client disconnects before it has received everything that precedes the game server's
// Close.
func TestUpstreamCloseWaitsForReturningClient(t *testing.T) {
	b := newKept(t, keptConfig())
	b.game(text("one"))
	b.sees("one")
	b.game(text("two") + string(frame.Append(nil, frame.Close, frame.ClosePayload(4000, "won"))))
	b.drop()
	b.wantState(session.Detached)
	b.back()
	b.sees("one", "two")
	b.sees("close 4000 won")
	b.s.Read(b.now, b.att, masked(frame.Close, string(frame.ClosePayload(4000, ""))))
	b.wantState(session.Ended)
}

// The upstream that was dialled for a client closes, and the client leaves before it is attached.
func TestUpstreamCloseIsAnsweredWhenWaitingClientLeaves(t *testing.T) {
	c := keptConfig()
	c.Hard = true
	b := newKept(t, c)
	b.s.Read(b.now, b.att, masked(frame.Text, "waits"))
	b.s.Retain()
	b.drop()
	b.s.BeginRedial(b.now)
	u := b.s.Reconnect(b.now, frame.Append(nil, frame.Close, frame.ClosePayload(1012, "")))
	b.s.CancelRedial(b.now)
	b.wants(u, "waits", "close 1012 ")
}

// A broken upstream sends no Close that the client could answer. Only its Pong shows that
// it has received everything before.
func TestBrokenUpstreamIsReportedOncePongCoversAll(t *testing.T) {
	b := newKept(t, keptConfig())
	b.game(text("one"))
	b.s.Disconnected(b.now, b.up, "reset")
	b.sees("one")
	b.sees("ping 1")
	b.drop()
	b.wantState(session.Detached)
	b.back()
	b.sees("one")
	b.sees("ping 1")
	b.wantState(session.Attached)
	b.pongs("1")
	b.wantState(session.Ended)
}

// The wait for that Pong is limited, even if the client sends other messages.
func TestBrokenUpstreamIsReportedToClientThatAnswersNoPing(t *testing.T) {
	b := newKept(t, keptConfig())
	b.game(text("one"))
	b.s.Disconnected(b.now, b.up, "reset")
	b.sees("one")
	for range 7 {
		b.wantState(session.Attached)
		b.says("still here")
		b.sleep(9 * time.Second)
	}
	b.wantState(session.Detached)
}

// pongAwaited returns a session whose game server takes nothing, and waits for room that
// only the client's Pong can make.
func pongAwaited(t *testing.T) *table {
	t.Helper()
	c := keptConfig()
	c.BufferMessages = 1
	b := newKept(t, c)
	b.says("hello")
	b.game(text("one") + text("two"))
	b.sees("one")
	if !b.s.WantsRead(b.att) {
		t.Fatal("the client is not read, whose Pong the upstream waits for")
	}
	return b
}

// The game server reads nothing until its output is read, and that needs room that only
// a Pong can make: so the gateway reads up to the Pong, past the client's earlier messages.
func TestPongIsReadWhileUpstreamTakesNothing(t *testing.T) {
	b := pongAwaited(t)
	b.sees("ping 1")
	b.pongs("1")
	b.sees("two")
}

// A client must not fill the memory with messages that the game server does not take.
func TestReadingForPongIsBounded(t *testing.T) {
	c := keptConfig()
	c.BufferMessages = 1
	b := newKept(t, c)
	b.says("hello")
	if b.s.WantsRead(b.att) {
		t.Fatal("the client is read while the upstream is behind, and nothing waits for its Pong")
	}
	b.game(text("one") + text("two"))
	b.sees("one")
	n := 0
	for ; b.s.WantsRead(b.att) && n < 100; n++ {
		b.says(strings.Repeat("x", 64<<10))
	}
	if n != 16 {
		t.Errorf("%d messages of 64 KiB are read, want 16: 1 MiB, as of a resumable client", n)
	}
	b.sleep(30*time.Second - 1)
	b.wantState(session.Attached) // its silence is ours
}

// A Pong beyond that limit is never read: a deadlock. A new connection breaks it, since the
// Pong comes first there.
func TestClientWithUnreachablePongIsDisconnected(t *testing.T) {
	b := pongAwaited(t)
	for b.s.WantsRead(b.att) {
		b.says(strings.Repeat("x", 64<<10))
	}
	b.sleep(29 * time.Second)
	b.wantState(session.Attached)
	b.takes(b.up, 1) // the game server takes something after all
	b.sleep(29 * time.Second)
	b.wantState(session.Attached)
	b.sleep(2 * time.Second)
	b.wantState(session.Detached)
	b.back()
	b.sees("one")
	b.sleep(time.Second)
	b.sees("ping 1")
	b.s.Read(b.now, b.att, masked(frame.Pong, "1"))
	b.sees("two")
}

// A write to the game server that takes no bytes proves nothing about the client.
func TestZeroByteWriteIsNoClientActivity(t *testing.T) {
	b := pongAwaited(t)
	b.sleep(20 * time.Second)
	b.takes(b.s.Upstream(), 0)
	b.sleep(2*keptConfig().Heartbeat - 20*time.Second - 1)
	b.wantState(session.Attached)
	b.sleep(1)
	b.wantState(session.Detached)
}

// No hello reports dropped messages to a plain client, so the event must.
func TestEventCountsMessagesLostToPlainClient(t *testing.T) {
	c := keptConfig()
	c.Overflow, c.BufferMessages = session.DropOldest, 2
	b := newKept(t, c)
	b.game(text("one"))
	b.sees("one")
	b.drop()
	b.game(text("two") + text("three") + text("four"))
	b.s.Events()
	b.back()
	for _, e := range b.s.Events() {
		if e.Kind == session.Resumed && (e.Lost != 2 || e.Replay != 2) {
			t.Errorf("lost %d, replay %d, want 2 and 2", e.Lost, e.Replay)
		}
	}
	b.sees("three", "four")
}

// Plain clients do not escape: text that begins with a DLE stays as it is.
func TestPlainClientHeartbeatIsNotUnescaped(t *testing.T) {
	c := keptConfig()
	c.KeepaliveReplies = []session.KeepaliveReply{{In: "\x10beat", Out: "one"}, {In: "beat", Out: "two"}}
	b := newKept(t, c)
	b.game(text("\x10beat") + text("\x10\x10beat"))
	b.drop()
	b.wants(b.up, "one")
}
