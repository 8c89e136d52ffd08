package client

import (
	"fmt"
	"strconv"
	"time"
)

// The times of the rules about silence, protocol section 5.
const (
	unmeasured = 5 * time.Second // the shortest limit while no round trip is known
	fourTrips  = 4               // a ping is unanswered after so many round trips

	rememberedPings = 8 // on a slow line a pong comes after newer pings

	maxDeaths = 3 // what doubles is doubled so often at most
)

// A remedy is a reaction to silence. If two are due at the same time, the larger one is
// taken.
type remedy int

const (
	wait     remedy = iota
	sendPing        // send a ping
	giveUp          // the connection is dead
)

// silence decides what the client does while it hears nothing from the gateway
// (protocol section 5.4, answer_ms). It has no clock, timer or connection: the loop
// reports what happens and when, and asks next what to do.
//
// The clocks belong to the present connection. The round trip that was learned belongs
// to the session and outlives its connections.
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

	roundTrip time.Duration // smoothed as in RFC 6298 section 2; zero: unknown
	handshake time.Duration // the fastest so far; zero: none
	deaths    int           // connections in a row that ended by silence, without proof since that the line works
}

// attach starts the clocks of a connection that got its hello.
func (s *silence) attach(now time.Time, answer, heartbeat time.Duration) {
	s.answer, s.heartbeat = answer, heartbeat
	s.heard = now
	s.owed, s.pinged, s.sent = time.Time{}, time.Time{}, time.Time{}
	s.asked = ""
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
// sent during the pause is still unread. No round trip is learned across it.
func (s *silence) restart(now time.Time) {
	s.heard = now
	s.pinged, s.sent = time.Time{}, time.Time{}
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
	s.sent = now
	s.pings++
	s.times[s.pings%rememberedPings] = now
	s.asked = strconv.Itoa(s.pings)
	return s.asked
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

// died records that the connection ended by silence.
func (s *silence) died() { s.deaths++ }

// works records proof that the line works as well as it ever did: a data message that the
// session had not received before, an answer, or a heartbeat of the gateway's. A player who
// only sends, or a line without data, must not wait ever longer after each outage.
func (s *silence) works() { s.deaths = 0 }

// ---- what to do

// next returns what to do next and when, if nothing happens before; at is zero if
// there is nothing to do. leaving: the connection is being closed, so only the
// heartbeat counts.
func (s *silence) next(leaving bool) (at time.Time, what remedy) {
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

// scaled doubles a time for each connection in a row that ended by silence, since
// the line may have become slower.
func (s *silence) scaled(d time.Duration) time.Duration { return d << min(s.deaths, maxDeaths) }

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
