package session_test

import (
	"slices"
	"testing"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/replay"
	"reseat/gateway/session"
	"reseat/gateway/wire"
	"reseat/tokens/generation"
)

// Durable sessions, call by call: claims, and acting for a player who is not there. The simulation runs them with
// several owners at once.

// claim makes a session of a dead node's: its client has 100 messages, and 40 of its own were settled.
var claim = session.Claim{Epoch: 3, Confirmed: generation.FirstOf(2), Received: 100, Settled: 40}

// old is a resume by the client of claim, with a token of the dead node's.
func old(received, settled uint64) session.Resume {
	return session.Resume{Gen: generation.FirstOf(2), Received: received, Settled: settled}
}

// claimed returns a durable session made from claim. It has neither client nor upstream.
func claimed(t *testing.T, options ...option) *table {
	t.Helper()
	return claimedBy(t, claim, options...)
}

func claimedBy(t *testing.T, c session.Claim, options ...option) *table {
	t.Helper()
	b := emptyTable(t)
	cfg := conf(append([]option{durable}, options...)...)
	cfg.Store, cfg.Key = b.store, keys()
	s, err := session.Claimed(cfg, b.now, c)
	if err != nil {
		t.Fatal(err)
	}
	b.s, b.up, b.states = s, s.Upstream(), old(c.Received, c.Settled)
	return b
}

// ---- claims

// A claim goes on from what the client states, both ways, and tells the game server so. With redelivery off the claimer
// settles all that the client has given to any connection: at most once.
func TestClaimGoesOnFromWhatClientStates(t *testing.T) {
	for _, settled := range []int{40, 55} {
		c := claim
		c.Settled = uint64(settled)
		b := claimedBy(t, c)
		if b.s.Moved() != wire.MovedFailover {
			t.Errorf("moved %q", b.s.Moved())
		}
		next := settled + 1
		b.play(`detached; counts %d %[1]d 100 100; told %[2]d 101; dial fresh; connecting; attach
			hello resumed=true received=%[1]d lost=0 replay=1 moved=failover
			client> ^ack 101, m; game< m; counts %[2]d %[2]d 101 101`, settled, next)
	}
}

// Every generation of a claim is newer than any of the node before. The claim confirms none.
func TestClaimConfirmsNoGeneration(t *testing.T) {
	b := claimed(t)
	tokens := b.s.Info().Tokens
	if next := tokens.Next(); next != generation.FirstOf(3) {
		t.Errorf("the next generation is %d, want %d", next, generation.FirstOf(3))
	}
	for gen, good := range map[uint64]bool{
		generation.FirstOf(2) - 1: false, generation.FirstOf(2): true, generation.FirstOf(2) + 7: true,
		generation.FirstOf(3): false, generation.FirstOf(4): false,
	} {
		if got := b.s.Check(b.now, session.Resume{Gen: gen, Received: 100}) == nil; got != good {
			t.Errorf("a token of generation %d is good: %v, want %v", gen, got, good)
		}
	}
	b.play(`join`)
	if got := b.confirmed(); got != generation.FirstOf(2) {
		t.Errorf("the attach confirms generation %d", got)
	}
	b.play(`client> ^ack 100; happens confirmed=1`)
	if got := b.confirmed(); got != generation.FirstOf(3) {
		t.Errorf("the client's first message confirms generation %d", got)
	}
}

func TestClaimNeedsOlderGenerations(t *testing.T) {
	for _, c := range []session.Claim{{Epoch: 0}, {Epoch: 1, Confirmed: generation.FirstOf(1)}, {Epoch: 1, Confirmed: generation.FirstOf(2)}} {
		cfg := conf(durable)
		cfg.Store = replay.NewStore(1<<30, nil)
		if _, err := session.Claimed(cfg, 1, c); err == nil {
			t.Errorf("%+v is accepted", c)
		}
		if n := cfg.Store.Used(); n != 0 {
			t.Errorf("%+v: %d bytes are missing", c, n)
		}
	}
}

// A client that states less than the claim was made from is not the newest attempt of it.
func TestResumeBelowClaimIsRefused(t *testing.T) {
	b := claimed(t)
	if ref := b.s.Check(b.now, old(99, 40)); ref == nil || ref.Code != wire.CodeWindowExceeded {
		t.Errorf("refusal %v", ref)
	}
}

// Nobody comes: the session ends with its grace period, and there is nobody to speak to. Its client holds a token,
// whatever was confirmed: it has shown it.
func TestClaimWhoseClientNeverComesEnds(t *testing.T) {
	for _, confirmed := range []uint64{0, generation.FirstOf(2)} {
		c := claim
		c.Confirmed = confirmed
		claimedBy(t, c, grace(time.Minute)).play(`1m-1ns; detached; 2s+1ns; ended; free`)
	}
}

// The node before notified the client of an outage, which its next one knows nothing of.
func TestClaimEndsOutageForClient(t *testing.T) {
	claimed(t, redial).play(`join; client< ^hello, ^back`)
}

// The client has refused a hello, and "back" with it, since it got a message from its older node meanwhile. That message
// has a number behind the one after which this node said so: it proves nothing.
func TestMessageOfOlderNodeProvesNoNews(t *testing.T) {
	claimed(t, redial).play(`join; client< ^hello, ^back; states 101 40; join 1; client< ^hello, ^back`)
	// It waits for a dial: the numbers move before it attaches.
	claimed(t, redial, hard).play(`join; client< ^hello, ^back; drop; states 101 40; join 1; client< ^hello, ^back`)
}

// hello.moved stays until a client was heard here; a client with a token of this node's was.
func TestMovedIsSaidUntilClientIsHeard(t *testing.T) {
	b := claimed(t)
	b.play(`join; hello moved=failover; drop // its hello is lost
		join; hello moved=failover; drop
		own; join; hello moved=`) // this one was not
	var moved []string
	for _, e := range b.s.Events() {
		if e.Kind == session.Resumed || e.Kind == session.Superseded {
			moved = append(moved, e.Moved)
		}
	}
	if want := []string{wire.MovedFailover, wire.MovedFailover, ""}; !slices.Equal(moved, want) {
		t.Errorf("the events say moved %q, want %q", moved, want)
	}
	if b.s.Moved() != wire.MovedFailover {
		t.Error("the session forgets how it came here")
	}
}

// ---- numbers that nobody has accepted

// The client has got further at its older node, which had not died after all. What the dial of the upstream
// here stated holds no longer, so it is dialled anew.
func TestResumeThatGotFurtherElsewhereDialsAgain(t *testing.T) {
	for _, now := range []session.Resume{old(103, 40), old(100, 44), old(103, 44)} {
		for _, attached := range []bool{true, false} {
			b := claimed(t)
			b.play(`dial first`)
			sent := uint64(101)
			if attached { // its hello is lost, or refused
				b.play(`attach; game> second; client reads`)
				sent++
			}
			if ref := b.s.Check(b.now, now); ref != nil {
				t.Fatalf("%+v is refused: %v", now, ref)
			}
			a, ref := b.s.Attach(b.now, now, b.pass())
			if a != nil || ref == nil || ref.Code != 0 {
				t.Fatalf("%+v: attached %v, refusal %v; want to try again", now, a != nil, ref)
			}
			if !b.s.NeedsUpstream() || b.s.State() == session.Attached {
				t.Fatal("it needs no other upstream")
			}
			b.play(`game< Close 1001 moved`)
			if attached {
				if got := b.att.CloseMode(); got != session.Linger {
					t.Errorf("close mode %d of the older connection", got)
				}
				b.play(`client< ^close, Close 4409 superseded`)
			}
			from := now.Received + 1
			if now.Received == 100 { // what came from the first one has kept its numbers
				from = sent + 1
			}
			b.play(`states %d %d; told %d %d; dial third; attach; hello received=%[2]d moved=failover lost=0`, now.Received, now.Settled, now.Settled+1, from)
			b.play(`client> ^ack %d, next; game< next`, b.s.Info().Sent)
			if i := b.s.Info(); i.Received != now.Settled+1 || i.BufferMessages != 0 {
				t.Errorf("%+v: %+v", now, i)
			}
		}
	}
}

// The numbers move while the upstream is dialled, for a client that has taken the dial over. A dial for a client that
// got further gets its numbers from the first: none is wasted.
func TestClientThatTakesDialOverMayHaveGotFurther(t *testing.T) {
	claimed(t).play(`told 41 101; dial mistold; states 105 42; join 1; hello received=42 replay=0; counts 42 42 105 105`)
	claimed(t).play(`states 105 42; join 1; counts 42 42 105 105; states 100 40; told 43 106`) // also by an older attempt
}

// A dial that began before the numbers moved stated the older ones: its outcome is not taken.
func TestDialFromBeforeNumbersMovedIsNotTaken(t *testing.T) {
	b := claimed(t)
	b.play(`dial; ask`) // another dial begins, for a client that finds no upstream
	if a, _ := b.s.Attach(b.now, old(105, 42), b.pass()); a != nil || !b.s.NeedsUpstream() {
		t.Fatal("the client that got further needs no other upstream")
	}
	if b.s.TakesUpstream(0) {
		t.Error("an upstream is taken that was told older numbers")
	}
	b.play(`states 105 42; told 43 106`)
	if !b.s.TakesUpstream(0) {
		t.Error("no upstream is taken that was told the present numbers")
	}
}

// An outage's own dial may be under way with the older numbers: its outcome is not taken.
func TestResumeThatGotFurtherEndsOutage(t *testing.T) {
	b := claimed(t, redial)
	b.play(`join; game> lost; breaks; ask`)
	if _, ref := b.s.Attach(b.now, old(102, 41), b.pass()); ref == nil || ref.Code != 0 {
		t.Fatalf("refusal %v", ref)
	}
	if b.takesFromOutage() {
		t.Error("an upstream that was told the older numbers is taken")
	}
	b.play(`outage none; states 102 41; join 1; counts 41 41 102 102`)
}

// The upstream has ended the session already: there is nobody to notify, and what it said
// before gets later numbers.
func TestResumeThatGotFurtherGetsEnd(t *testing.T) {
	claimed(t).play(`dial bye, Close 4000 won; states 103 41; join 0; client< ^hello, bye, ^end, Close 4000 won; counts 41 41 104 103`)
}

// drop-oldest has dropped some of what came meanwhile: those numbers nobody will ever have.
func TestResumeAfterDropOldest(t *testing.T) {
	claimed(t, buffer(2, session.DropOldest)).play(`dial; cancel; dial; attach; drop; game> a, b, c, d
		join; hello lost=2 replay=2; drop
		states 105 40; join 1; hello lost=0 replay=0; game> e; client< e; counts 40 40 106 105`)
}

// wantRefusal checks why a resume that states r is refused; 0: it is not.
func (b *table) wantRefusal(r session.Resume, code int) {
	b.t.Helper()
	got := 0
	if ref := b.s.Check(b.now, r); ref != nil {
		got = ref.Code
	}
	if got != code {
		b.t.Errorf("%+v is refused with %d, want %d", r, got, code)
	}
}

// A token of this node's proves that its hello was taken: what such a client states is judged as ever.
func TestTokenOfOwnEpochMovesNoNumbers(t *testing.T) {
	b := claimed(t)
	b.play(`join; game> a; client reads`)
	b.wantRefusal(session.Resume{Gen: b.s.Generation(), Received: 102, Settled: 45}, wire.CodeProtocolViolation)
	b.play(`own; states 101 45; attach; counts 40 40 101 101; hello received=40`)
}

// ---- what a dial states to the game server

// Every redial of a durable session states where both sides go on.
func TestCountsOfEachRedial(t *testing.T) {
	attached(t, durable, hard, redial).play(`told 1 1; client> one, two; game> a, b, "\x01\x03hal"; client reads; game< one, two
		breaks; client> three; told 3 3 // three waits; hal was never whole
		next; game< three; drop
		states 2 0; told 4 3; dial c; resume 2; counts 3 3 3 2`)
}

// A write to an older upstream is in flight while the next one is dialled. If that takes a message whole, the
// dial of the next one stated too low a number, and would take other messages for repeats: it is replaced.
func TestUpstreamThatWasToldTooLowCountIsReplaced(t *testing.T) {
	const one = 9 // bytes
	for _, when := range []string{"before it is connected", "before its client is attached", "attached"} {
		for taken, mistold := range map[int]bool{0: false, one - 1: false, one: true, one + 1: true} {
			b := attached(t, durable, hard)
			b.play(`client> one, two; game lends; drop; begin; told 1 1`)
			switch when {
			case "before it is connected":
				b.play(`game wrote %d`, taken)
				b.reconnect("")
			case "attached":
				b.reconnect("")
				b.play(`resume 0; client reads`)
			default:
				b.reconnect("")
			}
			if when != "before it is connected" {
				b.play(`game<; older wrote %d`, taken) // nothing, while the older one may still take it
			}
			if b.s.NeedsUpstream() != mistold {
				t.Fatalf("%s, %d bytes: another upstream is needed: %v, want %v", when, taken, !mistold, mistold)
			}
			if !mistold {
				b.play(`game< one, two`)
				continue
			}
			b.play(`game< Close 1001 moved`)
			if when == "attached" {
				b.play(`client< Close 1012; detached`)
			}
			b.play(`told 2 1; dial; resume 0; hello received=1; game< two`)
		}
	}
}

// A dial begins for a client that finds no upstream, while another one gets the upstream that it waited for. That dial
// is not needed, and what it states says nothing about the upstream that is there.
func TestCountOfUnneededDialReplacesNothing(t *testing.T) {
	for _, taken := range []string{"0", "all"} { // of its Close frame
		attached(t, durable, hard).play(`client> one; game< one; drop; game lends; dial; resume 0; client reads
			ask; client> two, three; game< two, three; older wrote %s; attached; mode open; client> four; game< four`, taken)
	}
}

// The session may have ended meanwhile, or the upstream closed: it gets nothing that it would take for something else. In
// an outage the session stays with its client, which hears of one outage.
func TestUpstreamThatWasToldTooLowCountInOutage(t *testing.T) {
	const before = `client> one, two; game lends; breaks; ask; next; `
	for _, end := range []string{"terminate", "game> Close 4000 won"} {
		attached(t, durable, redial).play(before + end + `; older wrote 9; game<; mode shut`)
	}
	attached(t, durable, redial).play(`forget; ` + before + `older wrote 9; game< Close 1001 moved; attached; client< ^lost
		happens lost=2 back=1; told 2 1; next; game< two; client< ^back`)
}

// ---- acting for a player who is not there. A node may do so for a second after it was certain to have the session. It
// waits two seconds for that certainty.

var gone = notices(session.Notices{Expire: "gone"})

// What was queued for the upstream goes nowhere, and half a message stays half.
func TestSilentEndDropsQueue(t *testing.T) {
	for _, taken := range []int{0, 3} {
		attached(t, durable).play(`client> one; game takes %d; drop; 32s; silent`, taken)
	}
}

// The time that is over may be extended while the answer is awaited.
func TestExtendedGraceCallsSilentEndOff(t *testing.T) {
	b := attached(t, durable)
	b.play(`drop; 31s`)
	if !b.s.SetTerms(b.now, conf(grace(time.Minute)).Terms) {
		t.Fatal("refused")
	}
	b.play(`28s+1ns; detached; 2s; detached; 1s; silent`)
}

// The idle timeout of a session without a client is one more reason to act of one's own accord; with a
// client it is not, since that is here.
func TestIdleEndWithoutCertaintyIsSilent(t *testing.T) {
	attached(t, durable, idle(10*time.Second), heartbeat(time.Hour)).play(`10s; ended; game< Close 1001 idle timeout`)
	b := attached(t, durable, idle(10*time.Second), heartbeat(time.Hour))
	b.play(`drop; forget; 10s; detached; happens asks=1; 2s; silent`)
	b.wantReason(session.ReasonIdle)
}

// A full buffer waits for the answer, and is not read meanwhile. Exhausted memory cannot wait.
func TestOverflowWithoutCertaintyIsSilent(t *testing.T) {
	const fills = `forget; game> a, b, c, d; `
	const asks = fills + `detached; happens asks=1 overflowed=0; game unread; 2s-1ns; detached; `
	const ends = `ended; happens overflowed=1; game< Close 1013 replay buffer full`
	full := func(then string) *table {
		t.Helper()
		b := attached(t, durable, buffer(2, session.EndSession))
		b.play(`drop; 1s; ` + then)
		return b
	}
	full(asks + `1ns; happens overflowed=1; silent`)
	full(asks + `resume 0; client< ^hello, a, b, ^ping; client> ^ack 2; client< c, d; 2s; attached`)
	for _, script := range []string{"owned; " + fills + ends, asks + "owned; " + ends} {
		b := full(script)
		if ref := b.s.Check(b.now, session.Resume{Gen: b.s.Generation()}); ref.Code != wire.CodeWindowExceeded || ref.Retry != 0 {
			t.Errorf("refusal %+v", ref)
		}
	}
	b := full(asks)
	terms := conf(grace(30 * time.Second)).Terms
	terms.Overflow = session.DropOldest
	b.s.SetTerms(b.now, terms)
	b.play(`2s; detached; counts 0 0 4 0`)
}

func TestEvictionWithoutCertaintyIsSilent(t *testing.T) {
	for certain, end := range map[string]string{"owned": "ended; game< Close 1013 memory for replay buffers exhausted: 1 byte", "": "silent"} {
		b := attached(t, durable)
		b.play(`drop; 1s; ` + certain)
		if !b.s.Evict(b.now, "1 byte") {
			t.Fatal("not evicted")
		}
		b.play(end)
	}
}

// Keepalives rest while the node is not certain. It asks again, since the engine may be back.
func TestKeepalivesRestWithoutCertainty(t *testing.T) {
	attached(t, durable, gone, repeats(4*time.Second, "still here")).play(`drop; forget
		4s; game<; happens asks=1
		2s; game<; happens asks=1
		2s; game<; happens asks=1
		owned; 500ms; game< still here; happens asks=0 // it is tried again soon
		4s; game<; happens asks=1`)
}

// ---- hello.received, and repeats

// hello.received names what was written. What waits is written once, though the client sends it again.
func TestRepeatsOfWaitingMessagesAreDropped(t *testing.T) {
	const rest = `four; game< one, two, three, four; counts 4 4 0 0; 1s; client< ^ack 4`
	for written, repeated := range map[int]string{0: "one, two, three, ", 9: "two, three, ", 18: "three, ", 29: ""} {
		b := attached(t, durable)
		b.play(`client> one, two, three; game takes %d; drop; resume 0; hello received=%d; client> %s`, written, written/9, repeated+rest)
		if i := b.s.Info(); i.Stats.ToUpstream != 4 {
			t.Errorf("%d messages counted", i.Stats.ToUpstream)
		}
		// Here the write is in flight, and reported after the attach.
		attached(t, durable).play(`client> one, two, three; game lends; drop; resume 0; hello received=0
			game wrote %d; client> one, two, three, %s`, written, rest)
	}
}

// A repeat counts however it is framed, and only as a whole; control messages between repeats are none.
func TestRepeatsInAnyForm(t *testing.T) {
	b := attached(t, durable)
	b.play(`client> one, ^^two, three; drop; resume 0; client reads; client> ^ping 7`)
	part := func(first byte, text string) {
		p := masked(frame.Binary, text)
		p[0] = first
		b.read(p)
	}
	part(frame.Text, "o")
	b.play(`client> Ping between`)
	part(0x80, "ne")
	for _, c := range masked(frame.Text, "\x10\x10two") { // byte by byte
		b.read([]byte{c})
	}
	b.play(`client> ^ack 0`)
	b.read(append(masked(frame.Text, "three"), masked(frame.Text, "four")...)) // one read
	b.play(`game< one, ^two, three, four; counts 4 4 0 0`)
}

// Repeats are no further messages for the rate limit either, and no sign of a game that is played. One proves that the
// client holds its token, like every message.
func TestRepeatsAreNoFurtherMessages(t *testing.T) {
	b := attached(t, durable, idle(10*time.Second), func(c *session.Config) { c.Rate = session.Rate{Messages: 1, End: true} })
	b.play(`client> one
		13 times: resume 0; client> one; passes 600ms
		attached`)
	if b.confirmed() != b.s.Generation() {
		t.Errorf("confirmed %d, want %d", b.confirmed(), b.s.Generation())
	}
	b.play(`3s; ended`)
	b.wantReason(session.ReasonIdle)
}

// In an outage, in a hard resume, and in an upgrade in the middle of the repeats, the same.
func TestRepeatsWithoutUpstream(t *testing.T) {
	const again = `resume 0; hello received=0; client> one, two; `
	attached(t, durable, hard).play(`client> one; drop; dial; ` + again + `game< one, two; counts 2 2 0 0`)
	attached(t, durable, redial).play(`client> one; breaks; ` + again + `next; game< one, two; counts 2 2 0 0`)
	attached(t, durable).play(`client> one, two, three; drop; resume 0; client reads; client> one; upgrade; client> two, three, four; game< one, two, three, four`)
}

// Its client may get that close code when it comes back at this node, which has not forgotten the session yet.
func TestResumeOfSessionThatHasMovedIsToComeBack(t *testing.T) {
	for name, leave := range map[string]func(b *table){
		"fenced":     func(b *table) { b.s.Fence(b.now) },
		"handed off": func(b *table) { b.s.HandedOff(b.now, time.Second) },
	} {
		b := claimed(t)
		b.play(`join`)
		leave(b)
		if ref := b.s.Check(b.now, old(100, 40)); ref == nil || ref.Code != wire.CodeNodeUnreachable || ref.Retry == 0 {
			t.Errorf("%s: refused by %+v, want %d with retry", name, ref, wire.CodeNodeUnreachable)
		}
		b.wantRefusal(session.Resume{Gen: generation.FirstOf(1), Received: 100}, wire.CodeBadToken)
	}
}
