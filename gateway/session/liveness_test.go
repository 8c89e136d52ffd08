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

func answerConfig() session.Config {
	c := config()
	c.Answer = 5 * time.Second
	return c
}

func plainAnswerConfig() session.Config {
	c := answerConfig()
	c.Resumable, c.Grace, c.GraceBeforeStart = false, 0, 0
	return c
}

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

	answers []answer
	nextMsg session.Time
	seen    uint64 // data messages
}

// plain is what a client that acks nothing has seen.
const plain = math.MaxUint64

type answer struct {
	at    session.Time
	bytes []byte
}

func newLine(t *testing.T, c session.Config, trip time.Duration) *line {
	l := &line{table: connecting(t, c, nil), trip: trip}
	l.att = l.s.AttachFirst(l.now, l.pass())
	if !c.Resumable {
		l.seen = plain
	}
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
		for _, f := range frames(l.t, slices.Clone(out)) {
			back = append(back, l.reply(f)...)
		}
		if l.s.Wrote(l.now, l.att, len(out), false) {
			l.pingEnd = l.wrote
			l.look()
		}
		if len(back) > 0 && (l.down == 0 || l.now < l.down) {
			l.answers = append(l.answers, answer{l.now.Add(l.trip), back})
		}
	}
}

func (l *line) reply(f string) []byte {
	text := func(s string) []byte { return masked(frame.Text, s) }
	switch verb, arg, _ := strings.Cut(strings.TrimPrefix(f, "\x10"), " "); {
	case verb == "ping":
		l.pings = append(l.pings, l.now)
		switch {
		case l.noPongs:
			return nil
		case strings.HasPrefix(f, "\x10"):
			return text("\x10pong " + arg)
		}
		return masked(frame.Pong, arg)
	case verb == "hello":
		return text("\x10ack 0")
	case strings.HasPrefix(f, "\x10"), l.mute, verb != "tick", l.seen == plain:
		return nil
	}
	l.seen++
	return text(fmt.Sprintf("\x10ack %d", l.seen))
}

func (l *line) deliver() {
	for len(l.answers) > 0 && l.answers[0].at <= l.now {
		b := l.answers[0].bytes
		l.answers = l.answers[1:]
		if l.down == 0 || l.now < l.down {
			l.s.Read(l.now, l.att, b)
			l.s.Retain()
		}
	}
}

// large is a message of 10,000 bytes from the game server.
func (l *line) large() {
	for rest := text(strings.Repeat("x", 10_000)); rest != ""; {
		n := min(len(rest), 2000)
		l.game(rest[:n])
		rest = rest[n:]
	}
}

// die takes the network down now.
func (l *line) die() { l.down = l.now }

func wantAbout(t *testing.T, got, low, high time.Duration) {
	t.Helper()
	if got < low || got > high {
		t.Errorf("detached after %v, want %v to %v", got, low, high)
	}
}

func TestClientThatOwesAnswerIsDetachedWithinAnswerTimeout(t *testing.T) {
	l := newLine(t, answerConfig(), 50*time.Millisecond)
	l.tick = 50 * time.Millisecond
	l.run(10 * time.Second)
	l.die()
	wantAbout(t, l.run(time.Minute), 4800*time.Millisecond, 5*time.Second)
}

func TestIdleClientIsDetachedWithinHeartbeatAndAnswerTimeout(t *testing.T) {
	for name, c := range map[string]session.Config{"resumable": answerConfig(), "plain": plainAnswerConfig()} {
		t.Run(name, func(t *testing.T) {
			l := newLine(t, c, 50*time.Millisecond)
			l.run(time.Minute)
			l.die()
			wantAbout(t, l.run(time.Minute), 5*time.Second, 20*time.Second)
		})
	}
}

func TestOnlyHeartbeatDetachesWithoutAnswerTimeout(t *testing.T) {
	c := answerConfig()
	c.Answer = 0
	l := newLine(t, c, 50*time.Millisecond)
	l.tick = 50 * time.Millisecond
	l.run(10 * time.Second)
	l.die()
	wantAbout(t, l.run(time.Hour), 29*time.Second, 30*time.Second)
}

func TestClientWithLongRoundTripStaysAttached(t *testing.T) {
	for _, trip := range []time.Duration{1500 * time.Millisecond, 2 * time.Second, 4 * time.Second} {
		l := newLine(t, answerConfig(), trip)
		l.tick = 200 * time.Millisecond
		if got := l.run(5 * time.Minute); l.s.State() != session.Attached {
			t.Errorf("round trip %v: detached after %v", trip, got)
		}
		l.tick = 0
		if got := l.run(5 * time.Minute); l.s.State() != session.Attached {
			t.Errorf("round trip %v, idle: detached after %v", trip, got)
		}
	}
}

func TestDeadConnectionHasFourRoundTripsAfterPing(t *testing.T) {
	l := newLine(t, answerConfig(), 2*time.Second)
	l.tick = 50 * time.Millisecond
	l.run(10 * time.Second)
	l.die()
	wantAbout(t, l.run(time.Minute), 10*time.Second, 11*time.Second) // 2.5 s and four times 2 s
}

func TestAnswerTimeoutIsFiveSecondsBeforeFirstRoundTrip(t *testing.T) {
	c := answerConfig()
	c.Answer, c.Heartbeat = 200*time.Millisecond, 30*time.Second
	for _, c.Resumable = range []bool{false, true} {
		l := newLine(t, c, 2*time.Second)
		l.die()
		wantAbout(t, l.run(time.Minute), 20*time.Second, 21*time.Second) // the first ping goes after 15 s
	}
}

// A plain client shows its round trip by a Pong alone. Before it has, it is pinged early enough to have five
// seconds, or all the time that there is, and is dead no later than any other.
func TestPlainClientThatNeverAnswersIsDeadAfterHeartbeatAndAnswerTimeout(t *testing.T) {
	for _, tt := range []struct{ heartbeat, answer, want time.Duration }{
		{3 * time.Second, time.Second, 4 * time.Second},
		{300 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond},
		{10 * time.Second, time.Second, 11 * time.Second},
		{15 * time.Second, 5 * time.Second, 20 * time.Second},
		{3 * time.Second, 5 * time.Second, 6 * time.Second}, // twice the heartbeat
	} {
		c := plainAnswerConfig()
		c.Heartbeat, c.Answer = tt.heartbeat, tt.answer
		l := newLine(t, c, 2*time.Second)
		l.die()
		wantAbout(t, l.run(time.Minute), tt.want, tt.want)
	}
}

func TestSlowPlainClientStaysAttachedWithShortAnswerTimeout(t *testing.T) {
	c := plainAnswerConfig()
	c.Heartbeat, c.Answer = 3*time.Second, time.Second
	l := newLine(t, c, 3*time.Second)
	if got := l.run(5 * time.Minute); l.s.State() != session.Attached {
		t.Errorf("dead after %v", got)
	}
}

func TestMissingAckAloneDetachesNoClient(t *testing.T) {
	l := newLine(t, answerConfig(), 50*time.Millisecond)
	l.tick, l.mute = time.Second, true
	l.run(50 * time.Second) // past a minute it is a violation
	l.wantState(session.Attached)
}

func TestAcksCountAsAnswerToPing(t *testing.T) {
	l := newLine(t, answerConfig(), 50*time.Millisecond)
	l.tick, l.noPongs = time.Second, true
	l.run(5 * time.Minute)
	l.wantState(session.Attached)
}

// A slow link: the ping waits in the socket behind data that the client takes slowly.
func TestBytesAckedBeforePingAreSignOfLife(t *testing.T) {
	l := newLine(t, answerConfig(), 50*time.Millisecond)
	l.run(time.Second)
	l.die()
	l.taken = func(wrote, pingEnd uint64) uint64 { // one byte a second, far before the ping
		return min(uint64(l.now.Sub(l.down)/time.Second), pingEnd-1)
	}
	l.tick = time.Minute
	l.large()
	wantAbout(t, l.run(2*time.Minute), 100*time.Second, 2*time.Minute)
	l.wantState(session.Attached)
}

// A proxy acknowledges everything while the network behind it is dead.
func TestBytesAckedAfterPingAreNoSignOfLife(t *testing.T) {
	l := newLine(t, answerConfig(), 50*time.Millisecond)
	l.tick = 50 * time.Millisecond
	l.taken = func(wrote, _ uint64) uint64 { return wrote - min(wrote, 100) } // some is always in flight
	l.run(10 * time.Second)
	l.die()
	wantAbout(t, l.run(time.Minute), 4800*time.Millisecond, 5*time.Second)
}

// The same for a session whose socket was checked before: bytes taken after that check and
// before the ping are no sign of life after the ping.
func TestBytesAckedBeforePingWasSentAreNoSignOfLife(t *testing.T) {
	l := newLine(t, answerConfig(), 50*time.Millisecond)
	l.tick = 50 * time.Millisecond
	l.taken = func(wrote, _ uint64) uint64 { return wrote - min(wrote, 100) }
	l.run(20 * time.Second) // the first ping is sent after 15 s
	l.die()
	wantAbout(t, l.run(time.Minute), 4800*time.Millisecond, 5*time.Second)
}

func TestUnreadBytesAreSignOfLife(t *testing.T) {
	l := newLine(t, answerConfig(), 50*time.Millisecond)
	l.tick = 50 * time.Millisecond
	l.run(10 * time.Second)
	l.die()
	l.unread = true
	l.run(time.Minute)
	l.wantState(session.Attached)
}

// A write that blocks for long is blocked by a full socket, even if the client is heard at
// the moment of the check: bytes taken later are a sign of life.
func TestFullSocketIsNoticedWhileClientSends(t *testing.T) {
	b := newTable(t, answerConfig())
	b.game(text("one"))
	n := len(bytes.Join(b.s.Out(b.now, b.att, nil), nil))
	b.s.WriteBlocks(b.now, b.att)
	looks := 0
	for end := b.now.Add(2 * time.Second); b.now < end; b.now = b.s.Next() {
		b.s.Socket(b.now, b.att, session.SocketState{Queued: 100, Unread: true})
		b.s.Tick(b.now)
		looks++
	}
	spoke := b.s.Info().Heard
	b.now = b.now.Add(100 * time.Millisecond)
	b.s.Wrote(b.now, b.att, n, false)
	if heard := b.s.Info().Heard; heard != b.now || heard == spoke || looks < 2 {
		t.Errorf("%d looks, the last at %d; heard at %d, want %d", looks, spoke, heard, b.now)
	}
}

// Messages dropped before a resume were not sent, so no answer to them is owed: the clock
// starts with the first message that is written whole.
func TestLostMessagesNeedNoAnswer(t *testing.T) {
	c := answerConfig()
	c.BufferMessages, c.Overflow = 1, session.DropOldest
	b := newTable(t, c)
	b.drop()
	b.game(text("lost") + text("kept"))
	b.resume(0)
	write := func(short int) {
		n := len(bytes.Join(b.s.Out(b.now, b.att, nil), nil))
		b.s.Wrote(b.now, b.att, n-short, false)
	}
	write(1)
	b.sleep(2 * time.Second)
	write(0)
	written := b.now
	if got, want := b.s.Next(), written.Add(c.Answer/2); got != want {
		t.Errorf("Next is %d, want the ping at %d", got, want)
	}
}

// The process or the machine stood still: what the client sent has not been read yet.
func TestGatewayPauseIsNoClientSilence(t *testing.T) {
	l := newLine(t, answerConfig(), 50*time.Millisecond)
	l.tick = 50 * time.Millisecond
	l.run(10 * time.Second)
	l.now = l.now.Add(time.Minute)
	l.s.Tick(l.now)
	l.wantState(session.Attached)
	if got := l.run(time.Minute); l.s.State() != session.Attached {
		t.Errorf("detached %v after the pause", got)
	}
	l.now = l.now.Add(time.Minute)
	l.die()
	l.s.Tick(l.now)
	wantAbout(t, l.run(time.Minute), 4900*time.Millisecond, 5*time.Second)
}

// The same for every other clock that runs on the silence of a side: it restarts after the
// pause, and runs for its full time.
func TestGatewayPauseRestartsEveryClock(t *testing.T) {
	lively := func(b *table) { b.says("\x10ping"); b.reads() }
	detached := func(b *table) bool { return b.s.State() == session.Detached }
	for name, c := range map[string]struct {
		begin func(*table)
		turn  func(*table)        // each second
		clock time.Duration       // how long it runs
		over  func(b *table) bool // whether it has expired
	}{
		"of an ack": {
			begin: func(b *table) {
				b.game(text("one"))
				b.reads()
				for range 16 { // then a ping has been sent
					b.sleep(time.Second)
					lively(b)
				}
				b.says("\x10pong 1")
			},
			turn: lively, clock: time.Minute,
			over: func(b *table) bool { return b.s.State() == session.Ended },
		},
		"of the answer to a Close": {
			begin: func(b *table) {
				b.game(text("one") + string(frame.Append(nil, frame.Close, frame.ClosePayload(4000, ""))))
				b.reads()
				b.reads() // and the Close
			},
			turn: lively, clock: time.Minute, over: detached,
		},
		"of a message that does not grow": {
			begin: func(b *table) {
				half := masked(frame.Text, "hello")
				b.s.Read(b.now, b.att, half[:8])
				b.s.Retain()
			},
			turn: (*table).reads, clock: 30 * time.Second, over: detached,
		},
		"of a silent game server": {
			begin: func(*table) {},
			turn:  lively, clock: 20 * time.Second,
			over: func(b *table) bool { return b.up.Over() },
		},
		"of a game server's message that does not grow": {
			begin: func(b *table) { b.game("\x01\x01h") }, // a first fragment
			turn: func(b *table) {
				lively(b)
				b.game("\x8a\x00") // a Pong
			},
			clock: 30 * time.Second,
			over:  func(b *table) bool { return b.up.Over() },
		},
	} {
		t.Run(name, func(t *testing.T) {
			conf := config()
			conf.UpstreamHeartbeat = 10 * time.Second
			if strings.HasPrefix(name, "of a message") { // the others expire in silence
				conf.Heartbeat, conf.UpstreamHeartbeat = time.Minute, 0
			}
			b := newTable(t, conf)
			c.begin(b)
			b.now = b.now.Add(10 * time.Minute)
			b.s.Tick(b.now)
			for left := c.clock; left > time.Second; left -= time.Second {
				if c.over(b) {
					t.Fatalf("%v too early", left)
				}
				b.sleep(time.Second)
				c.turn(b)
			}
			b.sleep(time.Second)
			if !c.over(b) {
				t.Error("not over in time")
			}
		})
	}
}

func TestClientIsPingedDuringSlowUpload(t *testing.T) {
	l := newLine(t, answerConfig(), 50*time.Millisecond)
	l.run(time.Second)
	l.pings = nil
	whole := masked(frame.Binary, strings.Repeat("x", 1000))
	for i := range 20 {
		l.s.Read(l.now, l.att, slices.Clone(whole[10*i:10*i+10]))
		l.s.Retain()
		l.run(500 * time.Millisecond)
	}
	if n := len(l.pings); n < 3 || n > 4 {
		t.Errorf("%d pings in 10 s, want one in 2.5 s", n)
	}
}

// maxIn returns the max number of times within any span of d.
func maxIn(times []session.Time, d time.Duration) (maxN int) {
	for i, from := range times {
		n := 0
		for _, at := range times[i:] {
			if at.Sub(from) < d {
				n++
			}
		}
		maxN = max(maxN, n)
	}
	return maxN
}

func TestBusyConnectionIsPingedEveryThirtySeconds(t *testing.T) {
	for name, c := range map[string]session.Config{"resumable": answerConfig(), "plain": plainAnswerConfig()} {
		t.Run(name, func(t *testing.T) {
			l := newLine(t, c, 50*time.Millisecond)
			l.tick = 50 * time.Millisecond
			for range 3000 { // ten minutes in which the client sends messages, too
				l.run(200 * time.Millisecond)
				l.s.Read(l.now, l.att, masked(frame.Text, "input"))
				l.s.Retain()
				l.s.Wrote(l.now, l.up, len(l.lend(l.up)), false)
			}
			if n := maxIn(l.pings[1:], 30*time.Second); len(l.pings) < 20 || n > 1 {
				t.Errorf("%d pings in ten minutes, up to %d in 30 s, want 20 and 1", len(l.pings), n)
			}
		})
	}
}

func TestIdleConnectionIsPingedByHeartbeatOnly(t *testing.T) {
	l := newLine(t, answerConfig(), 50*time.Millisecond)
	l.run(10 * time.Minute)
	if n := len(l.pings); n < 39 || n > 41 {
		t.Errorf("%d pings in ten minutes, want one in 15 s", n)
	}
}

func TestFirstRoundTripIsMeasuredFromHello(t *testing.T) {
	l := newLine(t, answerConfig(), 50*time.Millisecond)
	if got := l.s.Info().RTT; got != 0 {
		t.Errorf("%v before anything was measured", got)
	}
	l.run(time.Second)
	if got := l.s.Info().RTT; got != 50*time.Millisecond {
		t.Errorf("%v after hello, want 50ms", got)
	}
	l.trip = 80 * time.Millisecond
	l.run(20 * time.Second)
	if got := l.s.Info().RTT; got != 80*time.Millisecond {
		t.Errorf("%v after the first ping, want 80ms: a page may have been busy at hello", got)
	}
	l.trip = 160 * time.Millisecond
	l.run(15 * time.Second)
	if got := l.s.Info().RTT; got != 120*time.Millisecond {
		t.Errorf("%v after a slower one, want 120ms", got)
	}
	l.drop()
	if got := l.s.Info().RTT; got != 120*time.Millisecond {
		t.Errorf("%v while detached, want it kept", got)
	}
}

func TestRoundTripOfBusyPlainClientIsKnownWithinThirtySeconds(t *testing.T) {
	l := newLine(t, plainAnswerConfig(), 50*time.Millisecond)
	l.tick = 100 * time.Millisecond
	for range 290 {
		l.run(100 * time.Millisecond)
		l.s.Read(l.now, l.att, masked(frame.Text, "input"))
		l.s.Retain()
		l.s.Wrote(l.now, l.up, len(l.lend(l.up)), false)
	}
	if got := l.s.Info().RTT; got != 50*time.Millisecond {
		t.Errorf("%v after 29 s, want 50ms", got)
	}
}

func TestUnreadPlainClientIsNotSilent(t *testing.T) {
	l := newLine(t, plainAnswerConfig(), 50*time.Millisecond)
	l.run(time.Second)
	l.s.Read(l.now, l.att, masked(frame.Text, "input"))
	l.s.Retain()
	l.lend(l.up) // the game server takes nothing
	l.die()
	l.run(time.Minute)
	l.wantState(session.Attached)
	l.s.Wrote(l.now, l.up, 1<<20, false)
	wantAbout(t, l.run(time.Minute), 5*time.Second, 20*time.Second)
}

// Frames of the gateway wait in the upstream's queue as well, for a moment each.
func TestPongsToUpstreamDoNotExcuseSilentPlainClient(t *testing.T) {
	l := newLine(t, plainAnswerConfig(), 50*time.Millisecond)
	l.run(time.Second)
	l.die()
	for range 15 {
		l.game(string(frame.Append(nil, frame.Ping, []byte("?"))))
		n := len(l.lend(l.up))
		l.now = l.now.Add(time.Millisecond)
		l.s.Wrote(l.now, l.up, n, false)
		if l.run(2 * time.Second); l.s.State() != session.Attached {
			return
		}
	}
	t.Error("attached after 30 s of silence")
}

// Such a client is read while its messages wait, since its Pong makes the room that the
// upstream waits for.
func TestSlowUpstreamDoesNotExcuseSilentReadClient(t *testing.T) {
	c := answerConfig()
	c.Resumable, c.PlainResume, c.BufferMessages = false, true, 1
	l := newLine(t, c, 50*time.Millisecond)
	l.run(time.Second)
	l.s.Read(l.now, l.att, masked(frame.Text, strings.Repeat("x", 1000)))
	l.s.Retain()
	l.die()
	l.game(text("a"))
	l.game(text("b")) // no room
	if !l.s.WantsRead(l.att) {
		t.Fatal("the client is not read")
	}
	for range 15 {
		l.lend(l.up)
		l.s.Wrote(l.now, l.up, 1, false)
		if l.run(2 * time.Second); l.s.State() != session.Attached {
			return
		}
	}
	t.Error("attached after 30 s of silence")
}

// Pings to a plain client carry a count, which may be the same in several of them.
func TestPongToSeveralPingsMeasuresOldest(t *testing.T) {
	c := answerConfig()
	c.Resumable, c.PlainResume = false, true
	l := newLine(t, c, 4*time.Second)
	l.game(text("a"))
	l.run(6 * time.Second)
	if n, got := len(l.pings), l.s.Info().RTT; n < 2 || got != 4*time.Second {
		t.Errorf("%d pings, round trip %v, want 4s", n, got)
	}
}

// Only the newest unanswered Pings are remembered, but any Pong may still arrive.
func TestPongToForgottenPingCoversItsCount(t *testing.T) {
	c := answerConfig()
	c.Resumable, c.PlainResume = false, true
	l := newLine(t, c, 50*time.Millisecond)
	l.noPongs = true
	for range 12 { // the client is heard just after each ping
		l.game(text("a"))
		l.run(2600 * time.Millisecond)
		l.s.Read(l.now, l.att, masked(frame.Text, "input"))
		l.s.Retain()
		l.s.Wrote(l.now, l.up, len(l.lend(l.up)), false)
	}
	if n := len(l.pings); n < 10 {
		t.Fatalf("%d pings, want more than are remembered", n)
	}
	l.s.Read(l.now, l.att, masked(frame.Pong, "2"))
	if got := l.s.Info().Acked; got != 2 {
		t.Errorf("acked %d, want 2", got)
	}
}

// A client gives up inside a large message on a slow link, which would have arrived in the
// end.
func TestDrainingConnectionDoesNotCountAsFutile(t *testing.T) {
	resumes := func(taken bool) session.State {
		l := newLine(t, answerConfig(), 50*time.Millisecond)
		l.run(time.Second)
		l.large()
		for range 8 {
			l.s.Disconnect(l.now)
			if l.s.State() == session.Ended {
				break
			}
			l.resume(0)
			l.write()
			l.says("\x10ack 0")
			l.mute, l.noPongs, l.down = true, true, 0
			l.pingEnd = 0
			wrote := l.wrote
			if l.taken = nil; taken {
				l.taken = func(_, _ uint64) uint64 { return wrote - 5000 + uint64(l.now/session.Time(time.Second)) }
			}
			l.run(4900 * time.Millisecond)
		}
		return l.s.State()
	}
	if got := resumes(true); got == session.Ended {
		t.Error("it ended, though each connection was still taking bytes")
	}
	if got := resumes(false); got != session.Ended {
		t.Error("it goes on without end, though no connection took anything")
	}
}

// A connection that took bytes at first, and none in the seconds before it ended, had
// stopped.
func TestStalledConnectionCountsAsFutile(t *testing.T) {
	for after, want := range map[time.Duration]session.State{6 * time.Second: session.Ended, 4 * time.Second: session.Detached} {
		b := newTable(t, config())
		b.game(text("one"))
		b.drop()
		for range 5 {
			b.wantState(session.Detached)
			b.resume(0)
			b.reads()
			b.says("")
			for acked := range uint64(2) {
				b.s.Socket(b.now, b.att, session.SocketState{Acked: acked, Queued: 10})
			}
			b.now = b.now.Add(after)
			b.drop()
		}
		if got := b.s.State(); got != want {
			t.Errorf("%v after the last byte: %v, want %v", after, got, want)
		}
	}
}

func TestEventsReportLengthOfEveryOutage(t *testing.T) {
	l := newLine(t, answerConfig(), 50*time.Millisecond)
	l.tick = 50 * time.Millisecond
	l.run(10 * time.Second)
	heard := l.now
	l.die()
	l.run(time.Minute)
	detached := l.events[len(l.events)-1]
	if d := l.now.Sub(heard); detached.Kind != session.Disconnected || detached.Silent < d || detached.Silent > d+100*time.Millisecond {
		t.Errorf("%+v, want silent for %v", detached, d)
	}
	l.now = l.now.Add(3 * time.Second)
	l.resume(l.seen)
	resumed := l.s.Events()[0]
	if d := l.now.Sub(heard); resumed.Outage < d || resumed.Outage > d+100*time.Millisecond || resumed.Elapsed != 3*time.Second {
		t.Errorf("%+v, want away for %v and detached for 3s", resumed, d)
	}
	l.says("")
	l.now = l.now.Add(2 * time.Second)
	l.resume(l.seen)
	if ev := l.s.Events(); ev[0].Kind != session.Superseded || ev[0].Outage != 2*time.Second {
		t.Errorf("%+v, want a takeover 2s after the last sign of life", ev[0])
	}
}

func TestReservedSessionIsAwaySinceCreation(t *testing.T) {
	b := connecting(t, answerConfig(), nil)
	b.s.Reserve(b.now, b.pass())
	b.now = b.now.Add(7 * time.Second)
	b.resume(0)
	if ev := b.s.Events(); ev[len(ev)-1].Outage != 7*time.Second {
		t.Errorf("%+v, want away for 7s", ev)
	}
}

// detaches counts how often a client that resumes at once is detached within d.
func (l *line) detaches(d time.Duration) (n int) {
	for end := l.now.Add(d); ; n++ {
		l.run(end.Sub(l.now))
		if l.s.State() == session.Attached {
			return n
		}
		l.answers = nil
		l.resume(l.seen)
	}
}

// Before a round trip is known, the limit doubles with each connection that ends by it.
func TestLongRoundTripDetachesOnceAtMost(t *testing.T) {
	for tcp, most := range map[time.Duration]int{0: 1, 8 * time.Second: 0} {
		l := newLine(t, answerConfig(), 8*time.Second)
		l.tick, l.rtt = 200*time.Millisecond, tcp
		if n := l.detaches(5 * time.Minute); n > most {
			t.Errorf("detached %d times, want %d at most; TCP's round trip is %v", n, most, tcp)
		}
	}
}

func TestLimitBeforeRoundTripGrowsEightfoldAtMost(t *testing.T) {
	c := answerConfig()
	c.Heartbeat = time.Minute
	l := newLine(t, c, time.Hour)
	l.tick = time.Second
	for _, want := range []time.Duration{5, 10, 20, 40, 40} {
		got := l.run(2 * time.Minute)
		wantAbout(t, got, want*time.Second-time.Second, want*time.Second+time.Second)
		l.answers = nil
		l.resume(l.seen)
	}
}

// The limit that a line needed before its round trip was known is no limit afterwards.
func TestRoundTripEndsDoubling(t *testing.T) {
	l := newLine(t, answerConfig(), time.Hour)
	l.tick = 50 * time.Millisecond
	l.run(time.Minute)
	l.answers, l.trip = nil, 50*time.Millisecond
	l.resume(l.seen)
	l.run(20 * time.Second)
	l.die()
	wantAbout(t, l.run(time.Minute), 4800*time.Millisecond, 5*time.Second)
}

// A pong that waits in a queue measures no round trip: a dead line below a large message would be
// kept for four times as long.
func TestQueueIsNoRoundTrip(t *testing.T) {
	const queue = 3 * time.Second
	for name, c := range map[string]struct {
		before, after func(l *line)
		sampled       bool
	}{
		"nothing waits":                  {func(*line) {}, func(*line) {}, true},
		"a large message, unacked":       {func(l *line) { l.large(); l.reads() }, func(*line) {}, false},
		"a large message, not sent":      {func(l *line) { l.large() }, func(*line) {}, false},
		"a large message, acked":         {func(l *line) { l.large(); l.reads(); l.says("\x10ack 1") }, func(*line) {}, true},
		"a small message, unacked":       {func(l *line) { l.game(text("small")); l.reads() }, func(*line) {}, true},
		"the socket is full":             {func(*line) {}, func(l *line) { l.game(text("more")); l.fills() }, false},
		"a message of the client's":      {func(l *line) { l.half() }, func(l *line) { l.otherHalf() }, false},
		"such a message behind the ping": {func(*line) {}, func(l *line) { l.half(); l.otherHalf() }, false},
	} {
		l := newLine(t, answerConfig(), 50*time.Millisecond)
		l.run(20 * time.Second)
		known := l.s.Info().RTT
		c.before(l)
		l.s.Ping(l.now)
		l.now++
		c.after(l)
		l.reads()
		l.now = l.now.Add(queue)
		l.says("\x10pong " + fmt.Sprint(len(l.pings)+1))
		if got := l.s.Info().RTT; got > known != c.sampled {
			t.Errorf("%s: a round trip of %v, before the pong %v", name, got, known)
		}
	}
}

// fills lets the client's socket take a byte, and no more.
func (l *line) fills() {
	l.s.Out(l.now, l.att, nil)
	l.s.Wrote(l.now, l.att, 1, true)
}

func (l *line) half()      { l.s.Read(l.now, l.att, masked(frame.Text, "a message")[:8]) }
func (l *line) otherHalf() { l.s.Read(l.now, l.att, masked(frame.Text, "a message")[8:]) }

// While a large message comes, the client says again what it has: it lives, and that is all.
func TestRepeatedAckIsSignOfLifeAlone(t *testing.T) {
	l := newLine(t, answerConfig(), 50*time.Millisecond)
	l.run(time.Second)
	l.large()
	l.reads()
	l.mute, l.noPongs = true, true
	before := l.s.Info()
	for range 60 {
		l.run(time.Second)
		l.says("\x10ack 0")
	}
	after := l.s.Info()
	if l.s.State() != session.Attached || after.Acked != 0 || after.Heard != l.now || after.RTT != before.RTT || after.Received != before.Received {
		t.Errorf("%v, acked %d, heard %v ago, round trip %v", l.s.State(), after.Acked, l.now.Sub(after.Heard), after.RTT)
	}
	wantAbout(t, l.run(time.Minute), 4*time.Second, 10*time.Second)
}
