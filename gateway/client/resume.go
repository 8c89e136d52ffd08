package client

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"reseat/gateway/wire"
)

func (p *loop) heartbeat() time.Duration { return milliseconds(p.told.Heartbeat) }

// part is a random part of a span.
func part(d time.Duration) time.Duration { return rand.N(max(d, 1)) }

// next is how long to wait for the first of the alarms.
func (a *alarms) next(now time.Time) time.Duration {
	wait := time.Hour
	for _, at := range []time.Time{a.patience, a.pace, a.ack, a.closing, a.move, a.watch, a.alive} {
		if !at.IsZero() {
			wait = min(wait, max(at.Sub(now), 0))
		}
	}
	return wait
}

// due reports whether an alarm rings, and takes it off.
func due(at *time.Time, now time.Time) bool {
	if at.IsZero() || now.Before(*at) {
		return false
	}
	*at = time.Time{}
	return true
}

// ring does what is due. One thing may undo the need of another.
func (p *loop) ring(now time.Time) {
	a := &p.alarms
	if due(&a.patience, now) && p.attempt != nil {
		p.late()
	}
	if due(&a.ack, now) {
		p.ack()
	}
	if due(&a.closing, now) && p.live != nil {
		p.closeIsLate()
	}
	if due(&a.watch, now) && p.live != nil {
		p.watch(now)
	}
	if due(&a.alive, now) && p.live != nil && p.live.waiting != nil {
		p.live.say(wire.VerbPing, "there?")
		a.alive = now.Add(max(p.heartbeat(), time.Second))
	}
	if due(&a.move, now) && p.live != nil && p.attempt == nil && !p.live.bye && p.live.verdict == nil {
		p.open()
	}
	if due(&a.pace, now) && p.live == nil && p.attempt == nil {
		p.open()
	}
}

// late gives up an attempt that takes too long.
func (p *loop) late() {
	l := p.attempt
	if l.opened && p.hellos == 0 && l.token == "" {
		p.noHello(l)
		return
	}
	p.abandon()
	p.attemptFailed(errLate, 0)
}

// watch takes a connection for dead on which nothing was heard for twice the
// heartbeat, not a single byte (section 5).
func (p *loop) watch(now time.Time) {
	p.rewatch(now)
	if !p.alarms.watch.IsZero() && !now.Before(p.alarms.watch) {
		p.lose(errSilence, 0)
	}
}

func (p *loop) rewatch(now time.Time) {
	if hb := p.heartbeat(); hb > 0 {
		p.alarms.watch = p.live.born.Add(time.Duration(p.live.heard.Load()) + 2*hb)
	}
}

// ---- the way back

// lose detaches: the live connection is lost. after is what the gateway asked for,
// or 0.
func (p *loop) lose(why error, after time.Duration) {
	l, now := p.live, time.Now()
	l.cancel()
	p.live = nil
	keep := p.alarms.patience // of a move that is under way, and goes on as a resume
	p.alarms = alarms{patience: keep}
	p.pacer.lost(l.useful || !errors.Is(why, errBroken) && now.Sub(l.since) >= goodAfter)
	p.dropped, p.tried = now, false
	if p.opts.OnDetach != nil {
		p.opts.OnDetach(why)
	}
	p.comeBack(why, after)
}

// comeBack sees to the next attempt, if there is time for one: the grace period
// and twice the heartbeat, and for a Close of the application's the grace period.
// One attempt is made in any case, and whenever the gateway named a time.
func (p *loop) comeBack(why error, after time.Duration) {
	if p.attempt != nil {
		return
	}
	now := time.Now()
	until := p.dropped.Add(milliseconds(p.told.Grace))
	if p.bye == nil {
		until = until.Add(2 * p.heartbeat())
	}
	pause := max(p.pacer.next(), after)
	if p.tried && after == 0 && now.Add(pause).After(until) {
		p.finish(fmt.Errorf("%w: %w", ErrLost, why))
		return
	}
	p.alarms.pace = now.Add(pause)
}

// attemptFailed goes on after an attempt that came to nothing.
func (p *loop) attemptFailed(why error, after time.Duration) {
	switch {
	case p.hellos == 0:
		p.finish(why)
	case p.live != nil: // it was a move
		p.ack() // what was held back for its sake
		p.moveAgain(after)
	default:
		p.comeBack(why, after)
	}
}

func (p *loop) moveAgain(after time.Duration) {
	pause := max(time.Second, after)
	if left := time.Until(p.moveBy); left > pause {
		p.alarms.move = time.Now().Add(pause + part(left-pause))
	}
}

// ---- ends

// verdict takes in end or close.
func (p *loop) verdict(l *link, v verdict) {
	v.retry = v.retry || p.isMine(l, v.Code)
	switch {
	case l.hello == 0:
		p.refused(l, v)
	case v.retry:
		p.lose(&v.CloseError, v.after)
	default:
		l.verdict = &v
		p.alarms.closing = time.Now().Add(closingTime)
	}
}

// refused is close in the place of hello. With retry false it speaks of the token
// and the count that were stated, and only of them.
func (p *loop) refused(l *link, v verdict) {
	l.cancel()
	p.attempt = nil
	p.alarms.patience = time.Time{}
	stale := l.token != p.told.Token || l.stated != p.handed()
	switch {
	case p.hellos > 0 && (v.retry || stale):
		p.attemptFailed(&v.CloseError, v.after)
	case p.live != nil: // a move: the older connection goes on
		p.ack()
	default:
		p.finish(&v.CloseError)
	}
}

// isMine reports a 4409 that an attempt of our own may have caused: one that is
// under way, or one that was abandoned since the hello before the newest (reseat.v1
// section 6).
func (p *loop) isMine(l *link, code int) bool {
	own := p.attempt != nil && p.attempt != l || p.abandoned >= max(p.hellos-1, 0)
	return code == wire.CodeSuperseded && own
}

// closeIsLate ends what waits for a Close frame that does not come.
func (p *loop) closeIsLate() {
	if v := p.live.verdict; v != nil {
		p.finish(&v.CloseError)
		return
	}
	p.lose(errLate, 0)
}
