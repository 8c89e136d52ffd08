package session_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"reseat/gateway/replay"
	"reseat/gateway/session"
	"reseat/gateway/wire"
	"reseat/tokens/generation"
)

// Hand-offs and fencing of durable sessions, call by call.

// leaves is how most hand-offs go: the game server answers the Close frame.
const leaves = `leave; game< Close 1001 moved; game> Close 1001; `

// aheads are by how much the next node's clock is ahead of this one's.
var aheads = []string{"0s", "1h", "-1h"}

// All that the game server says until its Close goes along, and so does what it has not taken of the client's.
func TestHandOffTakesEverythingAlong(t *testing.T) {
	for _, attachedClient := range []bool{true, false} {
		b := attached(t, durable)
		b.play(`game> a; client> one; game< one; client< a`)
		if !attachedClient {
			b.play(`drop`)
		}
		b.play(`leave; game< Close 1001 moved; happens left=0`)
		if attachedClient {
			b.play(`client> two; game<`) // it waits for the next one
		}
		b.play(`game> b, "\x01\x03hal"; happens left=0 // half a message
			game> "\x80\x01f", Close 1001, behind it; happens left=1; mode linger; game<`)
		if attachedClient {
			if out := b.output(); string(out) != text("b")+"\x01\x03hal\x80\x01f" {
				t.Errorf("the client gets %q", out)
			}
		}
		b.play(`move 0s; detached; counts %d 1 3 0
			states 3 1; told 2 4; dial d; attach; hello received=1 replay=1 lost=0 moved=handoff resumed=true`, map[bool]int{true: 2, false: 1}[attachedClient])
		if b.s.Generation() != generation.FirstOf(5) {
			t.Errorf("generation %d, want %d", b.s.Generation(), generation.FirstOf(5))
		}
		if attachedClient {
			b.play(`game< two; client> two`) // again, which nobody else gets
		}
		b.play(`client> three; game< three; client> ^ack 4; attached`)

		// The older node learns that the session has gone.
		b.left.s.HandedOff(b.left.now, 1500*time.Millisecond)
		b.left.play(`ended`)
		if out := string(b.left.output()); attachedClient && !strings.Contains(out, `"code":4503,"reason":"draining","retry":true,"retry_after_ms":1500`) {
			t.Errorf("the client gets %q", out)
		}
		b.left.play(`free`)
	}
}

// A client that is paused by a full buffer, or slow, does not keep the Close frame from being read.
func TestHandOffReadsEverythingWhateverFits(t *testing.T) {
	for _, policy := range []session.Overflow{session.Pause, session.DropOldest, session.EndSession} {
		for _, client := range []string{"", "drop; "} {
			if client != "" && policy != session.Pause {
				continue
			}
			b := attached(t, durable, buffer(2, policy))
			b.play(client + `game> a, b, c; game unread // c has no room
				leave; game read; game< Close 1001 moved; game> d, e, Close 1001; happens left=1; move 0s; counts 0 0 5 0`)
			if i := b.s.Info(); i.BufferMessages != 5 || i.Stats.Dropped != 0 {
				t.Errorf("%v: %+v", policy, i)
			}
			b.play(`join; client< ^hello, a, b, c, d, e; attached`)
		}
	}
}

// While a full buffer keeps the game server from being read, its silence is the gateway's own.
func TestHandOffReadsUpstreamThatWasPaused(t *testing.T) {
	attached(t, durable, buffer(1, session.Pause), pinged(time.Second)).play(`game> a, b; client> written
		game lends; 1400ms; leave; 1s; happens left=0 // the Close frame has to wait for that write
		game wrote all; game< written, Close 1001 moved; game> c, Close 1001; happens left=1; counts 1 1 3 0`)
}

// A Close that is read while the rest of a full buffer is walked over ends the session as ever.
func TestGameServerHadEndedSessionBeforeHandOff(t *testing.T) {
	b := attached(t, durable, buffer(1, session.Pause))
	b.play(`game> a, b, Close 4000 won`)
	if b.s.Leave(b.now) {
		t.Error("a session that its game server has ended is handed off")
	}
	b.play(`game< Close 4000; client< a, b, ^end, Close 4000 won; 5s; happens left=0`)
}

// No Close frame goes into a message: what the upstream has taken in part is completed first.
func TestHandOffClosesUpstreamBetweenMessages(t *testing.T) {
	for taken, want := range map[int][2]string{
		0: {"", "one, two, three"}, 9: {"one, ", "two, three"}, // the rest goes to the next upstream
		1: {"one, two, three, ", ""}, 8: {"one, two, three, ", ""}, 10: {"one, two, three, ", ""},
	} {
		for _, takes := range []string{`game takes %d; leave`, `game lends; leave; game wrote %d`} { // before, or during
			b := attached(t, durable)
			b.play(`client> one, two, three`)
			b.play(takes, taken)
			got := append(b.gameGets(b.up), b.gameGets(b.up)...) // the Close follows the report
			b.same(takes, got, strings.Split(want[0]+"Close 1001 moved", ", "))
			b.play(`game> Close 1001; happens left=1; move 0s; join; game< %s`, want[1])
		}
	}
}

// What the rate limit holds waits at the next node, in its order and for no longer than it had to.
func TestHandOffKeepsWhatRateLimitHolds(t *testing.T) {
	for _, ahead := range aheads {
		attached(t, durable, rate(1)).play(`passes 2h; client> ^ping, one, two, three, four; game< one
			`+leaves+`passes 500ms; move %s; states 0 1; join; client reads; game<
			client> two, three, four // again
			500ms-1ns; game<; 1ns; game< two; 1s; game< three
			client> five; 1s; game< four, five // behind what waits, and not for hours`, ahead)
	}
}

// A client that may have got further than the claim would be refused by the next node, which could not tell.
func TestClaimedSessionStaysUntilItsClientHasTakenIt(t *testing.T) {
	b := claimed(t)
	if b.s.Leave(b.now) {
		t.Fatal("a claimed session is handed off before its client has taken it")
	}
	b.play(`join`)
	if b.s.Leave(b.now) {
		t.Fatal("the same once its client has only been sent hello")
	}
	b.play(`client> here; leave`)
}

// A session without an upstream has nothing to wait for.
func TestHandOffWithoutUpstreamIsReadyAtOnce(t *testing.T) {
	for _, tt := range []struct {
		options      []option
		script, then string
	}{
		{[]option{redial}, "breaks", "^hello, ^back, a"}, // its client was notified of the outage
		{[]option{redial}, "drop; breaks", "^hello, a"},
		{[]option{redial, hard}, "drop", "^hello, a"},
		{[]option{redial, hard}, "game lends; drop", "^hello, a"},
	} {
		b := attached(t, append(tt.options, durable)...)
		b.play(`client> one; game> a; ` + tt.script + `; leave; happens left=1; outage none`)
		if b.takesFromOutage() || b.s.TakesUpstream(0) {
			t.Errorf("%s: it takes an upstream that is dialled yet", tt.script)
		}
		if b.lent[b.up] != nil {
			if _, err := b.s.Freeze(session.Formats[0]); err != session.ErrBusy {
				t.Fatalf("frozen with a write in flight: %v", err)
			}
			b.play(`game wrote 0`)
		}
		b.play(`move 0s; join; game< one`)
		if got, want := b.hears(), strings.Split(tt.then, ", "); tt.script != "breaks" && !slices.Equal(got, want) {
			t.Errorf("%s: the client hears %q, want %q", tt.script, got, want)
		}
	}
}

// An upstream that ends the session itself meanwhile has ended it: it is not revived at another node.
func TestGameServerEndsSessionDuringHandOff(t *testing.T) {
	for sent, heard := range map[string]string{"Close 4000 won": "^end", `"\x81\x80\x01\x02\x03\x04"`: "^close"} {
		for _, client := range []string{"", "drop; "} {
			b := attached(t, durable)
			b.play(`client> one; game lends; `+client+`leave; game> last, %s; happens left=0 stays=1; game wrote all`, sent) // no Close has gone out yet
			if client == "" {
				if got := b.hears(); got[0] != "last" || !slices.Contains(got, heard) {
					t.Errorf("%s: the client hears %q", sent, got)
				}
			}
			b.play(`5s; happens left=0`)
			if b.s.Leave(b.now) {
				t.Errorf("%s: the session is handed off after all", sent)
			}
			if got := b.gameGets(b.up); got[0] != "one" || !strings.HasPrefix(got[1], "Close ") || got[1] == "Close 1001 moved" {
				t.Errorf("%s: the upstream gets %q", sent, got)
			}
		}
	}
}

// Every other end of the upstream's connection is as good as its answer.
func TestUpstreamGoesAwayDuringHandOff(t *testing.T) {
	const done, half = `game< one; leave; game< Close 1001 moved; `, `game takes 3; leave; `
	for script, left := range map[string]bool{ // whether one is left for the next upstream
		done + `game> last, Close 1001`:          false,
		done + `game> last, Close 4000 crossing`: false,
		done + `game> last, Close 1012`:          false,
		done + `game> last; breaks`:              false,
		half + `game> last, Close 1012`:          true,
		half + `game> last; breaks`:              true,
		half + `game> last; 2s`:                  true, // it is silent
	} {
		counts, one := "1 1 1 0", ""
		if left {
			counts, one = "1 0 1 0", "one" // whole
		}
		attached(t, durable, redial, pinged(time.Second)).play(`client> one; `+script+`; happens left=1 lost=0 stays=0; outage none
			move 0s; counts %s; join; game< %s; client< ^hello, last`, counts, one)
	}
}

// An upstream that goes away by itself is answered, between messages.
func TestUpstreamThatRestartsDuringHandOffIsAnswered(t *testing.T) {
	for taken, want := range map[int]string{0: "game< Close 1012", 3: "mode shut", 9: "game< one, Close 1012"} {
		attached(t, durable, redial).play(`client> one; game lends; leave; game> Close 1012; happens left=1; game wrote %d; %s`, taken, want)
	}
}

// An upstream that does not close is waited for for five seconds, and no longer.
func TestHandOffWaitsFiveSecondsForClose(t *testing.T) {
	b := attached(t, durable)
	b.play(`leave; game< Close 1001 moved; 5s-1ns; game> late; happens left=0; 1ns; happens left=1; game<; mode linger`)
	if b.s.Room(b.up) != nil {
		t.Error("it is read on")
	}
	b.s.Read(b.now, b.up, []byte(text("too late")))
	b.play(`move 0s; counts 0 0 1 0`)
}

// The client closes the session meanwhile. Its messages before that wait for the next upstream, so it says it there.
func TestByeDuringHandOff(t *testing.T) {
	const bye = "\x10bye {\"code\":3000,\"reason\":\"done\"}"
	b := attached(t, durable)
	b.play(`leave; client> one`)
	b.says(bye)
	b.play(`client< Close 1012; detached; game< Close 1001 moved; game> Close 1001; happens left=1; move 0s; join; client> one`)
	b.says(bye)
	b.play(`ended; game< one, Close 3000 done`)
}

// Whatever else ends the session ends the hand-off, too.
func TestSessionEndsDuringHandOff(t *testing.T) {
	for name, end := range map[string]func(b *table){
		"terminate": func(b *table) { b.play(`terminate`) },
		"violation": func(b *table) { b.play(`client> ^ack 99`) },
		"grace":     func(b *table) { b.play(`drop`); b.s.SetTerms(b.now, session.Terms{}) },
		"fence":     func(b *table) { b.play(`fence`) },
		"drain":     func(b *table) { b.play(`drain`) },
	} {
		for _, late := range []string{"", "5s; tick; "} {
			b := attached(t, durable)
			b.play(`leave; game< Close 1001 moved; client> waits`)
			end(b)
			b.play(`ended; forget; game<; ` + late + `breaks; happens left=0 stays=0 disconnected=0 ended=0`) // nothing behind its Close
			if b.s.Leave(b.now) || b.s.Next() != 0 {
				t.Errorf("%s: the session goes on", name)
			}
			if ref := b.s.Check(b.now, session.Resume{Gen: b.s.Generation()}); (ref.Code == wire.CodeNodeUnreachable) != (name == "fence") {
				t.Errorf("%s: a resume gets %+v", name, ref)
			}
			b.play(`free`)
		}
	}
}

// Nobody takes the session: its client comes back, and its upstream is dialled anew.
func TestSessionStays(t *testing.T) {
	for stage, steps := range map[string][3]string{ // before the hand-off, during it, and after it was given up
		"left":    {"", "game< Close 1001 moved; game> last, Close 1001", ""},
		"closing": {"", "game< Close 1001 moved", "answers late"},
		"writing": {"game lends", "", "game wrote 0; game< Close 1001 moved"},
		"outage":  {"breaks", "game<", ""},
	} {
		for _, client := range []string{"", "drop"} {
			b := attached(t, durable, redial)
			b.play(`client> one; %s; %s; leave; %s; stay; detached`, steps[0], client, steps[1])
			if client == "" {
				if got := b.hears(); !slices.Contains(got, "Close 1012") {
					t.Errorf("%s: the client hears %q", stage, got)
				}
			}
			if stage == "closing" {
				b.s.Read(b.now, b.up, []byte(closing(1001, ""))) // it answers too late, and ends nothing
			} else {
				b.play(steps[2])
			}
			b.play(`detached; 5s; owned`)
			if b.s.TakesUpstream(0) {
				t.Errorf("%s: an upstream is taken that was dialled before", stage)
			}
			b.play(`ask`)
			if !b.s.TakesUpstream(0) {
				t.Errorf("%s: no upstream is taken", stage)
			}
			b.play(`states 0 0; join; hello received=0 moved=; game< one; client> one, two; game< two
				leave; game< Close 1001 moved`) // it may be tried again
		}
	}
}

// Only a session whose upstream is done with arrives, at a later epoch.
func TestArriveNeedsLeave(t *testing.T) {
	arrives := func(b *table, epoch uint64, want bool) {
		t.Helper()
		state, content := b.freeze()
		if err := b.restore(replay.NewStore(1<<30, nil), state, content).Arrive(b.now, b.now, epoch); (err == nil) != want {
			t.Errorf("epoch %d: %v, want it to arrive: %v", epoch, err, want)
		}
	}
	b := attached(t, durable)
	arrives(b, 1, false)
	b.play(leaves)
	arrives(b, 1, true)

	b = claimed(t)
	b.play(`join; client> ^ack 100; ` + leaves)
	for epoch, want := range map[uint64]bool{2: false, 3: false, 4: true} { // a generation of 3 is confirmed
		arrives(b, epoch, want)
	}
}

// ---- clocks

// The grace period of a client that is away goes on at the next node, whatever its clock says; for one that was
// there until now it begins.
func TestGraceGoesOnAtNextNode(t *testing.T) {
	// The last one is a clock that has begun after the moments that the node takes over.
	for _, ahead := range append(aheads, "-2h") {
		for client, left := range map[string]time.Duration{"": 30 * time.Second, "drop; 12s; ": 17 * time.Second} {
			b := attached(t, durable)
			b.play(`passes 2h; client> ^ack 0; `+client+`leave; game< Close 1001 moved; passes 1s; game> Close 1001; move %s`, ahead)
			if end := b.s.Info().GraceEnd; end != b.now.Add(left) {
				t.Errorf("%v ahead, %q: the grace period ends in %v, want %v", ahead, client, end.Sub(b.now), left)
			}
			b.play(`%s-1ns; detached; owned; 1ns; ended`, left)
		}
	}
	attached(t, durable).play(`passes 2h; client> ^ack 0; ` + leaves + `move -2h; join; client reads; client> ^ack 0; 10s; attached`)
}

// The idle timeout counts from the last message, at whichever node that was.
func TestIdleTimeoutGoesOnAtNextNode(t *testing.T) {
	for _, ahead := range aheads {
		attached(t, durable, idle(20*time.Second)).play(`passes 2h; client> one; game< one; passes 15s; `+leaves+`move %s; join; 5s-1ns; attached; 1ns; ended`, ahead)
	}
}

// What counted against a client, and for it, goes along: takeovers, and resumes without progress.
func TestHandOffKeepsWhatCountsAgainstClient(t *testing.T) {
	for _, ahead := range aheads {
		b := attached(t, durable)
		b.play(`passes 2h; client> ^ack 0
			20 times: resume 0
			`+leaves+`move %s; join`, ahead)
		if ref := b.s.Check(b.now, b.states); ref == nil || ref.Code != wire.CodeTooFast || ref.Retry != 10*time.Second {
			t.Errorf("%v ahead: %+v, want 4429 for 10 s", ahead, ref)
		}
	}
}

// ---- fencing

// wantMoved checks that the one event since the last look says that the session has moved.
func (b *table) wantMoved() {
	b.t.Helper()
	events := b.s.Events()
	if len(events) != 1 || events[0].Kind != session.SessionEnded || events[0].Reason != session.ReasonMoved {
		b.t.Errorf("events %+v", events)
	}
}

// Another node has the session: the client is left without a verdict, the upstream without a word.
func TestFence(t *testing.T) {
	for taken, end := range map[int]string{
		0: "game< Close 1001 moved; mode linger", 9: "game< one, Close 1001 moved; mode linger", 3: "game<; mode shut", 11: "game< one; game<; mode shut",
	} {
		for _, client := range []string{"", "drop; "} { // and away waits in the queue
			for _, takes := range []string{`game takes %d; %s forget; fence; ended`, `game lends; %[2]s forget; fence; ended; game wrote %[1]d`} {
				b := attached(t, durable, notices(session.Notices{Detach: "away", Expire: "gone"}))
				b.play(`client> one, two`)
				b.play(takes, taken, client)
				b.play(end)
				if client == "" {
					b.play(`client< Close 1012 moved`)
				}
				b.wantMoved()
				b.play(`refused 4504; fence; game<; free`) // 4404 would be a verdict
			}
		}
	}
}

// A session that waits for its upstream is fenced, too, and takes none any more.
func TestFenceWithoutUpstream(t *testing.T) {
	claims, dials := claimed(t), claimed(t)
	dials.play(`begin`)
	outage, left := attached(t, durable, redial), attached(t, durable, redial)
	outage.play(`client> one; breaks`)
	left.play(leaves)
	for name, b := range map[string]*table{"claimed": claims, "dialling": dials, "outage": outage, "left": left} {
		b.play(`fence; ended; game<`)
		if b.takesFromOutage() || b.s.TakesUpstream(0) || b.s.NeedsUpstream() || b.s.Next() != 0 {
			t.Errorf("%s: the session goes on", name)
		}
		b.play(`free`)
	}
}

// A first client that comes to a session which was fenced meanwhile gets what an attached one gets.
func TestFenceBeforeFirstAttach(t *testing.T) {
	b := connecting(t, conf(durable), "")
	b.play(`fence`)
	b.first()
	b.play(`client< Close 1012 moved; game< Close 1001 moved`)
}

// ---- upgrades

// An upgrade may come at any moment of a hand-off, of a claim, or of a wait for certainty.
func TestUpgradeDuringHandOff(t *testing.T) {
	for _, script := range []string{
		`client> one; game takes 3; leave; upgrade; game takes all; game< one, Close 1001 moved; game> last, Close 1001; happens left=1`,
		`client> one; leave; game< Close 1001 moved; upgrade; client> two; game<; game> last, Close 1001; happens left=1`,
		`client> one; leave; game< Close 1001 moved; game> last, Close 1001; happens left=1; upgrade; 5s; happens left=0`,
	} {
		attached(t, durable).play(script + `; client< last; move 0s; states 1 0; join; hello moved=handoff`)
	}
}
