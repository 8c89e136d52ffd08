package session_test

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/session"
)

// The answer timeout: when a silent client is dead, protocol section 5.4.

var answers = answer(5 * time.Second)

// A line is a client behind a network with a round trip. It acks each message and answers
// each ping at once while it is up. Its socket takes all output unless taken says
// otherwise.
type line struct {
	*table
	trip    time.Duration
	down    session.Time                       // from here on nothing arrives; zero: never
	tick    time.Duration                      // between messages of the game; zero: none
	mute    bool                               // it acks nothing
	noPongs bool                               // it answers no ping
	taken   func(wrote, pingEnd uint64) uint64 // bytes that its TCP has acknowledged; nil: the driver cannot tell
	unread  bool                               // received bytes wait to be read
	rtt     time.Duration                      // as TCP knows it; zero: it does not
	wrote   uint64
	pingEnd uint64
	pings   []session.Time
	events  []session.Event

	answers []answered
	nextMsg session.Time
	seen    uint64 // data messages; acksNothing: of a plain client
}

const acksNothing = math.MaxUint64

type answered struct {
	at    session.Time
	bytes []byte
}

const brisk = 50 * time.Millisecond // a short round trip

func newLine(t *testing.T, trip time.Duration, options ...option) *line {
	c := conf(options...)
	l := &line{table: connecting(t, c, ""), trip: trip}
	l.first()
	if !c.Resumable {
		l.seen = acksNothing
	}
	return l
}

// busy returns a line with a short round trip whose game sends a message in each.
func busy(t *testing.T, options ...option) *line {
	l := newLine(t, brisk, options...)
	l.tick = brisk
	return l
}

// run lets time pass until the client is detached or d is over, and returns how long that
// took.
func (l *line) run(d time.Duration) time.Duration {
	l.t.Helper()
	began, end := l.now, l.now.Add(d)
	l.nextMsg = l.now.Add(l.tick)
	for turns := 0; ; turns++ {
		if turns > 1_000_000 {
			l.t.Fatal("it asks for Tick without end")
		}
		l.events = append(l.events, l.s.Events()...)
		if l.s.State() != session.Attached {
			return l.now.Sub(began)
		}
		l.write()
		next := end
		for _, at := range []session.Time{l.s.Next(), l.upTo(), l.message()} {
			if at > 0 {
				next = min(next, at)
			}
		}
		if next >= end {
			l.now = end
			return d
		}
		l.now = max(l.now, next)
		l.deliver()
		if l.tick > 0 && l.now >= l.nextMsg {
			l.game(text("tick"))
			l.nextMsg = l.now.Add(l.tick)
		}
		if at := l.s.Next(); at > 0 && at <= l.now {
			if l.s.WatchesSocket(l.att) {
				l.look()
			}
			l.s.Tick(l.now)
		}
	}
}

func (l *line) upTo() session.Time {
	if len(l.answers) == 0 {
		return 0
	}
	return l.answers[0].at
}

func (l *line) message() session.Time {
	if l.tick == 0 {
		return 0
	}
	return l.nextMsg
}

func (l *line) look() {
	if l.taken == nil && !l.unread && l.rtt == 0 {
		return
	}
	st := session.SocketState{Unread: l.unread, RTT: l.rtt}
	if l.taken != nil {
		st.Acked = l.taken(l.wrote, l.pingEnd)
		st.Queued = int(l.wrote - st.Acked)
	}
	l.s.Socket(l.now, l.att, st)
}

// write takes the client's output, and has the client answer half a round trip later.
func (l *line) write() {
	for {
		out := bytes.Join(l.s.Out(l.now, l.att, nil), nil)
		if len(out) == 0 {
			return
		}
		l.wrote += uint64(len(out))
		var back []byte
		list, _ := frames(l.t, out)
		for _, f := range list {
			back = append(back, l.reply(f)...)
		}
		if l.s.Wrote(l.now, l.att, len(out), false) {
			l.pingEnd = l.wrote
			l.look()
		}
		if len(back) > 0 && (l.down == 0 || l.now < l.down) {
			l.answers = append(l.answers, answered{l.now.Add(l.trip), back})
		}
	}
}

func (l *line) reply(f string) []byte {
	verb, arg, _ := strings.Cut(f, " ")
	switch {
	case strings.EqualFold(strings.TrimPrefix(verb, "^"), "ping"):
		l.pings = append(l.pings, l.now)
		switch {
		case l.noPongs:
			return nil
		case verb == "^ping":
			return masked(frame.Text, "\x10pong "+arg)
		}
		return masked(frame.Pong, arg)
	case verb == "^hello":
		return masked(frame.Text, "\x10ack 0")
	case verb != "tick", l.mute, l.seen == acksNothing:
		return nil
	}
	l.seen++
	return masked(frame.Text, fmt.Sprintf("\x10ack %d", l.seen))
}

func (l *line) deliver() {
	for len(l.answers) > 0 && l.answers[0].at <= l.now {
		b := l.answers[0].bytes
		l.answers = l.answers[1:]
		if l.down == 0 || l.now < l.down {
			l.read(b)
		}
	}
}

// large is a message of 10,000 bytes from the game server.
func (l *line) large() { l.game(text(strings.Repeat("x", 10_000))) }

// sends has the client send data, which the game server takes.
func (l *line) sends() { l.play(`client> input; game reads`) }

// die takes the network down now.
func (l *line) die() { l.down = l.now }

// again attaches the client once more. What was on its way is lost.
func (l *line) again() {
	l.answers = nil
	l.attach(session.Resume{Gen: l.s.Generation(), Received: l.seen})
}

// wantDead checks when the client is detached, from now on.
func (l *line) wantDead(low, high time.Duration) {
	l.t.Helper()
	if got := l.run(2 * time.Minute); got < low || got > high {
		l.t.Errorf("detached after %v, want %v to %v", got, low, high)
	}
}

const second = time.Second

func TestClientThatOwesAnswerIsDetachedWithinAnswerTimeout(t *testing.T) {
	for _, before := range []time.Duration{10 * second, 20 * second} { // the first ping is sent after 15 s
		l := busy(t, answers)
		l.run(before)
		l.die()
		l.wantDead(4800*time.Millisecond, 5*second)
	}
}

func TestIdleClientIsDetachedWithinHeartbeatAndAnswerTimeout(t *testing.T) {
	for _, o := range [][]option{{answers}, {answers, plain}} {
		l := newLine(t, brisk, o...)
		l.run(time.Minute)
		l.die()
		l.wantDead(5*second, 20*second)
	}
}

func TestClientWithLongRoundTripStaysAttached(t *testing.T) {
	for _, trip := range []time.Duration{1500 * time.Millisecond, 2 * second, 4 * second} {
		l := newLine(t, trip, answers)
		for _, l.tick = range []time.Duration{200 * time.Millisecond, 0} {
			if got := l.run(5 * time.Minute); l.s.State() != session.Attached {
				t.Errorf("round trip %v, a message each %v: detached after %v", trip, l.tick, got)
			}
		}
	}
}

func TestDeadConnectionHasFourRoundTripsAfterPing(t *testing.T) {
	l := newLine(t, 2*second, answers)
	l.tick = brisk
	l.run(10 * second)
	l.die()
	l.wantDead(10*second, 11*second) // 2.5 s and four times 2 s
}

func TestAnswerTimeoutIsFiveSecondsBeforeFirstRoundTrip(t *testing.T) {
	for _, o := range [][]option{nil, {plain}} {
		l := newLine(t, 2*second, append(o, answer(200*time.Millisecond), heartbeat(30*second))...)
		l.die()
		l.wantDead(20*second, 21*second) // the first ping goes after 15 s
	}
}

// A plain client shows its round trip by a Pong alone. Before it has, it is pinged early enough to have five
// seconds, or all the time that there is, and is dead no later than any other.
func TestPlainClientThatNeverAnswersIsDeadAfterHeartbeatAndAnswerTimeout(t *testing.T) {
	for _, tt := range []struct{ heartbeat, answer, want time.Duration }{
		{3 * second, second, 4 * second},
		{300 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond},
		{10 * second, second, 11 * second},
		{15 * second, 5 * second, 20 * second},
		{3 * second, 5 * second, 6 * second}, // twice the heartbeat
	} {
		l := newLine(t, 2*second, plain, heartbeat(tt.heartbeat), answer(tt.answer))
		l.die()
		l.wantDead(tt.want, tt.want)
	}
}

func TestSlowPlainClientStaysAttachedWithShortAnswerTimeout(t *testing.T) {
	l := newLine(t, 3*second, plain, heartbeat(3*second), answer(second))
	l.run(5 * time.Minute)
	l.play(`attached`)
}

// A slow link: the ping waits in the socket behind data that the client takes slowly.
func TestBytesAckedBeforePingAreSignOfLife(t *testing.T) {
	l := newLine(t, brisk, answers)
	l.run(second)
	l.die()
	l.taken = func(wrote, pingEnd uint64) uint64 { // one byte a second, far before the ping
		return min(uint64(l.now.Sub(l.down)/second), pingEnd-1)
	}
	l.tick = time.Minute
	l.large()
	l.wantDead(100*second, 2*time.Minute)
	l.play(`attached`)
}

// A proxy acknowledges everything while the network behind it is dead. Nor are bytes a sign of life that were taken
// before the ping, and after the check before it.
func TestBytesAckedAfterPingAreNoSignOfLife(t *testing.T) {
	for _, before := range []time.Duration{10 * second, 20 * second} { // the first ping is sent after 15 s
		l := busy(t, answers)
		l.taken = func(wrote, _ uint64) uint64 { return wrote - min(wrote, 100) } // some is always in flight
		l.run(before)
		l.die()
		l.wantDead(4800*time.Millisecond, 5*second)
	}
}

// A write that blocks for long is blocked by a full socket, even if the client is heard at
// the moment of the check: bytes taken later are a sign of life.
func TestFullSocketIsNoticedWhileClientSends(t *testing.T) {
	b := attached(t, answers)
	b.play(`game> one`)
	n := len(bytes.Join(b.s.Out(b.now, b.att, nil), nil))
	b.s.WriteBlocks(b.now, b.att)
	looks := 0
	for end := b.now.Add(2 * second); b.now < end; b.now = b.s.Next() {
		b.s.Socket(b.now, b.att, session.SocketState{Queued: 100, Unread: true})
		b.s.Tick(b.now)
		looks++
	}
	spoke := b.s.Info().Heard
	b.play(`passes 100ms`)
	b.s.Wrote(b.now, b.att, n, false)
	if heard := b.s.Info().Heard; heard != b.now || heard == spoke || looks < 2 {
		t.Errorf("%d looks, the last at %d; heard at %d, want %d", looks, spoke, heard, b.now)
	}
}

// Messages dropped before a resume were not sent, so no answer to them is owed: the clock
// starts with the first message that is written whole.
func TestLostMessagesNeedNoAnswer(t *testing.T) {
	b := attached(t, answers, buffer(1, session.DropOldest))
	b.play(`drop; game> lost, kept; resume 0`)
	n := len(bytes.Join(b.s.Out(b.now, b.att, nil), nil))
	b.s.Wrote(b.now, b.att, n-1, false)
	b.play(`2s; client reads`)
	if got, want := b.s.Next(), b.now.Add(5*second/2); got != want {
		t.Errorf("Next is %d, want the ping at %d", got, want)
	}
}

// The process or the machine stood still: what the client sent has not been read yet.
func TestGatewayPauseIsNoClientSilence(t *testing.T) {
	l := busy(t, answers)
	l.run(10 * second)
	l.play(`passes 1m; tick; attached`)
	l.run(time.Minute)
	l.play(`attached; passes 1m`)
	l.die()
	l.play(`tick`)
	l.wantDead(4900*time.Millisecond, 5*second)
}

// The same for every other clock that runs on the silence of a side: it restarts after the
// pause, and runs for its full time.
func TestGatewayPauseRestartsEveryClock(t *testing.T) {
	const lively = `client> ^ping; client reads`
	ended := func(b *table) bool { return b.s.State() == session.Ended }
	detached := func(b *table) bool { return b.s.State() == session.Detached }
	over := func(b *table) bool { return b.up.Over() }
	half := fmt.Sprintf("client> %q", masked(frame.Text, "hello")[:8])
	for name, c := range map[string]struct {
		options []option
		begin   string
		turn    string        // each second
		clock   time.Duration // how long it runs
		expired func(b *table) bool
	}{
		"of an ack": {nil, `game> one; client reads
			16 times: 1s; client> ^ping; client reads
			client> ^pong 1`, lively, time.Minute, ended},
		"of the answer to a Close":        {nil, `game> one, Close 4000; client reads`, lively, time.Minute, detached},
		"of a message that does not grow": {[]option{heartbeat(time.Minute)}, half, `client reads`, 30 * second, detached},
		"of a silent game server":         {[]option{pinged(10 * second)}, ``, lively, 20 * second, over},
		"of a game server's message that does not grow": {[]option{pinged(10 * second)}, `game> "\x01\x01h"`,
			lively + `; game> Pong`, 30 * second, over},
	} {
		t.Run(name, func(t *testing.T) {
			b := attached(t, c.options...)
			b.play(c.begin + `; passes 10m; tick`)
			for left := c.clock; left > second; left -= second {
				if c.expired(b) {
					t.Fatalf("%v too early", left)
				}
				b.play(`1s; ` + c.turn)
			}
			b.play(`1s`)
			if !c.expired(b) {
				t.Error("not over in time")
			}
		})
	}
}

func TestClientIsPingedDuringSlowUpload(t *testing.T) {
	l := newLine(t, brisk, answers)
	l.run(second)
	l.pings = nil
	whole := masked(frame.Binary, strings.Repeat("x", 1000))
	for i := range 20 {
		l.read(slices.Clone(whole[10*i : 10*i+10]))
		l.run(500 * time.Millisecond)
	}
	if n := len(l.pings); n < 3 || n > 4 {
		t.Errorf("%d pings in 10 s, want one in 2.5 s", n)
	}
}

func TestBusyConnectionIsPingedEveryThirtySeconds(t *testing.T) {
	for name, o := range map[string][]option{"resumable": {answers}, "plain": {answers, plain}} {
		l := newLine(t, brisk, o...)
		l.tick = 200 * time.Millisecond
		for range 1000 { // ten minutes in which the client sends messages, too
			l.run(600 * time.Millisecond)
			l.sends()
		}
		most := 0
		for i, from := range l.pings[1:] {
			n := 0
			for _, at := range l.pings[1+i:] {
				if at.Sub(from) < 30*second {
					n++
				}
			}
			most = max(most, n)
		}
		if len(l.pings) < 20 || most > 1 {
			t.Errorf("%s: %d pings in ten minutes, up to %d in 30 s, want 20 and 1", name, len(l.pings), most)
		}
	}
}

func TestIdleConnectionIsPingedByHeartbeatOnly(t *testing.T) {
	l := newLine(t, brisk, answers)
	l.run(10 * time.Minute)
	if n := len(l.pings); n < 39 || n > 41 {
		t.Errorf("%d pings in ten minutes, want one in 15 s", n)
	}
}

// ---- the round trip

func (l *line) wantTrip(when string, want time.Duration) {
	l.t.Helper()
	if got := l.s.Info().RTT; got != want {
		l.t.Errorf("round trip %v %s, want %v", got, when, want)
	}
}

func TestFirstRoundTripIsMeasuredFromHello(t *testing.T) {
	l := newLine(t, brisk, answers)
	l.wantTrip("before anything was measured", 0)
	l.run(second)
	l.wantTrip("after hello", brisk)
	l.trip = 80 * time.Millisecond
	l.run(20 * second)
	l.wantTrip("after the first ping: a page may have been busy at hello", 80*time.Millisecond)
	l.trip = 160 * time.Millisecond
	l.run(15 * second)
	l.wantTrip("after a slower one", 120*time.Millisecond)
	l.play(`drop`)
	l.wantTrip("while detached", 120*time.Millisecond)
}

func TestRoundTripOfBusyPlainClientIsKnownWithinThirtySeconds(t *testing.T) {
	l := newLine(t, brisk, answers, plain)
	l.tick = 100 * time.Millisecond
	for range 290 {
		l.run(100 * time.Millisecond)
		l.sends()
	}
	l.wantTrip("after 29 s", brisk)
}

// Only the newest unanswered Pings are remembered, but any Pong may still arrive.
func TestPongToForgottenPingCoversItsCount(t *testing.T) {
	l := newLine(t, brisk, answers, cookie)
	l.noPongs = true
	for range 12 { // the client is heard just after each ping
		l.play(`game> a`)
		l.run(2600 * time.Millisecond)
		l.sends()
	}
	if n := len(l.pings); n < 10 {
		t.Fatalf("%d pings, want more than are remembered", n)
	}
	l.play(`client> Pong 2`)
	if got := l.s.Info().Acked; got != 2 {
		t.Errorf("acked %d, want 2", got)
	}
}

// A client gives up inside a large message on a slow link, which would have arrived in the
// end.
func TestDrainingConnectionDoesNotCountAsFutile(t *testing.T) {
	for taken, want := range map[bool]session.State{true: session.Attached, false: session.Ended} {
		l := newLine(t, brisk, answers)
		l.run(second)
		l.large()
		for range 8 {
			l.s.Disconnect(l.now)
			if l.s.State() == session.Ended {
				break
			}
			l.play(`resume 0`)
			l.write()
			l.play(`client> ^ack 0`)
			l.mute, l.noPongs, l.down = true, true, 0
			l.pingEnd = 0
			wrote := l.wrote
			if l.taken = nil; taken {
				l.taken = func(_, _ uint64) uint64 { return wrote - 5000 + uint64(l.now/session.Time(second)) }
			}
			l.run(4900 * time.Millisecond)
		}
		if got := l.s.State(); got != want {
			t.Errorf("each connection takes bytes: %v; the session is %v, want %v", taken, got, want)
		}
	}
}

// A connection that took bytes at first, and none in the seconds before it ended, had
// stopped.
func TestStalledConnectionCountsAsFutile(t *testing.T) {
	for after, state := range map[string]string{"6s": "ended", "4s": "detached"} {
		b := attached(t)
		b.play(`game> one; drop`)
		for range 5 {
			b.play(`detached; resume 0; client reads; client> ^ack 0`)
			for acked := range uint64(2) {
				b.s.Socket(b.now, b.att, session.SocketState{Acked: acked, Queued: 10})
			}
			b.play(`passes %s; drop`, after)
		}
		b.play(state)
	}
}

func TestEventsReportLengthOfEveryOutage(t *testing.T) {
	l := busy(t, answers)
	l.run(10 * second)
	heard := l.now
	l.die()
	l.run(time.Minute)
	detached := l.events[len(l.events)-1]
	if d := l.now.Sub(heard); detached.Kind != session.Disconnected || detached.Silent < d || detached.Silent > d+100*time.Millisecond {
		t.Errorf("%+v, want silent for %v", detached, d)
	}
	l.play(`passes 3s`)
	l.again()
	resumed := l.s.Events()[0]
	if d := l.now.Sub(heard); resumed.Outage < d || resumed.Outage > d+100*time.Millisecond || resumed.Elapsed != 3*second {
		t.Errorf("%+v, want away for %v and detached for 3s", resumed, d)
	}
	l.play(`client> ^ack 0; passes 2s`)
	l.again()
	if ev := l.s.Events(); ev[0].Kind != session.Superseded || ev[0].Outage != 2*second {
		t.Errorf("%+v, want a takeover 2s after the last sign of life", ev[0])
	}
}

func TestReservedSessionIsAwaySinceCreation(t *testing.T) {
	b := connecting(t, conf(answers), "")
	b.play(`reserve; passes 7s; resume 0`)
	if ev := b.s.Events(); ev[len(ev)-1].Outage != 7*second {
		t.Errorf("%+v, want away for 7s", ev)
	}
}

// Before a round trip is known, the limit doubles with each connection that ends by it.
func TestLongRoundTripDetachesOnceAtMost(t *testing.T) {
	for tcp, most := range map[time.Duration]int{0: 1, 8 * second: 0} {
		l := newLine(t, 8*second, answers)
		l.tick, l.rtt = 200*time.Millisecond, tcp
		detached := 0
		for end := l.now.Add(5 * time.Minute); ; detached++ {
			l.run(end.Sub(l.now))
			if l.s.State() == session.Attached {
				break
			}
			l.again()
		}
		if detached > most {
			t.Errorf("detached %d times, want %d at most; TCP's round trip is %v", detached, most, tcp)
		}
	}
}

// A pong that waits in a queue measures no round trip: a dead line below a large message would be
// kept for four times as long.
func TestQueueIsNoRoundTrip(t *testing.T) {
	whole := masked(frame.Text, "a message")
	half, rest := fmt.Sprintf("client> %q", whole[:8]), fmt.Sprintf("client> %q", whole[8:])
	const large = `game> x*10000`
	fills := func(l *line) { // the client's socket takes a byte, and no more
		l.s.Out(l.now, l.att, nil)
		l.s.Wrote(l.now, l.att, 1, true)
	}
	for name, c := range map[string]struct {
		before, after string
		sampled       bool
	}{
		"nothing waits":                  {"", "", true},
		"a large message, unacked":       {large + `; client reads`, "", false},
		"a large message, not sent":      {large, "", false},
		"a large message, acked":         {large + `; client reads; client> ^ack 1`, "", true},
		"a small message, unacked":       {`game> small; client reads`, "", true},
		"the socket is full":             {"", `game> more`, false},
		"a message of the client's":      {half, rest, false},
		"such a message behind the ping": {"", half + "; " + rest, false},
	} {
		l := newLine(t, brisk, answers)
		l.run(20 * second)
		known := l.s.Info().RTT
		l.play(c.before)
		l.s.Ping(l.now)
		l.play(`passes 1ns; ` + c.after)
		if name == "the socket is full" {
			fills(l)
		}
		l.output()
		l.play(`passes 3s; client> ^pong %d`, len(l.pings)+1)
		if got := l.s.Info().RTT; got > known != c.sampled {
			t.Errorf("%s: a round trip of %v, before the pong %v", name, got, known)
		}
	}
}

// ---- full sockets

// Protocol section 5.4: bytes that a full socket accepts count as heard. A driver above TLS or compression cannot see
// whether the socket is full: that its write has not returned shows it.
func TestFullSocketCountsAsHeardWhileItDrains(t *testing.T) {
	for how, report := range map[string]func(b *table){
		"full":   func(b *table) { b.s.Wrote(b.now, b.att, 2000, true) },
		"blocks": func(b *table) { b.s.WriteBlocks(b.now, b.att) },
	} {
		for name, c := range map[string]struct {
			stops     time.Duration // the client takes a byte a second until then
			low, high time.Duration // when it is dead; zero: it is not
		}{
			"always": {time.Hour, 0, 0}, "never": {0, 30 * second, 30 * second},
			"until it stops": {25 * second, 55 * second, 55*second + 15*second/4}, // what it took between two looks is seen at the second one
		} {
			b := attached(t)
			b.game(string(frame.Append(nil, frame.Binary, make([]byte, 3000))))
			b.s.Out(b.now, b.att, nil)
			report(b)
			began := b.now
			for n := 0; b.s.State() == session.Attached && b.now < began.Add(5*time.Minute); n++ {
				if n > 3000 {
					t.Fatal("it asks for Tick without end")
				}
				b.now = b.s.Next()
				if b.s.WatchesSocket(b.att) {
					acked := int(min(b.now.Sub(began), c.stops) / second)
					b.s.Socket(b.now, b.att, session.SocketState{Acked: uint64(acked), Queued: 2000 - acked})
				}
				b.s.Tick(b.now)
			}
			took, dead := b.now.Sub(began), b.s.State() != session.Attached
			if dead != (c.high > 0) || dead && (took < c.low || took > c.high) {
				t.Errorf("%s, %s: %v after %v, want it dead after %v to %v", how, name, b.s.State(), took, c.low, c.high)
			}
		}
	}
}
