package session

import (
	"time"

	"reseat/gateway/wire"
)

// A Rate limits what a client may send, with a burst of one second. Zero means no limit.
type Rate struct {
	Messages float64 // data messages a second
	Bytes    float64 // payload of data messages a second
	End      bool    // beyond it the session ends with 4429; otherwise the client is paced
}

// limited reports whether there is a limit.
func (r Rate) limited() bool { return r.Messages > 0 || r.Bytes > 0 }

// A pacer holds a client to its Rate. A message beyond it is received, but goes to the
// upstream, and is acked, only later. The client's window then fills, which slows it
// down without an error: protocol section 5.3.
type pacer struct {
	messages, bytes bucket
	until           Time // when the last received message may go
}

// A bucket is a token bucket: level is what may be sent at once, or, below zero, what
// was sent too early.
type bucket struct {
	level float64
	at    Time // the time that level is of
}

// take takes n out of the bucket, which fills at rate, and returns how long its level
// stays below zero. A rate of zero is no limit.
func (b *bucket) take(now Time, rate, n float64) time.Duration {
	if rate == 0 {
		return 0
	}
	b.fill(now, rate)
	b.level -= n
	if b.level >= 0 {
		return 0
	}
	return time.Duration(-b.level / rate * float64(time.Second))
}

// fill adds what has accrued since the last call, up to one second's worth. A grant above
// that is not cut off.
func (b *bucket) fill(now Time, rate float64) {
	full := max(rate, 1) // a single message always fits
	if b.level < full {
		b.level = min(full, b.level+now.Sub(b.at).Seconds()*rate)
	}
	b.at = now
}

// grant raises the level to n at least.
func (b *bucket) grant(now Time, rate, n float64) {
	b.fill(now, rate)
	b.level = max(b.level, n)
}

// startPacer fills both buckets: a new client may send one second's worth at once.
func (s *Session) startPacer(now Time) {
	s.pace.messages = bucket{max(s.cfg.Rate.Messages, 1), now}
	s.pace.bytes = bucket{max(s.cfg.Rate.Bytes, 1), now}
}

// grantResend allows a full window at once: after a resume the client sends everything
// unacked again, and must not be slowed down or closed for that.
func (s *Session) grantResend(now Time) {
	s.pace.messages.grant(now, s.cfg.Rate.Messages, UnackedMessages)
	s.pace.bytes.grant(now, s.cfg.Rate.Bytes, UnackedBytes)
}

// inTime charges a data message to the client's rate and sets when it may go. It reports
// false if the message ended the session.
func (s *Session) inTime(now Time, payload int64) bool {
	r := s.cfg.Rate
	if !r.limited() {
		return true
	}
	// Both buckets are charged for every message; the slower one decides.
	wait := max(s.pace.messages.take(now, r.Messages, 1), s.pace.bytes.take(now, r.Bytes, float64(payload)))
	if wait > 0 && r.End {
		s.violation(now, wire.CodeTooFast, "")
		return false
	}
	// Never earlier than the message before: order is kept.
	s.pace.until = max(s.pace.until, now.Add(wait))
	return true
}
