//go:build linux

package main

import (
	"context"
	"slices"
	"time"

	"reseat/gateway/internal/test/harness/chaos/history"
	"reseat/gateway/internal/test/harness/process"
)

func now() int64 { return history.Now() }

func sleep(ctx context.Context, d time.Duration) bool { return process.Sleep(ctx, d) }

// await polls until cond holds or the session is over.
func (p *player) await(ctx context.Context, cond func() bool) bool {
	for !cond() {
		if p.isDone() || !sleep(ctx, 20*time.Millisecond) {
			return cond()
		}
	}
	return true
}

// seat returns the session as the game server sees it, nil before the first hello.
func (p *player) seat() *gameSeat {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.session == "" && p.end != plain {
		return nil
	}
	return p.run.game.find(p.id, p.try)
}

// direct brings the session to its planned end.
func (p *player) direct(ctx context.Context) {
	if p.end == countingGame {
		p.directCounting(ctx)
		return
	}
	if !p.await(ctx, func() bool { return p.seat() != nil }) {
		return
	}
	if p.end == legCut || p.end == overflowEnd {
		p.hist.Add(p.id, history.End, 0, 0, history.Never, history.Unknown, 0, 0) // at a byte or a message, at an unknown time
	}
	early := uint64(p.script.IntN(p.run.cfg.Messages))
	p.await(ctx, func() bool { return p.enough() || p.end == gameKill && p.madeNow() >= early })
	if p.end == drained || p.end == legCut {
		p.await(ctx, p.isDone)
		return
	}
	if !p.isDone() {
		p.conclude(ctx, p.seat())
	}
	p.await(ctx, p.isDone)
}

// enough reports whether all planned messages and disconnects have happened.
func (p *player) enough() bool {
	quota, sent := uint64(p.run.cfg.Messages), uint64(0)
	for _, g := range p.seats() {
		sent += g.sent.Load()
	}
	return p.madeNow() >= quota && sent >= quota && (int(p.cuts.Load()) >= p.budget || p.run.ending())
}

// seats returns all game server connections of the session; with hard disconnects there
// are several.
func (p *player) seats() []*gameSeat {
	p.mu.Lock()
	try := p.try
	p.mu.Unlock()
	return p.run.game.of(p.id, try)
}

// askEnd records in the history that the session's end is requested now.
func (p *player) askEnd() {
	answer := p.hist.Begin(p.id, history.End, 0)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endAsked = answer
}

func (p *player) conclude(ctx context.Context, g *gameSeat) {
	if p.end != expiry && p.end != overflowEnd {
		p.askEnd()
	}
	switch p.end {
	case byeAtRest, plain, cookie, hard, durable, durableHard, durableNewest, dropOldest, newestFirst, inParts:
		p.settle(ctx)
		p.bye()
	case overflowEnd:
		p.stayAway(ctx, g)
	case byeAtOnce:
		p.bye()
	case gameClose:
		p.note("the game server closes")
		go g.close(4321, "match over")
	case gameKill:
		p.note("the game server is killed")
		g.kill()
	case expiry:
		p.settle(ctx)
		p.expire(ctx, g)
	}
}

func (p *player) bye() {
	p.mu.Lock()
	p.mayMake, p.sayBye = false, true
	p.noteLocked("says bye after message %d", p.made)
	p.mu.Unlock()
	p.poke()
}

// settle makes both sides stop sending and waits until everything has arrived.
func (p *player) settle(ctx context.Context) {
	if p.end == cookie { // what the newest connection sends is checked, too
		p.await(ctx, func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.made > 0
		})
	}
	p.mu.Lock()
	p.mayMake = false
	p.mu.Unlock()
	p.await(ctx, func() bool {
		g := p.seat() // with hard disconnects there may be another by now
		g.quiet.Store(true)
		select {
		case <-g.still:
		default:
			return false
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.struck[p.attempts] && p.end == cookie {
			return false // its Close would not arrive
		}
		return p.hasAllOf(g) && g.hasAllOf(p) && (p.end.isPlain() || p.acked == p.made)
	})
	p.note("settled")
}

// hasAllOf reports whether everything that the game server sent on its newest
// connection has arrived; p.mu is held.
func (p *player) hasAllOf(g *gameSeat) bool {
	sent := g.sent.Load()
	return sent == 0 || p.down.Taken >= sent && p.down.Try == stage(g.try, g.dial)
}

// hasAllOf reports whether everything that the client sent has arrived, on its newest
// connection if it is a plain one; p.mu is held.
func (s *gameSeat) hasAllOf(p *player) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return p.made == 0 || s.check.Taken >= p.made && s.check.Try == p.up.Try || p.end.redials() && s.check.Came == 0 && p.acked == p.made
}

// stayAway stays detached until the game server is notified, and then tries to resume. It returns since when.
func (p *player) stayAway(ctx context.Context, g *gameSeat) (left int64) {
	p.mu.Lock()
	p.leave, left = true, now()
	drop := p.drop
	if p.parted > 0 {
		left = p.parted
	}
	p.noteLocked("stays away")
	p.mu.Unlock()
	drop()
	p.await(ctx, func() bool { return isOver(g) })
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leave = false
	return left
}

// expire stays away for the grace period. The resume after it must be refused.
func (p *player) expire(ctx context.Context, g *gameSeat) {
	earliest := p.stayAway(ctx, g) + int64(p.run.cfg.Expiry)
	if !isOver(g) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run.lost(g.session) {
		return
	}
	if g.code != 1001 || g.reason != "grace period over" {
		p.faultLocked("after the grace period the game server got Close %d %q", g.code, g.reason)
	}
	if g.at < earliest {
		p.faultLocked("the session ended %s before its grace period did", time.Duration(earliest-g.at))
	}
	p.hist.Add(p.id, history.Expire, 0, earliest, max(g.at, earliest), history.Done, 0, 0)
}

func isOver(g *gameSeat) bool {
	select {
	case <-g.over:
		return true
	default:
		return false
	}
}

// judge compares what the client and the game server have received, once the session is
// over.
func (p *player) judge() {
	g := p.seat()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.endAsked != nil {
		p.endAsked(history.Unknown, 0, 0) // requested; only the gateway knows when it happened
	}
	switch {
	case g == nil:
		p.faultLocked("never had a hello")
		return
	case p.isLost(g):
		p.judgeLost(g)
		return
	case !p.done:
		p.faultLocked("did not end: %s; made %d, acked %d, game took %d; game sent %d, taken %d", p.end, p.made, p.acked, g.taken(), g.sent.Load(), p.down.Taken)
	case isOver(g) && p.neverHeard(g):
		p.unheard = true
		p.hist.Add(p.id, history.Expire, 0, p.dialled+int64(p.run.cfg.unheard()), history.Never, history.Unknown, 0, 0)
		return
	case !isOver(g):
		p.faultLocked("the game server's connection is still open after the end (%s %d)", p.verdict, p.code)
	default:
		p.judgeEnd(g)
	}
	p.judgeMessages(g)
}

// neverHeard reports whether the client received its first hello, and nothing that it
// sent afterwards arrived before the line broke. The gateway keeps such a session for a
// few seconds only (protocol section 11), and a client that gets no error may notice too
// late. It gets 4404.
func (p *player) neverHeard(g *gameSeat) bool {
	return p.hellos == 1 && p.verdict == "refused" && p.code == 4404 && !p.end.isPlain() &&
		g.taken() == 0 && g.code == 1001 && (g.reason == "grace period over" && g.at-p.dialled >= int64(p.run.cfg.unheard()) || p.end.redials())
}

// unheard is how long a session is kept whose client never sent anything.
func (c Config) unheard() time.Duration { return min(5*time.Second, c.Expiry) } // protocol section 11

func (p *player) judgeEnd(g *gameSeat) {
	want := rules[p.end]
	codes := want.codes
	if p.verdict == "refused" {
		codes = want.after
	}
	if !slices.Contains(codes, p.code) {
		p.faultLocked("%s: the client got %s %d, want %v", p.end, p.verdict, p.code, codes)
	}
	if p.run.cluster != nil && p.end == cookie && g.code == 1001 && g.reason == "grace period over" {
		return // a fault between nodes has swallowed its Close
	}
	if p.end == gameClose {
		return // the game server reads the answer to its own Close
	}
	if !slices.Contains(want.game, g.code) || g.code >= 0 && g.reason != want.reason {
		p.faultLocked("%s: the game server got Close %d %q, want %v %q", p.end, g.code, g.reason, want.game, want.reason)
	}
}

func (p *player) judgeMessages(g *gameSeat) {
	g.mu.Lock()
	defer g.mu.Unlock()
	sent := g.sent.Load()
	switch {
	case p.end.redials() && p.run.cluster != nil: // a fault between nodes may cost a redial after its bye
	case p.end == hard && sent > 0 && p.down.Try != stage(g.try, g.dial):
		p.down.Verdicts.Lost += sent
		p.faultLocked("nothing came of what the game server sent on its last connection, number %d", g.dial)
	case rules[p.end].down && (p.end != hard || sent > 0):
		p.down.Complete(sent)
	}
	switch {
	case p.end == cookie && p.made > 0 && g.check.Try != p.up.Try:
		g.check.Verdicts.Lost += p.made
		p.faultLocked("nothing came of what the client sent on its last connection")
	case rules[p.end].up && (p.end != cookie || p.made > 0):
		g.check.Complete(p.made)
	}
	if g.check.Taken > p.made && g.check.Try == p.up.Try || !p.end.redials() && p.down.Taken > sent+1 {
		p.faultLocked("more came than was sent")
	}
	if rules[p.end].acked && p.acked > g.check.Taken {
		g.check.Verdicts.Lost += p.acked - g.check.Taken
		p.faultLocked("acked up to message %d, but the game server has only %d", p.acked, g.check.Taken)
	}
	if p.end == overflowEnd && sent <= p.resumed+small {
		p.faultLocked("ended by overflow, with %d messages sent and the client back from message %d", sent, p.resumed)
	}
}
