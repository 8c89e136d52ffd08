package session_test

import (
	"encoding/json"
	"fmt"
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

// Durable sessions, call by call: claims, hand-offs, fencing. The simulation runs them with
// several owners at once.

const (
	keepaliveWait = 500 * time.Millisecond // a keepalive that waits for certainty is tried again
	ownedFor      = time.Second            // a node may act for a player after it was certain to have the session,
	askWait       = 2 * time.Second        // and waits for that certainty
	leaveTime     = 5 * time.Second        // an upstream may take to close before a hand-off
)

func durableConfig() session.Config {
	c := config()
	c.Durable = true
	return c
}

// claim makes a session of a dead node's: its client has 100 messages, and 40 of its own were settled.
var claim = session.Claim{Epoch: 3, Confirmed: generation.FirstOf(2), Received: 100, Settled: 40}

// old is a resume by the client of claim, with a token of the dead node's.
func old(received, settled uint64) session.Resume {
	return session.Resume{Gen: generation.FirstOf(2), Received: received, Settled: settled}
}

// newClaimed returns a session made from c. It has neither client nor upstream.
func newClaimed(t *testing.T, cfg session.Config, c session.Claim) *table {
	t.Helper()
	b := &table{t: t, now: session.Time(time.Second), store: replay.NewStore(1<<30, nil)}
	key := byte(0)
	cfg.Store, cfg.Key = b.store, func() [4]byte { key++; return [4]byte{key, 5, 6, 7} }
	s, err := session.Claimed(cfg, b.now, c)
	if err != nil {
		t.Fatal(err)
	}
	b.s, b.up = s, s.Upstream()
	return b
}

// redial dials the upstream for a waiting client, as a gateway does, and returns what that is told.
func (b *table) redial(r session.Resume, early string) (told string) {
	b.t.Helper()
	if !b.s.NeedsUpstream() {
		b.t.Fatal("the session needs no upstream")
	}
	b.s.BeginRedial(b.now)
	told = b.told(r)
	b.up = b.s.Reconnect(b.now, []byte(early))
	return told
}

// told returns Reseat-Up-From and Reseat-Down-From of a dial for r.
func (b *table) told(r session.Resume) string {
	up, down := b.s.Counts(r)
	return fmt.Sprint(up, " ", down)
}

// attach attaches a client that states r.
func (b *table) attach(r session.Resume) {
	b.t.Helper()
	a, ref := b.s.Attach(b.now, r, b.pass())
	if ref != nil {
		b.t.Fatalf("resume refused: %v", ref)
	}
	b.att = a
}

// join attaches a client that states r, and returns how often it had to dial for it.
func (b *table) join(r session.Resume) (dials int) {
	b.t.Helper()
	for dials < 3 {
		if b.s.NeedsUpstream() {
			b.redial(r, "")
			dials++
		}
		a, ref := b.s.Attach(b.now, r, b.pass())
		switch {
		case ref == nil:
			b.att = a
			return dials
		case ref.Code != 0:
			b.t.Fatalf("resume refused: %v", ref)
		}
	}
	b.t.Fatal("the session wants one upstream after the other")
	return 0
}

// hello takes the client's output, which begins with hello.
func (b *table) hello() (h wire.Hello) {
	b.t.Helper()
	list := frames(b.t, b.output())
	arg, ok := strings.CutPrefix(list[0], "\x10hello ")
	if !ok {
		b.t.Fatalf("the client gets %q, want a hello", list)
	}
	if err := json.Unmarshal([]byte(arg), &h); err != nil {
		b.t.Fatal(err)
	}
	return h
}

// output takes all output for the client's connection.
func (b *table) output() (all []byte) {
	for {
		n := len(all)
		for _, p := range b.s.Out(b.now, b.att, nil) {
			all = append(all, p...)
		}
		if len(all) == n {
			return all
		}
		b.s.Wrote(b.now, b.att, len(all)-n, false)
	}
}

// kinds takes the events, and returns those of the given kinds.
func (b *table) kinds(which ...session.Kind) (list []session.Kind) {
	for _, e := range b.s.Events() {
		if slices.Contains(which, e.Kind) {
			list = append(list, e.Kind)
		}
	}
	return list
}

func (b *table) wantKinds(want []session.Kind, of ...session.Kind) {
	b.t.Helper()
	if got := b.kinds(of...); !slices.Equal(got, want) {
		b.t.Fatalf("events %v, want %v", got, want)
	}
}

// wantMode checks how u's connection is to be closed.
func (b *table) wantMode(u session.Leg, want session.CloseMode) {
	b.t.Helper()
	if got := u.CloseMode(); got != want {
		b.t.Fatalf("close mode %d, want %d", got, want)
	}
}

// counts checks received and written of the client's messages, sent and acked of the upstream's.
func (b *table) wantCounts(received, written, sent, acked uint64) {
	b.t.Helper()
	i := b.s.Info()
	if got, want := [4]uint64{i.Received, i.Written, i.Sent, i.Acked}, [4]uint64{received, written, sent, acked}; got != want {
		b.t.Fatalf("received, written, sent, acked are %v, want %v", got, want)
	}
}

// upgrade freezes the session and goes on with its copy, in a process with the same clock.
func (b *table) upgrade() {
	b.t.Helper()
	b.s.Events()
	frozen, err := b.s.Freeze(session.Formats[0])
	if err != nil {
		b.t.Fatal(err)
	}
	b.store = replay.NewStore(1<<30, nil)
	key := byte(50)
	b.s, err = session.Restore(session.Formats[0], frozen.State, slices.Concat(frozen.Content...), b.store, func() [4]byte { key++; return [4]byte{key} })
	if err != nil {
		b.t.Fatal(err)
	}
	b.att, b.up = b.s.Attachment(), b.s.Upstream()
}

// confirmed returns the newest generation that a client has confirmed.
func (b *table) confirmed() uint64 {
	tokens := b.s.Info().Tokens
	return tokens.Confirmed()
}

// ---- claims

// A claim goes on from what the client states, both ways, and tells the game server so.
func TestClaimGoesOnFromWhatClientStates(t *testing.T) {
	b := newClaimed(t, durableConfig(), claim)
	b.wantState(session.Detached)
	b.wantCounts(40, 40, 100, 100)
	if b.s.Moved() != wire.MovedFailover {
		t.Errorf("moved %q", b.s.Moved())
	}
	if told := b.redial(old(100, 40), text("fresh")); told != "41 101" {
		t.Errorf("the game server is told %s, want 41 101", told)
	}
	b.wantState(session.Connecting)
	b.attach(old(100, 40))
	h := b.hello()
	if !h.Resumed || h.Received != 40 || h.Lost != 0 || h.Replay != 1 || h.Moved != wire.MovedFailover {
		t.Errorf("hello %+v", h)
	}
	b.says("\x10ack 101")
	b.says("m41")
	b.wants(b.up, "m41")
	b.wantCounts(41, 41, 101, 101)
}

// F2: every generation of a claim is newer than any of the node before. The claim confirms none.
func TestClaimConfirmsNoGeneration(t *testing.T) {
	b := newClaimed(t, durableConfig(), claim)
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
	b.join(old(100, 40))
	if got := b.confirmed(); got != generation.FirstOf(2) {
		t.Errorf("the attach confirms generation %d", got)
	}
	b.says("\x10ack 100")
	if got := b.confirmed(); got != generation.FirstOf(3) {
		t.Errorf("the client's first message confirms generation %d", got)
	}
	b.wantKinds([]session.Kind{session.Confirmed}, session.Confirmed)
}

func TestClaimNeedsOlderGenerations(t *testing.T) {
	for _, c := range []session.Claim{{Epoch: 0}, {Epoch: 1, Confirmed: generation.FirstOf(1)}, {Epoch: 1, Confirmed: generation.FirstOf(2)}} {
		cfg := durableConfig()
		cfg.Store = replay.NewStore(1<<30, nil)
		if _, err := session.Claimed(cfg, 1, c); err == nil {
			t.Errorf("%+v is accepted", c)
		}
		if n := cfg.Store.Used(); n != 0 {
			t.Errorf("%+v: %d bytes are missing", c, n)
		}
	}
}

// With redelivery off the claimer settles all that the client has given to any connection: at most once.
func TestClaimWithoutRedelivery(t *testing.T) {
	c := claim
	c.Settled = 55
	b := newClaimed(t, durableConfig(), c)
	if told := b.redial(old(100, 55), ""); told != "56 101" {
		t.Errorf("the game server is told %s, want 56 101", told)
	}
	b.attach(old(100, 55))
	if h := b.hello(); h.Received != 55 {
		t.Errorf("hello.received %d, want 55", h.Received)
	}
	b.says("m56")
	b.wants(b.up, "m56")
	b.wantCounts(56, 56, 100, 100)
}

// A client that states less than the claim was made from is not the newest attempt of it.
func TestResumeBelowClaimIsRefused(t *testing.T) {
	b := newClaimed(t, durableConfig(), claim)
	if ref := b.s.Check(b.now, old(99, 40)); ref == nil || ref.Code != wire.CodeWindowExceeded {
		t.Errorf("refusal %v", ref)
	}
}

// Nobody comes: the session ends with its grace period, and there is nobody to speak to.
func TestClaimWhoseClientNeverComesEnds(t *testing.T) {
	for _, confirmed := range []uint64{0, generation.FirstOf(2)} {
		c := claim
		c.Confirmed = confirmed
		cfg := durableConfig()
		cfg.Grace, cfg.GraceBeforeStart = time.Minute, time.Minute
		b := newClaimed(t, cfg, c)
		b.sleep(time.Minute - 1)
		b.wantState(session.Detached) // its client holds a token, whatever was confirmed: it has shown it
		b.sleep(askWait + 1)
		b.wantState(session.Ended)
		b.wantNothingHeld()
	}
}

// The client was told of an outage by the node before, which its next one knows nothing of.
func TestClaimEndsOutageForClient(t *testing.T) {
	cfg := durableConfig()
	cfg.Redial = 30 * time.Second
	b := newClaimed(t, cfg, claim)
	b.join(old(100, 40))
	b.wantHears("hello", "back")
}

// A claimed session breaks off and goes on like any other.
func TestClaimedSessionDetachesAndResumes(t *testing.T) {
	for _, hard := range []bool{false, true} {
		cfg := durableConfig()
		cfg.Hard = hard
		b := newClaimed(t, cfg, claim)
		b.join(old(100, 40))
		b.game(text("a") + text("b"))
		b.hello()
		b.says("\x10ack 101")
		b.says("m41")
		first := b.up
		b.wants(first, "m41")
		b.drop()
		if hard {
			b.wants(first, "close 1001 disconnected")
		}
		r := session.Resume{Gen: b.s.Generation(), Received: 102, Settled: 40}
		b.join(r)
		if h := b.hello(); h.Received != 41 || h.Moved != "" || h.Replay != 0 {
			t.Errorf("hard %v: hello %+v", hard, h)
		}
		b.says("m42")
		b.wants(b.up, "m42")
	}
}

// hello.moved stays until a client was heard here; whoever has a token of this node's was.
func TestMovedIsSaidUntilClientIsHeard(t *testing.T) {
	b := newClaimed(t, durableConfig(), claim)
	for range 2 {
		b.join(old(100, 40)) // its hello is lost
		if h := b.hello(); h.Moved != wire.MovedFailover {
			t.Fatalf("hello %+v", h)
		}
		b.drop()
	}
	b.join(session.Resume{Gen: b.s.Generation(), Received: 100, Settled: 40}) // this one was not
	if h := b.hello(); h.Moved != "" {
		t.Errorf("hello says moved %q to a client that has taken one from here", h.Moved)
	}
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

// ---- numbers that nobody has accepted (R2)

// The client has got further at its older node, which had not died after all. What the upstream here
// was told holds no longer, so it is dialled anew.
func TestResumeThatGotFurtherElsewhereDialsAgain(t *testing.T) {
	for _, now := range []session.Resume{old(103, 40), old(100, 44), old(103, 44)} {
		for _, attached := range []bool{true, false} {
			b := newClaimed(t, durableConfig(), claim)
			b.redial(old(100, 40), text("first"))
			first := b.up
			if attached {
				b.attach(old(100, 40)) // its hello is lost, or refused
				b.game(text("second"))
				b.output()
			}
			older := b.att
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
			b.wants(first, "close 1001 moved")
			if attached {
				b.att = older
				b.wantMode(older, session.Linger)
				if got := b.hears(); !slices.Equal(got, []string{"close", "close 4409 superseded"}) {
					t.Errorf("the older connection gets %q", got)
				}
			}
			told := b.redial(now, text("third"))
			want := fmt.Sprint(now.Settled+1, " ", now.Received+1)
			if now.Received == 100 { // what came from the first one has kept its numbers
				want = fmt.Sprint(now.Settled+1, " ", b.s.Info().Sent)
			}
			if told != want {
				t.Errorf("%+v: the game server is told %s, want %s", now, told, want)
			}
			b.attach(now)
			h := b.hello()
			if h.Received != now.Settled || h.Moved != wire.MovedFailover || h.Lost != 0 {
				t.Errorf("%+v: hello %+v", now, h)
			}
			b.says(fmt.Sprint("\x10ack ", b.s.Info().Sent))
			b.says("next")
			b.wants(b.up, "next")
			if i := b.s.Info(); i.Received != now.Settled+1 || i.BufferMessages != 0 {
				t.Errorf("%+v: %+v", now, i)
			}
		}
	}
}

// The numbers move while the upstream is dialled, for a client that has taken the dial over.
func TestClientThatTakesDialOverMayHaveGotFurther(t *testing.T) {
	b := newClaimed(t, durableConfig(), claim)
	if told := b.redial(old(100, 40), text("mistold")); told != "41 101" {
		t.Errorf("told %s", told)
	}
	if dials := b.join(old(105, 42)); dials != 1 {
		t.Errorf("%d further dials, want one", dials)
	}
	if h := b.hello(); h.Received != 42 || h.Replay != 0 {
		t.Errorf("hello %+v", h)
	}
	b.wantCounts(42, 42, 105, 105)
}

// A dial that began before the numbers moved was told the older ones: its outcome is not taken.
func TestDialFromBeforeNumbersMovedIsNotTaken(t *testing.T) {
	b := newClaimed(t, durableConfig(), claim)
	b.redial(old(100, 40), "")
	b.told(old(100, 40)) // another dial begins, for a client that finds no upstream
	if a, _ := b.s.Attach(b.now, old(105, 42), b.pass()); a != nil || !b.s.NeedsUpstream() {
		t.Fatal("the client that got further needs no other upstream")
	}
	if b.s.TakesUpstream(false) {
		t.Error("an upstream is taken that was told older numbers")
	}
	if told := b.told(old(105, 42)); told != "43 106" || !b.s.TakesUpstream(false) {
		t.Errorf("the next dial is told %s, and taken: %v", told, b.s.TakesUpstream(false))
	}
}

// A dial for the client that got further is told its numbers from the first: none is wasted.
func TestDialForClientThatGotFurtherIsNotRepeated(t *testing.T) {
	b := newClaimed(t, durableConfig(), claim)
	if dials := b.join(old(105, 42)); dials != 1 {
		t.Errorf("%d dials, want one", dials)
	}
	b.wantCounts(42, 42, 105, 105)
	if told := b.told(old(100, 40)); told != "43 106" {
		t.Errorf("an older attempt makes it %s", told)
	}
}

// An outage's own dial may be under way with the older numbers: its outcome is not taken.
func TestResumeThatGotFurtherEndsOutage(t *testing.T) {
	cfg := durableConfig()
	cfg.Redial = 30 * time.Second
	b := newClaimed(t, cfg, claim)
	b.join(old(100, 40))
	b.game(text("lost"))
	b.breaks()
	b.told(session.Resume{})
	if _, ref := b.s.Attach(b.now, old(102, 41), b.pass()); ref == nil || ref.Code != 0 {
		t.Fatalf("refusal %v", ref)
	}
	if b.s.TakesUpstream(true) {
		t.Error("an upstream that was told the older numbers is taken")
	}
	b.wantOutage(0)
	if dials := b.join(old(102, 41)); dials != 1 {
		t.Errorf("%d dials", dials)
	}
	b.wantCounts(41, 41, 102, 102)
}

// The upstream has ended the session already: there is nobody to be told anything, and what it said
// before gets later numbers.
func TestResumeThatGotFurtherGetsEnd(t *testing.T) {
	b := newClaimed(t, durableConfig(), claim)
	b.redial(old(100, 40), text("bye")+closing(4000, "won"))
	if dials := b.join(old(103, 41)); dials != 0 {
		t.Errorf("%d dials, though the game server has ended the session", dials)
	}
	b.wantHears("hello", "bye", "end", "close 4000 won")
	b.wantCounts(41, 41, 104, 103)
}

// drop-oldest has dropped some of what came meanwhile: those numbers nobody will ever have.
func TestResumeAfterDropOldest(t *testing.T) {
	cfg := durableConfig()
	cfg.Overflow, cfg.BufferMessages = session.DropOldest, 2
	b := newClaimed(t, cfg, claim)
	b.redial(old(100, 40), "")
	b.s.CancelRedial(b.now)
	b.s.BeginRedial(b.now)
	b.up = b.s.Reconnect(b.now, nil)
	b.attach(old(100, 40))
	b.drop()
	for _, m := range []string{"a", "b", "c", "d"} {
		b.game(text(m))
	}
	b.join(old(100, 40))
	if h := b.hello(); h.Lost != 2 || h.Replay != 2 {
		t.Errorf("hello %+v, want 2 lost and 2 to replay", h)
	}
	b.drop()
	if dials := b.join(old(105, 40)); dials != 1 {
		t.Errorf("%d dials", dials)
	}
	if h := b.hello(); h.Lost != 0 || h.Replay != 0 {
		t.Errorf("hello %+v, want nothing of what nobody has accepted", h)
	}
	b.game(text("e"))
	b.wantHears("e")
	b.wantCounts(40, 40, 106, 105)
}

// Once a client was heard here its numbers count, and it is judged by what it was sent.
func TestNumbersAreFixedOnceGenerationIsConfirmed(t *testing.T) {
	b := newClaimed(t, durableConfig(), claim)
	b.join(old(100, 40))
	b.game(text("a"))
	b.output()
	own := b.s.Generation()
	b.says("\x10ack 100")
	b.drop()
	for _, tt := range []struct {
		r    session.Resume
		code int
	}{
		{old(103, 40), wire.CodeBadToken},
		{session.Resume{Gen: own, Received: 103}, wire.CodeProtocolViolation},
		{session.Resume{Gen: own, Received: 99}, wire.CodeWindowExceeded},
		{session.Resume{Gen: own, Received: 101}, 0},
	} {
		code := 0
		if ref := b.s.Check(b.now, tt.r); ref != nil {
			code = ref.Code
		}
		if code != tt.code {
			t.Errorf("%+v: %d, want %d", tt.r, code, tt.code)
		}
	}
}

// A token of this node's proves that its hello was taken: what such a client states is judged as ever.
func TestTokenOfOwnEpochMovesNoNumbers(t *testing.T) {
	b := newClaimed(t, durableConfig(), claim)
	b.join(old(100, 40))
	b.game(text("a"))
	b.output()
	r := session.Resume{Gen: b.s.Generation(), Received: 102, Settled: 45}
	if ref := b.s.Check(b.now, r); ref == nil || ref.Code != wire.CodeProtocolViolation {
		t.Errorf("refusal %v", ref)
	}
	r.Received = 101
	b.attach(r)
	b.wantCounts(40, 40, 101, 101)
	if h := b.hello(); h.Received != 40 {
		t.Errorf("hello %+v", h)
	}
}

// A session that began here, or was handed over whole, has used its numbers: they never move.
func TestNumbersMoveAfterClaimsOnly(t *testing.T) {
	b := newTable(t, durableConfig())
	b.drop()
	r := session.Resume{Gen: b.s.Generation(), Received: 1}
	if ref := b.s.Check(b.now, r); ref == nil || ref.Code != wire.CodeProtocolViolation {
		t.Errorf("refusal %v", ref)
	}
	if told := b.told(r); told != "1 1" {
		t.Errorf("told %s", told)
	}
}

// ---- what a game server is told

// Every redial of a durable session is told where both sides go on.
func TestCountsOfEachRedial(t *testing.T) {
	c := durableConfig()
	c.Hard, c.Redial = true, 30*time.Second
	b := newTable(t, c)
	if told := b.told(session.Resume{}); told != "1 1" {
		t.Errorf("told %s", told)
	}
	b.says("one")
	b.says("two")
	b.game(text("a") + text("b") + "\x01\x03hal")
	b.output()
	b.wants(b.up, "one", "two")
	b.breaks()
	b.says("three")
	if told := b.told(session.Resume{}); told != "3 3" { // three waits; hal was never whole
		t.Errorf("in an outage: told %s", told)
	}
	b.next("")
	b.wants(b.up, "three")
	b.drop()
	if told := b.redial(session.Resume{Gen: b.s.Generation(), Received: 2}, text("c")); told != "4 3" {
		t.Errorf("hard: told %s", told)
	}
	b.resume(2)
	b.wantCounts(3, 3, 3, 2)
}

// A write to an older upstream is in flight while the next one is dialled. If that takes a message whole, the
// next one was told too low a number, and would take other messages for repeats: it is replaced.
func TestUpstreamThatWasToldTooLowCountIsReplaced(t *testing.T) {
	one := len(masked(frame.Text, "one"))
	for _, when := range []string{"before it is connected", "before its client is attached", "attached"} {
		for taken, mistold := range map[int]bool{0: false, one - 1: false, one: true, one + 1: true} {
			c := durableConfig()
			c.Hard = true
			b := newTable(t, c)
			b.says("one")
			b.says("two")
			older := b.up
			b.lend(older)
			b.drop()
			b.s.BeginRedial(b.now)
			if told := b.told(session.Resume{}); told != "1 1" {
				t.Fatalf("told %s", told)
			}
			report := func() { b.s.Wrote(b.now, older, taken, false) }
			if when == "before it is connected" {
				report()
			}
			b.up = b.s.Reconnect(b.now, nil)
			if when == "attached" {
				b.resume(0)
				b.output()
			}
			if when != "before it is connected" {
				b.wants(b.up) // nothing, while the older one may still take it
				report()
			}
			if b.s.NeedsUpstream() != mistold {
				t.Fatalf("%s, %d bytes: another upstream is needed: %v, want %v", when, taken, !mistold, mistold)
			}
			if !mistold {
				b.wants(b.up, "one", "two")
				continue
			}
			b.wants(b.up, "close 1001 moved")
			if when == "attached" {
				b.wantHears("close 1012 ")
				b.wantState(session.Detached)
			}
			if told := b.redial(session.Resume{}, ""); told != "2 1" {
				t.Errorf("told %s", told)
			}
			b.resume(0)
			if h := b.hello(); h.Received != 1 {
				t.Errorf("hello.received %d", h.Received)
			}
			b.wants(b.up, "two")
		}
	}
}

// The session may have ended meanwhile, or the upstream closed: it gets nothing that it would take for something else.
func TestUpstreamThatWasToldTooLowCountGetsNothingAtTheEnd(t *testing.T) {
	for _, ended := range []bool{true, false} {
		c := durableConfig()
		c.Redial = 30 * time.Second
		b := started(t, c)
		b.says("one")
		b.says("two")
		older := b.up
		b.lend(older)
		b.breaks()
		b.told(session.Resume{})
		b.next("")
		if ended {
			b.s.Terminate(b.now, 3000, "over")
		} else {
			b.game(closing(4000, "won"))
		}
		b.s.Wrote(b.now, older, len(masked(frame.Text, "one")), false)
		b.wants(b.up)
		b.wantMode(b.up, session.Shut)
	}
}

// In an outage the session stays with its client, which hears of one outage.
func TestUpstreamThatWasToldTooLowCountIsReplacedInOutage(t *testing.T) {
	c := durableConfig()
	c.Redial = 30 * time.Second
	b := started(t, c)
	b.says("one")
	b.says("two")
	older := b.up
	b.lend(older)
	b.breaks()
	b.told(session.Resume{})
	b.next("")
	b.s.Wrote(b.now, older, len(masked(frame.Text, "one")), false)
	b.wants(b.up, "close 1001 moved")
	b.wantState(session.Attached)
	b.wantHears("lost")
	b.wantKinds([]session.Kind{session.UpstreamLost, session.UpstreamBack, session.UpstreamLost}, session.UpstreamLost, session.UpstreamBack)
	if told := b.told(session.Resume{}); told != "2 1" {
		t.Errorf("told %s", told)
	}
	b.next("")
	b.wants(b.up, "two")
	b.wantHears("back")
}

// ---- acting for a player who is not there (F6)

// wordy is a durable session that has much to say while its client is away.
func wordy() session.Config {
	c := durableConfig()
	c.Notices = session.Notices{Expire: "gone"}
	c.Keepalives = []session.Keepalive{{Every: 4 * time.Second, Text: "still here"}}
	return c
}

// quiet checks that u's connection is closed without a word.
func (b *table) wantSilentEnd(u *session.Upstream) {
	b.t.Helper()
	b.wantState(session.Ended)
	b.wantMode(u, session.Shut)
	b.wants(u)
	b.wantNothingHeld()
	if ref := b.s.Check(b.now, session.Resume{Gen: b.s.Generation()}); ref == nil || ref.Code != wire.CodeNodeUnreachable || ref.Retry <= 0 {
		b.t.Errorf("a resume gets %+v, want no verdict", ref)
	}
}

// The grace period is over, and the node is not certain to have the session: it asks, and leaves in silence
// without an answer. One in time, or shortly before, lets it speak.
func TestGraceOverWithoutCertaintyIsSilent(t *testing.T) {
	c := durableConfig()
	c.Notices.Expire = "gone"
	for _, tt := range []struct {
		name         string
		before       time.Duration // the node was certain so long before the end; 0: it was not
		after        time.Duration // or is so long after; 0: it is not
		asks, silent bool
	}{
		{name: "no answer", asks: true, silent: true},
		{name: "certain just before", before: ownedFor - 1},
		{name: "certain too long before", before: ownedFor, asks: true, silent: true},
		{name: "an answer", after: 1, asks: true},
		{name: "an answer at the last moment", after: askWait - 1, asks: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newTable(t, c)
			b.drop()
			end := b.now.Add(c.Grace)
			b.sleep(c.Grace - 1 - tt.before)
			if tt.before > 0 {
				b.s.Owned(b.now.Add(1))
			}
			b.sleep(end.Sub(b.now) - 1)
			b.wantState(session.Detached)
			b.s.Events()
			b.sleep(1)
			if asked := len(b.kinds(session.AskOwner)) == 1; asked != tt.asks {
				t.Fatalf("it asks: %v, want %v", asked, tt.asks)
			}
			if tt.asks {
				b.wantState(session.Detached)
				b.wants(b.up)
			}
			if tt.after > 0 {
				b.sleep(tt.after)
				b.wantState(session.Detached)
				b.s.Owned(b.now)
			}
			if tt.silent {
				b.sleep(askWait - 1)
				b.wantState(session.Detached)
				b.sleep(1)
				b.wantSilentEnd(b.up)
				return
			}
			b.wantState(session.Ended)
			b.wants(b.up, "gone", "close 1001 grace period over")
		})
	}
}

// What was queued for the upstream goes nowhere, and half a message stays half.
func TestSilentEndDropsQueue(t *testing.T) {
	for _, taken := range []int{0, 3} {
		b := newTable(t, durableConfig())
		b.says("one")
		b.takes(b.up, taken)
		b.drop()
		b.sleep(30*time.Second + askWait)
		b.wantSilentEnd(b.up)
	}
}

// A client that comes back while the answer is awaited finds its session.
func TestResumeBeforeSilentEnd(t *testing.T) {
	b := newTable(t, durableConfig())
	b.drop()
	b.sleep(30*time.Second + askWait - 1)
	b.resume(0)
	b.hello()
	for range 10 {
		b.says("\x10ack 0")
		b.sleep(time.Second)
	}
	b.wantState(session.Attached)
	b.drop() // a whole grace period follows
	b.sleep(30*time.Second - 1)
	b.wantState(session.Detached)
	b.s.Events()
	b.sleep(1)
	b.wantKinds([]session.Kind{session.AskOwner}, session.AskOwner)
}

// The time that is over may be extended while the answer is awaited.
func TestExtendedGraceCallsSilentEndOff(t *testing.T) {
	b := newTable(t, durableConfig())
	b.drop()
	b.sleep(30*time.Second + askWait/2)
	if !b.s.SetTerms(b.now, session.Terms{Grace: time.Minute, GraceBeforeStart: time.Minute}) {
		t.Fatal("refused")
	}
	b.sleep(29*time.Second - askWait/2 + 1)
	b.wantState(session.Detached)
	b.sleep(askWait)
	b.wantState(session.Detached)
	b.sleep(time.Second)
	b.wantSilentEnd(b.up)
}

// A grace period that is shortened is over at once, and one of zero with the connection.
func TestGraceThatIsOverAtOnceNeedsCertainty(t *testing.T) {
	for _, certain := range []bool{true, false} {
		for _, zero := range []bool{true, false} {
			c := durableConfig()
			if zero {
				c.Grace, c.GraceBeforeStart = 0, 0
			}
			b := newTable(t, c)
			b.sleep(ownedFor)
			if certain {
				b.s.Owned(b.now)
			}
			b.drop()
			if !zero {
				b.s.SetTerms(b.now, session.Terms{})
			}
			if certain {
				b.wantState(session.Ended)
				b.wants(b.up, "close 1001 grace period over")
				continue
			}
			b.wantState(session.Detached)
			b.sleep(askWait)
			b.wantSilentEnd(b.up)
		}
	}
}

// The idle timeout of a session without a client is one more reason to act of one's own accord; with a
// client it is not, since that is here.
func TestIdleEndWithoutCertaintyIsSilent(t *testing.T) {
	for _, attached := range []bool{true, false} {
		c := durableConfig()
		c.Idle, c.Heartbeat = 10*time.Second, time.Hour
		b := newTable(t, c)
		if !attached {
			b.drop()
		}
		b.s.Events()
		b.sleep(10 * time.Second)
		if attached {
			b.wantState(session.Ended)
			b.wants(b.up, "close 1001 idle timeout")
			continue
		}
		b.wantState(session.Detached)
		b.wantKinds([]session.Kind{session.AskOwner}, session.AskOwner)
		b.sleep(askWait)
		b.wantSilentEnd(b.up)
		if got := b.s.Info().Ending.Reason; got != session.ReasonIdle {
			t.Errorf("ended with %s", got)
		}
	}
}

// A full buffer waits for the answer, and is not read meanwhile. Exhausted memory cannot wait.
func TestOverflowWithoutCertaintyIsSilent(t *testing.T) {
	for _, how := range []string{"certain", "answered", "not answered", "back in time", "other terms"} {
		c := durableConfig()
		c.BufferMessages, c.Overflow = 2, session.EndSession
		b := newTable(t, c)
		b.drop()
		b.sleep(ownedFor)
		if how == "certain" {
			b.s.Owned(b.now)
		}
		b.s.Events()
		b.game(text("a") + text("b") + text("c") + text("d"))
		if how != "certain" {
			b.wantState(session.Detached)
			b.wantKinds([]session.Kind{session.AskOwner}, session.AskOwner, session.Overflowed)
			if b.s.WantsRead(b.up) {
				t.Error("it is read on")
			}
			b.sleep(askWait - 1)
			b.wantState(session.Detached)
		}
		switch how {
		case "answered":
			b.s.Owned(b.now)
		case "not answered":
			b.sleep(1)
			b.wantKinds([]session.Kind{session.Overflowed}, session.Overflowed)
			b.wantSilentEnd(b.up)
			continue
		case "back in time":
			b.resume(0)
			b.wantHears("hello", "a", "b", "ping")
			b.says("\x10ack 2")
			b.wantHears("c", "d")
			b.sleep(askWait)
			b.wantState(session.Attached)
			continue
		case "other terms":
			b.s.SetTerms(b.now, session.Terms{Grace: c.Grace, GraceBeforeStart: c.Grace, Overflow: session.DropOldest})
			b.sleep(askWait)
			b.wantState(session.Detached)
			b.wantCounts(0, 0, 4, 0)
			continue
		}
		b.wantState(session.Ended)
		b.wantKinds([]session.Kind{session.Overflowed}, session.Overflowed)
		b.wants(b.up, "close 1013 replay buffer full")
		if ref := b.s.Check(b.now, session.Resume{Gen: b.s.Generation()}); ref.Code != wire.CodeWindowExceeded || ref.Retry != 0 {
			t.Errorf("%s: refusal %+v", how, ref)
		}
	}
}

func TestEvictionWithoutCertaintyIsSilent(t *testing.T) {
	for _, certain := range []bool{true, false} {
		b := newTable(t, durableConfig())
		b.drop()
		b.sleep(ownedFor)
		if certain {
			b.s.Owned(b.now)
		}
		if !b.s.Evict(b.now, "1 byte") {
			t.Fatal("not evicted")
		}
		if certain {
			b.wantState(session.Ended)
			b.wants(b.up, "close 1013 memory for replay buffers exhausted: 1 byte")
			continue
		}
		b.wantSilentEnd(b.up)
	}
}

// Keepalives rest while the node is not certain. It asks again, since the engine may be back.
func TestKeepalivesRestWithoutCertainty(t *testing.T) {
	b := newTable(t, wordy())
	b.drop()
	b.s.Events()
	for _, d := range []time.Duration{4 * time.Second, askWait, askWait} {
		b.sleep(d)
		b.wants(b.up)
		b.wantKinds([]session.Kind{session.AskOwner}, session.AskOwner)
	}
	b.s.Owned(b.now)
	b.sleep(keepaliveWait)
	b.wants(b.up, "still here")
	b.wantKinds(nil, session.AskOwner)
	b.sleep(4 * time.Second)
	b.wants(b.up)
	b.wantKinds([]session.Kind{session.AskOwner}, session.AskOwner)
}

// Several that are due within a moment ask once.
func TestKeepalivesAskOnce(t *testing.T) {
	c := wordy()
	c.Keepalives = append(c.Keepalives, session.Keepalive{Every: 4*time.Second + askWait - 1, Text: "me too"})
	b := newTable(t, c)
	b.sleep(ownedFor)
	b.drop()
	b.s.Events()
	b.sleep(4*time.Second + askWait - 1)
	b.wantKinds([]session.Kind{session.AskOwner}, session.AskOwner)
	b.wants(b.up)
}

// Without an upstream there is nobody to speak to, and nothing to ask for.
func TestKeepalivesAskForNothingWithoutUpstream(t *testing.T) {
	c := wordy()
	c.Redial = time.Minute
	b := newTable(t, c)
	b.drop()
	b.breaks()
	b.s.Events()
	b.sleep(20 * time.Second)
	b.wantKinds(nil, session.AskOwner)
}

// Sessions that are not durable ask nobody.
func TestOnlyDurableSessionsAsk(t *testing.T) {
	c := wordy()
	c.Durable = false
	b := newTable(t, c)
	b.s.Owned(b.now)
	b.sleep(5 * time.Second)
	b.drop()
	b.sleep(30 * time.Second)
	b.wantState(session.Ended)
	b.wantKinds(nil, session.AskOwner)
}

// ---- hello.received, and repeats

// hello.received names what was written. What waits is written once, though the client sends it again.
func TestRepeatsOfWaitingMessagesAreDropped(t *testing.T) {
	for _, written := range []int{0, 1, 2, 3} {
		for _, flying := range []bool{true, false} {
			b := newTable(t, durableConfig())
			sent := []string{"one", "two", "three"}
			for _, m := range sent {
				b.says(m)
			}
			n := len(masked(frame.Text, "one")) * min(written, 2)
			if written == 3 {
				n = 1 << 30
			}
			var got []byte
			received := written
			if flying { // the report comes after the attach
				got = b.lend(b.up)
				n = min(n, len(got))
				got = got[:n:n]
				received = 0
			} else {
				got = b.takes(b.up, n)
			}
			b.drop()
			b.resume(0)
			if h := b.hello(); h.Received != uint64(received) {
				t.Errorf("hello.received %d, want %d", h.Received, received)
			}
			if flying {
				b.s.Wrote(b.now, b.up, n, false)
			}
			for _, m := range sent[received:] {
				b.says(m)
			}
			b.says("four")
			got = append(got, b.takes(b.up, 1<<30)...)
			b.gets(got, "one", "two", "three", "four")
			b.wantCounts(4, 4, 0, 0)
			if i := b.s.Info(); i.Stats.ToUpstream != 4 {
				t.Errorf("%d messages counted", i.Stats.ToUpstream)
			}
			b.sleep(time.Second)
			b.wantHears("ack 4")
		}
	}
}

// A connection that breaks before all its repeats are in leaves nothing of them behind, and a takeover neither.
func TestRepeatsOfNextConnectionCountAnew(t *testing.T) {
	for _, takeover := range []bool{true, false} {
		b := newTable(t, durableConfig())
		for n := range 4 {
			b.says(fmt.Sprint(n))
		}
		b.drop()
		b.resume(0)
		b.says("0")
		b.says("1") // 2 and 3 are on their way
		b.takes(b.up, len(masked(frame.Text, "0")))
		if !takeover {
			b.drop()
		}
		b.resume(0)
		if h := b.hello(); h.Received != 1 {
			t.Errorf("hello.received %d, want 1", h.Received)
		}
		for _, m := range []string{"1", "2", "3", "4"} {
			b.says(m)
		}
		b.wants(b.up, "1", "2", "3", "4")
		b.wantCounts(5, 5, 0, 0)
	}
}

// A repeat counts however it is framed, and only as a whole; control messages between repeats are none.
func TestRepeatsInAnyForm(t *testing.T) {
	b := newTable(t, durableConfig())
	for _, m := range []string{"one", "\x10\x10two", "three"} {
		b.says(m)
	}
	b.drop()
	b.resume(0)
	b.hello()
	read := func(p []byte) { b.s.Read(b.now, b.att, p); b.s.Retain() }
	part := func(op byte, fin bool, text string) []byte {
		p := frame.AppendMasked(nil, frame.Binary, [4]byte{9, 9, 9, 9}, []byte(text))
		p[0] = op
		if fin {
			p[0] |= 0x80
		}
		return p
	}
	b.says("\x10ping 7")
	read(part(frame.Text, false, "o"))
	read(masked(frame.Ping, "between"))
	read(part(frame.Continuation, true, "ne"))
	for _, c := range masked(frame.Text, "\x10\x10two") { // byte by byte
		read([]byte{c})
	}
	b.says("\x10ack 0")
	whole := append(masked(frame.Text, "three"), masked(frame.Text, "four")...) // one read
	read(whole)
	b.wants(b.up, "one", "\x10two", "three", "four")
	b.wantCounts(4, 4, 0, 0)
}

// A repeat that breaks off is one that never came.
func TestHalfRepeatIsNone(t *testing.T) {
	b := newTable(t, durableConfig())
	b.says("one")
	b.drop()
	b.resume(0)
	m := masked(frame.Text, "one")
	b.s.Read(b.now, b.att, m[:4])
	b.s.Retain()
	b.drop()
	b.resume(0)
	b.says("one")
	b.says("two")
	b.wants(b.up, "one", "two")
}

// The window is what waits and is not acked: repeats need no room in it.
func TestRepeatsNeedNoRoomInWindow(t *testing.T) {
	b := newTable(t, durableConfig())
	for n := range session.UnackedMessages {
		b.says(fmt.Sprint(n))
	}
	b.drop()
	b.resume(0)
	for n := range session.UnackedMessages {
		b.says(fmt.Sprint(n))
	}
	b.wantState(session.Attached)
	b.wantCounts(session.UnackedMessages, 0, 0, 0)
	b.says("one too many")
	b.wantState(session.Ended)
}

// Repeats are no further messages for the rate limit either, and no sign of a game that is played.
func TestRepeatsAreNoFurtherMessages(t *testing.T) {
	c := durableConfig()
	c.Rate, c.Idle = session.Rate{Messages: 1, End: true}, 10*time.Second
	b := newTable(t, c)
	b.says("one")
	for range 2 * session.UnackedMessages {
		b.resume(0)
		b.says("one")
		b.now = b.now.Add(time.Millisecond * 600)
		if b.now > session.Time(9*time.Second) {
			break
		}
	}
	b.wantState(session.Attached)
	b.sleep(2 * time.Second)
	b.wantState(session.Ended)
	if got := b.s.Info().Ending.Reason; got != session.ReasonIdle {
		t.Errorf("ended with %s", got)
	}
}

// A repeat proves that the client holds its token, like every message.
func TestRepeatConfirmsGeneration(t *testing.T) {
	b := newTable(t, durableConfig())
	b.says("one")
	b.drop()
	b.resume(0)
	gen := b.s.Generation()
	b.says("one")
	if b.confirmed() != gen {
		t.Errorf("confirmed %d, want %d", b.confirmed(), gen)
	}
}

// In an outage, and in a hard resume, the same.
func TestRepeatsWithoutUpstream(t *testing.T) {
	for _, hard := range []bool{true, false} {
		c := durableConfig()
		c.Hard = hard
		if !hard {
			c.Redial = 30 * time.Second
		}
		b := newTable(t, c)
		b.says("one")
		if hard {
			b.drop()
			b.redial(session.Resume{}, "")
		} else {
			b.breaks()
		}
		b.resume(0)
		if h := b.hello(); h.Received != 0 {
			t.Errorf("hello %+v", h)
		}
		b.says("one")
		b.says("two")
		if !hard {
			b.next("")
		}
		b.wants(b.up, "one", "two")
		b.wantCounts(2, 2, 0, 0)
	}
}

// Other sessions say what they have received, and expect no repeats.
func TestOtherSessionsExpectNoRepeats(t *testing.T) {
	b := newTable(t, config())
	b.says("one")
	b.drop()
	b.resume(0)
	if h := b.hello(); h.Received != 1 {
		t.Errorf("hello.received %d, want 1", h.Received)
	}
	b.says("two")
	b.wants(b.up, "one", "two")
}

// An upgrade in the middle of the repeats forgets none.
func TestRepeatsSurviveUpgrade(t *testing.T) {
	b := newTable(t, durableConfig())
	for _, m := range []string{"one", "two", "three"} {
		b.says(m)
	}
	b.drop()
	b.resume(0)
	b.output()
	b.says("one")
	b.upgrade()
	for _, m := range []string{"two", "three", "four"} {
		b.says(m)
	}
	b.wants(b.up, "one", "two", "three", "four")
}

// Its client may be told so when it comes back at this node, which has not forgotten the session yet.
func TestResumeOfSessionThatHasMovedIsToComeBack(t *testing.T) {
	for name, leave := range map[string]func(b *table){
		"fenced":      func(b *table) { b.s.Fence(b.now) },
		"handed over": func(b *table) { b.s.HandedOver(b.now, time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newClaimed(t, durableConfig(), claim)
			b.join(old(100, 40))
			leave(b)
			if ref := b.s.Check(b.now, old(100, 40)); ref == nil || ref.Code != wire.CodeNodeUnreachable || ref.Retry == 0 {
				t.Errorf("refused by %+v, want %d with retry", ref, wire.CodeNodeUnreachable)
			}
			if ref := b.s.Check(b.now, session.Resume{Gen: generation.FirstOf(1), Received: 100}); ref == nil || ref.Code != wire.CodeBadToken {
				t.Errorf("a spent token is refused by %+v", ref)
			}
		})
	}
}
