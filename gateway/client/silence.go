package client

import (
	"fmt"
	"strconv"
	"time"
)

// The times of the rules about silence, protocol section 5.
const (
	unmeasured   = 5 * time.Second  // the shortest limit while no round trip is known
	suspectAfter = 2 * time.Second  // the shortest silence that raises suspicion, and the shortest that confirms it
	usualGaps    = 4                // suspicion begins after so many of the longest usual gap
	fourTrips    = 4                // a ping is unanswered after so many round trips
	minGaps      = 3                // a usual gap is known after so many
	gapWindow    = 30 * time.Second // a gap is remembered for one to two of these
	probePause   = 30 * time.Second // after a ping that proved needless
	attemptPause = 4 * time.Second  // between two attempts beside a connection, twice that after each false alarm

	rememberedPings = 8 // on a slow line a pong comes after newer pings

	maxDeaths, maxFalseAlarms = 3, 6 // what doubles is doubled so often at most
)

// A remedy is a reaction to silence. If two are due at the same time, the larger one is
// taken.
type remedy int

const (
	wait     remedy = iota
	sendPing        // send a ping
	suspect         // start a resume beside the connection
	giveUp          // the connection is dead
)

// silence decides what the client does while it hears nothing from the gateway
// (protocol section 5, answer_ms and suspicion). It has no clock, timer or
// connection: the loop reports what happens and when, and asks next what to do.
//
// Two rules run side by side. The answer rule declares a connection dead if
// something on it goes unanswered. Suspicion is faster, but only starts an attempt
// beside the connection, so that a false alarm loses nothing.
//
// The clocks belong to the present connection. What was learned (round trip, usual
// gaps, false alarms) belongs to the session and outlives its connections.
type silence struct {
	answer    time.Duration // hello.answer_ms; zero: the answer rule is off
	heartbeat time.Duration // hello.heartbeat_ms; zero: none

	heard  time.Time // last byte received, or start of the clocks
	owed   time.Time // when something was sent while nothing was unanswered; zero: nothing is unanswered
	pinged time.Time // first ping since heard; zero: none
	sent   time.Time // newest ping; zero: none
	asked  string    // argument of the newest ping; "" once it is answered
	pings  int       // sent so far, in the session; the arguments are their numbers

	answered int                        // the newest that was answered
	measured int                        // the newest whose round trip is not to be measured
	times    [rememberedPings]time.Time // when they were sent

	// lively: data has arrived on this connection since the line was last found to
	// be merely quiet. Only a lively line has usual gaps and can be suspected.
	lively  bool
	message time.Time // end of the newest message; zero: no gap can be measured from it
	probe   time.Time // first ping since that message; zero: none

	roundTrip   time.Duration // smoothed as in RFC 6298 section 2; zero: unknown
	handshake   time.Duration // the fastest so far; zero: none
	usual       gaps
	noProbe     time.Time // suspicion sends no ping before
	attempted   time.Time // start of the newest attempt beside a connection
	notBefore   time.Time // the gateway allows no attempt beside a connection before
	falseAlarms int       // in a row
	deaths      int       // connections in a row that ended by silence, without proof since that the line works
}

// attach starts the clocks of a connection that got its hello.
func (s *silence) attach(now time.Time, answer, heartbeat time.Duration) {
	s.answer, s.heartbeat = answer, heartbeat
	s.heard, s.message = now, now
	s.owed, s.pinged, s.sent, s.probe = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	s.asked, s.lively = "", false
	s.answered, s.measured = s.pings, s.pings
}

// opened records the time that a connection took to its 101. Only the fastest counts: a
// handshake may also have waited for the game server, or for the network's return.
func (s *silence) opened(took time.Duration) {
	if s.handshake == 0 || took < s.handshake {
		s.handshake = took
	}
}

// restart restarts the clocks after a pause of the client itself. What the gateway
// sent during the pause is still unread. Neither a gap nor a round trip is learned
// across it.
func (s *silence) restart(now time.Time) {
	s.heard = now
	s.pinged, s.sent, s.message, s.probe = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	s.clogged()
}

// clogged records that something has held up the line: the answers to pings so far measure a queue, and
// no round trip.
func (s *silence) clogged() { s.measured = s.pings }

// ---- what happened

// bytes records a sign of life, be it part of a message or a write that the peer
// accepted.
func (s *silence) bytes(at time.Time) {
	if !at.After(s.heard) {
		return
	}
	s.heard = at
	if !at.Before(s.pinged) {
		s.pinged = time.Time{}
	}
}

// arrived records a complete message, whose first byte was received at began, and
// learns from the gap before it.
func (s *silence) arrived(began, at time.Time, data bool) {
	s.bytes(at)
	if s.lively && !s.message.IsZero() {
		s.learn(began.Sub(s.message), at, data)
	}
	s.message, s.probe = at, time.Time{}
	s.lively = s.lively || data
}

// learn decides whether the gap before a message was usual.
//
// A gap that made suspicion send a ping was usual if the ping was needless: the pong
// came first, so the game had nothing to say. If data came first, the line stalled.
// Such a gap is not usual, or the next stall would go unnoticed.
func (s *silence) learn(gap time.Duration, at time.Time, data bool) {
	limit := s.unusual(s.message)
	switch {
	case limit == 0 || gap < limit:
		if s.heartbeat == 0 || gap < s.heartbeat { // from there on the heartbeat sets the pace
			s.usual.add(gap, at)
		}
	case s.probe.IsZero():
	case !data:
		s.lively = false
		s.noProbe = at.Add(probePause)
		s.usual.add(gap, at)
	case at.Sub(s.probe) <= 2*s.roundTrip: // too early for the pong, so no sign of a stall
		s.usual.add(gap, at)
	}
}

// pong records the answer to a ping, and to those before it.
func (s *silence) pong(arg string, at time.Time) {
	n, err := strconv.Atoi(arg)
	if err != nil || n <= s.answered || n > s.pings {
		return
	}
	s.answered = n
	if n == s.pings {
		s.asked, s.pinged = "", time.Time{}
	}
	if n > s.measured && n > s.pings-rememberedPings {
		sample := max(at.Sub(s.times[n%rememberedPings]), time.Microsecond)
		if s.roundTrip == 0 {
			s.roundTrip = sample
		}
		s.roundTrip += (sample - s.roundTrip) / 8
	}
	s.works()
}

// ping records that a ping is sent, and returns its argument. On an idle line the
// gateway's own ping is due after a heartbeat, so the answer clock counts from then.
func (s *silence) ping(now time.Time) (arg string) {
	if s.owed.IsZero() {
		s.owed = now
		if s.heartbeat > 0 {
			s.owed = earlier(now, s.heard.Add(s.heartbeat))
		}
	}
	if s.pinged.IsZero() {
		s.pinged = now
	}
	if s.probe.IsZero() {
		s.probe = now
	}
	s.sent = now
	s.asked = s.prompt()
	s.times[s.pings%rememberedPings] = now
	return s.asked
}

// prompt returns the argument of a ping that waits for nothing itself: silence is measured from others.
func (s *silence) prompt() (arg string) {
	s.pings++
	return strconv.Itoa(s.pings)
}

// data records that data is sent.
func (s *silence) data(now time.Time) {
	if s.owed.IsZero() {
		s.owed = now
	}
}

// settle stops the answer clock if nothing is unanswered any more; unacked says
// whether data sent on this connection is. A partial ack needs no new time in owed:
// it was heard, and the clock starts at the later of owed and heard.
func (s *silence) settle(unacked bool) {
	if !unacked && s.asked == "" {
		if !s.owed.IsZero() {
			s.works()
		}
		s.owed = time.Time{}
	}
}

// died records that the connection ended by silence, or was replaced under suspicion
// without another sign of life.
func (s *silence) died() {
	s.deaths++
	s.falseAlarms = 0
}

// works records proof that the line works as well as it ever did: a data message that the
// session had not received before, an answer, or a heartbeat of the gateway's. A player who
// only sends, or a line without data, must not wait ever longer after each outage.
func (s *silence) works() { s.deaths = 0 }

// attempt records the start of an attempt beside the connection.
func (s *silence) attempt(now time.Time) { s.attempted = now }

// putOff records that the gateway allows no attempt beside the connection before at.
func (s *silence) putOff(at time.Time) { s.notBefore = at }

// falseAlarm records that the suspected connection was heard again.
func (s *silence) falseAlarm() { s.falseAlarms++ }

// ---- what to do

// next returns what to do next and when, if nothing happens before; at is zero if
// there is nothing to do. trying: an attempt is made beside the connection.
// leaving: the connection is being closed, so only the heartbeat counts.
func (s *silence) next(trying, leaving bool) (at time.Time, what remedy) {
	plan := func(t time.Time, r remedy) {
		if at.IsZero() || t.Before(at) || t.Equal(at) && r > what {
			at, what = t, r
		}
	}
	if s.heartbeat > 0 {
		plan(s.heard.Add(2*s.heartbeat), giveUp)
	}
	if leaving {
		return at, what
	}
	if start := s.clock(); s.answer > 0 && !start.IsZero() {
		half := s.scaled(s.answer / 2)
		plan(later(start, s.pingedLast()).Add(half), sendPing)
		if !s.pinged.IsZero() {
			plan(later(start.Add(s.limit()), s.pinged.Add(s.scaled(fourTrips*s.roundTrip))), giveUp)
		}
	}
	limit := s.unusual(s.heard)
	if !s.lively || limit == 0 {
		return at, what
	}
	alert := s.heard.Add(limit)
	switch {
	case s.pinged.IsZero() && !alert.Before(s.noProbe):
		plan(alert, sendPing)
	case !s.pinged.IsZero() && !trying:
		confirmed := s.pinged.Add(s.scaled(s.patience()))
		allowed := s.attempted.Add(attemptPause << min(s.falseAlarms, maxFalseAlarms))
		plan(later(later(alert, confirmed), later(allowed, s.notBefore)), suspect)
	}
	return at, what
}

// why is the reason for giveUp.
func (s *silence) why(now time.Time) error {
	if s.answer > 0 {
		return fmt.Errorf("no answer for %v", rounded(now.Sub(s.clock())))
	}
	return fmt.Errorf("nothing heard for %v", rounded(now.Sub(s.heard)))
}

func rounded(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }

// clock returns the start of the answer clock, zero if it is not running. On an idle line
// it starts when the gateway's ping is due.
func (s *silence) clock() time.Time {
	switch {
	case !s.owed.IsZero():
		return later(s.owed, s.heard)
	case s.heartbeat > 0:
		return s.heard.Add(s.heartbeat)
	}
	return time.Time{}
}

// pingedLast returns the time of the newest ping since heard, zero if there was none.
func (s *silence) pingedLast() time.Time {
	if s.pinged.IsZero() {
		return time.Time{}
	}
	return s.sent
}

// limit returns the minimum time that the answer clock may run. While no ping was answered, a line may need as
// long as two handshakes.
func (s *silence) limit() time.Duration {
	limit := s.answer
	if s.roundTrip == 0 {
		limit = max(limit, unmeasured, 2*s.handshake)
	}
	return s.scaled(limit)
}

// patience returns the time after which an unanswered ping confirms a suspicion. While no ping
// was answered, a handshake, which is two round trips or more, must do as an estimate:
// otherwise the first pause on a line with a round trip of 2 s raises a false alarm.
func (s *silence) patience() time.Duration {
	if s.roundTrip == 0 {
		return max(suspectAfter, min(s.handshake, attemptPause))
	}
	return max(suspectAfter, fourTrips*s.roundTrip)
}

// scaled doubles a time for each connection in a row that ended by silence, since
// the line may have become slower.
func (s *silence) scaled(d time.Duration) time.Duration { return d << min(s.deaths, maxDeaths) }

// unusual is the silence after at that makes suspicion send a ping; zero: too few
// gaps are known.
func (s *silence) unusual(at time.Time) time.Duration {
	longest, n := s.usual.longest(at)
	if n < minGaps {
		return 0
	}
	return s.scaled(max(suspectAfter, usualGaps*longest))
}

// gaps is the longest of the recent gaps, over two windows: the present one and the
// one before.
type gaps struct {
	turn            time.Time // start of the present window
	present, before span
}

type span struct {
	longest time.Duration
	n       int
}

func (g *gaps) add(gap time.Duration, at time.Time) {
	g.roll(at)
	g.present.longest = max(g.present.longest, gap)
	g.present.n++
}

func (g *gaps) longest(at time.Time) (longest time.Duration, n int) {
	g.roll(at)
	return max(g.present.longest, g.before.longest), g.present.n + g.before.n
}

func (g *gaps) roll(at time.Time) {
	switch age := at.Sub(g.turn); {
	case age >= 2*gapWindow:
		g.turn, g.present, g.before = at, span{}, span{}
	case age >= gapWindow:
		g.turn, g.present, g.before = at, span{}, g.present
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
