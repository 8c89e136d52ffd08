package cluster

import (
	"context"
	"fmt"
	"time"
)

const (
	probeTime    = 750 * time.Millisecond
	refusedPause = 150 * time.Millisecond
	maxJudges    = 32 // at a time
	judgedFor    = time.Second
	// maxWaiting bounds the clients of one node that wait for a judgement, at most 1.7 seconds: all players
	// of a node that has died. Those who are refused come back, which costs more.
	maxWaiting = 10000
)

// A Verdict says whether a node lives.
type Verdict uint8

const (
	// Unclear: nothing is certain. The client may come back, perhaps through another node.
	Unclear Verdict = iota
	// Alive: it has answered.
	Alive
	// Silent: it sends no heartbeats and answers no connections. It may be cut off: a session of it is
	// not known to be lost.
	Silent
	// Gone: it has announced its end, was replaced, or its machine refuses connections.
	Gone
)

var verdictNames = [...]string{Unclear: "unclear", Alive: "alive", Silent: "silent", Gone: "gone"}

func (v Verdict) String() string { return verdictNames[v] }

// A Judgement is a verdict with its reason.
type Judgement struct {
	Verdict Verdict
	// Evidence is for the log, such as "its address refuses connections".
	Evidence string
	// Heard is the time of the node's last sign of life: a heartbeat, a record or an answer. Zero: none.
	// A session of a Silent node may live until Heard plus its grace period.
	Heard time.Time
}

// EndsSessions reports whether the node's sessions, whose grace period is no longer than grace, cannot
// live any more. Those of a node that is only silent may, until their grace period is over.
func (j Judgement) EndsSessions(grace time.Duration) bool {
	return j.Verdict == Gone || j.Verdict == Silent && !j.Heard.IsZero() && time.Since(j.Heard) > grace
}

// Judge decides whether a node still lives, when a connection to it has failed. It takes up to
// 1.7 seconds; a judgement is used for a second.
func (c *Cluster) Judge(ctx context.Context, id string) Judgement {
	c.mu.Lock()
	p := c.peers[id]
	switch {
	case id == c.id:
		c.mu.Unlock()
		return Judgement{Verdict: Alive, Evidence: "it is this node"}
	case p == nil:
		defer c.mu.Unlock()
		return c.unknownLocked(id)
	case p.gone != "":
		defer c.mu.Unlock()
		return Judgement{Gone, p.gone, c.lastLocked(id, p)}
	case time.Since(p.judgedAt) < judgedFor:
		defer c.mu.Unlock()
		return p.judged
	case p.waiting >= maxWaiting:
		defer c.mu.Unlock()
		return Judgement{Unclear, "too many wait for a judgement", c.lastLocked(id, p)}
	}
	p.waiting++
	first := p.judging == nil
	if first {
		p.judging = make(chan struct{})
		go c.judge(id, p)
	}
	done := p.judging
	c.mu.Unlock()
	select {
	case <-done:
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p.waiting--
	if ctx.Err() != nil {
		return Judgement{Unclear, "no time to judge", c.lastLocked(id, p)}
	}
	return p.judged
}

// unknownLocked judges a node that the table does not have: it may have ended before this node
// began, or it has begun while it could not reach the engine. If it lives, it is heard within a
// grace period from the first question on.
func (c *Cluster) unknownLocked(id string) Judgement {
	if !c.synced {
		return Judgement{Unclear, "it is not known, and the directory is not complete", c.heard[id]}
	}
	heard := c.heard[id]
	if heard.IsZero() {
		if heard = c.asked[id]; heard.IsZero() {
			heard = time.Now()
			c.asked[id] = heard
		}
	}
	return Judgement{Silent, "it is not known", heard}
}

// judge makes a judgement for all who wait.
func (c *Cluster) judge(id string, p *peer) {
	c.judges <- struct{}{}
	c.mu.Lock()
	address, began := p.Address, time.Now()
	c.mu.Unlock()
	j := c.conclude(p, c.examine(id, address, began))
	<-c.judges
	c.mu.Lock()
	defer c.mu.Unlock()
	p.judged, p.judgedAt = j, time.Now()
	if j.Verdict == Silent || j.Verdict == Gone {
		p.cutDials()
	}
	close(p.judging)
	p.judging = nil
}

// conclude notes if a node is gone by a judgement.
func (c *Cluster) conclude(p *peer, j Judgement) Judgement {
	c.mu.Lock()
	if p.gone != "" { // it has announced its end meanwhile
		j.Verdict, j.Evidence = Gone, p.gone
	}
	ends := j.Verdict == Gone && p.gone == ""
	if ends {
		p.gone = j.Evidence
		p.cutDials()
	}
	n := c.nodeLocked(p, time.Now())
	c.mu.Unlock()
	if ends {
		c.lose(n, j.Evidence)
	}
	return j
}

// hasRivalLocked reports whether another node has the address of p, which nobody has asked of late.
func (c *Cluster) hasRivalLocked(p *peer, now time.Time) (rival bool) {
	for _, q := range c.peers {
		if q != p && q.Address == p.Address && q.gone == "" {
			rival = true
			if now.Sub(q.settled) < judgedFor {
				return false
			}
		}
	}
	if rival {
		p.settled = now
	}
	return rival
}

// settle asks once which node is at an address that several have: it has replaced the others.
func (c *Cluster) settle(address string) {
	h, err := c.Ask(c.ctx, address)
	if err != nil {
		return // who falls silent is judged
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, p := range c.peers {
		if p.Address == address && p.gone == "" && (id != h.ID || h.Cluster != c.cfg.Name) {
			go func() { c.conclude(p, c.replaced(id, h)) }()
		}
	}
}

// replaced judges a node at whose address another one answers.
func (c *Cluster) replaced(id string, h Hello) Judgement {
	evidence := fmt.Sprintf("node %.20q of cluster %.40q answers at its address", h.ID, h.Cluster)
	if c.beatsOn(id) {
		return Judgement{Verdict: Unclear, Evidence: evidence + ", but it sends heartbeats: its --node-advertise is wrong"}
	}
	return Judgement{Verdict: Gone, Evidence: evidence}
}

// examine collects the evidence about a node at an address.
func (c *Cluster) examine(id, address string, began time.Time) (j Judgement) {
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if p := c.peers[id]; p != nil && j.Heard.IsZero() {
			j.Heard = c.lastLocked(id, p)
		}
	}()
	refusals := 0
	var last error
	for try := range 2 {
		ctx, cancel := context.WithTimeout(c.ctx, probeTime)
		h, err := c.hello(ctx, address)
		cancel()
		switch {
		case err == nil && h.ID == id && h.Cluster == c.cfg.Name:
			return Judgement{Alive, "it answers", time.Now()}
		case err == nil:
			return c.replaced(id, h)
		case ConnectionRefused(err):
			refusals++
		}
		last = err
		if try == 0 && ConnectionRefused(err) {
			select {
			case <-time.After(refusedPause):
			case <-c.ctx.Done():
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	beats := c.heard[id].After(began)
	switch quiet := c.quietLocked(id, now); {
	case refusals == 2 && !beats:
		return Judgement{Verdict: Gone, Evidence: "its address refuses connections, and no heartbeat came since"}
	case refusals == 2:
		return Judgement{Verdict: Unclear, Evidence: "its address refuses connections, but it sends heartbeats"}
	case OtherKeys(last):
		return Judgement{Verdict: Unclear, Evidence: fmt.Sprintf("it has other keys: %v", last)}
	case !c.up:
		return Judgement{Verdict: Unclear, Evidence: fmt.Sprintf("no answer, and heartbeats cannot be heard without NATS: %v", last)}
	case quiet <= c.cfg.DeadAfter:
		return Judgement{Verdict: Unclear, Evidence: fmt.Sprintf("no answer, but it was heard %v ago: %v", quiet.Round(time.Millisecond), last)}
	case !c.hearsOthersLocked(id, now):
		return Judgement{Verdict: Unclear, Evidence: "no answer, but most other nodes are not heard either"}
	default:
		return Judgement{Verdict: Silent, Evidence: fmt.Sprintf("no answer, and no heartbeat for %v: %v", quiet.Round(time.Millisecond), last)}
	}
}

// beatsOn reports whether a node that was just heard is heard again, when its next heartbeat is due.
func (c *Cluster) beatsOn(id string) bool {
	c.mu.Lock()
	last := c.heard[id]
	c.mu.Unlock()
	due := time.Until(last.Add(beatEvery + refusedPause))
	if due <= 0 {
		return false
	}
	select {
	case <-time.After(due):
	case <-c.ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.heard[id].After(last)
}

// hearsOthersLocked reports whether this node hears at least half of the other nodes: else it
// may be the one that is cut off.
func (c *Cluster) hearsOthersLocked(but string, now time.Time) bool {
	others, heard := 0, 0
	for id, p := range c.peers {
		if id == but || p.gone != "" || c.quietLocked(id, now) > hideAfter {
			continue
		}
		others++
		if c.quietLocked(id, now) <= c.cfg.DeadAfter {
			heard++
		}
	}
	return 2*heard >= others
}
