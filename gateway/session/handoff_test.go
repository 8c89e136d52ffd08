package session_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/replay"
	"reseat/gateway/session"
	"reseat/gateway/wire"
	"reseat/tokens/generation"
)

// Hand-offs and fencing of durable sessions, call by call.

// leaves begins a hand-off, which must be possible.
func (b *table) leaves() {
	b.t.Helper()
	if !b.s.Leave(b.now) {
		b.t.Fatal("the session cannot be handed over")
	}
}

// wantLeft checks whether the session can be handed over.
func (b *table) wantLeft(want bool) {
	b.t.Helper()
	if got := len(b.kinds(session.Left)); got != map[bool]int{true: 1}[want] {
		b.t.Fatalf("%d events say that the upstream is done with, want it: %v", got, want)
	}
}

// moves freezes the session, and makes it go on at another node, whose clock is ahead of this one's.
func (b *table) moves(ahead time.Duration, epoch uint64) *table {
	b.t.Helper()
	b.s.Events()
	frozen, err := b.s.Freeze(session.Formats[0])
	if err != nil {
		b.t.Fatal(err)
	}
	n := &table{t: b.t, now: b.now.Add(ahead), store: replay.NewStore(1<<30, nil)}
	key := byte(100)
	n.s, err = session.Restore(session.Formats[0], frozen.State, slices.Concat(frozen.Content...), n.store, func() [4]byte { key++; return [4]byte{key, 8} })
	if err != nil {
		b.t.Fatal(err)
	}
	if err := n.s.Arrive(n.now, b.now, epoch); err != nil {
		b.t.Fatal(err)
	}
	n.up = n.s.Upstream()
	return n
}

// closed is the game server's answer to a Close frame.
const closed = "\x88\x02\x03\xe9"

// handoffConfig is that of a session with every rule that may meet a hand-off.
func handoffConfig(hard bool) session.Config {
	c := durableConfig()
	c.Hard = hard
	return c
}

// All that the game server says until its Close goes along, and so does what it has not taken of the client's.
func TestHandOffTakesEverythingAlong(t *testing.T) {
	for _, attached := range []bool{true, false} {
		b := started(t, durableConfig())
		b.game(text("a"))
		b.says("one")
		b.wants(b.up, "one")
		b.wantHears("a")
		gen := b.s.Generation()
		if !attached {
			b.drop()
		}
		b.leaves()
		b.wants(b.up, "close 1001 moved")
		b.wantLeft(false)
		if attached {
			b.says("two") // waits for the next one
			b.wants(b.up)
		}
		b.game(text("b") + "\x01\x03hal") // half a message
		b.wantLeft(false)
		b.game("\x80\x01f" + closed + text("behind it"))
		b.wantLeft(true)
		b.wantMode(b.up, session.Linger)
		b.wants(b.up)
		if attached {
			b.wantHears("b", "hal", "f")
		}
		n := b.moves(0, 5)
		n.wantState(session.Detached)
		n.wantCounts(map[bool]uint64{true: 2, false: 1}[attached], 1, 3, 0)
		r := session.Resume{Gen: gen, Received: 3, Settled: 1}
		if told := n.redial(r, text("d")); told != "2 4" {
			t.Errorf("told %s, want 2 4", told)
		}
		n.attach(r)
		h := n.hello()
		if h.Received != 1 || h.Replay != 1 || h.Lost != 0 || h.Moved != wire.MovedHandoff || !h.Resumed {
			t.Errorf("hello %+v", h)
		}
		if n.s.Generation() != generation.FirstOf(5) {
			t.Errorf("generation %d, want %d", n.s.Generation(), generation.FirstOf(5))
		}
		if attached {
			n.wants(n.up, "two")
			n.says("two") // again, which nobody else gets
		}
		n.says("three")
		n.wants(n.up, "three")
		n.says("\x10ack 4")
		n.wantState(session.Attached)

		// The older node learns that the session has gone.
		b.s.HandedOver(b.now, 1500*time.Millisecond)
		b.wantState(session.Ended)
		if attached {
			out := string(b.output())
			if !strings.Contains(out, `"code":4503,"reason":"draining","retry":true,"retry_after_ms":1500`) {
				t.Errorf("the client gets %q", out)
			}
		}
		b.wantNothingHeld()
	}
}

// Numbers that the older node may have sent, and the client not read, are not beyond what was sent.
func TestHandOffAcceptsEveryNumberOfOlderNode(t *testing.T) {
	b := newTable(t, durableConfig())
	b.game(text("a") + text("b"))
	b.leaves()
	b.wants(b.up, "close 1001 moved")
	b.game(closed)
	n := b.moves(0, 1)
	for received, code := range map[uint64]int{0: 0, 1: 0, 2: 0, 3: wire.CodeProtocolViolation} {
		got := 0
		if ref := n.s.Check(n.now, session.Resume{Gen: b.s.Generation(), Received: received}); ref != nil {
			got = ref.Code
		}
		if got != code {
			t.Errorf("received %d: %d, want %d", received, got, code)
		}
	}
}

// hello says that the session was handed over until a client was heard here, and names no failover: numbers
// stay what they are.
func TestHandedOverSessionKeepsItsNumbers(t *testing.T) {
	b := newTable(t, durableConfig())
	b.game(text("a"))
	gen := b.s.Generation()
	b.leaves()
	b.wants(b.up, "close 1001 moved")
	b.game(closed)
	n := b.moves(0, 1)
	for range 2 {
		n.join(session.Resume{Gen: gen, Received: 1})
		if h := n.hello(); h.Moved != wire.MovedHandoff {
			t.Errorf("hello %+v", h)
		}
		if ref := n.s.Check(n.now, session.Resume{Gen: gen, Received: 2}); ref == nil || ref.Code != wire.CodeProtocolViolation {
			t.Errorf("refusal %v", ref)
		}
		n.drop()
	}
	n.join(session.Resume{Gen: gen, Received: 1})
	n.says("\x10ack 1")
	n.drop()
	n.join(session.Resume{Gen: n.s.Generation(), Received: 1})
	if h := n.hello(); h.Moved != "" || n.s.Moved() != wire.MovedHandoff {
		t.Errorf("hello %+v, and the session came by %q", h, n.s.Moved())
	}
}

// A client that is paused by a full buffer, or slow, does not keep the Close frame from being read.
func TestHandOffReadsEverythingWhateverFits(t *testing.T) {
	for _, policy := range []session.Overflow{session.Pause, session.DropOldest, session.EndSession} {
		for _, attached := range []bool{true, false} {
			c := durableConfig()
			c.BufferMessages, c.Overflow = 2, policy
			b := newTable(t, c)
			b.output()
			if !attached && policy == session.Pause {
				b.drop()
			}
			b.game(text("a") + text("b") + text("c")) // c has no room
			if b.s.WantsRead(b.up) {
				t.Fatal("the buffer is full, and more is read")
			}
			b.leaves()
			if !b.s.WantsRead(b.up) {
				t.Fatal("the rest is not read")
			}
			b.wants(b.up, "close 1001 moved")
			b.game(text("d") + text("e") + closed)
			b.wantLeft(true)
			n := b.moves(0, 1)
			n.wantCounts(0, 0, 5, 0)
			if i := n.s.Info(); i.BufferMessages != 5 || i.Stats.Dropped != 0 {
				t.Errorf("%v: %+v", policy, i)
			}
			n.join(session.Resume{Gen: b.s.Generation()})
			n.wantHears("hello", "a", "b", "c", "d", "e")
			n.wantState(session.Attached)
		}
	}
}

// While a full buffer keeps the game server from being read, its silence is the gateway's own.
func TestHandOffReadsUpstreamThatWasPaused(t *testing.T) {
	c := durableConfig()
	c.BufferMessages, c.UpstreamHeartbeat = 1, time.Second
	b := newTable(t, c)
	b.game(text("a") + text("b"))
	b.says("written")
	n := len(b.lend(b.up)) // the Close frame has to wait for that
	b.sleep(1400 * time.Millisecond)
	b.leaves()
	b.sleep(time.Second)
	b.wantLeft(false)
	b.s.Wrote(b.now, b.up, n, false)
	b.wants(b.up, "close 1001 moved")
	b.game(text("c") + closed)
	b.wantLeft(true)
	b.wantCounts(1, 1, 3, 0)
}

// A Close that is read while the rest of a full buffer is walked over ends the session as ever.
func TestGameServerHadEndedSessionBeforeHandOff(t *testing.T) {
	c := durableConfig()
	c.BufferMessages = 1
	b := newTable(t, c)
	b.output()
	b.game(text("a") + text("b") + closing(4000, "won"))
	if b.s.Leave(b.now) {
		t.Error("a session that its game server has ended is handed over")
	}
	b.wants(b.up, "close 4000 ")
	b.wantHears("a", "b", "end", "close 4000 won")
	b.sleep(leaveTime)
	b.wantLeft(false)
}

// No Close frame goes into a message: what the upstream has taken in part is completed first.
func TestHandOffClosesUpstreamBetweenMessages(t *testing.T) {
	one := len(masked(frame.Text, "one"))
	for _, taken := range []int{0, 1, one - 1, one, one + 1} {
		for _, flying := range []bool{true, false} {
			b := newTable(t, durableConfig())
			b.says("one")
			b.says("two")
			b.says("three")
			var got []byte
			if flying {
				got = b.lend(b.up)[:taken:taken]
				b.leaves()
				b.s.Wrote(b.now, b.up, taken, false)
			} else {
				got = b.takes(b.up, taken)
				b.leaves()
			}
			got = append(got, b.takes(b.up, 1<<30)...)
			want := []string{"one", "two", "three", "close 1001 moved"}
			if taken == 0 || taken == one {
				want = append(want[:map[bool]int{false: 0, true: 1}[taken == one]:taken/one], "close 1001 moved")
			}
			if taken != 0 && taken != one {
				got = append(got, b.takes(b.up, 1<<30)...) // the Close, which follows the report
			}
			b.gets(got, want...)
			b.game(closed)
			b.wantLeft(true)
			n := b.moves(0, 1)
			n.join(session.Resume{Gen: b.s.Generation()})
			left := []string{"one", "two", "three"}[len(want)-1:]
			n.wants(n.up, left...)
		}
	}
}

// What the rate limit holds waits at the next node, in its order and for no longer than it had to.
func TestHandOffKeepsWhatRateLimitHolds(t *testing.T) {
	for _, ahead := range []time.Duration{0, time.Hour, -time.Hour} {
		c := durableConfig()
		c.Rate.Messages = 1
		b := newTable(t, c)
		b.now = b.now.Add(2 * time.Hour)
		b.says("\x10ping")
		for _, m := range []string{"one", "two", "three", "four"} {
			b.says(m)
		}
		b.wants(b.up, "one")
		b.leaves()
		b.wants(b.up, "close 1001 moved")
		b.game(closed)
		b.now = b.now.Add(500 * time.Millisecond)
		n := b.moves(ahead, 1)
		n.join(session.Resume{Gen: b.s.Generation(), Settled: 1})
		n.output()
		n.wants(n.up)
		for _, m := range []string{"two", "three", "four"} { // again
			n.says(m)
		}
		n.sleep(500*time.Millisecond - 1)
		n.wants(n.up)
		n.sleep(1)
		n.wants(n.up, "two")
		n.sleep(time.Second)
		n.wants(n.up, "three")
		n.says("five") // behind what waits, and not for hours
		n.sleep(time.Second)
		n.wants(n.up, "four", "five")
	}
}

// A client that may have got further than the claim would be refused by the next node, which could not tell.
func TestClaimedSessionStaysUntilItsClientHasTakenIt(t *testing.T) {
	b := newClaimed(t, durableConfig(), claim)
	if b.s.Leave(b.now) {
		t.Fatal("a claimed session is handed over before its client has taken it")
	}
	b.join(old(100, 40))
	if b.s.Leave(b.now) {
		t.Fatal("the same once its client has only been sent hello")
	}
	b.says("here")
	b.leaves()
}

// A session without an upstream has nothing to wait for.
func TestHandOffWithoutUpstreamIsReadyAtOnce(t *testing.T) {
	for _, how := range []string{"outage", "outage, away", "hard", "hard, writing"} {
		c := durableConfig()
		c.Redial, c.Hard = 30*time.Second, strings.HasPrefix(how, "hard")
		b := newTable(t, c)
		b.says("one")
		b.game(text("a"))
		switch how {
		case "outage":
			b.breaks()
		case "outage, away":
			b.drop()
			b.breaks()
		case "hard":
			b.drop()
		case "hard, writing":
			b.lend(b.up)
			b.drop()
		}
		b.leaves()
		b.wantLeft(true)
		b.wantOutage(0)
		if b.s.TakesUpstream(true) || b.s.TakesUpstream(false) {
			t.Errorf("%s: it takes an upstream that is dialled yet", how)
		}
		if how == "hard, writing" {
			if _, err := b.s.Freeze(session.Formats[0]); err != session.ErrBusy {
				t.Fatalf("frozen with a write in flight: %v", err)
			}
			b.s.Wrote(b.now, b.up, 0, false)
		}
		n := b.moves(0, 7)
		n.join(session.Resume{Gen: b.s.Generation()})
		n.wants(n.up, "one")
		want := []string{"hello", "a"}
		if how == "outage" { // its client was told of it
			want = []string{"hello", "back", "a"}
		}
		if got := n.hears(); how != "outage" && !slices.Equal(got, want) {
			t.Errorf("%s: the client hears %q", how, got)
		}
	}
}

// A client of a hard session that breaks off meanwhile: the upstream has its Close, and gets nothing behind it.
func TestClientDropsDuringHandOff(t *testing.T) {
	for _, hard := range []bool{true, false} {
		c := handoffConfig(hard)
		c.Notices.Detach = "away"
		c.KeepaliveReplies = []session.KeepaliveReply{{In: "2", Out: "3"}}
		b := newTable(t, c)
		b.game(text("2"))
		b.leaves()
		b.wants(b.up, "close 1001 moved")
		b.drop()
		b.game(text("2") + text("last"))
		b.wants(b.up)
		b.wantLeft(false)
		b.game(closed)
		b.wantLeft(true)
		b.wants(b.up)
		b.wantState(session.Detached)
		n := b.moves(0, 1)
		n.join(session.Resume{Gen: b.s.Generation()})
		if got := n.hears(); !slices.Contains(got, "last") {
			t.Errorf("hard %v: the client hears %q", hard, got)
		}
		n.wants(n.up)
	}
}

// An upstream that ends the session itself meanwhile has ended it: it is not revived at another node.
func TestGameServerEndsSessionDuringHandOff(t *testing.T) {
	for _, attached := range []bool{true, false} {
		for name, sent := range map[string]string{"close": closing(4000, "won"), "violation": "\x81\x80\x01\x02\x03\x04"} {
			b := started(t, durableConfig())
			b.says("one")
			b.lend(b.up) // so that no Close goes out yet
			if !attached {
				b.drop()
			}
			b.leaves()
			b.game(text("last") + sent)
			b.wantKinds([]session.Kind{session.Stays}, session.Left, session.Stays)
			b.s.Wrote(b.now, b.up, len(masked(frame.Text, "one")), false)
			if attached {
				if got := b.hears(); got[0] != "last" || !slices.Contains(got, map[string]string{"close": "end", "violation": "close"}[name]) {
					t.Errorf("%s: the client hears %q", name, got)
				}
			}
			b.sleep(leaveTime)
			b.wantLeft(false)
			if b.s.Leave(b.now) {
				t.Errorf("%s: the session is handed over after all", name)
			}
			if got := frames(t, b.takes(b.up, 1<<30)); !strings.HasPrefix(got[0], "close ") || got[0] == "close 1001 moved" {
				t.Errorf("%s: the upstream gets %q", name, got)
			}
		}
	}
}

// Every other end of the upstream's connection is as good as its answer.
func TestUpstreamGoesAwayDuringHandOff(t *testing.T) {
	c := durableConfig()
	c.Redial, c.UpstreamHeartbeat = 30*time.Second, time.Second
	for name, goes := range map[string]func(b *table){
		"answers": func(b *table) { b.game(closed) },
		"closes":  func(b *table) { b.game(closing(4000, "crossing")) },
		"restart": func(b *table) { b.game(closing(1012, "")) },
		"breaks":  func(b *table) { b.breaks() },
		"silent":  func(b *table) { b.sleep(2 * time.Second) },
	} {
		for _, written := range []bool{true, false} { // whether our Close is
			if !written && (name == "answers" || name == "closes") || written && name == "silent" {
				continue
			}
			b := newTable(t, c)
			b.says("one")
			if written {
				b.wants(b.up, "one")
			} else {
				b.takes(b.up, 3)
			}
			b.leaves()
			if written {
				b.wants(b.up, "close 1001 moved")
			}
			b.game(text("last"))
			goes(b)
			b.wantKinds([]session.Kind{session.Left}, session.Left, session.UpstreamLost, session.Stays)
			b.wantOutage(0)
			n := b.moves(0, 1)
			n.wantCounts(1, map[bool]uint64{true: 1}[written], 1, 0)
			n.join(session.Resume{Gen: b.s.Generation()})
			if !written {
				n.wants(n.up, "one") // whole
			}
			n.wantHears("hello", "last")
		}
	}
}

// An upstream that goes away by itself is answered, between messages.
func TestUpstreamThatRestartsDuringHandOffIsAnswered(t *testing.T) {
	one := len(masked(frame.Text, "one"))
	for taken, answered := range map[int]bool{0: true, 3: false, one: true} {
		c := durableConfig()
		c.Redial = 30 * time.Second
		b := newTable(t, c)
		b.says("one")
		b.lend(b.up)
		b.leaves()
		b.game(closing(1012, ""))
		b.wantLeft(true)
		b.s.Wrote(b.now, b.up, taken, false)
		if answered {
			b.wants(b.up, "close 1012 ")
		} else {
			b.wantMode(b.up, session.Shut)
		}
	}
}

// An upstream that does not close is waited for for five seconds, and no longer.
func TestHandOffWaitsFiveSecondsForClose(t *testing.T) {
	b := newTable(t, durableConfig())
	b.leaves()
	b.wants(b.up, "close 1001 moved")
	b.sleep(leaveTime - 1)
	b.game(text("late"))
	b.wantLeft(false)
	b.sleep(1)
	b.wantLeft(true)
	b.wants(b.up)
	b.wantMode(b.up, session.Linger)
	b.game2(b.up, text("too late"))
	n := b.moves(0, 1)
	n.wantCounts(0, 0, 1, 0)
}

// game2 delivers bytes of an upstream that may have been replaced.
func (b *table) game2(u *session.Upstream, bytes string) {
	b.t.Helper()
	if b.s.Room(u) != nil {
		b.t.Error("it is read on")
	}
	b.s.Read(b.now, u, []byte(bytes))
}

// One that takes nothing gets its Close frame then, if it is not inside a message.
func TestHandOffWithUpstreamThatTakesNothing(t *testing.T) {
	for taken, want := range map[int]session.CloseMode{0: session.Linger, 3: session.Shut} {
		for _, flying := range []bool{true, false} {
			b := newTable(t, durableConfig())
			b.says("one")
			if flying {
				b.lend(b.up)
			} else {
				b.takes(b.up, taken)
			}
			b.leaves()
			b.sleep(leaveTime)
			b.wantLeft(true)
			if flying {
				b.wantMode(b.up, session.Linger)
				b.s.Wrote(b.now, b.up, taken, false)
			}
			b.wantMode(b.up, want)
			if want == session.Linger {
				b.wants(b.up, "close 1001 moved")
			} else {
				b.wants(b.up)
			}
			n := b.moves(0, 1)
			n.join(session.Resume{Gen: b.s.Generation()})
			n.wants(n.up, "one")
		}
	}
}

// The write of an older upstream is in flight, which is not this one's message.
func TestHandOffDuringWriteToOlderUpstream(t *testing.T) {
	for _, taken := range []int{0, 3} {
		b := newTable(t, handoffConfig(true))
		b.says("one")
		older := b.up
		b.lend(older)
		b.drop()
		b.s.BeginRedial(b.now)
		b.up = b.s.Reconnect(b.now, nil)
		b.resume(0)
		b.leaves()
		b.s.Wrote(b.now, older, taken, false)
		b.wants(b.up, "close 1001 moved")
		b.game(closed)
		b.wantLeft(true)
		n := b.moves(0, 1)
		n.join(session.Resume{Gen: b.s.Generation()})
		n.wants(n.up, "one")
	}
}

// The client closes the session meanwhile. Its messages before that wait for the next upstream, so it says it there.
func TestByeDuringHandOff(t *testing.T) {
	b := started(t, durableConfig())
	gen := b.s.Generation()
	b.leaves()
	b.says("one")
	b.says(`` + "\x10bye " + `{"code":3000,"reason":"done"}`)
	b.wantHears("close 1012 ")
	b.wantState(session.Detached)
	b.wants(b.up, "close 1001 moved")
	b.game(closed)
	b.wantLeft(true)
	n := b.moves(0, 1)
	n.join(session.Resume{Gen: gen})
	n.says("one")
	n.says("\x10bye " + `{"code":3000,"reason":"done"}`)
	n.wantState(session.Ended)
	n.wants(n.up, "one", "close 3000 done")
}

// Whatever else ends the session ends the hand-off, too.
func TestSessionEndsDuringHandOff(t *testing.T) {
	for name, end := range map[string]func(b *table){
		"terminate": func(b *table) { b.s.Terminate(b.now, 1000, "over") },
		"violation": func(b *table) { b.says("\x10ack 99") },
		"grace":     func(b *table) { b.drop(); b.s.SetTerms(b.now, session.Terms{}) },
		"fence":     func(b *table) { b.s.Fence(b.now) },
		"drain":     func(b *table) { b.s.Drain(b.now, time.Second) },
	} {
		for _, late := range []bool{false, true} {
			b := newTable(t, durableConfig())
			b.leaves()
			b.wants(b.up, "close 1001 moved")
			b.says("waits")
			end(b)
			b.wantState(session.Ended)
			b.s.Events()
			b.wants(b.up) // nothing behind its Close
			if late {
				b.sleep(leaveTime)
				b.s.Tick(b.now)
			}
			b.breaks()
			b.wantKinds(nil, session.Left, session.Stays, session.Disconnected, session.SessionEnded)
			if b.s.Leave(b.now) || b.s.Next() != 0 {
				t.Errorf("%s: the session goes on", name)
			}
			if ref := b.s.Check(b.now, session.Resume{Gen: b.s.Generation()}); (ref.Code == wire.CodeNodeUnreachable) != (name == "fence") {
				t.Errorf("%s: a resume gets %+v", name, ref)
			}
			b.wantNothingHeld()
		}
	}
}

// Both in one Tick: the client is in violation when the wait for the upstream is over.
func TestSessionEndsAtLastMomentOfHandOff(t *testing.T) {
	c := durableConfig()
	c.Idle = leaveTime
	b := newTable(t, c)
	b.s.Owned(b.now)
	b.leaves()
	b.sleep(leaveTime)
	b.wantState(session.Ended)
	b.wantKinds([]session.Kind{session.SessionEnded}, session.Left, session.SessionEnded)
}

// A resume is turned away until it is known where the session goes on.
func TestResumeDuringHandOffComesAgain(t *testing.T) {
	b := newTable(t, durableConfig())
	r := session.Resume{Gen: b.s.Generation()}
	wantAgain := func(when string) {
		t.Helper()
		if ref := b.s.Check(b.now, r); ref == nil || ref.Code != wire.CodeNodeUnreachable || ref.Retry <= 0 {
			t.Errorf("%s: %+v", when, ref)
		}
	}
	b.leaves()
	wantAgain("leaving")
	if ref := b.s.Check(b.now, session.Resume{Gen: r.Gen + 1}); ref == nil || ref.Code != wire.CodeBadToken {
		t.Errorf("a bad token: %+v", ref)
	}
	b.wants(b.up, "close 1001 moved")
	b.game(closed)
	wantAgain("left")
	if b.s.TakesUpstream(false) {
		t.Error("an upstream is taken")
	}
	b.s.HandedOver(b.now, time.Second)
	wantAgain("handed over")
}

// Nobody takes the session: its client comes back, and its upstream is dialled anew.
func TestSessionStays(t *testing.T) {
	for _, stage := range []string{"left", "closing", "writing", "outage"} {
		for _, attached := range []bool{true, false} {
			c := durableConfig()
			c.Redial = 30 * time.Second
			b := started(t, c)
			b.says("one")
			if stage == "outage" {
				b.breaks()
			} else if stage == "writing" {
				b.lend(b.up)
			}
			if !attached {
				b.drop()
			}
			b.leaves()
			first := b.up
			switch stage {
			case "writing":
			default:
				b.wants(first, map[bool][]string{false: {"close 1001 moved"}}[stage == "outage"]...)
				if stage == "left" {
					b.game(text("last") + closed)
				}
			}
			b.s.Stay(b.now)
			b.wantState(session.Detached)
			if attached {
				if got := b.hears(); !slices.Contains(got, "close 1012 ") {
					t.Errorf("%s: the client hears %q", stage, got)
				}
			}
			if stage == "closing" {
				b.s.Read(b.now, first, []byte(closed)) // answers too late, and ends nothing
			}
			if stage == "writing" {
				b.s.Wrote(b.now, first, 0, false)
				b.wants(first, "close 1001 moved")
			}
			b.wantState(session.Detached)
			b.sleep(leaveTime)
			b.s.Owned(b.now)
			if b.s.TakesUpstream(false) {
				t.Errorf("%s: an upstream is taken that was dialled before", stage)
			}
			b.told(session.Resume{})
			if !b.s.TakesUpstream(false) {
				t.Errorf("%s: no upstream is taken", stage)
			}
			b.join(session.Resume{Gen: b.s.Generation()})
			if h := b.hello(); h.Received != 0 || h.Moved != "" {
				t.Errorf("%s: hello %+v", stage, h)
			}
			b.wants(b.up, "one")
			b.says("one")
			b.says("two")
			b.wants(b.up, "two")
			b.leaves() // and it may be tried again
			b.wants(b.up, "close 1001 moved")
		}
	}
}

func TestStayWithoutHandOffChangesNothing(t *testing.T) {
	for _, durable := range []bool{true, false} {
		c := config()
		c.Durable = durable
		b := newTable(t, c)
		b.s.Stay(b.now)
		b.wantState(session.Attached)
		b.wants(b.up)
	}
}

func TestWhichSessionsAreHandedOver(t *testing.T) {
	c := durableConfig()
	c.Hard = true
	notDurable := newTable(t, config())
	first := connecting(t, c, nil)
	dialling := newTable(t, c)
	dialling.drop()
	dialling.s.BeginRedial(dialling.now)
	ended := newTable(t, c)
	ended.s.Fail(ended.now)
	over := newTable(t, c)
	over.game(closing(4000, ""))
	lost := newTable(t, c)
	lost.breaks()
	twice := newTable(t, c)
	twice.leaves()
	for name, b := range map[string]*table{"not durable": notDurable, "first": first, "dialling": dialling, "ended": ended, "over": over, "lost": lost, "twice": twice} {
		if b.s.Leave(b.now) {
			t.Errorf("%s: it is handed over", name)
		}
		if name != "twice" {
			b.wantLeft(false)
		}
	}
}

// Only a session whose upstream is done with arrives, at a later epoch.
func TestArriveNeedsLeave(t *testing.T) {
	for _, left := range []bool{true, false} {
		b := newTable(t, durableConfig())
		b.s.Events()
		if left {
			b.leaves()
			b.wants(b.up, "close 1001 moved")
			b.game(closed)
			b.s.Events()
		}
		frozen, err := b.s.Freeze(session.Formats[0])
		if err != nil {
			t.Fatal(err)
		}
		s, err := session.Restore(session.Formats[0], frozen.State, slices.Concat(frozen.Content...), replay.NewStore(1<<30, nil), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Arrive(b.now, b.now, 1); (err == nil) != left {
			t.Errorf("left %v: %v", left, err)
		}
	}
	b := newClaimed(t, durableConfig(), claim)
	b.join(old(100, 40))
	b.says("\x10ack 100")
	b.leaves()
	b.wants(b.up, "close 1001 moved")
	b.game(closed)
	b.s.Events()
	frozen, err := b.s.Freeze(session.Formats[0])
	if err != nil {
		t.Fatal(err)
	}
	for epoch, want := range map[uint64]bool{2: false, 3: false, 4: true} { // a generation of 3 is confirmed
		s, err := session.Restore(session.Formats[0], frozen.State, slices.Concat(frozen.Content...), replay.NewStore(1<<30, nil), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Arrive(b.now, b.now, epoch); (err == nil) != want {
			t.Errorf("epoch %d: %v", epoch, err)
		}
	}
}

// ---- clocks

// The grace period of a client that is away goes on at the next node, whatever its clock says; for one that was
// there until now it begins.
func TestGraceGoesOnAtNextNode(t *testing.T) {
	for _, ahead := range []time.Duration{0, time.Hour, -time.Hour} {
		for _, attached := range []bool{true, false} {
			b := newTable(t, durableConfig())
			b.now = b.now.Add(2 * time.Hour)
			b.says("\x10ack 0")
			left := 30 * time.Second
			if !attached {
				b.drop()
				b.sleep(12 * time.Second)
				left -= 12*time.Second + time.Second
			}
			b.leaves()
			b.wants(b.up, "close 1001 moved")
			b.now = b.now.Add(time.Second)
			b.game(closed)
			n := b.moves(ahead, 1)
			if end := n.s.Info().GraceEnd; end != n.now.Add(left) {
				t.Errorf("%v ahead, attached %v: the grace period ends in %v, want %v", ahead, attached, end.Sub(n.now), left)
			}
			n.sleep(left - 1)
			n.wantState(session.Detached)
			n.s.Owned(n.now)
			n.sleep(1)
			n.wantState(session.Ended)
		}
	}
}

// A new node's clock may have begun after the moments that it takes over.
func TestHandOffToNodeThatHasJustBegun(t *testing.T) {
	b := newTable(t, durableConfig())
	b.now = b.now.Add(time.Hour)
	b.says("\x10ack 0")
	b.drop()
	b.sleep(20 * time.Second)
	b.leaves()
	b.wants(b.up, "close 1001 moved")
	b.game(closed)
	n := b.moves(time.Second-time.Duration(b.now), 1) // its clock says 1 s
	if end := n.s.Info().GraceEnd; end != n.now.Add(10*time.Second) {
		t.Errorf("the grace period ends in %v, want 10 s", end.Sub(n.now))
	}
	n.join(session.Resume{Gen: b.s.Generation()})
	n.hello()
	n.wantState(session.Attached)
	n.says("\x10ack 0")
	n.sleep(10 * time.Second)
	n.wantState(session.Attached)
}

// The idle timeout counts from the last message, at whichever node that was.
func TestIdleTimeoutGoesOnAtNextNode(t *testing.T) {
	for _, ahead := range []time.Duration{time.Hour, -time.Hour} {
		c := durableConfig()
		c.Idle = 20 * time.Second
		b := newTable(t, c)
		b.now = b.now.Add(2 * time.Hour)
		b.says("one")
		b.wants(b.up, "one")
		b.now = b.now.Add(15 * time.Second)
		b.leaves()
		b.wants(b.up, "close 1001 moved")
		b.game(closed)
		n := b.moves(ahead, 1)
		n.join(session.Resume{Gen: b.s.Generation()})
		n.sleep(5*time.Second - 1)
		n.wantState(session.Attached)
		n.sleep(1)
		n.wantState(session.Ended)
	}
}

// What counted against a client, and for it, goes along: takeovers, and resumes without progress.
func TestHandOffKeepsWhatCountsAgainstClient(t *testing.T) {
	for _, ahead := range []time.Duration{0, time.Hour, -time.Hour} {
		b := newTable(t, durableConfig())
		b.now = b.now.Add(2 * time.Hour)
		b.says("\x10ack 0")
		for range 20 {
			b.resume(0)
		}
		b.leaves()
		b.wants(b.up, "close 1001 moved")
		b.game(closed)
		n := b.moves(ahead, 1)
		gen := b.s.Generation()
		n.join(session.Resume{Gen: gen})
		if ref := n.s.Check(n.now, session.Resume{Gen: gen}); ref == nil || ref.Code != wire.CodeTooFast || ref.Retry != 10*time.Second {
			t.Errorf("%v ahead: %+v, want 4429 for 10 s", ahead, ref)
		}
	}
}

// ---- fencing (F4)

// Another node has the session: the client is left without a verdict, the upstream without a word.
func TestFence(t *testing.T) {
	one := len(masked(frame.Text, "one"))
	for _, attached := range []bool{true, false} {
		for _, flying := range []bool{true, false} {
			for _, taken := range []int{0, 3, one, one + 2} {
				c := durableConfig()
				c.Notices = session.Notices{Detach: "away", Expire: "gone"}
				b := started(t, c)
				b.says("one")
				b.says("two")
				if flying {
					b.lend(b.up)
				} else {
					b.takes(b.up, taken)
				}
				if !attached {
					b.drop() // and away waits in the queue
				}
				b.s.Events()
				b.s.Fence(b.now)
				b.wantState(session.Ended)
				if flying {
					b.s.Wrote(b.now, b.up, taken, false)
				}
				if taken == 0 || taken == one {
					b.wants(b.up, "close 1001 moved")
					b.wantMode(b.up, session.Linger)
				} else { // inside a message
					b.wants(b.up)
					b.wantMode(b.up, session.Shut)
				}
				if attached {
					b.wantHears("close 1012 moved")
				}
				events := b.s.Events()
				if len(events) != 1 || events[0].Kind != session.SessionEnded || events[0].Reason != session.ReasonMoved {
					t.Errorf("events %+v", events)
				}
				ref := b.s.Check(b.now, session.Resume{Gen: b.s.Generation()})
				if ref == nil || ref.Code != wire.CodeNodeUnreachable || ref.Retry <= 0 { // 4404 would be a verdict
					t.Errorf("a resume gets %+v", ref)
				}
				b.s.Fence(b.now)
				b.wants(b.up)
				b.wantNothingHeld()
			}
		}
	}
}

// A session that waits for its upstream is fenced, too, and takes none any more.
func TestFenceWithoutUpstream(t *testing.T) {
	for _, how := range []string{"claimed", "dialling", "outage", "left"} {
		c := durableConfig()
		c.Redial = 30 * time.Second
		b := newTable(t, c)
		switch how {
		case "claimed":
			b = newClaimed(t, c, claim)
		case "dialling":
			b = newClaimed(t, c, claim)
			b.s.BeginRedial(b.now)
		case "outage":
			b.says("one")
			b.breaks()
		case "left":
			b.leaves()
			b.wants(b.up, "close 1001 moved")
			b.game(closed)
		}
		b.s.Fence(b.now)
		b.wantState(session.Ended)
		b.wants(b.up)
		if b.s.TakesUpstream(true) || b.s.TakesUpstream(false) || b.s.NeedsUpstream() || b.s.Next() != 0 {
			t.Errorf("%s: the session goes on", how)
		}
		b.wantNothingHeld()
	}
}

// The client that waits for the dial is refused in a way that makes it resume, and the connection that was dialled
// for it is not taken. The session has not ended: it has moved.
func TestFenceWhileResumeWaitsForDial(t *testing.T) {
	hard := newTable(t, handoffConfig(true))
	hard.drop()
	hard.wants(hard.up, "close 1001 disconnected")
	resumes := map[*table]session.Resume{newClaimed(t, durableConfig(), claim): old(100, 40), hard: {Gen: hard.s.Generation()}}
	for b, want := range resumes {
		if !b.s.NeedsUpstream() {
			t.Fatal("the session needs no upstream")
		}
		b.s.Events()
		b.s.BeginRedial(b.now)
		b.s.Counts(want)
		b.s.Fence(b.now)
		b.s.CancelRedial(b.now)
		b.wantState(session.Ended)
		if b.s.TakesUpstream(false) || b.s.NeedsUpstream() || b.s.Next() != 0 {
			t.Error("the session goes on")
		}
		_, attach := b.s.Attach(b.now, want, b.pass())
		for _, ref := range []*session.Refusal{b.s.Check(b.now, want), attach} {
			if ref == nil || ref.Code != wire.CodeNodeUnreachable || ref.Retry <= 0 {
				t.Errorf("the client gets %+v", ref)
			}
		}
		events := b.s.Events()
		if len(events) != 1 || events[0].Kind != session.SessionEnded || events[0].Reason != session.ReasonMoved {
			t.Errorf("events %+v", events)
		}
		b.wants(b.up)
		b.wantNothingHeld()
	}
}

// A first client that comes to a session which was fenced meanwhile gets what an attached one gets.
func TestFenceBeforeFirstAttach(t *testing.T) {
	b := connecting(t, durableConfig(), nil)
	b.s.Fence(b.now)
	b.att = b.s.AttachFirst(b.now, b.pass())
	b.wantHears("close 1012 moved")
	b.wants(b.up, "close 1001 moved")
}

// ---- upgrades

// An upgrade may come at any moment of a hand-off, of a claim, or of a wait for certainty.
func TestUpgradeDuringHandOff(t *testing.T) {
	for _, stage := range []string{"part", "closing", "left"} {
		b := started(t, durableConfig())
		b.says("one")
		if stage == "part" {
			b.takes(b.up, 3)
			b.leaves()
			b.upgrade()
			if rest := b.takes(b.up, 1<<30); len(rest) != len(masked(frame.Text, "one"))-3 {
				t.Errorf("%d bytes of the message are left", len(rest))
			}
		} else {
			b.leaves()
		}
		b.wants(b.up, "close 1001 moved")
		if stage == "closing" {
			b.upgrade()
			b.says("two")
			b.wants(b.up)
		}
		b.game(text("last") + closed)
		b.wantLeft(true)
		if stage == "left" {
			b.upgrade()
			b.s.Tick(b.now.Add(leaveTime))
			b.wantLeft(false)
		}
		b.wantHears("last")
		n := b.moves(0, 1)
		n.join(session.Resume{Gen: b.s.Generation(), Received: 1})
		if h := n.hello(); h.Moved != wire.MovedHandoff {
			t.Errorf("%s: hello %+v", stage, h)
		}
	}
}

func TestUpgradeOfClaimedSession(t *testing.T) {
	b := newClaimed(t, durableConfig(), claim)
	b.upgrade()
	b.join(old(100, 40))
	b.game(text("a"))
	b.output()
	b.upgrade()
	if h := b.s.Moved(); h != wire.MovedFailover {
		t.Errorf("moved %q", h)
	}
	if dials := b.join(old(102, 41)); dials != 1 { // nobody has accepted a number yet
		t.Errorf("%d dials", dials)
	}
	b.wantCounts(41, 41, 102, 102)
}

func TestUpgradeWhileCertaintyIsAwaited(t *testing.T) {
	for _, answered := range []bool{true, false} {
		b := newTable(t, durableConfig())
		b.drop()
		b.sleep(30*time.Second + time.Second)
		b.upgrade()
		if answered {
			b.s.Owned(b.now)
			b.s.Tick(b.now)
			b.wantState(session.Ended)
			b.wants(b.up, "close 1001 grace period over")
			continue
		}
		b.sleep(askWait - time.Second - 1)
		b.wantState(session.Detached)
		b.sleep(1)
		b.wantSilentEnd(b.up)
	}
}

// A client that was let in before, and waits for an upstream now, gets none: the session stays detached.
func TestDialDuringHandOffChangesNothing(t *testing.T) {
	b := newTable(t, handoffConfig(true))
	b.drop()
	b.s.BeginRedial(b.now)
	b.up = b.s.Reconnect(b.now, nil)
	b.resume(0)
	b.leaves()
	b.wants(b.up, "close 1001 moved")
	b.drop()
	b.s.BeginRedial(b.now)
	b.wantState(session.Detached)
	b.s.CancelRedial(b.now)
	b.wants(b.up)
	b.game(closed)
	b.wantLeft(true)
}

// A silent end leaves an upstream alone that has been given up before, and is still being sent its Close frame.
func TestSilentEndLeavesGivenUpUpstreamAlone(t *testing.T) {
	b := newTable(t, durableConfig())
	b.sleep(ownedFor)
	b.drop()
	b.leaves()
	b.sleep(leaveTime)
	b.wantLeft(true)
	b.sleep(30*time.Second + askWait - leaveTime)
	b.wantState(session.Ended)
	b.wantMode(b.up, session.Linger)
	b.wants(b.up, "close 1001 moved")
}
