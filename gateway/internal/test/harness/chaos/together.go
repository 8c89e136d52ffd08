//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"reseat/gateway/internal/test/harness/chaos/history"
	"reseat/gateway/internal/test/harness/process"
	"reseat/gateway/internal/test/harness/seat"
)

// playCluster has sessions come and go while a cluster meets its troubles. A session is judged as
// soon as it is over, so that the run may take hours.
func (r *run) playCluster(ctx context.Context) *Report {
	rep := newReport(r)
	until := time.Now().Add(r.cfg.Cluster)
	var slots sync.WaitGroup
	c := r.cluster
	for range r.cfg.Sessions {
		slots.Go(func() {
			for c.goesOn(until) && ctx.Err() == nil {
				p := r.enters()
				p.play(ctx)
				r.leaves(rep, p)
			}
		})
		sleep(ctx, r.cfg.Spread/time.Duration(r.cfg.Sessions))
	}
	quiet, stop := context.WithCancel(ctx)
	var side sync.WaitGroup
	side.Go(func() { c.watchMachine(quiet) })
	c.ravage(ctx, until)
	c.ending.Store(true)
	slots.Wait()
	stop()
	side.Wait()
	for _, n := range c.nodes {
		c.settles(ctx, n.now.Load(), true)
	}
	c.judgeAll()
	for _, n := range c.nodes {
		l := n.now.Load()
		l.leaves.Store(true)
		l.process.Signal(syscall.SIGTERM)
	}
	for _, n := range c.nodes {
		if err := n.now.Load().process.Wait(time.Minute); err != nil {
			c.r.fault("%s after SIGTERM at the end: %v", n.name, err)
		}
	}
	for _, l := range c.all {
		for _, line := range l.process.Faults() {
			if !strings.Contains(line, `"msg":"engine.lost"`) && !strings.Contains(line, `"msg":"cluster.not_joined"`) {
				c.r.fault("log of %s: %s", l.node.name, line)
			}
		}
	}
	if all, passed := r.count.resumes.Load(), r.count.forwarded.Load(); all > 100 && passed < all/3 {
		r.fault("only %d of %d resumes went through another node than the owner", passed, all)
	}
	return rep.finish()
}

// fewMoves is how often sessions of the counting game go on elsewhere at least.
const fewMoves = 8

// goesOn reports whether the time is not over, or too little has happened to mean anything.
func (c *cluster) goesOn(until time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	moved := c.r.count.moved.Load()
	return time.Now().Before(until) || c.troubles < 5 || c.r.cfg.Only == "" && moved == 0 || c.r.counting != nil && moved < fewMoves
}

// clusterEndings are the endings of a cluster's sessions: those of sessions that outlast a gateway.
var clusterEndings = []ending{byeAtRest, byeAtOnce, gameClose, durable, hard, byeAtRest, cookie, durableHard, expiry, byeAtRest, durable, gameKill, dropOldest, durableHard, newestFirst, durableNewest}

// ending reports whether there are no more faults.
func (r *run) ending() bool { return r.cluster != nil && r.cluster.ending.Load() }

// enters returns a new player.
func (r *run) enters() *player {
	r.mu.Lock()
	defer r.mu.Unlock()
	end := clusterEndings[len(r.players)%len(clusterEndings)]
	if r.cfg.Only != "" {
		end = endingOf(r.cfg.Only)
	}
	p := newPlayer(r, len(r.players), end)
	r.players = append(r.players, p)
	return p
}

// living returns the players that are there.
func (r *run) living() []*player {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.players), func(p *player) bool { return p == nil })
}

func (p *player) sessionID() string {
	if !p.end.isPlain() {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.session
	}
	if g := p.seat(); g != nil {
		return g.session
	}
	return ""
}

// leaves judges a player, and forgets what is known about the session.
func (r *run) leaves(rep *Report, p *player) {
	limit := r.cfg.Stall + 30*time.Second
	if p.end == cookie { // its Close may not arrive
		limit += r.cfg.Grace + 2*r.cfg.Heartbeat
	}
	p.awaitGame(limit)
	rep.add(p)
	r.mu.Lock()
	r.players[p.id] = nil
	r.mu.Unlock()
	r.cluster.forget(p.session)
	for try := range p.try + 1 {
		r.game.forget(p.id, try)
	}
}

// awaitGame waits until the game server knows that the session is over: it may be slow to read its input.
func (p *player) awaitGame(limit time.Duration) {
	for _, g := range p.seats() {
		select {
		case <-g.over:
		case <-time.After(limit):
		}
	}
}

// isLost reports whether the session ended with its gateway.
func (p *player) isLost(g *gameSeat) bool {
	if p.run.cluster == nil || p.end.isDurable() {
		return p.fell
	}
	l := p.run.cluster.lifeOf(g.session)
	p.fell = l != nil && l.lost.Load() > 0 && (!p.done || p.doneAt >= l.lost.Load())
	return p.fell
}

func (p *player) fellWith() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fell
}

// judgeLost judges a session that was lost with its gateway: what has arrived is a prefix of what was
// sent, and the client knows that it is over.
func (p *player) judgeLost(g *gameSeat) {
	p.hist.Add(p.id, history.End, 0, 0, history.Never, history.Unknown, 0, 0)
	planned := append(slices.Clone(rules[p.end].codes), rules[p.end].after...)
	switch {
	case !p.done:
		p.faultLocked("its gateway was lost, and it does not know")
	case p.verdict == "lost", p.code == 4404, p.code == 4503:
	case !slices.Contains(planned, p.code):
		p.faultLocked("its gateway was lost: the client got %s %d", p.verdict, p.code)
	}
	if !isOver(g) {
		p.faultLocked("its gateway was lost, and the game server's connection is still open")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !p.end.redials() && p.end != cookie && (p.down.Taken > g.sent.Load()+1 || g.check.Taken > p.made) {
		p.faultLocked("more came than was sent")
	}
}

// judgeRefusal compares a refusal with what has happened to the session's gateway, and on the way to
// it. It reports whether that gateway may have served the resume all the same, with an answer that was
// lost.
func (c *cluster) judgeRefusal(p *player, a *arrival, k *seat.Closing) (served bool) {
	owner := c.lifeOf(p.sessionID())
	if owner == nil {
		return false
	}
	if p.end.isDurable() {
		return c.judgeDurableRefusal(p, k)
	}
	front, gone := c.nodes[a.front], owner.lost.Load()
	isLost := gone > 0 && now() > gone
	switch {
	case k.Code == 4404 && isLost:
		c.mu.Lock()
		c.counts["4404"]++
		c.mu.Unlock()
		if owner.killed.Load() && a.began > gone && !c.touched(front.name, owner.node.name, max(a.began, gone+int64(4*time.Second))) {
			c.note("4404 after a kill, since the attempt began", time.Duration(now()-a.began))
		}
	case k.Code == 4404 && owner.leaves.Load(): // after its last session, which judge looks at
	case k.Code == 4404 && strings.Contains(k.Reason, "its node was lost"):
		p.fault("%s says that %s was lost, which lives", front.name, owner.node.name)
	case k.Code != 4504:
	default:
		c.mu.Lock()
		c.counts["4504"]++
		c.mu.Unlock()
		since := a.began
		if isLost {
			since = max(since, gone+int64(aftermath)) // a judgement from before may be in use
		}
		id, _ := owner.id.Load().(string)
		at := front.now.Load()
		knew := at.knew(id, a.began)
		if now() > since && knew && !at.leaves.Load() && !c.touched(front.name, owner.node.name, a.began) { // one that exits ends its dials
			c.mu.Lock()
			why := c.why[p.sessionID()]
			c.mu.Unlock()
			p.fault("%s does not reach %s, without any fault between them: %s (%s)", front.name, owner.node.name, k.Reason, why)
		}
		return knew && !isLost
	}
	return false
}

// consistent compares a gateway's metrics with each other, and at the end with its log. It returns
// what is wrong.
func (c *cluster) consistent(l *life, atEnd bool) string {
	m := l.process.Metrics()
	created, living, ended := process.Sum(m, "reseat_sessions_created_total"), process.Sum(m, "reseat_sessions"), process.Sum(m, "reseat_sessions_ended_total")
	switch {
	case !c.adds(created, living, ended, m, l) || len(m) == 0:
		return fmt.Sprintf("%v sessions created, %v living, %v ended, %v claimed, %v fenced, %v handed over", created, living, ended, m[wonMetric], m[fencedMetric], m[handedMetric])
	case !atEnd:
		return ""
	case living > 0:
		return fmt.Sprintf("%v sessions live after their clients' end", living)
	case process.Sum(m, "reseat_forwarded_connections") != 0:
		return fmt.Sprintf("%v connections are passed on after all sessions' end", process.Sum(m, "reseat_forwarded_connections"))
	}
	return l.process.Differs(float64(l.kept.Load())) // upgrades may have counted some twice or not at all
}

// Metrics of durable sessions.
const (
	wonMetric    = `reseat_claims_total{result="won"}`
	fencedMetric = "reseat_sessions_fenced_total"
	sweptMetric  = `reseat_sessions_ended_total{reason="node_lost"}` // of nodes that were lost
	handedMetric = `reseat_handoffs_total{result="ok"}`
)

// adds reports whether the sessions that came to a gateway are those that left it, and those that are there. Other
// gateways may have handed some over to it: at most all that they have.
func (c *cluster) adds(created, living, ended float64, m map[string]float64, l *life) bool {
	came, went := created+m[wonMetric], living+ended-m[sweptMetric]+m[fencedMetric]+m[handedMetric]
	handed := 0.0
	c.mu.Lock()
	for _, other := range c.all {
		if other != l {
			handed += float64(other.handed.Load())
		}
	}
	c.mu.Unlock()
	slack := float64(l.kept.Load())
	return went >= came-slack && went <= came+handed+slack
}

// judgeAll compares the sessions that the game servers saw with those that the gateways began.
func (c *cluster) judgeAll() {
	c.r.game.mu.Lock()
	defer c.r.game.mu.Unlock()
	seen := map[*life]int{}
	for session := range c.r.game.names {
		seen[c.lifeOf(session)]++
	}
	for _, l := range c.all {
		if n := l.process.Said("session.created"); n != seen[l] && !l.killed.Load() {
			c.r.fault("%s created %d sessions, and the game servers saw %d", l.node.name, n, seen[l])
		}
	}
}
