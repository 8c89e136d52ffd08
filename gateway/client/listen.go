package client

import (
	"time"

	"reseat/gateway/wire"
)

// This file applies the rules of silence.go to the live connection.

// pauseAfter tells a pause of the process or the machine from a busy machine, which
// delays the loop by less.
const pauseAfter = time.Second

// sleep returns how long the loop may wait for an event, and notes when it has to
// run at the latest.
func (p *loop) sleep(now time.Time) time.Duration {
	at := p.alarms.next()
	if p.live != nil {
		silence, _ := p.remedy()
		at = soonest(at, silence)
	}
	wait := time.Hour
	if !at.IsZero() {
		wait = max(at.Sub(now), 0)
	}
	// Not at itself: it may derive from a time before the wall clock was last set.
	p.due = now.Add(wait)
	return wait
}

// woke restarts the silence clocks if the loop runs much later than planned: what
// the gateway sent during the pause has not been read yet, so nothing can be judged.
// A ping checks whether the connection is still there.
func (p *loop) woke(now time.Time) {
	if p.live == nil || p.due.IsZero() || lateness(p.due, now) < pauseAfter {
		return
	}
	p.due = time.Time{}
	p.silence.restart(now)
	if p.silence.answer > 0 && p.talking() {
		p.ping(now)
	}
}

// lateness returns the time since due. It also compares wall clock readings, because
// the monotonic clock of most systems stops while the machine sleeps.
func lateness(due, now time.Time) time.Duration {
	return max(now.Sub(due), now.Round(0).Sub(due.Round(0)))
}

// talking reports whether neither side has announced the end of the session. From
// then on the gateway need not answer a ping.
func (p *loop) talking() bool { return !p.live.bye && p.live.verdict == nil }

// remedy returns what the silence of the live connection calls for next, and when.
func (p *loop) remedy() (time.Time, remedy) {
	p.silence.bytes(p.live.lastHeard())
	return p.silence.next(!p.talking())
}

// listen does what the silence of the live connection calls for now.
func (p *loop) listen(now time.Time) {
	at, what := p.remedy()
	if now.Before(at) {
		return
	}
	switch what {
	case sendPing:
		p.ping(now)
	case giveUp:
		p.silence.died()
		p.lose(p.silence.why(now), 0)
	}
}

// ping sends a ping on the live connection.
func (p *loop) ping(now time.Time) {
	p.live.send(wire.VerbPing, p.silence.ping(now))
}

// replaced closes the live connection, if there is one, because a new one has its
// hello: messages on the older one are ignored from now on (section 8). It returns how
// long the session was without a sign of life, or zero if it was merely moved.
func (p *loop) replaced(now time.Time) time.Duration {
	switch {
	case p.hellos == 0:
		return 0
	case p.live == nil:
		return now.Sub(p.lastLife)
	}
	p.live.cancel()
	return 0
}
