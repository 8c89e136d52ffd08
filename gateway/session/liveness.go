package session

import (
	"math"
	"slices"
	"time"
)

// This file decides when a silent client is dead, by the two rules of protocol section
// 5.4: after twice the heartbeat, or once something that it owes an answer to (a ping, or
// unacked data) has been unanswered for answer_ms.
//
// Any byte from the client is a sign of life. So are bytes that its socket accepts, but
// only while the socket is full, or until TCP has acknowledged the newest ping. Otherwise
// a proxy that acknowledges for a dead client would keep it attached.

const (
	pingEvery = 30 * time.Second // protocol section 5.4: at least so often, to keep measuring the round trip
	firstPing = 15 * time.Second // protocol section 11: the same before any ping was answered
	minAnswer = 5 * time.Second  // protocol section 5.4: min answer timeout before a round trip is known
	maxPings  = 8                // unanswered pings that are remembered
	maxSilent = 3                // so often the answer timeout is doubled before a round trip is known

	// A Tick that is late by pauseAfter proves that the process or the machine stood still:
	// protocol section 11, Liveness. What clients sent meanwhile has not been read
	// yet, so their silence proves nothing.
	pauseAfter = 500 * time.Millisecond
)

// A roundTrip is the smoothed round trip to a client. It grows by half of a difference
// and shrinks by an eighth (protocol section 11; RFC 6298 section 2 is the model): to
// declare a slow client dead costs more than to notice a dead one late.
type roundTrip struct {
	smoothed time.Duration // zero: unknown
	pinged   bool          // measured by a ping, not only from hello to the first ack
	silent   uint8         // connections in a row that ended as silent before it was known, at most maxSilent
}

// sample adds one measurement. The first ping replaces the estimate from hello, during
// which a page may have been busy.
func (r *roundTrip) sample(d time.Duration, byPing bool) {
	d = max(d, 1)
	switch {
	case r.smoothed == 0, byPing && !r.pinged:
		r.smoothed = d
	case d > r.smoothed:
		r.smoothed += (d - r.smoothed + 1) / 2
	default:
		r.smoothed -= (r.smoothed - d) / 8
	}
	r.pinged = r.pinged || byPing
	r.silent = 0
}

// sampled reports whether the answer to a ping measures the round trip. It does not where the line was
// clogged meanwhile: a queue of 40 s would keep a dead connection for minutes.
func (a *Attachment) sampled(p probe) bool { return p.at > a.clogged }

// A SocketState is what the operating system knows about a client's connection.
type SocketState struct {
	RTT    time.Duration // TCP's own round trip; zero: unknown
	Acked  uint64        // bytes acknowledged by the peer's TCP since the connection began
	Queued int           // bytes in the socket that the peer has not acknowledged
	Unread bool          // received bytes wait to be read
}

// A socketWatch is what the session remembers of the last SocketState.
type socketWatch struct {
	looked  Time // when a look was last due, or the reason to look arose
	known   bool // acked is valid
	mark    pingMark
	rtt     uint32 // TCP's own round trip in microseconds; zero: unknown
	acked   uint64
	pingEnd uint64 // value of acked from which on TCP has delivered the newest marked ping
	drained Time   // when the peer was last seen to take bytes, with more to come
}

// A pingMark says whether the stream offset of the newest ping is known.
type pingMark uint8

const (
	marked  pingMark = iota // it is, or there is no ping
	queued                  // the ping is not written yet
	written                 // it is written, and the next SocketState shows its offset
)

// hear records a sign of life.
func (a *Attachment) hear(now Time) { a.heard = now }

// silentSince returns since when the client's silence counts against it.
func (a *Attachment) silentSince() Time { return max(a.heard, a.excused) }

// askedSince reports whether a ping was sent since the client's last sign of life.
func (a *Attachment) askedSince() bool { return a.probed > a.silentSince() }

// notePing records that p was sent.
func (a *Attachment) notePing(now Time, p probe) {
	if len(a.pings) == maxPings { // keep the oldest: an answer is owed since then
		a.pings = append(a.pings[:1], a.pings[2:]...)
	}
	a.pings = append(a.pings, p)
	a.pinged, a.socket.mark = now, queued
	if !a.askedSince() {
		a.probed = now
		if !a.behind {
			a.socket.looked = now
		}
	}
}

// answered removes the newest ping with that id and all older ones: a client may answer
// the newest alone, protocol section 5.4. Pings to a plain client that carry the same
// count cannot be distinguished, and the newest may not even be written yet, so answered
// returns the oldest of them: too long a round trip does less harm than too short a one.
func (a *Attachment) answered(id uint64) (p probe, ok bool) {
	same := func(p probe) bool { return p.id == id }
	i := slices.IndexFunc(a.pings, same)
	if i < 0 {
		return probe{}, false
	}
	p = a.pings[i]
	for i < len(a.pings) && same(a.pings[i]) {
		i++
	}
	a.pings = a.pings[:copy(a.pings, a.pings[i:])]
	return p, true
}

// owedSince returns since when a's client owes an answer and has been silent. Zero: it
// owes none, or is silent because it is not read.
func (s *Session) owedSince(a *Attachment) Time {
	since := a.owed
	if len(a.pings) > 0 {
		since = earlier(since, a.pings[0].at)
	}
	if since == 0 || s.cfg.Answer == 0 || a.last || a.closing != nil || !a.wants(s) {
		return 0
	}
	return max(since, a.silentSince())
}

// answerDue applies the answer timeout of protocol section 5.4. It returns when a client
// that owes an answer must be pinged next, and when it is dead; zero: never.
func (s *Session) answerDue(a *Attachment) (ping, dead Time) {
	since := s.owedSince(a)
	if since == 0 {
		return 0, 0
	}
	if a.askedSince() {
		// Protocol section 5.4: the later of the timeout on the clock, and four round trips
		// after the first ping that was sent in this silence.
		trip := s.trip.smoothed
		if trip == 0 {
			trip = time.Duration(a.socket.rtt) * time.Microsecond
		}
		dead = max(since.Add(s.answerTime()), a.probed.Add(4*trip))
	}
	return max(since, a.pinged).Add(s.cfg.Answer / 2), dead
}

// answerTime returns how long an answer may take. Before a round trip is known it doubles with each connection
// in a row that ended by it.
func (s *Session) answerTime() time.Duration {
	if s.trip.smoothed > 0 {
		return s.cfg.Answer
	}
	return s.firstAnswerTime() << min(s.trip.silent, maxSilent)
}

// firstAnswerTime returns how long an answer may take at the least before a round trip is known. A plain
// client has no other way to show its round trip than to answer a Ping, and may never do so: its silence ends with
// the heartbeat and the answer timeout all the same.
func (s *Session) firstAnswerTime() time.Duration {
	limit := max(s.cfg.Answer, minAnswer)
	if s.cfg.Resumable {
		return limit
	}
	return min(limit, s.cfg.Heartbeat+s.cfg.Answer)
}

// quietTime returns after which silence a client is pinged: the heartbeat, or less where an answer may take longer
// than the answer timeout. So a silent client is dead after both together, if it has the time to answer in.
func (s *Session) quietTime() time.Duration {
	if s.cfg.Answer == 0 || s.trip.smoothed > 0 {
		return s.cfg.Heartbeat
	}
	return max(s.cfg.Heartbeat+s.cfg.Answer-s.firstAnswerTime(), 0)
}

// pingDue returns when the next ping must be sent, for whichever rule of protocol section
// 5.4 comes first.
func (s *Session) pingDue(a *Attachment) Time {
	t, _ := s.answerDue(a)
	t = earlier(t, a.sent.Add(s.cfg.Heartbeat))
	if a.in.unfinished() && s.cfg.Answer > 0 { // a browser hears nothing while it sends
		t = earlier(t, max(a.sent, a.pinged, a.in.began).Add(s.cfg.Answer/2))
	}
	if !a.wants(s) {
		return t
	}
	if !a.askedSince() {
		quiet := a.silentSince().Add(s.quietTime())
		if a.pinged > 0 { // one that speaks and answers no ping is not asked at each word
			quiet = max(quiet, a.pinged.Add(s.cfg.Answer/2))
		}
		t = earlier(t, quiet)
	}
	// The round trip must be measured again now and then, even on a busy connection that
	// needs no other ping.
	every := pingEvery
	if !s.trip.pinged && len(a.pings) == 0 {
		every = firstPing
	}
	return earlier(t, max(a.since, a.pinged).Add(every))
}

// silentAt returns when a silent client is dead, by the earlier of the two rules.
func (s *Session) silentAt(a *Attachment) Time {
	if a.closing != nil || !a.wants(s) {
		return 0
	}
	_, dead := s.answerDue(a)
	return earlier(dead, a.silentSince().Add(2*s.cfg.Heartbeat))
}

// watchesSocket is true only where bytes of ours wait for the client: without any, the
// socket's state says nothing about it.
func (a *Attachment) watchesSocket(s *Session) bool {
	return a == s.att && a.closing == nil && (a.behind || a.flight.waits || a.askedSince())
}

// socketState looks for signs of life in the state of a's socket. Bytes that the peer's
// TCP acknowledges count only as protocol section 5.4 says: a proxy acknowledges for a
// dead client, too.
func (a *Attachment) socketState(s *Session, now Time, st SocketState) {
	if a != s.att || a.closing != nil {
		return
	}
	w := &a.socket
	// Right after the write, everything up to the ping is either acked or queued.
	if w.mark == written {
		w.mark, w.pingEnd = marked, st.Acked+uint64(st.Queued)
		w.known = a.behind // bytes acked before the ping prove nothing about it
	}
	// Only progress since the last look counts. The first look has nothing to compare with.
	takes := w.known && st.Acked > w.acked
	w.acked, w.known, w.rtt = st.Acked, true, uint32(min(st.RTT.Microseconds(), math.MaxUint32))
	if takes && st.Queued > 0 {
		w.drained = now
	}
	if st.Unread || takes && (a.behind || st.Acked < w.pingEnd) {
		a.hear(now)
	}
	if a.flight.waits && now >= s.nextLook(a) { // even if the client is heard meanwhile
		a.behind = true
	}
}

// nextLook returns when the state of a's socket must be checked; zero: never.
func (s *Session) nextLook(a *Attachment) Time {
	if !s.WatchesSocket(a) {
		return 0
	}
	every := s.cfg.Heartbeat
	if s.cfg.Answer > 0 {
		every = min(every, s.cfg.Answer)
	}
	return a.socket.looked.Add(every / 4)
}

// draining reports whether a's client has taken bytes recently and has more to take: a
// large message on a slow link.
func (s *Session) draining(now Time, a *Attachment) bool {
	// The same time that a client has to answer: a pause that does not detach it is not the
	// end of draining either.
	lately := max(s.cfg.Answer, minAnswer)
	return a.socket.drained > 0 && now.Sub(a.socket.drained) < lately
}

// notePause restarts every clock that runs on the silence of a side, if Tick is so late
// that the process or the machine must have stood still: protocol section 5.4. Input that
// arrived meanwhile is not read yet. The clock of an overdue ack restarts as well: a
// machine that slept may run both client and gateway.
func (s *Session) notePause(now Time) {
	if due := s.Next(); due == 0 || now.Sub(due) <= pauseAfter {
		return
	}
	s.up.heard, s.scan.progress = now, now
	if a := s.att; a != nil {
		s.readAgain(now, a)
		if a.overdue.at > 0 {
			a.overdue.at = now
		}
	}
}
