package session_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/session"
)

// ---- closing

// A page that is being left sends Close 1001 without having read the game server's Close:
// unacked messages must be sent again. Protocol section 11.
func TestGoingAwayCloseIsNoAnswerWhileMessagesAreUnacked(t *testing.T) {
	for acked, state := range []string{"detached", "detached", "ended"} {
		attached(t).play(`game> one, two, Close 4000; client reads; client> ^ack %d, Close 1001; %s`, acked, state)
	}
}

// A client with unacked messages has a minute from its newest ack to answer the game
// server's Close.
func TestEachAckRestartsCloseAnswerTimeout(t *testing.T) {
	attached(t).play(`game> one, two, three, Close 4000; client reads
		5 times: 10s; client> ^ping; attached
		client> ^ack 1
		5 times: 10s; client> ^ping; attached
		client> ^ack 2
		5 times: 10s; client> ^ping; attached
		10s; detached`)
}

// The game server closes behind a large message, which takes minutes on a slow line. The client says again what
// it has.
func TestClientThatReceivesLargeMessageKeepsCloseAnswerTimeout(t *testing.T) {
	for size, state := range map[int]string{session.PartBytes: "detached", session.PartBytes + 1: "attached"} {
		attached(t).play(`game> x*%d, Close 4000; client reads
			8 times: 10s; client> ^ack 0
			%s`, size, state)
	}
}

// A bug of the gateway's ends the session, and both close codes say so.
func TestFailureIsInternalErrorForBothSides(t *testing.T) {
	b := attached(t)
	b.s.Fail(b.now)
	b.play(`ended; client< ^close, Close 1011 internal_error; game< Close 1011 internal_error`)
}

// ---- progress, and too many takeovers

// A client that only ever sends Close frames makes no progress.
func TestCloseFrameAloneCountsAsHeardForNoProgress(t *testing.T) {
	attached(t).play(`game> boom; client> Close 1001
		5 times: detached; resume 0; client reads; passes 3s; client> Close 1001
		ended`)
}

// A client whose acks never arrive still makes progress, as the N of its resumes shows.
func TestResumesWithRisingCountAreProgress(t *testing.T) {
	b := attached(t)
	for n := range 8 {
		b.play(`game> tick; client> ^ping; client reads; 3s; drop; detached; resume %d`, n+1)
	}
}

// A resume that had nothing to send says nothing about the client's progress.
func TestResumesWithNothingToSendAreNotFutile(t *testing.T) {
	attached(t).play(`20 times: 3s; drop; detached; resume 0; client reads; client> ^ack 0`)
}

// The next takeover is allowed once the oldest of the last twenty is ten seconds old.
func TestTooManyTakeoversReturnRetryDelay(t *testing.T) {
	b := attached(t)
	b.play(`20 times: resume 0; 100ms`)
	ref := b.s.Check(b.now, session.Resume{Gen: b.s.Generation()})
	if ref == nil || ref.Code != 4429 || ref.Retry != 8*time.Second {
		t.Fatalf("refusal %+v, want 4429 for 8 s", ref)
	}
	b.play(`passes 8s-1ns; refused 4429; passes 1ns; resume 0`)
}

// The token is checked first, protocol section 2: a superseded one learns nothing about how
// the session ended.
func TestSupersededTokenOfEndedSessionIsRefused(t *testing.T) {
	b := attached(t)
	old := b.s.Generation()
	b.play(`drop; resume 0; client> ^ack 0`)
	b.s.Terminate(b.now, 4000, "the end")
	for gen, code := range map[uint64]int{old: 4401, old + 1: 4410, old + 2: 4401} {
		ref := b.s.Check(b.now, session.Resume{Gen: gen, Malformed: true, Received: 99})
		if ref == nil || ref.Code != code || ref.Superseded != (code == 4401) {
			t.Errorf("generation %d: %+v, want %d", gen, ref, code)
		}
	}
}

// ---- acks and the window

// A client acks a message of which half is in flight, and the write stops there. The
// other half has been freed, so nothing can follow.
func TestAckOfHalfWrittenMessageClosesConnection(t *testing.T) {
	b := attached(t)
	b.play(`game> one, two`)
	n := len(slices.Concat(b.s.Out(b.now, b.att, nil)...))
	b.says("\x10ack 2")
	b.s.Wrote(b.now, b.att, n-2, true)
	b.play(`ended; client<; game< Close 1008 protocol_violation: ack 2 before it was sent`)
	if f := b.att.CloseMode(); f != session.Shut {
		t.Errorf("close mode %d, want the connection closed", f)
	}
}

// A numbered message that Out has not returned has not been sent: its ack is refused at
// once, not when the message is written. Protocol section 5.2.
func TestAckBeyondOutputIsViolation(t *testing.T) {
	b := attached(t)
	b.play(`game> one`)
	n := len(slices.Concat(b.s.Out(b.now, b.att, nil)...))
	b.play(`game> two; client> ^ack 2; ended; game< Close 1008 protocol_violation: ack 2 is beyond what was sent`)
	b.s.Wrote(b.now, b.att, n, false)
}

func TestAckOfOutputInFlightIsAccepted(t *testing.T) {
	b := attached(t)
	b.play(`game> one, two`)
	n := len(slices.Concat(b.s.Out(b.now, b.att, nil)...))
	b.says("\x10ack 2") // it may arrive before the write is reported
	b.s.Wrote(b.now, b.att, n, false)
	b.play(`attached`)
}

// Protocol section 5.3: a client that answers the ping after a message has a minute to ack
// that message.
func TestMissingAckIsViolationAfterOneMinute(t *testing.T) {
	attached(t).play(`game> one
		16 times: 1s; client> ^ping; client reads
		client> ^pong 1 // the first ping has been sent
		59 times: 1s; client> ^ping; client reads
		attached; passes 1s; tick; ended`)
}

func TestUnackedMessagesLimitIsExact(t *testing.T) {
	attached(t).play(`%d times: client> x
		attached; client> one more; ended`, session.UnackedMessages)
}

// limits.unacked_bytes is exactly 1 MiB; an empty message uses none of it.
func TestUnackedBytesLimitIsExact(t *testing.T) {
	b := attached(t)
	b.play(`16 times: client> x*65536; attached`)
	b.read(masked(frame.Binary, ""))
	b.play(`attached; client> x; ended`)
}

// RFC 6455 section 5.3: each frame to the upstream has its own masking key, and never the
// client's.
func TestEachUpstreamFrameHasNewMaskingKey(t *testing.T) {
	b := attached(t)
	b.play(`client> one, two`)
	b.lend(b.up)
	keys := [][4]byte{{9, 9, 9, 9}}
	for raw := b.lent[b.up]; len(raw) > 0; {
		h, err := frame.Parse(raw)
		if err != nil || !h.Masked {
			t.Fatalf("% x: masked %v, %v", raw, h.Masked, err)
		}
		if slices.Contains(keys, h.Key) {
			t.Errorf("key %v is used again", h.Key)
		}
		keys = append(keys, h.Key)
		raw = raw[h.Size+int(h.Length):]
	}
	if len(keys) != 3 {
		t.Errorf("%d frames, want 2", len(keys)-1)
	}
}

// Below one message a second, the burst of one second holds less than a message. A single
// one must still fit.
func TestSingleMessageFitsRateBelowOnePerSecond(t *testing.T) {
	attached(t, plain, rate(0.5)).play(`3 times: client> one; game< one; client> too soon; game<; 2s; game< too soon; 2s`)
}

// ---- the upstream

// An upstream is pinged after each silence, not only after the first.
func TestUpstreamIsPingedAfterEachSilence(t *testing.T) {
	attached(t, pinged(10*time.Second)).play(`5 times: 10s; game< Ping; game> Pong; client> ^ack 0; client reads
		attached`)
}

// Messages read from the upstream before a drain reach the client before its notification.
func TestDrainFlushesReadMessagesFirst(t *testing.T) {
	attached(t).play(`game> one, two; drain; client< one, two, ^close, Close 4503 draining`)
}

// An upstream that is not read because memory is exhausted is neither silent nor slow: it
// is read on, inside its message, once there is memory again.
func TestUpstreamSurvivesExhaustedStoreInsideMessage(t *testing.T) {
	b := attached(t, pinged(10*time.Second))
	message := text(string(make([]byte, 5000)))
	b.game(message[:3900]) // the rest of the first chunk is too small for a read
	free := b.exhaust(0)
	for range 40 * 4 {
		if b.s.Room(b.up) != nil {
			t.Fatal("it is read though the store is exhausted")
		}
		if at := b.s.Next(); at <= b.now {
			t.Fatalf("it is tried again without a pause: Next is %d, it is %d", at, b.now)
		}
		b.play(`250ms; client> ^ping`)
	}
	free()
	b.game(message[3900:])
	b.play(`attached; counts 0 0 1 0`)
}

// An upstream takes no more bytes, and its queue holds all the memory: it is still read to
// its end. With --disconnect hard the queue is for the next upstream, so this one is given
// up.
func TestQueueOfUnwritableUpstreamDoesNotBlockReadingItsEnd(t *testing.T) {
	for _, o := range [][]option{nil, {hard}} {
		b := attached(t, o...)
		b.s.WriteFailed(b.now, b.up, "write failed")
		free := b.exhaust(20_000)
		b.play(`5 times: client> x*5000`)
		if b.s.Room(b.up) != nil {
			t.Fatal("the store is not exhausted")
		}
		b.play(`1s; attached`)
		if o != nil && (!b.up.Over() || b.up.CloseMode() != session.Shut) {
			t.Error("hard: the upstream is not lost")
		}
		if o == nil && b.s.Room(b.up) == nil {
			t.Error("the upstream is not read")
		}
		b.play(`terminate`)
		free()
		b.play(`free`)
	}
}

// exhaust takes all memory but left bytes, and the reserve of each session.
func (b *table) exhaust(left int) (free func()) {
	n := int(b.store.Limit()-b.store.Used()) - left
	b.store.ShareReserve(0)
	b.store.Charge(n)
	return func() { b.store.Charge(-n) }
}

// ---- overflow

// Overflowed is emitted once per detach, however many messages do not fit.
func TestOverflowIsReportedOncePerDetach(t *testing.T) {
	b := attached(t, buffer(1, session.Pause))
	for n := range 3 {
		b.play(`drop; forget; game> kept, waits; happens overflowed=1
			resume %d; client reads; client> ^ack %d; client reads; client> ^ack %d`, 2*n, 2*n+1, 2*n+2)
	}
	b = attached(t, buffer(2, session.DropOldest))
	b.play(`drop; forget
		6 times: game> some, more
		happens overflowed=1`)
}

// Messages that arrive before Reserve are treated as if they arrived right after it.
func TestReserveAppliesOverflowPolicyToFullBuffer(t *testing.T) {
	for policy, state := range map[session.Overflow]string{session.Pause: "detached", session.DropOldest: "detached", session.EndSession: "ended"} {
		b := connecting(t, conf(buffer(2, policy)), text("a")+text("b")+text("c"))
		if b.s.WantsRead(b.up) {
			t.Fatal("the buffer is full, and more is read")
		}
		b.play(`reserve; %s; happens overflowed=1`, state)
		if reads := policy == session.DropOldest; b.s.WantsRead(b.up) != reads {
			t.Errorf("%v: the upstream is read: %v, want %v", policy, !reads, reads)
		}
	}
}

// ---- the grace period

// Protocol section 11, an unconfirmed first hello: any message of the client's confirms it.
func TestOnlyMessageConfirmsFirstHello(t *testing.T) {
	const unconfirmed, kept = "5s-1ns", "30s-1ns"
	half := strconv.Quote(string(masked(frame.Text, "half")[:8]))
	binary := strconv.Quote(string(masked(frame.Binary, "")))
	for sends, wait := range map[string]string{
		"": unconfirmed, "Pong": unconfirmed, "Close": unconfirmed, half: unconfirmed,
		"^ack 0": kept, "^nod": kept, "hi": kept, binary: kept,
	} {
		b := connecting(t, conf(), "")
		b.first()
		b.play(`client reads; client> %s; drop; %s; detached; 1ns; ended`, sends, wait)
	}
}

func TestGraceOfUnconfirmedHelloIsNoLongerThanAnother(t *testing.T) {
	c := conf(grace(time.Minute))
	c.GraceBeforeStart = time.Second
	b := connecting(t, c, "")
	b.first()
	b.play(`drop; 1s; ended`)
}

// Somebody holds the token of a session that was made ahead, whatever its client confirms.
func TestSessionMadeAheadKeepsItsGrace(t *testing.T) {
	connecting(t, conf(), "").play(`reserve; resume 0; drop; 30s-1ns; detached`)
}

// A cookie client is pinged for the first time after up to a heartbeat.
func TestCookieClientIsKeptForTwiceTheHeartbeatBeforeItsFirstPong(t *testing.T) {
	attached(t, cookie, grace(time.Minute)).play(`drop; 30s-1ns; detached; 1ns; ended`)
}

// Protocol section 11, a page that is left: Firefox closes the sockets of a page before the page can say bye.
func TestPageThatIsLeftIsKeptForLess(t *testing.T) {
	for sends, kept := range map[string]string{
		"^leaving, Close 1001":     "5s",
		"^leaving, hi, Close 1001": "5s",
		"^leaving":                 "30s", // and a drop: the network's
		"^leaving, Close 1000":     "30s", // another Close: a proxy's
		"Close 1001":               "30s",
	} {
		b := attached(t)
		b.play(`client> %s`, sends)
		if b.s.State() == session.Attached {
			b.play(`drop`)
		}
		b.play(`%s-1ns; detached; 1ns; ended`, kept)
	}
}

// A page may stay after all: it downloads a file. It has not come back before it speaks, since a resume
// may reach the gateway, and its answer nobody.
func TestPageThatComesBackIsKeptAsBefore(t *testing.T) {
	attached(t).play(`client> ^leaving, Close 1001; 4s
		resume 0; drop; 4s // it came too late: the page has not spoken
		resume 0; client> ^ack 0; drop; 30s-1ns; detached`)
	attached(t).play(`client> ^leaving, Close 1001; resume 0; drop; 5s; ended`)
}

// The token is valid for an hour. The timer pauses during the dial, so the grace period
// ends later.
func TestTermsBeyondTokenAreRefusedDuringDial(t *testing.T) {
	b := attached(t, hard)
	b.play(`drop; begin; 50m`)
	if b.s.SetTerms(b.now, conf(grace(15*time.Minute)).Terms) {
		t.Error("a grace period was accepted that ends 5 minutes after the token")
	}
	if !b.s.SetTerms(b.now, conf(grace(9*time.Minute)).Terms) {
		t.Error("a grace period was refused that ends before the token")
	}
	b.play(`cancel; 9m-1s; detached; 1s; ended`)

	b = attached(t, hard)
	b.play(`drop; begin; terminate`)
	if !b.s.SetTerms(b.now, conf(grace(24*time.Hour)).Terms) {
		t.Error("refused for a token that no client needs: the session has ended")
	}
}

// ---- what an upstream is sent while the client is away

func TestBeatsDueTogetherAreAllSent(t *testing.T) {
	attached(t, repeats(5*time.Second, "one"), repeats(5*time.Second, "two"), repeats(10*time.Second, "three")).play(`drop
		5s; game< one, two
		5s; game< one, two, three
		5s; 5s; game< one, two // nothing was taken meanwhile, so nothing is added`)
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
			b := attached(t, replies("2", "3", "ping", "pong", "\x10beat", "pong"))
			b.game(text("before") + bytes[:cut])
			b.play(`drop`)
			b.game(bytes[cut:])
			b.play(`game> behind`)
			got := slices.DeleteFunc(b.gameGets(b.up), func(s string) bool { return s == "Pong" })
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
	attached(t, replies("ping", "pong")).play(`game> "\x01\x01p\x00\x00\x80\x03ing", ping, pin; drop; game< pong, pong`)
}

func TestReserveAnswersEarlierHeartbeat(t *testing.T) {
	connecting(t, conf(replies("2", "3")), text("welcome")+text("2")).play(`reserve; game< 3; game> 2; game< 3; resume 0; counts 0 0 2 0`)
}

// Without a grace period a disconnect is a detach and an end at once: both messages are sent.
func TestDetachMessagePrecedesImmediateExpiry(t *testing.T) {
	for _, c := range [][]option{nil, {hard}} {
		attached(t, append(c, grace(0), notices(session.Notices{Detach: "away", Expire: "gone"}))...).play(`drop; ended; game< away, gone, Close 1001 grace period over`)
	}
}
