package session

import (
	"math"
	"strconv"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/wire"
)

// This file is --upstream-lost redial: a game server whose connection breaks, or that goes
// away or restarts, is dialled again while the session continues. What the client sends
// meanwhile waits in the queue, within the client's window. The dials are made outside: the
// event UpstreamLost asks for them, and Reconnect or FailRedial is their result.

// An outage is the time in which the session has no upstream and waits for a new one.
type outage struct {
	since Time // zero: there is no outage
	// The session gives up at until. It is kept after an outage: an upstream that
	// answers and breaks again soon does not get the whole time again.
	until Time
	back  Time // the end of the last outage
	heard heard
}

// heard records what the client is known to have heard of outages, on any of its connections: protocol section
// 11. Only what it sends because it has read `upstream`, or a message after that, proves that it has.
type heard struct {
	lost   bool   // it has heard of a loss, and not of its end
	unsure bool   // and perhaps also the newest `upstream` that was sent:
	said   bool   // its state, true for lost,
	after  uint64 // the last message before it,
	ping   uint64 // and the ping that followed; zero: on an earlier connection
}

// note records that `upstream` was sent.
func (h *heard) note(lost bool, after, ping uint64) {
	h.unsure, h.said, h.after, h.ping = true, lost, after, ping
}

// prove records whether the client has heard what was sent.
func (h *heard) prove(has bool) {
	if h.unsure && has {
		h.lost, h.unsure = h.said, false
	}
}

// pong is called when the client has answered a ping of its present connection.
func (h *heard) pong(id uint64) { h.prove(h.ping > 0 && id >= h.ping) }

// attach is called when the client attaches having received n messages. What is still unsure then will not be
// proven any more.
func (h *heard) attach(n uint64) {
	h.prove(n > h.after)
	h.after, h.ping = math.MaxUint64, 0
}

// open reports whether the client may have heard, on an earlier connection, what was sent there.
func (h *heard) open() bool { return h.unsure && h.ping == 0 }

// An upstream that has lived for livingTime gives a later outage the whole time again.
const livingTime = 10 * time.Second

// noCode stands for a connection that ended without a Close frame.
const noCode = 0

// replaces reports whether the end of the upstream's connection, with that code, begins an
// outage. Any other end of it is what the game server wanted, or forbidden.
func (s *Session) replaces(now Time, code int) bool {
	switch {
	case s.cfg.Redial == 0 || !s.cfg.Resumable || s.state == Ended:
		return false
	case code != noCode && code != wire.CodeGoingAway && code != wire.CodeServiceRestart:
		return false
	}
	return s.outageEnd(now) > now
}

// outageEnd returns the latest end of an outage that begins now.
func (s *Session) outageEnd(now Time) Time {
	if s.outage.until > 0 && now < s.outage.back.Add(livingTime) {
		return s.outage.until
	}
	return now.Add(s.cfg.Redial)
}

// replaceUpstream begins an outage. answer is the payload of the Close frame that answers the
// upstream's, nil if its connection is broken.
func (s *Session) replaceUpstream(now Time, why string, answer []byte) {
	s.outage.until = s.outageEnd(now)
	s.outage.since = now
	final := []byte{}
	if answer != nil {
		final = s.masked(frame.Close, answer)
	} else {
		s.up.mode, s.up.rest = Shut, nil
	}
	s.releaseUpstream(final)
	s.noteAlone(now, UpstreamLost, why)
	s.announce(news{at: s.ring.Last().Off})
}

// news is a notification of an outage for the client. It follows the messages of the previous
// upstream connection: those up to at.
type news struct {
	at   uint64 // a stream offset
	back bool   // the outage is over
}

// announce queues n for the attached client, which may read slowly.
func (s *Session) announce(n news) {
	a := s.att
	if a == nil {
		return
	}
	last := len(a.news) - 1
	if last >= 0 && !n.back && a.news[last] == (news{at: n.at, back: true}) && (last > 0 || !s.outage.heard.open()) {
		a.news = a.news[:last] // no message lies between two outages: for the client they are one
	} else {
		a.news = append(a.news, n)
	}
	a.hasNews = len(a.news) > 0
}

// newsDue reports whether the client must be notified now.
func (a *Attachment) newsDue() bool {
	return a.hasNews && !a.last && a.cur >= a.news[0].at
}

// askHeard begins the argument of the ping that asks whether `upstream` was heard.
const askHeard = wire.VerbUpstream

// tellNews tells it what is due by the verb `upstream`: protocol section 5. The ping that follows only finds out
// whether it was heard: a game server that is lost is no reason to declare a client dead sooner.
func (s *Session) tellNews(a *Attachment) {
	a.pingID++
	for a.newsDue() {
		state := wire.UpstreamLost
		if a.news[0].back {
			state = wire.UpstreamBack
		}
		s.outage.heard.note(!a.news[0].back, a.mark.N, a.pingID)
		a.ctl = wire.AppendJSON(a.ctl, wire.VerbUpstream, wire.Upstream{State: state})
		if a.news = a.news[1:]; len(a.news) == 0 {
			a.news, a.hasNews = nil, false
		}
	}
	a.ctl = wire.Append(a.ctl, wire.VerbPing, askHeard+strconv.FormatUint(a.pingID, 10))
}

// tellState sends a client that attaches, after the replay, what it has not heard. If it may have heard of a change
// that is over by now, it hears of both again, in order.
func (s *Session) tellState(a *Attachment) {
	at, lost, known := s.ring.Last().Off, s.outage.since > 0, &s.outage.heard
	if !lost && s.up.released { // it was not reached again
		return
	}
	if known.unsure && lost == known.lost {
		a.news = append(a.news, news{at: at, back: known.lost})
	}
	if known.unsure || lost != known.lost {
		a.news = append(a.news, news{at: at, back: !lost})
	}
	a.hasNews = len(a.news) > 0
}

// endOutage records that the session has its next upstream.
func (s *Session) endOutage(now Time) {
	s.emit(Event{Kind: UpstreamBack, Elapsed: now.Sub(s.outage.since)})
	s.outage.since, s.outage.back = 0, now
	s.announce(news{at: s.ring.Last().Off, back: true})
	switch {
	case s.state == Connecting && s.awaiting > 0: // hard: the outage began during the resume
		s.notifyReconnected()
	case s.state == Detached && s.epoch > 0: // the older one was notified, but this one believes that the client is here
		s.sendText(s.cfg.Notices.Detach) // behind what the client sent before it left
	}
}

// Outage returns since when the session has been without an upstream that will be replaced,
// and when it gives up; zero: it has one, or is not to get one.
func (s *Session) Outage() (since, until Time) {
	if s.outage.since == 0 || s.state == Ended {
		return 0, 0
	}
	return s.outage.since, s.outage.until
}

// FailRedial ends an outage: the upstream is lost. Without an outage it does nothing.
func (s *Session) FailRedial(now Time, why string) {
	if since, _ := s.Outage(); since == 0 {
		return
	}
	s.outage.since = 0
	s.up.over, s.up.lost, s.up.reason = true, true, why
	if s.writer == nil { // with a write in flight, takeBack does it
		s.dropQueue()
	}
	s.deliverEnd(now)
}
