package session

import (
	"time"

	"reseat/gateway/wire"
)

// A Rate is how much a client may send, with a burst of one second. Zero is no
// limit.
type Rate struct {
	Messages float64 // data messages a second
	Bytes    float64 // and their payload
	End      bool    // past it the session ends with 4429, else it is paced
}

// limited reports whether there is a limit at all.
func (r Rate) limited() bool { return r.Messages > 0 || r.Bytes > 0 }

// A pacer holds a client to its Rate: what is past it is admitted, and waits for
// its turn before it goes to the upstream, and thereby for its ack.
type pacer struct {
	messages, bytes bucket
	until           Time // when what was admitted last may go
}

// A bucket holds what may be sent at once; below zero it is what is owed.
type bucket struct {
	level float64
	at    Time // when it was so
}

// take takes n out of the bucket that fills at the rate given, and tells how
// long it will then be below zero. A rate of zero is no limit.
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

// fill lets the time since the last look count. What a grant put in above a
// second's worth stays.
func (b *bucket) fill(now Time, rate float64) {
	full := max(rate, 1) // one message alone always fits
	if b.level < full {
		b.level = min(full, b.level+now.Sub(b.at).Seconds()*rate)
	}
	b.at = now
}

// grant lets at least n through at once.
func (b *bucket) grant(now Time, rate, n float64) {
	b.fill(now, rate)
	b.level = max(b.level, n)
}

func (s *Session) startPacer(now Time) {
	s.pace.messages = bucket{max(s.cfg.Rate.Messages, 1), now}
	s.pace.bytes = bucket{max(s.cfg.Rate.Bytes, 1), now}
}

// grantResend makes up for what a client may have to send again at a resume.
func (s *Session) grantResend(now Time) {
	s.pace.messages.grant(now, s.cfg.Rate.Messages, UnackedMessages)
	s.pace.bytes.grant(now, s.cfg.Rate.Bytes, UnackedBytes)
}

// inTime charges a data message. It is false where that was one too many under
// the policy that ends; else the message goes when its turn comes.
func (s *Session) inTime(now Time, payload int64) bool {
	r := s.cfg.Rate
	if !r.limited() {
		return true
	}
	wait := max(s.pace.messages.take(now, r.Messages, 1), s.pace.bytes.take(now, r.Bytes, float64(payload)))
	if wait > 0 && r.End {
		s.violation(now, wire.CodeTooFast, "")
		return false
	}
	s.pace.until = max(s.pace.until, now.Add(wait))
	return true
}
