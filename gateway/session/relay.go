package session

import (
	"time"

	"reseat/gateway/frame"
)

// This file relays the closing handshake of a plain client, for which the gateway is
// a transparent proxy: a Close frame is passed on, and what the other side still
// sends is relayed until its own Close, protocol section 1. For a resumable client
// the gateway answers by itself, since there `bye` and `end` decide.

// closeWait is how long the other side has to answer a Close that was passed on.
const closeWait = 10 * time.Second

// A relayedClose is a plain client's Close that was passed on to the upstream.
type relayedClose struct {
	code     int
	reason   string
	deadline Time // when the session ends without the upstream's answer
}

// relayClientClose passes a plain client's Close on. The session ends once the
// client has been handed everything up to the upstream's own Close.
func (s *Session) relayClientClose(now Time, a *Attachment, code int, reason string) {
	a.closing = &relayedClose{code: code, reason: reason, deadline: now.Add(closeWait)}
	a.in, a.pings, a.askSince = inbound{}, nil, 0
	if s.up.over {
		s.closeUpstream(code, reason)
	} else {
		s.queueClose(code, reason)
	}
	s.ackWritten(now, a) // no Pong will
}

// endClosing ends the session whose client has closed it. final is what the client
// still gets.
func (s *Session) endClosing(now Time, c *relayedClose, f CloseMode, final []byte) {
	s.end(now, ending{Ending: s.noSessionEnding(ReasonBye), code: c.code, text: c.reason, client: final, clientMode: f})
}

// expireClosing ends the session whose upstream has not answered the client's Close
// in time: the client gets its own code back.
func (s *Session) expireClosing(now Time, c *relayedClose) {
	s.endClosing(now, c, Linger, frame.Append(nil, frame.Close, frame.ClosePayload(c.code, "")))
}

// relayUpstreamClose leaves the answer to the upstream's Close to a plain client,
// for closeWait. It reports false where no such client is there to give it.
func (s *Session) relayUpstreamClose(now Time) bool {
	if s.cfg.Resumable || s.state == Detached || s.att != nil && s.att.closing != nil {
		return false
	}
	s.up.answerBy = now.Add(closeWait)
	return true
}

// answerUpstream gives the upstream its own Close back, where nobody else has
// answered it.
func (s *Session) answerUpstream() {
	if s.up.over && !s.up.lost {
		s.closeUpstream(s.up.code, "")
	}
}

// answerPending reports whether the upstream's Close still waits for the client's.
func (s *Session) answerPending() bool {
	return s.up.answerBy > 0 && s.up.mode == Open && !s.up.released
}
