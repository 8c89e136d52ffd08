//go:build linux

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"reseat/gateway/internal/test/harness/process"
	"reseat/gateway/internal/test/harness/seat"
)

// A take is a claim of a durable session, according to a gateway's log.
type take struct {
	epoch uint64
	by    *life
}

// A greeting is a hello of a durable session that the client has taken.
type greeting struct {
	epoch uint64
	owner string // node id
}

// nodeID is a gateway's id, "" if it is not known.
func (l *life) nodeID() string {
	id, _ := l.id.Load().(string)
	return id
}

// noteClaim notes that a gateway has claimed a session.
func (c *cluster) noteClaim(l *life, line process.Line) {
	c.mu.Lock()
	list := c.claims[line.Session]
	c.claims[line.Session] = append(list, take{line.Epoch, l})
	c.mu.Unlock()
	for _, t := range list {
		if t.epoch == line.Epoch {
			c.r.fault("session %s: both %s and %s claim it in epoch %d", line.Session, t.by.node.name, l.node.name, t.epoch)
		}
	}
}

// takes returns the claims of a session.
func (c *cluster) takes(session string) []take {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.claims[session]
}

// noteEnd notes that a gateway has said that a session has ended: no other may. But if NATS was away then, the seat does
// not say so, and is found once the gateway is lost.
func (c *cluster) noteEnd(l *life, line process.Line) {
	c.mu.Lock()
	if len(c.ends[line.Session]) > 0 && line.Reason == "node_lost" {
		c.counts["late"]++
		c.mu.Unlock()
		return
	}
	all := append(c.ends[line.Session], fmt.Sprintf("%s at %s, %.3f", line.Reason, l.node.name, float64(now())/1e9))
	c.ends[line.Session] = all
	c.mu.Unlock()
	if len(all) > 1 {
		c.r.fault("session %s has ended %d times: %s", line.Session, len(all), strings.Join(all, "; "))
	}
}

func (c *cluster) forget(session string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.claims, session)
}

// fenced is the code of the Close frame to the client of a session that another node has taken: no verdict.
const fenced = 1012

// noSeats is how long after the NATS servers were emptied a session may be lost with its gateway: that may have had
// no time to write the seat again.
const noSeats = time.Minute

// judgeDurableRefusal judges the refusal of a durable session's resume. The session is lost only if the engine has
// lost its seat, or was away since it began, or for a whole grace period. Everything else may have been under way at an owner that has died: it reports true.
func (c *cluster) judgeDurableRefusal(p *player, k *seat.Closing) (served bool) {
	c.mu.Lock()
	c.counts[fmt.Sprint(k.Code)]++
	empty := c.emptied.Load()
	c.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case k.Retry || k.Code == 4409:
	case k.Code == 4404 && p.parted > 0 && time.Duration(now()-p.parted) > c.r.cfg.Grace-c.r.cfg.Heartbeat-c.r.cfg.Answer: // which no node may have reached
		p.fell = true
	case k.Code == 4404 && !p.covered, k.Code == 4404 && empty > 0 && time.Duration(now()-empty) < noSeats+c.r.cfg.Late:
		p.fell = true
	case p.endAsked != nil: // it may have ended as it was to
	case k.Code == 4404 && p.hellos == 1 && (p.made == 0 || c.r.game.find(p.id, p.try).taken() == 0): // see neverHeard
	default:
		p.faultLocked("a durable session is refused: %d %s", k.Code, k.Reason)
	}
	return true
}

// goesOn are the reasons of a Close after which the session has another connection. A gateway that was asleep, and
// does not know that another one has the session, must not end it with a word of its own.
var goesOn = []string{"moved", "disconnected"}

// judgeConnections compares the connections of a session with the game server, of which there may be several. On each,
// the client's messages begin with the one that the gateway has named, if the session is durable. After a failover that
// may be a repeat; never is one left out, unless it went down with the gateway, or with the socket of a connection that
// nobody closed. A hand-over repeats none, and the client has all of the older connection.
func (p *player) judgeConnections() {
	next := uint64(1) // the first message that no connection has brought,
	own := next       // and none since the last failover
	whole := true     // the connections up to there were closed in order: nothing has died in their sockets
	all := p.seats()
	for i, g := range all {
		g.mu.Lock()
		first, last, came := g.check.First, g.check.Taken, g.check.Came
		if g.dial == 0 {
			first = 1
		} else if came > 0 && p.end.isDurable() && first != g.upFrom {
			p.fault("connection %d of the game server began with message %d, and Reseat-Up-From was %d", g.dial, first, g.upFrom)
		}
		from := max(g.upFrom, 1)
		if !p.end.isDurable() {
			if from = first; came == 0 {
				from = next
			}
		}
		if g.resumed == "failover" {
			own = from
		}
		switch {
		case from < own:
			g.check.Verdicts.Twice += own - from
			p.fault("connection %d (%s) of the game server begins with message %d, and the one before had all up to %d", g.dial, g.resumed, from, own-1)
		case from < next:
			p.run.count.repeats.Add(next - from)
		case from > next && whole:
			g.check.Verdicts.Lost += from - next
			p.fault("messages %d to %d were lost between connections %d and %d (%s) of the game server", next, from-1, g.dial-1, g.dial, g.resumed)
		case from > next:
			p.run.count.gone.Add(from - next)
		}
		if next, own = max(next, from), max(own, from); came > 0 {
			next, own, whole = max(next, last+1), max(own, last+1), true
		}
		if isOver(g) {
			whole = whole && g.code >= 0
		} else {
			p.fault("connection %d of the game server never ended", g.dial)
		}
		if i < len(all)-1 && p.end.isDurable() && g.code >= 0 && !slices.Contains(goesOn, g.reason) {
			p.fault("connection %d of the game server was closed with %d %q, and the session went on", g.dial, g.code, g.reason)
		}
		g.mu.Unlock()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.judgeHandovers(all)
	p.judgeOwners()
	if next <= p.made && whole && !p.unheard && !p.fell {
		p.faultLocked("messages %d to %d were lost at the end", next, p.made)
	}
}

// judgeOwners checks that each epoch had one owner, and that the client has taken no hello of an older epoch after one of a
// newer; p.mu is held.
func (p *player) judgeOwners() {
	owners, newest := map[uint64]string{}, uint64(0)
	if c := p.run.cluster; c != nil {
		for _, t := range c.takes(p.session) {
			if id := t.by.nodeID(); id != "" {
				owners[t.epoch] = id
			}
		}
	}
	for _, g := range p.greetings {
		if owner, ok := owners[g.epoch]; g.epoch < newest || ok && owner != g.owner {
			p.faultLocked("hello of %s in epoch %d, after one of epoch %d; the epoch's owner is %q", g.owner, g.epoch, newest, owner)
		}
		if g.epoch > 0 {
			owners[g.epoch] = g.owner
		}
		newest = max(newest, g.epoch)
	}
}

// judgeHandovers checks that nothing is missing of what the game server sent before a hand-over, if anything has come
// of what it sent afterwards: the node may have died that got it. A connection that was closed since the client was
// away is not handed over. p.mu is held.
func (p *player) judgeHandovers(all []*gameSeat) {
	for i, g := range all {
		if i == 0 || g.resumed != "handoff" || all[i-1].reason != "moved" {
			continue
		}
		before := all[i-1]
		try := stage(before.try, before.dial)
		if had := p.down.Had(try); had < before.sent.Load() && p.down.Had(stage(g.try, g.dial)) > 0 {
			p.faultLocked("of the game server's connection %d, which was handed over, %d messages came and %d were sent", before.dial, had, before.sent.Load())
		}
	}
}
