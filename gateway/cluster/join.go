package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// This file has this node's place in the cluster: how it joins and leaves, and what it publishes about itself.

const (
	beatEvery   = 500 * time.Millisecond
	recordEvery = 3 * time.Second
)

const (
	// SkewWarning is the difference between the clocks of this machine and of the engine that is logged.
	SkewWarning = time.Second
	// SkewRefusal is the one with which a node may not join.
	SkewRefusal = 30 * time.Second
)

// Join connects to the engine and takes this node's place, within wait. If the engine is away
// the node joins later by itself, and Join returns nil after a warning. An error means that
// this node may not join: its clock is wrong, the other nodes have other keys, or it cannot
// use the engine.
func (c *Cluster) Join(wait time.Duration) error {
	if err := c.cfg.Engine.Start(c); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.ctx, wait)
	defer cancel()
	err := c.cfg.Engine.Ready(ctx)
	if err == nil {
		err = c.enter(ctx)
	}
	switch {
	case errors.Is(err, errRefused), errors.Is(err, ErrUnusable):
		return err
	case err != nil:
		c.mu.Lock()
		c.lost = true
		c.mu.Unlock()
		c.cfg.Log.Warn("engine.lost", "err", err, "text", "this node serves alone, and joins once it can use NATS")
	default:
		if err := c.checkPeers(ctx); err != nil {
			return err
		}
	}
	c.run.Go(c.loop)
	return nil
}

var errRefused = errors.New("this node may not join")

// enter writes this node's first record. Another node may have its id.
func (c *Cluster) enter(ctx context.Context) error {
	if skew, ok := c.cfg.Engine.Skew(); ok && skew.Abs() >= SkewRefusal {
		return fmt.Errorf("%w the cluster: its clock is %v off", errRefused, skew.Round(time.Second))
	}
	for {
		existing, err := c.cfg.Engine.CreateNode(ctx, c.ID(), c.ownRecord(""))
		switch {
		case errors.Is(err, ErrExists):
			r, bad := parseRecord(c.ID(), existing)
			switch {
			case len(existing) == 0: // it may be this node's own: sessions and seats have that id
				return fmt.Errorf("the record of node %s is there, and cannot be read: %w", c.ID(), ErrEngineDown)
			case bad == nil && r.Lineage == c.cfg.Lineage: // of a predecessor, or from before the engine was lost
			case c.cfg.ID != "":
				return fmt.Errorf("%w the cluster: another node has its id %s", errRefused, c.ID())
			default:
				c.mu.Lock()
				c.id = randomHex(IDLen / 2)
				c.mu.Unlock()
				if err := c.cfg.Identity.Load(c.ID()); err != nil {
					return err
				}
				continue
			}
		case err != nil:
			return err
		}
		// Only this one is passed on to the other nodes.
		if err := c.cfg.Engine.PutNode(ctx, c.ID(), c.ownRecord("")); err != nil {
			return err
		}
		c.mu.Lock()
		c.joined = true
		n := len(c.peers)
		c.mu.Unlock()
		c.cfg.Log.Info("cluster.joined", "cluster", c.cfg.Name, "node", c.ID(), "name", c.cfg.NodeName, "address", c.cfg.Address, "nodes", n+1)
		return nil
	}
}

// checkPeers fails if all other nodes refuse this one's certificate. It notes in the log if another
// node answers at this one's address.
func (c *Cluster) checkPeers(ctx context.Context) error {
	c.run.Go(c.checkAddress)
	const enough = 8
	var list []string
	for _, n := range c.Nodes() {
		if !n.Self && n.State == StateUp {
			list = append(list, n.Address)
		}
	}
	if c.sealer != nil {
		list = append(list, c.sealer.strangers()...)
	}
	list = list[:min(len(list), enough)]
	answers := make(chan error, enough)
	for _, address := range list {
		go func() {
			ctx, cancel := context.WithTimeout(ctx, probeTime)
			defer cancel()
			_, err := c.hello(ctx, address)
			answers <- err
		}()
	}
	refused := 0
	for range list {
		if OtherKeys(<-answers) {
			refused++
		}
	}
	if len(list) > 0 && refused == len(list) {
		return fmt.Errorf("%w the cluster: no node accepts its certificate; do all have the same --token-key-file?", errRefused)
	}
	return nil
}

func (c *Cluster) loop() {
	beat, put := time.NewTicker(beatEvery), time.NewTicker(recordEvery)
	defer beat.Stop()
	defer put.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-beat.C:
			c.mu.Lock()
			joined := c.joined && !c.left
			c.mu.Unlock()
			if joined {
				c.cfg.Engine.Beat(c.ID())
			}
			c.joinLater(time.Now())
			c.sweep(time.Now())
			c.noteDraining()
		case <-put.C:
			c.publish()
			c.checkClock()
		}
	}
}

// joinLater joins once the engine has come, if it was away at the start.
func (c *Cluster) joinLater(now time.Time) {
	c.mu.Lock()
	wait := c.joined || !c.synced || now.Before(c.joinAgain)
	if !wait {
		c.joinAgain = now.Add(recordEvery)
	}
	c.mu.Unlock()
	if wait {
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, recordEvery)
	defer cancel()
	err := c.enter(ctx)
	if err == nil {
		err = c.checkPeers(ctx)
	}
	if err != nil && c.ctx.Err() == nil {
		c.cfg.Log.Error("cluster.not_joined", "err", err)
	}
}

// checkAddress asks who answers where the others connect to this node: such an address may have been
// copied from another node. No answer means nothing, since this node may not reach itself by it.
func (c *Cluster) checkAddress() {
	h, err := c.Ask(c.ctx, c.cfg.Address)
	if err == nil && h.ID != c.ID() {
		c.cfg.Log.Error("node.address_taken", "address", c.cfg.Address, "node", h.ID, "name", h.Name,
			"text", "another node answers at this one's --node-advertise: no other node reaches the sessions of this one")
	}
}

// noteDraining publishes at once that this node has begun to drain, or goes on.
func (c *Cluster) noteDraining() {
	now := c.cfg.Draining()
	c.mu.Lock()
	changed := c.draining != now
	c.draining = now
	c.mu.Unlock()
	if changed {
		c.publish()
	}
}

func (c *Cluster) publish() {
	c.mu.Lock()
	joined := c.joined && !c.left
	c.mu.Unlock()
	if joined {
		ctx, cancel := context.WithTimeout(c.ctx, recordEvery)
		defer cancel()
		c.cfg.Engine.PutNode(ctx, c.ID(), c.ownRecord("")) // the engine says when it is away
	}
}

func (c *Cluster) checkClock() {
	skew, ok := c.cfg.Engine.Skew()
	c.mu.Lock()
	bad := ok && skew.Abs() >= SkewWarning
	say := bad && !c.warned
	c.warned = bad
	c.mu.Unlock()
	if say {
		c.cfg.Log.Warn("clock.skewed", "skew", skew.Round(time.Millisecond), "text", "this machine's clock differs from the NATS server's")
	}
}

// Leave publishes that this node has left, and stops.
func (c *Cluster) Leave(ctx context.Context) {
	c.mu.Lock()
	joined := c.joined && !c.left
	c.left = true
	c.mu.Unlock()
	if joined {
		c.cfg.Engine.PutNode(ctx, c.ID(), c.ownRecord(stateLeft))
	}
	c.Stop()
}

// ownRecord is this node's record, in its present state if that is "".
func (c *Cluster) ownRecord(state string) []byte {
	load := c.cfg.Load()
	c.mu.Lock()
	defer c.mu.Unlock()
	if state == "" {
		state = StateUp.String()
		if c.draining {
			state = StateDraining.String()
		}
	}
	b, err := json.Marshal(record{
		ID: c.id, Name: c.cfg.NodeName, Address: c.cfg.Address, Version: c.cfg.Version, Formats: c.cfg.Formats, Level: Level,
		State: state, Lineage: c.cfg.Lineage, Load: load,
	})
	if err != nil {
		panic(err) // it has only strings and numbers
	}
	return b
}
