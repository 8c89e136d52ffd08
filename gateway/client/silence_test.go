package client

import (
	"testing"
	"time"
)

// A line is the silence rules, with a clock that the test moves.
type line struct {
	*testing.T
	silence
	start, now time.Time
	trying     bool
}

func newLine(t *testing.T, answer, heartbeat time.Duration) *line {
	start := time.Unix(1e9, 0)
	l := &line{T: t, start: start, now: start}
	l.attach(start, answer, heartbeat)
	return l
}

// at sets the clock to d after the start.
func (l *line) at(d time.Duration) time.Time {
	l.now = l.start.Add(d)
	return l.now
}

// want fails unless the next remedy is due d after the start.
func (l *line) want(d time.Duration, what remedy) {
	l.Helper()
	at, got := l.next(l.trying, false)
	if got != what || what != wait && at.Sub(l.start) != d {
		l.Errorf("next is %v at %v, want %v at %v", got, at.Sub(l.start), what, d)
	}
}

// hear receives a small message.
func (l *line) hear(d time.Duration, data bool) { l.arrived(l.at(d), l.now, data) }

// measured sets the smoothed round trip.
func (l *line) measured(d time.Duration) *line {
	l.roundTrip = d
	return l
}

// pace receives n data messages at an interval, and returns when the last one arrived.
func (l *line) pace(from, every time.Duration, n int) time.Duration {
	for range n {
		from += every
		l.hear(from, true)
	}
	return from
}

const (
	ms  = time.Millisecond
	sec = time.Second
)

func TestUnansweredDataIsPingedAndThenDead(t *testing.T) {
	l := newLine(t, 5*sec, 15*sec).measured(50 * ms)
	l.hear(sec, false)
	l.data(l.at(3 * sec))
	l.want(5500*ms, sendPing)
	l.ping(l.at(5500 * ms))
	l.want(8*sec, giveUp) // the next ping would be due at the same time
}

func TestAnswerClockStartsAtTheLastByte(t *testing.T) {
	l := newLine(t, 5*sec, 15*sec).measured(50 * ms)
	l.data(l.at(sec))
	l.bytes(l.at(3 * sec)) // part of a message, or a partial ack
	l.settle(true)
	l.want(5500*ms, sendPing)
	l.ping(l.at(5500 * ms))
	l.bytes(l.at(7 * sec))
	l.want(9500*ms, sendPing) // every ping since has been answered
}

func TestNoProbeWithoutUnansweredData(t *testing.T) {
	l := newLine(t, 5*sec, 0)
	l.want(0, wait)
	l.data(l.at(sec))
	l.settle(false)
	l.want(0, wait)
	arg := l.ping(l.at(2 * sec))
	l.settle(false) // the ping is still unanswered
	l.want(4500*ms, sendPing)
	l.pong(arg, l.at(3*sec))
	l.settle(false)
	l.want(0, wait)
}

func TestConnectionIsNeverDeadWithoutAPing(t *testing.T) {
	l := newLine(t, 5*sec, 15*sec)
	l.data(l.at(0))
	l.want(2500*ms, sendPing)
	l.at(14 * sec)
	l.want(2500*ms, sendPing)
}

func TestDeathWaitsForFourRoundTripsAfterTheFirstPing(t *testing.T) {
	l := newLine(t, 3*sec, 60*sec).measured(2 * sec)
	l.data(l.at(0))
	l.ping(l.at(1500 * ms))
	for _, d := range []time.Duration{3 * sec, 4500 * ms, 6 * sec, 7500 * ms, 9 * sec} {
		l.want(d, sendPing)
		l.ping(l.at(d))
	}
	l.want(9500*ms, giveUp)
}

func TestDeathWaitsForFiveSecondsBeforeARoundTripIsKnown(t *testing.T) {
	l := newLine(t, sec, 60*sec)
	l.data(l.at(0))
	for d := 500 * ms; d < 5*sec; d += 500 * ms {
		l.want(d, sendPing)
		l.ping(l.at(d))
	}
	l.want(5*sec, giveUp)
}

func TestIdleLineIsNoticedWithinHeartbeatAndAnswer(t *testing.T) {
	l := newLine(t, 5*sec, 15*sec)
	l.hear(sec, true)
	l.want(18500*ms, sendPing)
	l.ping(l.at(18500 * ms))
	l.want(21*sec, giveUp)
	if got := l.why(l.at(21 * sec)).Error(); got != "no answer for 5s" {
		t.Errorf("%q", got)
	}
}

func TestWithoutAnAnswerTimeOnlyTheHeartbeatCounts(t *testing.T) {
	l := newLine(t, 0, 15*sec)
	l.data(l.at(0))
	l.want(30*sec, giveUp)
	if got := l.why(l.at(30 * sec)).Error(); got != "nothing heard for 30s" {
		t.Errorf("%q", got)
	}
	l.heartbeat = 0
	l.want(0, wait)
}

func TestOnlyTheHeartbeatCountsWhileClosed(t *testing.T) {
	l := newLine(t, 5*sec, 15*sec)
	end := l.pace(0, 100*ms, 10)
	l.data(l.at(end))
	if at, what := l.next(false, true); what != giveUp || at.Sub(l.start) != end+30*sec {
		t.Errorf("%v at %v", what, at.Sub(l.start))
	}
}

func TestRoundTripIsSmoothed(t *testing.T) {
	l := newLine(t, 5*sec, 15*sec)
	for _, c := range []struct{ took, want time.Duration }{{80 * ms, 80 * ms}, {160 * ms, 90 * ms}, {10 * ms, 80 * ms}} {
		arg := l.ping(l.now)
		l.pong("some other", l.now.Add(sec))
		l.pong(arg, l.now.Add(c.took))
		l.pong(arg, l.now.Add(time.Hour)) // answered already
		if l.roundTrip != c.want {
			t.Errorf("%v after a sample of %v, want %v", l.roundTrip, c.took, c.want)
		}
	}
	l.attach(l.at(sec), 5*sec, 15*sec)
	if l.roundTrip != 80*ms {
		t.Error("it is forgotten at a resume")
	}
}

func TestTimesDoubleForConnectionsThatDiedUntilNewDataComes(t *testing.T) {
	l := newLine(t, 5*sec, time.Hour).measured(50 * ms)
	for _, want := range []time.Duration{5 * sec, 10 * sec, 20 * sec, 40 * sec, 40 * sec} {
		l.attach(l.at(0), 5*sec, time.Hour)
		l.data(l.now)
		l.want(want/2, sendPing)
		l.ping(l.at(want / 2))
		l.want(want, giveUp)
		l.died()
	}
	l.attach(l.at(0), 5*sec, time.Hour)
	l.hear(0, true) // may be a repeat
	l.data(l.now)
	l.want(20*sec, sendPing)
	l.works()
	l.want(2500*ms, sendPing)
}

func TestAnswerEndsTheDoubling(t *testing.T) {
	for name, answer := range map[string]func(*line, string){
		"ack":  func(l *line, _ string) { l.asked = ""; l.settle(false) },
		"pong": func(l *line, arg string) { l.pong(arg, l.now) },
	} {
		l := newLine(t, 5*sec, time.Hour).measured(50 * ms)
		l.died()
		l.data(l.now)
		arg := l.ping(l.at(5 * sec))
		answer(l, arg)
		if l.attach(l.at(6*sec), 5*sec, time.Hour); l.deaths != 0 {
			t.Errorf("%s: times are still doubled", name)
		}
	}
	l := newLine(t, 5*sec, time.Hour)
	l.died()
	if l.settle(false); l.deaths != 1 {
		t.Error("an ack of nothing ends the doubling: each hello is followed by one")
	}
}

func TestClocksRestartAfterAPause(t *testing.T) {
	l := newLine(t, 5*sec, 15*sec).measured(50 * ms)
	end := l.pace(0, 100*ms, 10)
	l.data(l.at(end))
	arg := l.ping(l.at(end + 2*sec))
	l.restart(l.at(20 * sec))
	l.want(22*sec, sendPing) // still lively
	l.pong(arg, l.at(20*sec))
	if l.roundTrip != 50*ms {
		t.Errorf("the pause counts as a round trip: %v", l.roundTrip)
	}
	l.ping(l.now)
	l.hear(20050*ms, false)
	if longest, _ := l.usual.longest(l.message); longest > sec {
		t.Errorf("the pause is counted as a usual gap: %v", longest)
	}
}

// ---- suspicion

func TestLivelyLineIsSuspectedAfterSeveralUsualGaps(t *testing.T) {
	for _, c := range []struct{ every, ping time.Duration }{
		{100 * ms, 2 * sec}, {400 * ms, 2 * sec}, {700 * ms, 2800 * ms}, {2 * sec, 8 * sec},
	} {
		l := newLine(t, 0, 60*sec)
		end := l.pace(0, c.every, 10)
		l.want(end+c.ping, sendPing)
		l.ping(l.at(end + c.ping))
		l.want(end+c.ping+2*sec, suspect)
		l.measured(700 * ms)
		l.want(end+c.ping+2800*ms, suspect)
		l.trying = true
		l.want(end+60*sec*2, giveUp)
	}
}

func TestHandshakeStandsInForAnUnknownRoundTrip(t *testing.T) {
	for _, c := range []struct {
		handshakes []time.Duration
		trip, want time.Duration
	}{
		{nil, 0, 2 * sec},
		{[]time.Duration{100 * ms}, 0, 2 * sec},
		{[]time.Duration{3 * sec}, 0, 3 * sec},
		{[]time.Duration{9 * sec}, 0, 4 * sec}, // the game server took its time, perhaps
		{[]time.Duration{3 * sec, 200 * ms, 4 * sec}, 0, 2 * sec},
		{[]time.Duration{3 * sec}, 50 * ms, 2 * sec},
	} {
		l := newLine(t, 0, 60*sec).measured(c.trip)
		for _, took := range c.handshakes {
			l.opened(took)
		}
		end := l.pace(0, 100*ms, 10)
		l.ping(l.at(end + 2*sec))
		l.want(end+2*sec+c.want, suspect)
	}
}

func TestLineIsLivelyOnlyOnceAFewGapsAreKnown(t *testing.T) {
	l := newLine(t, 0, 15*sec)
	l.hear(100*ms, true)
	l.hear(200*ms, true)
	l.hear(300*ms, true)
	l.want(30300*ms, giveUp)
	l.hear(400*ms, true)
	l.want(2400*ms, sendPing)
}

func TestLineWithoutDataIsNeverSuspected(t *testing.T) {
	l := newLine(t, 0, 15*sec)
	for i := range 20 {
		l.hear(time.Duration(i)*sec, false)
	}
	l.want(49*sec, giveUp)
}

func TestPingOfTheAnswerRuleServesSuspicionToo(t *testing.T) {
	l := newLine(t, 2*sec, 60*sec).measured(3 * sec)
	end := l.pace(0, 100*ms, 10)
	l.data(l.at(end))
	l.want(end+sec, sendPing)
	l.ping(l.at(end + sec))
	for _, d := range []time.Duration{2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12} {
		l.want(end+d*sec, sendPing)
		l.ping(l.at(end + d*sec))
	}
	l.want(end+13*sec, giveUp) // suspicion is due at the same time, but giving up takes precedence
}

// In a lobby, for example, only heartbeats may arrive for minutes.
func TestGatewayHeartbeatsDoNotCountAsGaps(t *testing.T) {
	l := newLine(t, 0, 15*sec)
	end := l.pace(0, 100*ms, 1)
	for range 4 {
		end += 15 * sec
		l.hear(end, false)
	}
	end = l.pace(end, 100*ms, 5)
	l.want(end+2*sec, sendPing)
}

func TestUsualGapsAreForgottenAfterAWhile(t *testing.T) {
	l := newLine(t, 0, time.Hour)
	end := l.pace(0, 3*sec, 3)
	end = l.pace(end, 100*ms, 200)
	l.want(end+12*sec, sendPing)
	end = l.pace(end, 100*ms, 500)
	l.want(end+2*sec, sendPing)
}

func TestUsualGapsOutliveAConnectionButNotAnOutage(t *testing.T) {
	l := newLine(t, 0, time.Hour)
	end := l.pace(0, sec, 10)
	l.attach(l.at(end+20*sec), 0, time.Hour)
	l.hear(end+20*sec, true)
	l.want(end+24*sec, sendPing) // from gaps of 1 s, not 20 s
}

func TestSilenceEndedByAPongIsUsual(t *testing.T) {
	l := newLine(t, 0, time.Hour)
	end := l.pace(0, 100*ms, 10)
	arg := l.ping(l.at(end + 2*sec))
	l.hear(end+2050*ms, false)
	l.pong(arg, l.now)
	l.hear(end+35*sec, false)
	if _, what := l.next(false, false); what != giveUp {
		t.Error("it is suspected though it is just quiet")
	}
	end = l.pace(end+40*sec, 100*ms, 1)
	l.want(end+8200*ms, sendPing)
}

func TestStallThatDataEndsIsNotUsual(t *testing.T) {
	l := newLine(t, 0, time.Hour).measured(50 * ms)
	end := l.pace(0, 100*ms, 10)
	for range 3 {
		l.want(end+2*sec, sendPing)
		l.ping(l.at(end + 2*sec))
		end = l.pace(end+3*sec, 100*ms, 5)
	}
}

// Data that arrives before a pong could have arrived does not show a stall.
func TestPaceJustSlowerThanThePingIsUsual(t *testing.T) {
	l := newLine(t, 0, time.Hour).measured(400 * ms)
	end := l.pace(0, 100*ms, 10)
	l.ping(l.at(end + 2*sec))
	l.hear(end+2100*ms, true)
	l.want(end+2100*ms+8400*ms, sendPing)
}

func TestQuietLineIsNotPingedAgainForHalfAMinute(t *testing.T) {
	l := newLine(t, 0, time.Hour)
	end := l.pace(0, 100*ms, 10)
	l.ping(l.at(end + 2*sec))
	l.hear(end+2*sec, false)
	quiet := end + 2*sec
	end = l.pace(quiet, 100*ms, 10)
	if _, what := l.next(false, false); what != giveUp {
		t.Errorf("next is %v within %v", what, end-quiet)
	}
	end = l.pace(end, sec, 25) // 8 s and 26 s are 34 s
	l.want(end+8*sec, sendPing)
}

// Whether such a line was quiet or stalled is unknown.
func TestSilenceWithoutAPingIsNotLearned(t *testing.T) {
	l := newLine(t, 0, time.Hour)
	end := l.pace(0, 100*ms, 10)
	l.ping(l.at(end + 2*sec))
	l.hear(end+2*sec, false) // no ping for 30 s from here
	end = l.pace(end+2*sec, 100*ms, 10)
	l.hear(end+12*sec, false)
	end = l.pace(end+12*sec, sec, 18)
	l.want(end+8*sec, sendPing) // 4 times 2 s, not 12 s
}

func TestAttemptsAreFurtherApartAfterEachFalseAlarm(t *testing.T) {
	l := newLine(t, 0, time.Hour)
	end := l.pace(0, 100*ms, 10)
	l.ping(l.at(end + 2*sec))
	for _, pause := range []time.Duration{4, 8, 16, 32} {
		l.attempt(l.at(end + 4*sec))
		l.want(end+(4+pause)*sec, suspect)
		l.falseAlarm()
	}
	l.died()
	l.deaths = 0
	l.want(end+8*sec, suspect)
	l.putOff(l.at(end + 50*sec))
	l.want(end+50*sec, suspect)
}

func TestResumeTimeout(t *testing.T) {
	for _, c := range []struct {
		roundTrip, slowest time.Duration
		slow               int
		want               time.Duration
	}{
		{0, 0, 0, 4 * sec},
		{50 * ms, 9 * sec, 0, 4 * sec}, // the first connect also had to reach the game server
		{1500 * ms, 0, 0, 6 * sec},
		{0, 6 * sec, 0, 9 * sec},
		{50 * ms, 0, 1, 8 * sec},
		{50 * ms, 0, 9, 15 * sec},
		{time.Minute, 0, 0, 15 * sec},
	} {
		if got := resumeTimeout(c.roundTrip, c.slowest, c.slow); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestLatenessCountsByEitherClock(t *testing.T) {
	now := time.Now()
	if got := lateness(now, now.Add(3*sec)); got != 3*sec {
		t.Errorf("%v", got)
	}
	if got := lateness(now.Round(0), now.Add(3*sec)); got != 3*sec { // the machine was suspended
		t.Errorf("%v", got)
	}
	if got := lateness(now.Add(sec), now); got != -sec {
		t.Errorf("%v", got)
	}
}

// On a line with a long round trip newer pings are under way when a pong comes.
func TestPongOfOlderPingMeasuresRoundTrip(t *testing.T) {
	l := newLine(t, 5*sec, 15*sec)
	var args []string
	for i := range 3 {
		args = append(args, l.ping(l.at(time.Duration(i)*3*sec)))
	}
	l.pong(args[0], l.at(8*sec))
	if l.roundTrip != 8*sec || l.asked != args[2] {
		t.Errorf("round trip %v, %q is unanswered; want 8s, %q", l.roundTrip, l.asked, args[2])
	}
	l.pong(args[0], l.at(20*sec)) // once more, or one of an older connection
	if l.roundTrip != 8*sec {
		t.Errorf("round trip %v after a pong that came twice", l.roundTrip)
	}
	l.pong(args[2], l.at(14*sec))
	if l.asked != "" {
		t.Errorf("%q is unanswered", l.asked)
	}
}

// A pong that waited behind a large message measures the queue.
func TestPongOnCloggedLineMeasuresNothing(t *testing.T) {
	l := newLine(t, 5*sec, 15*sec).measured(50 * ms)
	older := l.ping(l.at(sec))
	l.clogged()
	l.pong(older, l.at(40*sec))
	if l.roundTrip != 50*ms || l.asked != "" {
		t.Errorf("round trip %v, %q is unanswered", l.roundTrip, l.asked)
	}
	l.pong(l.ping(l.at(41*sec)), l.at(41*sec+100*ms))
	if l.roundTrip == 50*ms {
		t.Error("the next ping measures nothing either")
	}
}

// A handshake takes a round trip or more. Before one is measured it says how long an answer may take.
func TestSlowHandshakeLengthensFirstLimit(t *testing.T) {
	l := newLine(t, 5*sec, 30*sec)
	l.opened(9 * sec)
	l.opened(8 * sec)
	l.data(l.at(0))
	l.ping(l.at(15 * sec))
	l.want(16*sec, giveUp)
	l.measured(50*ms).want(15*sec+200*ms, giveUp)
}
