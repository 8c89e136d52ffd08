package session

import (
	"slices"
	"time"
)

// This file decides when a silent client is dead, protocol section 5: after twice
// the heartbeat, or once something that it owes an answer to (a ping, or data that
// is not acked) has been unanswered for answer_ms.
//
// A sign of life is any byte of the client's. That its socket goes on taking bytes
// is one too, but only while bytes of ours wait for that: while the socket refuses
// some, or until TCP has acknowledged the newest ping. Otherwise a proxy that
// acknowledges for a client whose own line is dead would keep it alive.

const (
	pingEvery = 30 * time.Second // at least, so that the round trip is known
	firstPing = 15 * time.Second // the same before one has been answered
	minAnswer = 5 * time.Second  // the least limit before a round trip is known
	maxPings  = 8                // unanswered ones that are remembered

	// pauseAfter is how late a Tick has to be to show that the process or the
	// machine stood still. What clients sent meanwhile is not read yet, so their
	// silence proves nothing.
	pauseAfter = 500 * time.Millisecond
)

// A roundTrip is the smoothed round trip to a client. It grows by half of a
// difference and shrinks by an eighth (RFC 6298 section 2): to take a slow client
// for dead costs more than to notice a dead one late.
type roundTrip struct {
	smoothed time.Duration // zero: not known
	pinged   bool          // measured by a ping, and not only from hello to the first ack
}

// sample takes in one measurement. The first ping replaces what was guessed from
// hello, in which a page may have been busy.
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
}

// A SocketState is what the operating system knows of a client's connection.
type SocketState struct {
	Acked  uint64 // bytes that the peer's TCP has acknowledged, since the connection began
	Queued int    // bytes that the socket holds and the peer has not acknowledged
	Unread bool   // bytes have arrived and wait to be read
}

// socketWatch is what is remembered of the last SocketState.
type socketWatch struct {
	looked  Time // when a look was due last, or the reason to look arose
	known   bool // acked is
	acked   uint64
	mark    pingMark
	pingEnd uint64 // the newest marked ping has been taken once so much is acked
	drained Time   // when the peer was last seen to take bytes, with more to come
}

// A pingMark says whether it is known where the newest ping ends.
type pingMark uint8

const (
	marked  pingMark = iota // it is, or there is none
	queued                  // the ping is not written yet
	written                 // it is, and the next SocketState tells
)

// hear notes a sign of life.
func (a *Attachment) hear(now Time) { a.heard = now }

// silentSince is since when the client's silence counts.
func (a *Attachment) silentSince() Time { return max(a.heard, a.excused) }

// askedSince reports whether a ping has been sent since the client was last heard.
func (a *Attachment) askedSince() bool { return a.probed > a.silentSince() }

// notePing notes that p has been sent.
func (a *Attachment) notePing(now Time, p probe) {
	if len(a.pings) == maxPings { // the oldest says since when an answer is owed
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

// answered takes the newest ping with that id off, and those before it: a client may
// answer the newest alone. Pings to a plain client that carry the same count cannot
// be told apart, and the newest may not even be written: the oldest of them is returned,
// since a round trip that is too long does less harm than one that is too short.
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

// owedSince is since when a's client owes an answer and has been silent; zero: it owes
// none, or its silence is ours.
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

// answerDue is when a client that owes an answer must be pinged next, and when it
// is dead; zero: never.
func (s *Session) answerDue(a *Attachment) (ping, dead Time) {
	since := s.owedSince(a)
	if since == 0 {
		return 0, 0
	}
	if a.askedSince() {
		limit := s.cfg.Answer
		if s.trip.smoothed == 0 {
			limit = max(limit, minAnswer)
		}
		dead = max(since.Add(limit), a.probed.Add(4*s.trip.smoothed))
	}
	return max(since, a.pinged).Add(s.cfg.Answer / 2), dead
}

// pingDue is when the next ping must be sent, for whatever reason.
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
		t = earlier(t, a.silentSince().Add(s.cfg.Heartbeat))
	}
	every := pingEvery
	if !s.trip.pinged && len(a.pings) == 0 {
		every = firstPing
	}
	return earlier(t, max(a.since, a.pinged).Add(every))
}

// silentAt is when a client of which nothing is heard is dead.
func (s *Session) silentAt(a *Attachment) Time {
	if a.closing != nil || !a.wants(s) {
		return 0
	}
	_, dead := s.answerDue(a)
	return earlier(dead, a.silentSince().Add(2*s.cfg.Heartbeat))
}

func (a *Attachment) watchesSocket(s *Session) bool {
	return a == s.att && a.closing == nil && (a.behind || a.flight.waits || a.askedSince())
}

func (a *Attachment) socketState(s *Session, now Time, st SocketState) {
	if a != s.att || a.closing != nil {
		return
	}
	w := &a.socket
	if w.mark == written {
		w.mark, w.pingEnd = marked, st.Acked+uint64(st.Queued)
		w.known = a.behind // what was acked before the ping says nothing of the outcome of it
	}
	takes := w.known && st.Acked > w.acked
	w.acked, w.known = st.Acked, true
	if takes && st.Queued > 0 {
		w.drained = now
	}
	if st.Unread || takes && (a.behind || st.Acked < w.pingEnd) {
		a.hear(now)
	}
	if a.flight.waits && now >= s.nextLook(a) { // whatever the client says meanwhile
		a.behind = true
	}
}

// nextLook is when the state of a's socket must be looked at; zero: it says
// nothing.
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

// draining reports whether a's client has taken bytes lately and has more to take:
// a large message on a slow link.
func (s *Session) draining(now Time, a *Attachment) bool {
	lately := max(s.cfg.Answer, minAnswer)
	return a.socket.drained > 0 && now.Sub(a.socket.drained) < lately
}

// notePause restarts the clocks that run on the silence of either side, where Tick comes so
// late that process or machine must have stood still: protocol section 5.4. What was sent
// meanwhile is not read yet. An ack may be late for the same reason: a machine that slept
// has client and gateway sleep.
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
