//go:build linux

package main

import (
	"context"
	"time"

	"reseat/gateway/internal/chaos/history"
)

func now() int64 { return history.Now() }

// sleep sleeps; false: the context has ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// await looks again and again until cond holds or the session is over.
func (p *player) await(ctx context.Context, cond func() bool) bool {
	for !cond() {
		if p.isDone() || !sleep(ctx, 20*time.Millisecond) {
			return cond()
		}
	}
	return true
}

// seat is the session as the game server sees it, nil before the first hello.
func (p *player) seat() *gameSeat {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.session == "" && p.end != plain {
		return nil
	}
	return p.run.game.find(p.id, p.try)
}

// direct brings the session to the end that it is to have.
func (p *player) direct(ctx context.Context) {
	if !p.await(ctx, func() bool { return p.seat() != nil }) {
		return
	}
	g := p.seat()
	if p.end == legCut {
		p.hist.Add(p.id, history.End, 0, 0, history.Never, history.Unknown, 0, 0) // at a byte, whenever that is
	}
	early := uint64(p.script.IntN(p.run.cfg.Messages))
	p.await(ctx, func() bool { return p.enough(g) || p.end == gameKill && p.madeNow() >= early })
	if p.end == drained || p.end == legCut {
		p.await(ctx, p.isDone)
		return
	}
	if !p.isDone() {
		p.conclude(ctx, g)
	}
	p.await(ctx, p.isDone)
}

// enough: all messages and all cuts that were planned have been.
func (p *player) enough(g *gameSeat) bool {
	quota := uint64(p.run.cfg.Messages)
	return p.madeNow() >= quota && g.sent.Load() >= quota && int(p.cuts.Load()) >= p.budget
}

// askEnd notes in the history that the session's end is asked for now.
func (p *player) askEnd() {
	answer := p.hist.Begin(p.id, history.End, 0)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endAsked, p.endAt = answer, now()
}

func (p *player) conclude(ctx context.Context, g *gameSeat) {
	if p.end != expiry {
		p.askEnd()
	}
	switch p.end {
	case byeAtRest, plain:
		p.settle(ctx, g)
		p.bye()
	case byeAtOnce:
		p.bye()
	case gameClose:
		p.note("the game server closes")
		go g.close(4321, "match over")
	case gameKill:
		p.note("the game server is killed")
		g.kill()
	case expiry:
		p.settle(ctx, g)
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

// settle makes both sides fall silent and waits until everything has arrived.
func (p *player) settle(ctx context.Context, g *gameSeat) {
	p.mu.Lock()
	p.mayMake = false
	p.mu.Unlock()
	p.await(ctx, func() bool {
		g.quiet.Store(true)
		select {
		case <-g.still:
		default:
			return false
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.down.Taken >= g.sent.Load() && g.taken() >= p.made && (p.end == plain || p.acked == p.made)
	})
	p.note("settled")
}

// expire stays away until the game server is told, and then asks in vain.
func (p *player) expire(ctx context.Context, g *gameSeat) {
	p.mu.Lock()
	p.leave = true
	drop := p.drop
	p.noteLocked("stays away")
	p.mu.Unlock()
	left := now()
	drop()
	p.await(ctx, func() bool { return isOver(g) })
	earliest := left + int64(p.run.cfg.Grace)
	if !isOver(g) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if g.code != 1001 || g.reason != "grace period over" {
		p.faultLocked("after the grace period the game server got Close %d %q", g.code, g.reason)
	}
	if g.at < earliest {
		p.faultLocked("the session ended %s before its grace period did", time.Duration(earliest-g.at))
	}
	p.hist.Add(p.id, history.Expire, 0, earliest, max(g.at, earliest), history.Done, 0, 0)
	p.leave = false // one more resume, which is to be refused
}

func isOver(g *gameSeat) bool {
	select {
	case <-g.over:
		return true
	default:
		return false
	}
}

// judge holds what the client and the game server have against each other, once
// the session is over.
func (p *player) judge() {
	g := p.seat()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.endAsked != nil {
		p.endAsked(history.Unknown, 0, 0) // asked for; when it was, nobody but the gateway knows
	}
	switch {
	case g == nil:
		p.faultLocked("never had a hello")
		return
	case !p.done:
		p.faultLocked("did not end: %s; made %d, acked %d, game took %d; game sent %d, taken %d", p.end, p.made, p.acked, g.taken(), g.sent.Load(), p.down.Taken)
	case isOver(g) && p.neverHeard(g):
		p.unheard = true
		p.hist.Add(p.id, history.Expire, 0, p.dialled+2*int64(p.run.cfg.Heartbeat), g.at, history.Done, 0, 0)
		return
	case !isOver(g):
		p.faultLocked("the game server's connection is still open after the end (%s %d)", p.verdict, p.code)
	default:
		p.judgeEnd(g)
	}
	p.judgeMessages(g)
}

// neverHeard: the client had its first hello, and nothing that it said to that
// arrived before the line was cut. The gateway keeps such a session for twice the
// heartbeat (reseat.v1 section 6, with a grace period of 0), which is just as long as
// a client that was not told of the cut takes to notice it. It was told 4404.
func (p *player) neverHeard(g *gameSeat) bool {
	return p.hellos == 1 && p.verdict == "refused" && p.code == 4404 && p.end != plain &&
		g.taken() == 0 && g.code == 1001 && g.reason == "grace period over" && g.at-p.dialled >= 2*int64(p.run.cfg.Heartbeat)
}

// An end is how the protocol says that an ending shows.
type end struct {
	codes  []int // to the client: of bye's Close, of end, of close
	after  []int // instead, in answer to a resume that came too late for it
	game   []int // to the game server
	reason string
}

var ends = map[ending]end{
	byeAtRest: {codes: []int{4000}, after: []int{4404}, game: []int{4000}, reason: "played enough"},
	byeAtOnce: {codes: []int{4000}, after: []int{4404}, game: []int{4000}, reason: "played enough"},
	gameClose: {codes: []int{4321}, after: []int{4410}, game: []int{4321}, reason: "match over"},
	gameKill:  {codes: []int{4502}, after: []int{4404}, game: []int{-1}},
	legCut:    {codes: []int{4502}, after: []int{4404}, game: []int{-1, 1002}},
	expiry:    {after: []int{4404}, game: []int{1001}, reason: "grace period over"},
	drained:   {codes: []int{4503}, game: []int{1001}, reason: "draining"},
	plain:     {codes: []int{1000}, game: []int{1000}, reason: "played enough"},
}

func (p *player) judgeEnd(g *gameSeat) {
	want := ends[p.end]
	codes := want.codes
	if p.verdict == "refused" {
		codes = want.after
	}
	if !contains(codes, p.code) {
		p.faultLocked("%s: the client got %s %d, want %v", p.end, p.verdict, p.code, codes)
	}
	if p.end == gameClose {
		return // what the game server reads is the answer to its own Close
	}
	if !contains(want.game, g.code) || g.code >= 0 && g.reason != want.reason {
		p.faultLocked("%s: the game server got Close %d %q, want %v %q", p.end, g.code, g.reason, want.game, want.reason)
	}
}

func contains(list []int, n int) bool {
	for _, v := range list {
		if v == n {
			return true
		}
	}
	return false
}

func (p *player) judgeMessages(g *gameSeat) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.end.completeDown() {
		p.down.Complete(g.sent.Load())
	}
	if p.end.completeUp() {
		g.check.Complete(p.made)
	}
	if g.check.Taken > p.made || p.down.Taken > g.sent.Load()+1 {
		p.faultLocked("more came than was sent")
	}
	if p.end.reads() && p.acked > g.check.Taken {
		g.check.Verdicts.Lost += p.acked - g.check.Taken
		p.faultLocked("acked up to message %d, but the game server has only %d", p.acked, g.check.Taken)
	}
}
