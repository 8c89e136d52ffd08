package client

import (
	"fmt"
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
	leaving := p.live.verdict != nil || p.live.bye && !p.suspected // a bye under suspicion may be lost
	return p.silence.next(p.attempt != nil, leaving)
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
	case suspect:
		p.suspect(now)
	case giveUp:
		p.silence.died()
		p.lose(p.silence.why(now), 0)
	}
}

// ping sends a ping on the live connection.
func (p *loop) ping(now time.Time) {
	p.live.send(wire.VerbPing, p.silence.ping(now))
}

// ---- suspicion

// suspect starts a resume beside the live connection, and reports the loss to the
// application unless it has been reported already. The live connection stays in use,
// both ways, until the new hello arrives.
func (p *loop) suspect(now time.Time) {
	p.silence.attempt(now)
	if !p.suspected {
		p.suspected, p.spoke = true, false
		p.lastLife = p.silence.heard
		if p.opts.OnDetach != nil {
			p.opts.OnDetach(fmt.Errorf("nothing heard for %v", rounded(now.Sub(p.lastLife))))
		}
	}
	p.live.watched.Store(true)
	p.open()
}

// spokeUp handles a sign of life on l. It ends suspicion, unless the attempt already
// has its 101: by then the gateway may have moved the session to the new connection,
// so the attempt is left to finish. A close 4409 is no sign of life, since the
// attempt itself may have caused it; it has ended l before this is called.
func (p *loop) spokeUp(l *link) {
	switch {
	case !p.suspected || l != p.live || l.verdict != nil:
	case p.attempt != nil && p.attempt.opened:
		p.spoke, p.lastLife = true, l.lastHeard()
	default:
		p.falseAlarm()
	}
}

// falseAlarm ends suspicion in favor of the live connection. Nothing was lost, so
// the application gets a Resumed without Replay or Lost.
func (p *loop) falseAlarm() {
	if p.attempt != nil {
		p.abandon()
		p.ack() // may have been held back during the attempt
	}
	p.suspected = false
	p.silence.falseAlarm()
	p.moveAgain(0) // the attempt may have replaced a requested move
	if p.opts.OnResume != nil {
		p.opts.OnResume(Resumed{Away: time.Since(p.lastLife)})
	}
}

// replaced closes the live connection, if there is one, because a new one has its
// hello: messages on the older one are ignored from now on (section 8). It returns how
// long the session was without a sign of life, or zero if it was merely moved.
func (p *loop) replaced(now time.Time) time.Duration {
	l, suspected := p.live, p.suspected
	p.suspected = false
	switch {
	case p.hellos == 0:
		return 0
	case l == nil:
		return now.Sub(p.lastLife)
	}
	l.cancel()
	switch {
	case !suspected:
		return 0
	case p.spoke:
		p.silence.falseAlarm()
	default:
		p.silence.died()
	}
	return now.Sub(p.lastLife)
}
