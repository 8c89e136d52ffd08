package client

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"reseat/gateway/wire"
)

func (p *loop) heartbeat() time.Duration { return milliseconds(p.current.Heartbeat) }

// part returns a random part of d.
func part(d time.Duration) time.Duration { return rand.N(max(d, 1)) }

// next returns the earliest alarm, zero for none.
func (a *alarms) next() (next time.Time) {
	for _, at := range [...]time.Time{a.attempt, a.pace, a.ack, a.part, a.closing, a.move, a.alive} {
		next = soonest(next, at)
	}
	return next
}

// soonest returns the earlier of two times, of which zero is never.
func soonest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// due reports whether an alarm is due, and clears it.
func due(at *time.Time, now time.Time) bool {
	if at.IsZero() || now.Before(*at) {
		return false
	}
	*at = time.Time{}
	return true
}

// runDue handles the due alarms. One may clear another.
func (p *loop) runDue(now time.Time) {
	a := &p.alarms
	if due(&a.attempt, now) && p.attempt != nil {
		p.attemptTimedOut()
	}
	if due(&a.ack, now) {
		p.ack()
	}
	if due(&a.part, now) && p.live != nil && p.talking() {
		p.answerParts(now)
	}
	if due(&a.closing, now) && p.live != nil {
		p.closeTimedOut()
	}
	if p.live != nil {
		p.listen(now)
	}
	if due(&a.alive, now) && p.live != nil && p.live.waiting != nil {
		p.alive(now)
	}
	if due(&a.move, now) && p.live != nil && p.attempt == nil && p.talking() {
		p.open()
	}
	if due(&a.pace, now) && p.live == nil && p.attempt == nil {
		p.open()
	}
}

// attemptTimedOut abandons an attempt that takes too long.
func (p *loop) attemptTimedOut() {
	l := p.attempt
	if l.opened && p.hellos == 0 && l.token == "" {
		p.noHello(l)
		return
	}
	if !l.opened && l.reached.Load() {
		p.slow++
	}
	p.abandon()
	p.attemptFailed(l, errTimeout, 0)
}

// attemptTimeout returns the timeout for the 101 of the next attempt.
func (p *loop) attemptTimeout() time.Duration {
	if p.hellos == 0 || p.live != nil && !p.suspected {
		return connectTimeout
	}
	return resumeTimeout(p.silence.roundTrip, p.slowest, p.slow)
}

// resumeTimeout returns the timeout for the 101 of a resume: at least minResumeTimeout,
// and four round trips on a slow line. While no round trip is known, it allows half
// as long again as the slowest connect so far.
//
// slow attempts in a row reached a server and still timed out. The connection may
// have become slower since it was measured, so each of them doubles the timeout. An
// attempt that reached no server does not: into a black hole, short attempts get
// through sooner.
func resumeTimeout(roundTrip, slowest time.Duration, slow int) time.Duration {
	estimate := fourTrips * roundTrip
	if roundTrip == 0 {
		estimate = slowest + slowest/2
	}
	return min(max(minResumeTimeout, estimate)<<min(slow, 2), maxResumeTimeout)
}

// ---- reconnecting

// lose detaches: the live connection is lost. after is the delay that the gateway asked
// for, or 0.
func (p *loop) lose(why error, after time.Duration) {
	l, now := p.live, time.Now()
	l.cancel()
	p.live = nil
	keep := p.alarms.attempt // belongs to an attempt beside it, which becomes the resume
	p.alarms = alarms{attempt: keep}
	p.pacer.lost(l.useful || !errors.Is(why, errBroken) && now.Sub(l.since) >= goodAfter)
	p.dropped, p.tried = now, false
	if !p.suspected { // else the loss was reported when suspicion began
		p.lastLife = l.lastHeard()
		if p.opts.OnDetach != nil {
			p.opts.OnDetach(why)
		}
	}
	p.suspected = false
	p.scheduleResume(now, why, after)
}

// scheduleResume schedules the next attempt. It gives up after GiveUpAfter without any answer; after
// Close, when the grace period is over. One attempt is made in any case, and one whenever the gateway
// named a delay. The pause counts from the start of the previous attempt or from the loss, so that the
// next attempt follows a timed-out one immediately.
func (p *loop) scheduleResume(from time.Time, why error, after time.Duration) {
	if p.attempt != nil {
		return
	}
	now := time.Now()
	until := p.dropped.Add(milliseconds(p.current.Grace))
	if p.bye == nil {
		until = later(until.Add(2*p.heartbeat()), later(p.lastLife, p.answered).Add(p.giveUpAfter()))
	}
	at := later(from.Add(p.pacer.next(now.Sub(p.dropped))), now.Add(after))
	if p.tried && after == 0 && at.After(until) {
		p.finish(fmt.Errorf("%w: %w", ErrLost, why))
		return
	}
	p.alarms.pace = at
}

func (p *loop) giveUpAfter() time.Duration { return cmp.Or(p.opts.GiveUpAfter, defaultGiveUpAfter) }

// attemptFailed continues after a failed attempt.
func (p *loop) attemptFailed(l *link, why error, after time.Duration) {
	switch {
	case p.hellos == 0:
		p.finish(why)
	case p.live != nil && p.suspected:
		p.ack() // may have been held back during the attempt
		p.silence.putOff(time.Now().Add(after))
		if p.spoke {
			p.falseAlarm()
		}
	case p.live != nil: // the attempt was a move
		p.ack()
		p.moveAgain(after)
	default:
		p.scheduleResume(l.born, why, after)
	}
}

func (p *loop) moveAgain(after time.Duration) {
	pause := max(time.Second, after)
	if left := time.Until(p.moveBy); left > pause {
		p.alarms.move = time.Now().Add(pause + part(left-pause))
	}
}

// ---- ends

// verdict handles end or close.
func (p *loop) verdict(l *link, v verdict) {
	v.retry = v.retry || p.causedByUs(l, v.Code)
	switch {
	case l.hello == 0:
		p.refused(l, v)
	case v.retry:
		p.lose(&v.CloseError, v.after)
	default:
		l.verdict = &v
		p.alarms.closing = time.Now().Add(closeTimeout)
	}
}

// refused handles close instead of hello. With retry false it concerns the token and
// the count that this attempt stated, and only them.
func (p *loop) refused(l *link, v verdict) {
	l.cancel()
	p.attempt, p.answered = nil, time.Now()
	p.alarms.attempt = time.Time{}
	stale := l.token != p.current.Token || l.stated != p.handed()
	switch {
	case p.hellos > 0 && (v.retry || stale) || p.suspected:
		p.attemptFailed(l, &v.CloseError, v.after)
	case p.live != nil: // the attempt was a move: the older connection stays
		p.ack()
	default:
		if l.token == "" {
			v.Retry, v.RetryAfter = v.retry, v.after
		} else {
			v.Status = 0
		}
		p.finish(&v.CloseError)
	}
}

// causedByUs reports whether a 4409 may be due to an attempt of this client: one in
// flight, or one abandoned since the hello before the newest (protocol section 6).
func (p *loop) causedByUs(l *link, code int) bool {
	own := p.attempt != nil && p.attempt != l || p.abandoned >= max(p.hellos-1, 0)
	return code == wire.CodeSuperseded && own
}

// closeTimedOut ends the wait for a Close frame.
func (p *loop) closeTimedOut() {
	if v := p.live.verdict; v != nil {
		p.finish(&v.CloseError)
		return
	}
	p.lose(errTimeout, 0)
}
