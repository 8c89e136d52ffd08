package cluster

import (
	"slices"
	"strings"
	"time"
)

// This file has the table of the other nodes: what the engine says of them, which are silent, and what is listed.

const (
	// A node of which nothing is heard is listed for hideAfter, while the engine is up. It is
	// known for longer, since grace periods are: it may live and be cut off from the engine alone.
	hideAfter     = time.Minute
	forgetAfter   = time.Hour
	rememberHeard = 10000
)

// EngineUp implements EngineHandler.
func (c *Cluster) EngineUp(s EngineStatus) {
	c.mu.Lock()
	c.up, c.synced, c.upSince = true, false, time.Now()
	back := c.lost
	c.lost = false
	calls := slices.Clone(c.onUp)
	c.mu.Unlock()
	if back {
		c.cfg.Log.Info("engine.back", "server", s.URL, "version", s.Version)
	}
	for _, f := range calls {
		go f()
	}
}

// EngineDown implements EngineHandler.
func (c *Cluster) EngineDown(err error) {
	c.mu.Lock()
	was := c.up && c.ctx.Err() == nil
	if c.synced {
		c.unsynced = time.Now()
	}
	c.up, c.synced = false, false
	c.lost = c.lost || was
	c.mu.Unlock()
	if was {
		c.cfg.Log.Error("engine.lost", "err", err, "text", "sessions and resumes go on; new nodes are not seen, and nobody is judged silent")
	}
}

// Record implements EngineHandler.
func (c *Cluster) Record(id string, value []byte) {
	if value == nil {
		return // the table goes by what it hears
	}
	r, err := parseRecord(id, value)
	if err != nil {
		c.cfg.Log.Warn("node.bad_record", "err", err)
		return
	}
	now := time.Now()
	c.mu.Lock()
	if id == c.id {
		c.mu.Unlock()
		return
	}
	p, known := c.peers[id]
	if !known {
		p = &peer{}
		c.peers[id] = p
	}
	left := r.State == stateLeft
	back := p.silent || p.gone != "" && !left
	said := left && !p.left
	p.record, p.recordAt, p.silent, p.left, p.judgedAt = r, now, false, left, time.Time{}
	switch c.heard[id] = now; {
	case !left:
		p.gone = "" // it lives after all
	case p.gone == "":
		p.gone = "it has left"
	}
	settle := p.gone == "" && c.hasRivalLocked(p, now)
	c.mu.Unlock()
	if settle {
		go c.settle(r.Address)
	}
	switch {
	case said && known:
		c.cfg.Log.Info("node.gone", "node", id, "name", r.Name, "address", r.Address, "evidence", "it has left", "sessions", r.Sessions)
	case left:
	case !known || back:
		c.logUp(r)
	}
}

// Heartbeat implements EngineHandler.
func (c *Cluster) Heartbeat(id string) {
	c.mu.Lock()
	p := c.peers[id]
	if id == c.id || len(id) != IDLen || p != nil && p.left {
		c.mu.Unlock()
		return
	}
	c.heard[id] = time.Now()
	back := p != nil && (p.silent || p.gone != "")
	var r record
	if back {
		p.silent, p.gone, p.judgedAt = false, "", time.Time{}
		r = p.record
	}
	c.mu.Unlock()
	if back {
		c.logUp(r)
	}
}

// Synced implements EngineHandler.
func (c *Cluster) Synced() {
	c.mu.Lock()
	if !c.synced { // the outage counts for no grace period
		for id, at := range c.asked {
			c.asked[id] = at.Add(time.Since(c.unsynced))
		}
	}
	c.synced = true
	calls := slices.Clone(c.onSynced)
	c.mu.Unlock()
	for _, f := range calls {
		go f()
	}
}

func (c *Cluster) logUp(r record) {
	c.cfg.Log.Info("node.up", "node", r.ID, "name", r.Name, "address", r.Address, "version", r.Version)
}

// sweep notes which nodes have fallen silent, and forgets those that were for long. While the engine
// is away nobody is heard, and so nobody is silent; the same if this node hears none of the others.
func (c *Cluster) sweep(now time.Time) {
	c.mu.Lock()
	var fell []Node
	for id, p := range c.peers {
		switch {
		case !c.up:
		case now.Sub(c.lastLocked(id, p)) > forgetAfter:
			p.cutDials()
			delete(c.peers, id)
		case p.gone == "" && !p.silent && c.quietLocked(id, now) > c.cfg.DeadAfter && c.hearsOthersLocked(id, now):
			p.silent = true
			fell = append(fell, c.nodeLocked(p, now))
		}
	}
	for _, m := range []map[string]time.Time{c.heard, c.asked} {
		if len(m) > rememberHeard {
			clear(m)
		}
	}
	c.mu.Unlock()
	for _, n := range fell {
		c.cfg.Log.Warn("node.silent", "node", n.ID, "name", n.Name, "address", n.Address, "heartbeat_age", n.HeartbeatAge.Round(time.Millisecond), "sessions", n.Sessions)
		c.run.Go(func() { c.Judge(c.ctx, n.ID) }) // perhaps it was killed: nobody may ask for its sessions
	}
}

// lastLocked returns the time of a peer's last sign of life.
func (c *Cluster) lastLocked(id string, p *peer) time.Time {
	if h := c.heard[id]; h.After(p.recordAt) {
		return h
	}
	return p.recordAt
}

// quietLocked returns for how long a node was not heard that could have been.
func (c *Cluster) quietLocked(id string, now time.Time) time.Duration {
	since := c.heard[id]
	if c.upSince.After(since) {
		since = c.upSince
	}
	return now.Sub(since)
}

// lose notes that a node has ended without having left. Its sessions are lost, as many as it had at its
// last record, which may be 3 seconds old.
func (c *Cluster) lose(n Node, evidence string) {
	c.cfg.Log.Warn("node.gone", "node", n.ID, "name", n.Name, "address", n.Address, "evidence", evidence, "sessions", n.Sessions)
	c.mu.Lock()
	calls := slices.Clone(c.onLost)
	c.mu.Unlock()
	for _, f := range calls {
		f(n)
	}
}

// Nodes lists all nodes that are known, this one first, the others by name.
func (c *Cluster) Nodes() []Node {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	self := Node{ID: c.id, Name: c.cfg.NodeName, Address: c.cfg.Address, Version: c.cfg.Version, Formats: c.cfg.Formats, Level: Level, Load: c.cfg.Load(), Self: true}
	if c.draining {
		self.State = StateDraining
	}
	list := []Node{self}
	for id, p := range c.peers {
		if !c.up || c.quietLocked(id, now) <= hideAfter {
			list = append(list, c.nodeLocked(p, now))
		}
	}
	slices.SortFunc(list[1:], func(a, b Node) int {
		if n := strings.Compare(a.Name, b.Name); n != 0 {
			return n
		}
		return strings.Compare(a.ID, b.ID)
	})
	return list
}

// Known returns what this node knows of others, for its successor.
func (c *Cluster) Known() []Known {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []Known
	for id, p := range c.peers {
		list = append(list, Known{p.record, c.lastLocked(id, p), p.gone})
	}
	return list
}

func (c *Cluster) nodeLocked(p *peer, now time.Time) Node {
	n := Node{ID: p.ID, Name: p.Name, Address: p.Address, Version: p.Version, Formats: p.Formats, Level: p.Level, Load: p.Load}
	n.HeartbeatAge = now.Sub(c.lastLocked(p.ID, p))
	switch {
	case p.gone != "":
		n.State = StateGone
	case p.silent:
		n.State = StateSilent
	case p.State == StateDraining.String():
		n.State = StateDraining
	}
	return n
}

// OnEngineUp registers f, which is called in a goroutine each time the engine is connected: messages may
// have been lost before.
func (c *Cluster) OnEngineUp(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onUp = append(c.onUp, f)
}

// OnSynced registers f, which is called in a goroutine each time the engine has its buckets, which may be
// new or have had no leader for a while.
func (c *Cluster) OnSynced(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onSynced = append(c.onSynced, f)
}

// OnLost registers f, which is called for each node that ended without having left. f must return soon.
func (c *Cluster) OnLost(f func(Node)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onLost = append(c.onLost, f)
}
