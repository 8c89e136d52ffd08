package session

import (
	"time"

	"reseat/gateway/frame"
)

// This file relays the closing handshake of a plain client, for which the gateway is
// a transparent proxy: a Close frame is passed on, and what the other side still
// sends is relayed until its own Close, protocol section 1. For a resumable client
// the gateway answers by itself, since there `bye` and `end` decide.

// closeWait limits the wait for the answer to a relayed Close frame: protocol section 11, Plain
// clients.
const closeWait = 10 * time.Second

// A relayedClose is a plain client's Close frame that was passed on to the upstream.
type relayedClose struct {
	code     int
	reason   string
	deadline Time // when the session ends if the upstream does not answer
}

// relayClientClose passes a plain client's Close frame on. The session ends once the
// client has been sent everything up to the upstream's own Close frame.
func (s *Session) relayClientClose(now Time, a *Attachment, code int, reason string) {
	a.closing = &relayedClose{code: code, reason: reason, deadline: now.Add(closeWait)}
	// Nothing is expected of the client any more. Unanswered pings would count against it.
	a.in, a.pings, a.askSince = inbound{}, nil, 0
	if s.up.over {
		s.closeUpstream(code, reason)
	} else {
		s.queueClose(code, reason)
	}
	s.ackWritten(now, a) // no Pong follows a Close frame
}

// endClosing ends the session that its client has closed. final goes to the client.
func (s *Session) endClosing(now Time, c *relayedClose, f CloseMode, final []byte) {
	s.end(now, ending{Ending: s.noSessionEnding(ReasonBye), code: c.code, text: c.reason, client: final, clientMode: f})
}

// expireClosing ends the session whose upstream has not answered the client's Close frame
// in time: the client gets its own code back.
func (s *Session) expireClosing(now Time, c *relayedClose) {
	s.endClosing(now, c, Linger, frame.Append(nil, frame.Close, frame.ClosePayload(c.code, "")))
}

// relayUpstreamClose lets a plain client answer the upstream's Close frame, for up to
// closeWait. It reports false if no such client is attached.
func (s *Session) relayUpstreamClose(now Time) bool {
	if s.cfg.Resumable || s.state == Detached || s.att != nil && s.att.closing != nil {
		return false
	}
	s.up.answerBy = now.Add(closeWait)
	return true
}

// answerUpstream returns the upstream's own close code to it, unless its Close frame was
// answered already.
func (s *Session) answerUpstream() {
	if s.up.over && !s.up.lost {
		s.closeUpstream(s.up.code, "")
	}
}

// answerPending reports whether the upstream's Close frame waits for the client's answer.
func (s *Session) answerPending() bool {
	return s.up.answerBy > 0 && s.up.mode == Open && !s.up.released
}
