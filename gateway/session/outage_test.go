package session_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

// --upstream-lost redial, call by call. The simulation runs it with everything else.

// livingTime is how long an upstream must live for the time of an outage to begin anew.
const livingTime = 10 * time.Second

func redialConfig() session.Config {
	c := config()
	c.Redial = 30 * time.Second
	return c
}

// breaks breaks the upstream's connection.
func (b *table) breaks() { b.s.Disconnected(b.now, b.up, "reset") }

// next gives the session its next upstream, which has sent early already.
func (b *table) next(early string) {
	b.t.Helper()
	if !b.s.TakesUpstream(true) {
		b.t.Fatal("the session takes no upstream")
	}
	b.up = b.s.Reconnect(b.now, []byte(early))
}

// hears takes the client's output, and returns what it is sent: messages, the verb `upstream`
// as "lost" or "back", other verbs by name but acks whole, and Close frames. The ping that asks whether
// `upstream` was heard is left out: see confirms.
func (b *table) hears() (list []string) {
	b.t.Helper()
	for {
		var all []byte
		for _, p := range b.s.Out(b.now, b.att, nil) {
			all = append(all, p...)
		}
		if len(all) == 0 {
			return list
		}
		b.s.Wrote(b.now, b.att, len(all), false)
		for _, m := range frames(b.t, all) {
			if word, ok := strings.CutPrefix(m, "\x10"); ok {
				verb, arg, _ := strings.Cut(word, " ")
				switch {
				case arg == `{"state":"lost"}`, arg == `{"state":"back"}`:
					verb = arg[10:14]
				case verb == wire.VerbAck:
					verb = word
				case verb == wire.VerbPing && len(list) > 0 && (list[len(list)-1] == "lost" || list[len(list)-1] == "back"):
					b.asked = arg
					continue
				}
				m = verb
			}
			list = append(list, m)
		}
	}
}

// confirms answers the ping that followed the newest `upstream`.
func (b *table) confirms() { b.says("\x10pong " + b.asked) }

func (b *table) wantHears(want ...string) {
	b.t.Helper()
	if got := b.hears(); !slices.Equal(got, want) {
		b.t.Fatalf("the client hears %q, want %q", got, want)
	}
}

// wantOutage checks whether there is an outage, and when it ends.
func (b *table) wantOutage(until session.Time) {
	b.t.Helper()
	if _, got := b.s.Outage(); got != until {
		b.t.Fatalf("the outage ends at %d, want %d", got, until)
	}
}

// started returns a session whose client has been sent hello.
func started(t *testing.T, c session.Config) *table {
	t.Helper()
	b := newTable(t, c)
	b.wantHears("hello")
	return b
}

// 1001 and 1012 are a server that goes away. Any other code is the game's end, and forbidden
// frames would come again.
func TestWhichEndOfUpstreamBeginsOutage(t *testing.T) {
	bad := map[string]string{"masked": "\x81\x80\x01\x02\x03\x04", "reserved bit": "\xc1\x00", "half a code": "\x88\x01\x03", "code 1006": "\x88\x02\x03\xee"}
	for name, sent := range bad {
		b := started(t, redialConfig())
		b.game(sent)
		b.wantOutage(0)
		if got := b.hears(); !slices.Contains(got, "close") {
			t.Errorf("%s: the client hears %q", name, got)
		}
	}
	for _, code := range []int{1000, 1001, 1002, 1003, 1005, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 4000, 4502, 4999} {
		b := started(t, redialConfig())
		sent := closing(code, "")
		if code == 1005 {
			sent = "\x88\x00"
		}
		b.game(text("last") + sent + text("behind it"))
		if code != 1001 && code != 1012 {
			b.wantOutage(0)
			if got := b.hears(); !slices.Contains(got, "end") || slices.Contains(got, "behind it") {
				t.Errorf("%d: the client hears %q", code, got)
			}
			continue
		}
		b.wantOutage(b.now.Add(30 * time.Second))
		b.wantHears("last", "lost")
		b.wants(b.up, fmt.Sprintf("close %d ", code)) // its Close frame is answered
		b.next("")
		b.wantHears("back")
	}
}

func TestOutageNeedsSettingAndResumableClient(t *testing.T) {
	off, plain, kept := config(), redialConfig(), redialConfig()
	plain.Resumable = false
	kept.Resumable, kept.PlainResume = false, true
	for name, c := range map[string]session.Config{"off": off, "plain": plain, "cookie": kept} {
		b := newTable(t, c)
		b.breaks()
		b.wantOutage(0)
		if b.s.TakesUpstream(true) {
			t.Errorf("%s: an upstream is taken", name)
		}
	}
}

// The time begins anew once a connection has lived for livingTime, and not a moment before.
func TestTimeOfLaterOutage(t *testing.T) {
	for _, tt := range []struct {
		lived time.Duration
		anew  bool
	}{{0, false}, {livingTime - 1, false}, {livingTime, true}, {time.Hour, true}} {
		c := redialConfig()
		c.Heartbeat = 24 * time.Hour
		b := started(t, c)
		b.breaks()
		first := b.now.Add(30 * time.Second)
		b.wantOutage(first)
		b.now = b.now.Add(5 * time.Second)
		b.next("")
		b.wantOutage(0)
		b.now = b.now.Add(tt.lived)
		b.breaks()
		if tt.anew {
			first = b.now.Add(30 * time.Second)
		}
		b.wantOutage(first)
	}
}

// An upstream that breaks when no time is left is lost at once.
func TestNoOutageWithoutTimeLeft(t *testing.T) {
	for left, lost := range map[time.Duration]bool{1: false, 0: true, -1: true} {
		b := started(t, redialConfig())
		b.breaks()
		b.now = b.now.Add(29 * time.Second)
		b.next("")
		b.hears()
		b.now = b.now.Add(time.Second - left)
		b.breaks()
		if _, until := b.s.Outage(); (until == 0) != lost {
			t.Errorf("%v left: outage until %d, want it lost: %v", left, until, lost)
		}
	}
}

// A Tick ends an outage exactly when its time is over, and Next asks for it.
func TestOutageEndsInTime(t *testing.T) {
	b := started(t, redialConfig())
	b.game(text("kept"))
	b.breaks()
	until := b.now.Add(30 * time.Second)
	for b.now < until-1 {
		b.now = min(b.s.Next(), until-1)
		b.says("\x10ack 0") // the client is alive
		b.s.Tick(b.now)
		b.hears()
	}
	b.wantOutage(until)
	if next := b.s.Next(); next != until {
		t.Errorf("Next %d, want %d", next, until)
	}
	b.now = until
	b.s.Tick(b.now)
	b.wantOutage(0)
	b.wantHears("ping", "close", "close 4502 upstream_lost") // a heartbeat was due, too
	if b.s.TakesUpstream(true) || b.s.NeedsUpstream() {
		t.Error("an upstream is taken afterwards")
	}
	b.closes(4502)
	b.wantState(session.Ended)
	b.wantNothingHeld()
}

// What the client sends waits, within its window and not acked, and goes out once.
func TestMessagesWaitInOutageForNextUpstream(t *testing.T) {
	b := started(t, redialConfig())
	b.says("before")
	b.wants(b.up, "before")
	b.breaks()
	for n := range session.UnackedMessages - 1 {
		b.says(fmt.Sprint(n))
	}
	b.wantState(session.Attached)
	if got := b.hears(); !slices.Equal(got, []string{"lost"}) {
		t.Errorf("the client hears %q", got)
	}
	if i := b.s.Info(); i.Received != session.UnackedMessages || i.Written != 1 {
		t.Errorf("received %d, written %d", i.Received, i.Written)
	}
	old := b.up
	b.next("")
	b.wants(old)
	got := frames(t, b.takes(b.up, 1<<30))
	if len(got) != session.UnackedMessages-1 || got[0] != "0" || got[len(got)-1] != fmt.Sprint(session.UnackedMessages-2) {
		t.Errorf("%d messages, %.60q", len(got), got)
	}
	b.wantHears("ack 1024", "back")
	b.says("\x10bye")
	b.wants(b.up, "close 1000 ")
}

// Input that is queued in the reader's own buffer must be the session's once another
// connection may write it: the reader may be busy with the old one.
func TestNextUpstreamWritesNothingFromReadersBuffer(t *testing.T) {
	b := started(t, redialConfig())
	b.breaks()
	read := masked(frame.Text, "mine")
	b.s.Read(b.now, b.att, read)
	b.next("")
	output := b.s.Out(b.now, b.up, nil)
	b.s.Retain()
	clear(read)
	b.gets(slices.Concat(output...), "mine")
}

// A client beyond its window is in violation during an outage, too.
func TestWindowHoldsInOutage(t *testing.T) {
	b := started(t, redialConfig())
	b.breaks()
	for range session.UnackedMessages {
		b.says("x")
	}
	b.wantState(session.Attached)
	b.says("too many")
	b.wantState(session.Ended)
	b.wantNothingHeld()
}

// The old connection dies while a write of the queue is in flight: what it has taken whole is
// not repeated, and the message inside which it ended goes to the next one whole.
func TestWriteInFlightAtLoss(t *testing.T) {
	one, two := len(masked(frame.Text, "one")), len(masked(frame.Text, "two"))
	for taken, want := range map[int][]string{
		0: {"one", "two", "three"}, 1: {"one", "two", "three"}, one - 1: {"one", "two", "three"}, one: {"two", "three"},
		one + 1: {"two", "three"}, one + two: {"three"},
	} {
		for _, first := range []string{"the report", "the next upstream"} {
			b := started(t, redialConfig())
			for _, m := range []string{"one", "two", "three"} {
				b.says(m)
			}
			old := b.up
			b.lend(old)
			b.breaks()
			if first == "the report" {
				b.s.Wrote(b.now, old, taken, false)
				b.next("")
			} else {
				b.next("")
				b.wants(b.up) // nothing: the older one may still take it
				b.s.Wrote(b.now, old, taken, false)
			}
			b.wants(b.up, want...)
			if i := b.s.Info(); i.Written != 3 {
				t.Errorf("%d bytes taken: %d written", taken, i.Written)
			}
		}
	}
}

// The connection that went away with 1001 is answered once it is at the end of a message, and
// closed without an answer inside one.
func TestUpstreamThatGoesAwayInsideMessageGetsNoAnswer(t *testing.T) {
	whole := len(masked(frame.Text, "one"))
	for taken, answered := range map[int]bool{0: true, 1: false, whole - 1: false, whole: true} {
		b := started(t, redialConfig())
		b.says("one")
		old := b.up
		output := b.lend(old)
		b.game(closing(1001, "restart"))
		if old.CloseMode() != session.Linger {
			t.Errorf("mode %d during the write", old.CloseMode())
		}
		b.s.Wrote(b.now, old, taken, false)
		if answered {
			b.wants(old, "close 1001 ")
		} else if old.CloseMode() != session.Shut {
			t.Errorf("%d of %d bytes taken: mode %d", taken, len(output), old.CloseMode())
		}
	}
}

// An outage that fails drops what waits, once no write of it is in flight; what comes
// afterwards is not admitted.
func TestFailedOutageWithWriteInFlight(t *testing.T) {
	for _, how := range []string{"broken", "gone away"} {
		b := started(t, redialConfig())
		b.says("one")
		old := b.up
		output := b.lend(old)
		if how == "broken" {
			b.breaks()
		} else {
			b.game(closing(1012, ""))
		}
		b.says("two")
		b.s.FailRedial(b.now, "refused")
		b.says("late")
		if i := b.s.Info(); i.Received != 2 {
			t.Errorf("%s: received %d, want 2", how, i.Received)
		}
		b.s.Wrote(b.now, old, len(output), false)
		b.s.FailRedial(b.now, "refused") // changes nothing
		if got := b.hears(); !slices.Equal(got[:2], []string{"lost", "close"}) && !slices.Equal(got[:3], []string{"ack 1", "lost", "close"}) {
			t.Errorf("%s: the client hears %q", how, got)
		}
		b.closes(4502)
		b.wantState(session.Ended)
		b.wantNothingHeld()
		if e := b.s.Info().Ending; e.Reason != "upstream_lost" || e.Code != wire.CodeNoSession {
			t.Errorf("%s: ending %+v", how, e)
		}
	}
}

// What waited for an upstream that is not reached has no receiver: its memory is returned at
// once, though a client may take long to read the rest.
func TestFailedOutageReturnsMemory(t *testing.T) {
	b := started(t, redialConfig())
	b.breaks()
	before := b.store.Used()
	b.says(strings.Repeat("x", 50<<10))
	if b.store.Used() <= before {
		t.Fatal("nothing is charged for a message that waits")
	}
	b.s.FailRedial(b.now, "refused")
	if got := b.store.Used(); got != before {
		t.Errorf("%d bytes are held, want %d", got, before)
	}
}

// A client that reads slowly hears of the outage where it was: behind the messages of the old
// connection and before those of the next.
func TestSlowClientHearsOfOutageInItsPlace(t *testing.T) {
	b := started(t, redialConfig())
	b.game(text("one") + text("two"))
	held := b.s.Out(b.now, b.att, nil) // in flight
	b.game(text("three"))
	b.breaks()
	b.next(text("four"))
	b.breaks() // no message lies between this outage and
	b.next("") // the next, which for the client are one
	b.breaks()
	b.next(text("five"))
	n := 0
	for _, p := range held {
		n += len(p)
	}
	b.s.Wrote(b.now, b.att, n, false)
	b.wantHears("three", "lost", "back", "four", "lost", "back", "five")
}

// A loss in the middle of a message that is being written to the client: the rest comes first.
func TestLossWhileMessageIsWrittenInPart(t *testing.T) {
	b := started(t, redialConfig())
	b.game(text("one") + text("two"))
	b.s.Out(b.now, b.att, nil)
	b.s.Wrote(b.now, b.att, 4, true) // of the five bytes of one
	b.game("\x01\x03hal")
	b.breaks()
	var rest []byte
	for _, p := range b.s.Out(b.now, b.att, nil) {
		rest = append(rest, p...)
	}
	b.s.Wrote(b.now, b.att, len(rest), false)
	if string(rest) != "e"+text("two") {
		t.Errorf("the rest is %q", rest)
	}
	b.wantHears("lost")
	b.next(text("three"))
	b.wantHears("back", "three")
	b.says("\x10ack 3")
	b.wantState(session.Attached)
}

// A client hears of each change once, whatever connections it comes by, and never between hello and the replay.
func TestClientHearsOfOutageOnceEachWay(t *testing.T) {
	for how, proves := range map[string]func(*table){
		"pong": (*table).confirms,
		"ack of a later message": func(b *table) {
			b.game(text("later"))
			b.wantHears("later")
			b.says("\x10ack 2")
		},
	} {
		t.Run(how, func(t *testing.T) {
			b := started(t, redialConfig())
			b.game(text("one"))
			b.breaks()
			b.wantHears("one", "lost")
			b.confirms()
			b.resume(0) // a takeover
			b.wantHears("hello", "one")
			b.drop()
			b.resume(0)
			b.wantHears("hello", "one")
			b.next("")
			b.wantHears("back")
			proves(b)
			for range 3 {
				b.drop()
				b.resume(b.s.Info().Acked)
				if got := b.hears(); slices.Contains(got, "back") || slices.Contains(got, "lost") {
					t.Fatalf("the client hears %q", got)
				}
			}
			b.breaks()
			b.wantHears("lost")
			b.confirms()
			b.s.FailRedial(b.now, "refused")
			b.drop()
			b.resume(b.s.Info().Acked)
			if got := b.hears(); slices.Contains(got, "back") { // nothing is back
				t.Errorf("the client hears %q", got)
			}
		})
	}
}

// What a resume states proves it as well: a message behind `upstream`, on the same connection.
func TestResumeProvesThatOutageWasHeard(t *testing.T) {
	b := started(t, redialConfig())
	b.game(text("one"))
	b.breaks()
	b.wantHears("one", "lost")
	b.next(text("two") + text("three"))
	b.wantHears("back", "two", "three")
	b.drop()
	b.resume(1) // it may lack both
	b.wantHears("hello", "two", "three", "lost", "back")
	b.drop()
	b.resume(3) // no message lay behind them
	b.wantHears("hello", "lost", "back")
	b.game(text("four"))
	b.wantHears("four")
	b.drop()
	b.resume(4)
	b.wantHears("hello")
}

// A message that was behind `upstream` on one connection comes before it in the replay of the next: there it
// proves nothing.
func TestReplayProvesNothing(t *testing.T) {
	b := started(t, redialConfig())
	b.game(text("one"))
	b.breaks()
	b.next(text("two"))
	b.wantHears("one", "lost", "back", "two")
	b.drop()
	b.resume(1)
	n := 0
	for _, p := range b.s.Out(b.now, b.att, nil) { // hello and two
		n += len(p)
	}
	b.s.Wrote(b.now, b.att, n, false)
	b.says("\x10ack 2")
	b.drop()
	b.resume(2)
	b.wantHears("hello", "lost", "back")
}

// A client hears again what it may not have heard: a change that is over by now in order with its end.
func TestUnprovenOutageIsSaidAgain(t *testing.T) {
	b := started(t, redialConfig())
	b.breaks()
	b.wantHears("lost")
	b.drop()
	b.resume(0)
	b.wantHears("hello", "lost")
	b.drop()
	b.next("")
	b.resume(0)
	b.wantHears("hello", "lost", "back")
	b.says("\x10pong 1") // of an earlier ping
	b.drop()
	b.breaks()
	b.resume(0)
	b.wantHears("hello", "lost")
	b.confirms()
	b.next("")
	b.wantHears("back")
	b.drop()
	b.breaks()
	b.resume(0)
	b.wantHears("hello", "back", "lost")
	b.confirms()
	b.drop()
	b.resume(0)
	b.wantHears("hello")
}

// The ping behind `upstream` is no reason to take a client for dead.
func TestLostGameServerMakesNoClientDie(t *testing.T) {
	c := redialConfig()
	c.Answer, c.Heartbeat = 5*time.Second, time.Minute
	b := started(t, c)
	b.breaks()
	b.wantHears("lost")
	b.sleep(10 * time.Second)
	b.wantState(session.Attached)
}

// A client that was away during the whole outage need not hear of it.
func TestOutageWhileAwayIsNotTold(t *testing.T) {
	b := started(t, redialConfig())
	b.drop()
	b.breaks()
	b.next("")
	b.resume(0)
	b.wantHears("hello")
}

// An upstream may go away before its first client is attached, even in the packet of its
// handshake response.
func TestOutageBeforeFirstAttach(t *testing.T) {
	b := connecting(t, redialConfig(), []byte(text("one")+closing(1001, "")+text("behind it")))
	b.wantOutage(b.now.Add(30 * time.Second))
	b.att = b.s.AttachFirst(b.now, b.pass())
	b.wantHears("hello", "one", "lost")
	b.next(text("two") + closing(1012, ""))
	b.wantOutage(b.now.Add(30 * time.Second))
	b.wantHears("back", "two", "lost")
	b.next("")
	b.wantHears("back")
}

// The time may be over before the first client is there.
func TestFirstClientHearsThatUpstreamIsLost(t *testing.T) {
	b := connecting(t, redialConfig(), []byte(closing(1001, "")))
	b.sleep(30 * time.Second)
	b.att = b.s.AttachFirst(b.now, b.pass())
	if got := b.hears(); !slices.Equal(got[:2], []string{"hello", "close"}) {
		t.Errorf("the client hears %q", got)
	}
}

// --on-detach is for an upstream that believes the player is there: not for that of a session
// whose first client has not come yet.
func TestNextUpstreamHearsThatClientIsAway(t *testing.T) {
	c := redialConfig()
	c.Notices = session.Notices{Detach: "away", Resume: "here"}
	b := started(t, c)
	b.drop()
	b.wants(b.up, "away")
	b.breaks()
	b.resume(0)
	b.says("waits")
	b.drop()
	b.next("")
	b.wants(b.up, "waits", "away")
	b.resume(0)
	b.wants(b.up, "here")
	b.breaks()
	b.drop() // nobody is to be told now
	b.resume(0)
	b.next("")
	b.wants(b.up)

	ahead := connecting(t, c, nil)
	ahead.s.Reserve(ahead.now, ahead.pass())
	ahead.breaks()
	ahead.next("")
	ahead.wants(ahead.up)
	ahead.resume(0)
	ahead.wants(ahead.up)
}

// A Keepalive is not sent to an upstream that has not taken anything yet.
func TestKeepaliveWaitsForNextUpstreamToTakeNotice(t *testing.T) {
	c := redialConfig()
	c.Notices.Detach, c.Keepalives = "away", []session.Keepalive{{Every: 5 * time.Second, Text: "still here"}}
	b := started(t, c)
	b.drop()
	b.breaks()
	b.sleep(5 * time.Second) // due in the outage: nobody gets it
	b.next("")
	b.sleep(5 * time.Second)
	b.wants(b.up, "away")
	b.sleep(5 * time.Second)
	b.wants(b.up, "still here")
}

// With --disconnect hard a detach ends the outage: the resume needs an upstream, and its
// client hears that there is one.
func TestHardDetachInOutage(t *testing.T) {
	c := redialConfig()
	c.Hard, c.Notices = true, session.Notices{Detach: "away", Resume: "here"}
	b := started(t, c)
	b.breaks()
	b.wantHears("lost")
	b.confirms()
	b.says("waits")
	b.drop()
	b.wantOutage(0)
	if !b.s.NeedsUpstream() || b.s.TakesUpstream(true) || !b.s.TakesUpstream(false) {
		t.Fatal("the resume needs no upstream")
	}
	b.s.BeginRedial(b.now)
	b.up = b.s.Reconnect(b.now, []byte(closing(1001, ""))) // and that goes away at once
	b.wantOutage(b.now.Add(30 * time.Second))
	b.next("")
	b.resume(0)
	b.wants(b.up, "here", "waits")
	if got := b.hears(); !slices.Equal(got, []string{"hello", "back"}) && !slices.Equal(got, []string{"hello", "back", "ack 1"}) {
		t.Errorf("the client hears %q", got)
	}
	b.drop()
	b.s.BeginRedial(b.now)
	b.up = b.s.Reconnect(b.now, []byte(closing(1001, "")))
	b.s.CancelRedial(b.now) // no client waits any more: there is no outage, either
	b.wantOutage(0)
	if !b.s.NeedsUpstream() {
		t.Error("the resume needs no upstream")
	}
}

func TestByeInOutageIsAnsweredAtOnce(t *testing.T) {
	b := started(t, redialConfig())
	b.breaks()
	b.says("never written")
	b.says("\x10bye {\"code\":3001,\"reason\":\"done\"}")
	b.wantState(session.Ended)
	b.wantOutage(0)
	if got := b.hears(); !slices.Equal(got, []string{"close 3001 done"}) {
		t.Errorf("the client hears %q", got)
	}
	if b.s.TakesUpstream(true) || b.s.Next() != 0 {
		t.Error("the session wants something")
	}
	b.wantNothingHeld()
}

// A silent upstream counts as broken.
func TestSilentUpstreamIsReplaced(t *testing.T) {
	c := redialConfig()
	c.UpstreamHeartbeat = 5 * time.Second
	b := started(t, c)
	b.sleep(5 * time.Second)
	b.wants(b.up, "ping")
	b.sleep(5 * time.Second)
	b.wantOutage(b.now.Add(30 * time.Second))
	if b.up.CloseMode() != session.Shut {
		t.Errorf("mode %d", b.up.CloseMode())
	}
	old := b.up
	b.next("")
	b.s.Read(b.now, old, []byte(text("too late"))) // it was not dead: nothing of it counts
	b.sleep(5 * time.Second)
	b.wants(b.up, "ping") // the clock of the next one is its own
	if i := b.s.Info(); i.Sent != 0 {
		t.Errorf("%d messages of the old upstream", i.Sent)
	}
}

// Memory is exhausted, and the upstream takes no more bytes: it is given up where another one
// takes over, and is read on where none would.
func TestUnwritableUpstreamWhileMemoryIsExhausted(t *testing.T) {
	for _, spent := range []bool{false, true} {
		b := started(t, redialConfig())
		if spent { // the time of the outage
			b.breaks()
			b.now = b.now.Add(29 * time.Second)
			b.next("")
			b.says("")
			b.now = b.now.Add(time.Second)
		}
		b.says("waits")
		b.s.Retain()
		b.s.WriteFailed(b.now, b.up, "reset")
		b.store.ShareReserve(0)
		b.store.Charge(1 << 30)
		for b.s.Room(b.up) != nil {
			b.s.Read(b.now, b.up, make([]byte, 0))
			b.store.Charge(1 << 30)
		}
		b.sleep(time.Second)
		if _, until := b.s.Outage(); (until == 0) != spent || b.up.Over() {
			t.Errorf("time spent %v: outage until %d, over %v", spent, until, b.up.Over())
		}
	}
}
