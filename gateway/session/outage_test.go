package session_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/session"
)

// --upstream-lost redial, call by call. The simulation runs it with everything else.

// 1001 and 1012 are a server that goes away. Any other code is the game's end, and forbidden
// frames would come again.
func TestWhichEndOfUpstreamBeginsOutage(t *testing.T) {
	for name, sent := range map[string]string{
		"masked": `"\x81\x80\x01\x02\x03\x04"`, "reserved bit": `"\xc1\x00"`, "half a code": `"\x88\x01\x03"`, "code 1006": `"\x88\x02\x03\xee"`,
	} {
		b := attached(t, redial)
		b.play(`game> %s; outage none`, sent)
		if got := b.hears(); !slices.Contains(got, "^close") {
			t.Errorf("%s: the client hears %q", name, got)
		}
	}
	for _, code := range []int{1000, 1002, 1003, 1005, 1007, 1008, 1009, 1010, 1011, 1013, 1014, 3000, 4000, 4502, 4999} {
		sent := strings.TrimSuffix("Close "+strconv.Itoa(code), " 1005") // 1005 stands for no code
		b := attached(t, redial)
		b.play(`game> last, %s, behind it; outage none`, sent)
		if got := b.hears(); !slices.Contains(got, "^end") || slices.Contains(got, "behind it") {
			t.Errorf("%d: the client hears %q", code, got)
		}
	}
	for _, code := range []int{1001, 1012} {
		attached(t, redial).play(`game> last, Close %d, behind it; outage 30s; client< last, ^lost
			game< Close %[1]d // its Close frame is answered
			next; client< ^back`, code)
	}
}

func TestOutageNeedsSettingAndResumableClient(t *testing.T) {
	for name, o := range map[string][]option{"off": nil, "plain": {redial, plain}, "cookie": {redial, cookie}} {
		b := attached(t, o...)
		b.play(`breaks; outage none`)
		if b.takesFromOutage() {
			t.Errorf("%s: an upstream is taken", name)
		}
	}
}

// The time begins anew once a connection has lived for ten seconds, and not a moment before. An upstream that
// breaks when no time is left is lost at once.
func TestTimeOfLaterOutage(t *testing.T) {
	for lived, left := range map[string]string{
		"0s": "25s", "10s-1ns": "15s+1ns", "10s": "30s", "1h": "30s",
	} {
		attached(t, redial, heartbeat(24*time.Hour)).play(`breaks; outage 30s; passes 5s; next; outage none; passes %s; breaks; outage %s`, lived, left)
	}
	for lived, left := range map[string]string{"1s-1ns": "1ns", "1s": "none", "1s+1ns": "none"} {
		attached(t, redial).play(`breaks; passes 29s; next; client reads; passes %s; breaks; outage %s`, lived, left)
	}
}

// A Tick ends an outage exactly when its time is over, and Next asks for it.
func TestOutageEndsInTime(t *testing.T) {
	b := attached(t, redial)
	b.play(`game> kept; breaks`)
	until := b.now.Add(30 * time.Second)
	for b.now < until-1 {
		b.now = min(b.s.Next(), until-1)
		b.play(`client> ^ack 0; tick; client reads`) // the client is alive
	}
	b.play(`outage 1ns`)
	if next := b.s.Next(); next != until {
		t.Errorf("Next %d, want %d", next, until)
	}
	b.play(`passes 1ns; tick; outage none; client< ^ping, ^close, Close 4502 upstream_lost`) // a heartbeat was due, too
	if b.takesFromOutage() || b.s.NeedsUpstream() {
		t.Error("an upstream is taken afterwards")
	}
	b.play(`client> Close 4502; ended; free`)
}

// What the client sends waits, within its window and not acked, and goes out once.
func TestMessagesWaitInOutageForNextUpstream(t *testing.T) {
	b := attached(t, redial)
	b.play(`client> before; game< before; breaks`)
	var waits []string
	for n := range session.UnackedMessages - 1 {
		waits = append(waits, strconv.Itoa(n))
	}
	want := strings.Join(waits, ", ")
	b.play(`client> %s; attached; client< ^lost; counts 1024 1 0 0; next; older<; game< %s; client< ^ack 1024, ^back
		client> ^bye; game< Close 1000`, want, want)
}

// Input that is queued in the reader's own buffer must be the session's once another
// connection may write it: the reader may be busy with the old one.
func TestNextUpstreamWritesNothingFromReadersBuffer(t *testing.T) {
	b := attached(t, redial)
	b.play(`breaks`)
	read := masked(frame.Text, "mine")
	b.s.Read(b.now, b.att, read)
	b.play(`next`)
	output := b.s.Out(b.now, b.up, nil)
	b.s.Retain()
	clear(read)
	if got, _ := frames(t, slices.Concat(output...)); !slices.Equal(got, []string{"mine"}) {
		t.Errorf("the upstream got %q", got)
	}
}

// A client beyond its window is in violation during an outage, too.
func TestWindowHoldsInOutage(t *testing.T) {
	attached(t, redial).play(`breaks
		%d times: client> x
		attached; client> too many; ended; free`, session.UnackedMessages)
}

// The old connection dies while a write of the queue is in flight: what it has taken whole is
// not repeated, and the message inside which it ended goes to the next one whole.
func TestWriteInFlightAtLoss(t *testing.T) {
	const one, two = 9, 9 // bytes
	for taken, want := range map[int]string{
		0: "one, two, three", 1: "one, two, three", one - 1: "one, two, three", one: "two, three", one + 1: "two, three", one + two: "three",
	} {
		attached(t, redial).play(`client> one, two, three; game lends; breaks; game wrote %d; next; game< %s; counts 3 3 0 0`, taken, want)
		// Here the next upstream comes before the report, and gets nothing yet: the older one may still take it.
		attached(t, redial).play(`client> one, two, three; game lends; breaks; next; game<; older wrote %d; game< %s; counts 3 3 0 0`, taken, want)
	}
}

// The connection that went away with 1001 is answered once it is at the end of a message, and
// closed without an answer inside one.
func TestUpstreamThatGoesAwayInsideMessageGetsNoAnswer(t *testing.T) {
	for taken, want := range map[int]string{0: "game< Close 1001", 1: "mode shut", 8: "mode shut", 9: "game< one, Close 1001"} {
		attached(t, redial).play(`client> one; game lends; game> Close 1001 restart; mode linger; game wrote %d; %s`, taken, want)
	}
}

// An outage that fails drops what waits, once no write of it is in flight; what comes
// afterwards is not admitted.
func TestFailedOutageWithWriteInFlight(t *testing.T) {
	for _, how := range []string{"breaks", "game> Close 1012"} {
		b := attached(t, redial)
		b.play(`client> one; game lends; %s; client> two; fail; client> late; counts 2 0 0 0
			game wrote all; fail // changes nothing`, how)
		if got := b.hears(); !slices.Equal(got[:2], []string{"^lost", "^close"}) && !slices.Equal(got[:3], []string{"^ack 1", "^lost", "^close"}) {
			t.Errorf("%s: the client hears %q", how, got)
		}
		b.play(`client> Close 4502; ended; free`)
		if e := b.s.Info().Ending; e.Reason != "upstream_lost" || e.Code != 4404 {
			t.Errorf("%s: ending %+v", how, e)
		}
	}
}

// What waited for an upstream that is not reached has no receiver: its memory is returned at
// once, though a client may take long to read the rest.
func TestFailedOutageReturnsMemory(t *testing.T) {
	b := attached(t, redial)
	b.play(`breaks`)
	before := b.store.Used()
	b.play(`client> x*50000`)
	if b.store.Used() <= before {
		t.Fatal("nothing is charged for a message that waits")
	}
	b.play(`fail`)
	if got := b.store.Used(); got != before {
		t.Errorf("%d bytes are held, want %d", got, before)
	}
}

// A client that reads slowly hears of the outage where it was: behind the messages of the old
// connection and before those of the next.
func TestSlowClientHearsOfOutageInItsPlace(t *testing.T) {
	b := attached(t, redial)
	b.play(`game> one, two`)
	held := len(slices.Concat(b.s.Out(b.now, b.att, nil)...)) // in flight
	b.play(`game> three; breaks; next four
		breaks; next // no message lies between this outage and
		breaks; next five // the next, which for the client are one`)
	b.s.Wrote(b.now, b.att, held, false)
	b.play(`client< three, ^lost, ^back, four, ^lost, ^back, five`)
}

// A loss in the middle of a message that is being written to the client: the rest comes first.
func TestLossWhileMessageIsWrittenInPart(t *testing.T) {
	b := attached(t, redial)
	b.play(`game> one, two`)
	b.s.Out(b.now, b.att, nil)
	b.s.Wrote(b.now, b.att, 4, true) // of the five bytes of one
	b.play(`game> "\x01\x03hal"; breaks`)
	rest := slices.Concat(b.s.Out(b.now, b.att, nil)...)
	b.s.Wrote(b.now, b.att, len(rest), false)
	if string(rest) != "e"+text("two") {
		t.Errorf("the rest is %q", rest)
	}
	b.play(`client< ^lost; next three; client< ^back, three; client> ^ack 3; attached`)
}

// A client hears of each change once, whatever connections it comes by, and never between hello and the replay.
func TestClientHearsOfOutageOnceEachWay(t *testing.T) {
	for proof, acked := range map[string]int{"confirms": 0, "game> later; client< later; client> ^ack 2": 2} {
		b := attached(t, redial)
		b.play(`game> one; breaks; client< one, ^lost; confirms
			resume 0; client< ^hello, one // a takeover
			drop; resume 0; client< ^hello, one
			next; client< ^back; %s`, proof)
		replay := map[int]string{0: "one"}[acked]
		for range 3 {
			b.play(`drop; resume %d; client< %s`, acked, strings.TrimSuffix("^hello, "+replay, ", "))
		}
		b.play(`breaks; client< ^lost; confirms; fail; drop; resume %d`, acked)
		if got := b.hears(); slices.Contains(got, "^back") { // nothing is back
			t.Errorf("the client hears %q", got)
		}
	}
}

// What a resume states proves it as well: a message behind `upstream`, on the same connection.
func TestResumeProvesThatOutageWasHeard(t *testing.T) {
	attached(t, redial).play(`game> one; breaks; client< one, ^lost; next two, three; client< ^back, two, three
		drop; resume 1; client< ^hello, two, three, ^lost, ^back // it may lack both
		drop; resume 3; client< ^hello, ^lost, ^back // no message lay behind them
		game> four; client< four; drop; resume 4; client< ^hello`)
}

// A message that was behind `upstream` on one connection comes before it in the replay of the next: there it
// proves nothing.
func TestReplayProvesNothing(t *testing.T) {
	b := attached(t, redial)
	b.play(`game> one; breaks; next two; client< one, ^lost, ^back, two; drop; resume 1`)
	n := len(slices.Concat(b.s.Out(b.now, b.att, nil)...)) // hello and two
	b.s.Wrote(b.now, b.att, n, false)
	b.play(`client> ^ack 2; drop; resume 2; client< ^hello, ^lost, ^back`)
}

// A client hears again what it may not have heard: a change that is over by now in order with its end.
func TestUnprovenOutageIsSaidAgain(t *testing.T) {
	attached(t, redial).play(`breaks; client< ^lost; drop; resume 0; client< ^hello, ^lost
		drop; next; resume 0; client< ^hello, ^lost, ^back
		client> ^pong 1 // of an earlier ping
		drop; breaks; resume 0; client< ^hello, ^lost
		confirms; next; client< ^back
		drop; breaks; resume 0; client< ^hello, ^back, ^lost
		confirms; drop; resume 0; client< ^hello`)
}

// The game server is lost again before a client hears that it is back. A client that may have heard so on an earlier
// connection hears of both changes. For any other the two outages are one.
func TestOutageThatBeginsBeforeUnprovenEndIsSaid(t *testing.T) {
	attached(t, redial).play(`breaks; client< ^lost; confirms; next; client< ^back; drop; resume 0; breaks; client< ^hello, ^back, ^lost`)
	attached(t, redial).play(`breaks; client< ^lost; drop; resume 0; client< ^hello, ^lost; next; breaks; client<; next; client< ^back`)
	attached(t, redial).play(`breaks; client< ^lost; confirms; drop; next; resume 0; breaks; client< ^hello`)
	claimed(t, redial).play(`join; breaks; client< ^hello, ^back, ^lost`)
}

// Nor does the pong of a ping before it.
func TestPongOfEarlierPingProvesNothing(t *testing.T) {
	attached(t, redial, heartbeat(15*time.Second)).play(`15s; client< ^ping; breaks; client< ^lost; client> ^pong 1; attached
		drop; resume 0; client< ^hello, ^lost`)
}

// The ping behind `upstream` is no reason to take a client for dead.
func TestLostGameServerMakesNoClientDie(t *testing.T) {
	attached(t, redial, answer(5*time.Second), heartbeat(time.Minute)).play(`breaks; client< ^lost; 10s; attached`)
}

// A client that was away during the whole outage need not hear of it.
func TestOutageWhileAwayIsNotTold(t *testing.T) {
	attached(t, redial).play(`drop; breaks; next; resume 0; client< ^hello`)
}

// An upstream may go away before its first client is attached, even in the packet of its
// handshake response, and the time may be over before the first client is there.
func TestOutageBeforeFirstAttach(t *testing.T) {
	b := connecting(t, conf(redial), text("one")+closing(1001, "")+text("behind it"))
	b.play(`outage 30s`)
	b.first()
	b.play(`client< ^hello, one, ^lost; next two, Close 1012; outage 30s; client< ^back, two, ^lost; next; client< ^back`)

	b = connecting(t, conf(redial), closing(1001, ""))
	b.play(`30s`)
	b.first()
	b.play(`client< ^hello, ^close, Close 4502 upstream_lost`)
}

// --on-detach is for an upstream that believes the player is there: not for that of a session
// whose first client has not come yet.
func TestNextUpstreamHearsThatClientIsAway(t *testing.T) {
	words := notices(session.Notices{Detach: "away", Resume: "here"})
	attached(t, redial, words).play(`drop; game< away; breaks; resume 0; client> waits; drop; next; game< waits, away
		resume 0; game< here; breaks
		drop; resume 0; next; game< // no client was attached to notify`)
	connecting(t, conf(redial, words), "").play(`reserve; breaks; next; game<; resume 0; game<`)
}

// A Keepalive is not sent to an upstream that has not taken anything yet.
func TestKeepaliveWaitsForNextUpstreamToTakeNotice(t *testing.T) {
	attached(t, redial, notices(session.Notices{Detach: "away"}), repeats(5*time.Second, "still here")).play(`drop; breaks
		5s; next // due in the outage: nobody gets it
		5s; game< away; 5s; game< still here`)
}

// With --disconnect hard a detach ends the outage: the resume needs an upstream, and its
// client hears that there is one.
func TestHardDetachInOutage(t *testing.T) {
	b := attached(t, redial, hard, notices(session.Notices{Detach: "away", Resume: "here"}))
	b.play(`breaks; client< ^lost; confirms; client> waits; drop; outage none`)
	if !b.s.NeedsUpstream() || b.takesFromOutage() || !b.s.TakesUpstream(0) {
		t.Fatal("the resume needs no upstream")
	}
	b.play(`dial Close 1001; outage 30s // that goes away at once
		next; resume 0; game< here, waits`)
	if got := b.hears(); !slices.Equal(got, []string{"^hello", "^back"}) && !slices.Equal(got, []string{"^hello", "^back", "^ack 1"}) {
		t.Errorf("the client hears %q", got)
	}
	b.play(`drop; dial Close 1001; cancel; outage none`) // no client waits any more: there is no outage, either
	if !b.s.NeedsUpstream() {
		t.Error("the resume needs no upstream")
	}
}

// The dial of an outage may hang until another outage is on. It stated the counts of the first one.
func TestUpstreamOfEndedOutageIsNotTaken(t *testing.T) {
	b := attached(t, redial, hard)
	b.play(`breaks`)
	first, _ := b.s.Outage()
	b.play(`1s; drop; dial; resume 0; breaks`)
	if b.s.TakesUpstream(first) || !b.takesFromOutage() {
		t.Error("the session takes the upstream of another outage than its own")
	}
}

func TestByeInOutageIsAnsweredAtOnce(t *testing.T) {
	b := attached(t, redial)
	b.play(`breaks; client> never written`)
	b.says("\x10bye {\"code\":3001,\"reason\":\"done\"}")
	b.play(`ended; outage none; client< Close 3001 done; free`)
	if b.takesFromOutage() || b.s.Next() != 0 {
		t.Error("the session wants something")
	}
}

// A silent upstream counts as broken.
func TestSilentUpstreamIsReplaced(t *testing.T) {
	b := attached(t, redial, pinged(5*time.Second))
	b.play(`5s; game< Ping; 5s; outage 30s; mode shut; next`)
	b.s.Read(b.now, b.older, []byte(text("too late"))) // it was not dead: nothing of it counts
	b.play(`5s; game< Ping // the clock of the next one is its own
		counts 0 0 0 0`)
}

// Memory is exhausted, and the upstream takes no more bytes: it is given up where another one
// takes over, and is read on where none would.
func TestUnwritableUpstreamWhileMemoryIsExhausted(t *testing.T) {
	for before, lost := range map[string]bool{"": true, "breaks; passes 29s; next; client> ^ack 0; passes 1s": false} {
		b := attached(t, redial)
		b.play(before)
		b.play(`client> waits`)
		b.s.WriteFailed(b.now, b.up, "reset")
		b.store.ShareReserve(0)
		b.store.Charge(1 << 30)
		for b.s.Room(b.up) != nil {
			b.s.Read(b.now, b.up, make([]byte, 0))
			b.store.Charge(1 << 30)
		}
		b.play(`1s`)
		if _, until := b.s.Outage(); (until > 0) != lost || b.up.Over() {
			t.Errorf("after %q: outage until %d, over %v", before, until, b.up.Over())
		}
	}
}
