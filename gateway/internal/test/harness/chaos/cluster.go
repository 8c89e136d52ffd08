//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"reseat/gateway/internal/test/freeport"
	"reseat/gateway/internal/test/harness/chaos/fault"
	"reseat/gateway/internal/test/harness/process"
)

// A cluster is gateways that share NATS servers. In front of the node listener of each gateway, and of
// both ports of each server, is a gate: every line between two processes can fail on its own.
type cluster struct {
	r       *run
	game    string
	parties *process.Parties
	nodes   []*node
	servers []*server
	nats    []*process.NATS // of servers

	replacing sync.Mutex  // held while a gateway is missing: the others are there
	ending    atomic.Bool // no more sessions, and no more faults

	emptied    atomic.Int64 // when the NATS servers' disks were, last
	stoodStill atomic.Int64 // when this machine did, last

	mu       sync.Mutex
	claims   map[string][]take   // of durable sessions
	ends     map[string][]string // of sessions: by which gateway, and why
	lives    map[string]*life    // by node id
	all      []*life
	outages  []outage
	counts   map[string]int // of troubles by name, and of refusals by code
	troubles int
	slowest  map[string]time.Duration
	why      map[string]string // sessions could not be passed on, by the last line about each
	trace    []string          // what has happened to it
}

const clusterSize = 3

// A node is a place for a gateway: the ports stay when it is started again.
type node struct {
	name   string
	listen string
	gate   *fault.Gate
	near   fault.Proxy
	busy   sync.Mutex // held by what stops or replaces the process
	now    atomic.Pointer[life]
}

// A life is a gateway from its start to its end. Upgrades keep it.
type life struct {
	node    *node
	process *process.Process
	number  int
	id      atomic.Value // the node's, once it has a session
	lost    atomic.Int64 // from when its sessions may be lost; 0: never
	leaves  atomic.Bool  // by SIGTERM
	killed  atomic.Bool
	known   sync.Map     // when it heard of other nodes, by id
	handed  atomic.Int64 // over to other nodes
	kept    atomic.Int64 // those that upgrades handed over late: either process may have counted them
}

// An outage is a fault on the way from one party to another, or of one party.
type outage struct {
	from, to    string // to is "" for a party's own
	began, over int64
}

// A server is a NATS server.
type server struct {
	*process.NATS
	gate, route *fault.Gate
	busy        sync.Mutex
}

func newCluster(r *run, game string) *cluster {
	c := &cluster{r: r, game: game, parties: process.NewParties(), lives: map[string]*life{}, claims: map[string][]take{}, ends: map[string][]string{}, counts: map[string]int{}, slowest: map[string]time.Duration{}, why: map[string]string{}}
	of := c.parties.Of
	if r.cfg.Round == 0 {
		of = func(net.Conn) string { return "" } // looking takes time
	}
	for i := range r.cfg.Servers {
		name := fmt.Sprint("s", i)
		s := &server{NATS: process.NewNATS(r.cfg.NATS, name, r.cfg.Dir, c.parties.Prefix(name))}
		s.gate, s.route = fault.NewGate(freeport.Addr(), s.Client, of), fault.NewGate(freeport.Addr(), s.Routes, of)
		s.Advertised = s.route.Addr
		c.servers, c.nats = append(c.servers, s), append(c.nats, s.NATS)
	}
	for i := range clusterSize {
		n := &node{name: fmt.Sprint("n", i), listen: freeport.Addr()}
		n.gate = fault.NewGate(freeport.Addr(), freeport.Addr(), of)
		n.near = fault.Proxy{Target: n.listen, Plan: r.plan, Struck: r.struck, Told: true}
		c.nodes = append(c.nodes, n)
	}
	process.Join(c.nats)
	return c
}

// open starts everything, and waits until the nodes know each other.
func (c *cluster) open(ctx context.Context) error {
	for _, s := range c.servers {
		if err := errors.Join(s.gate.Open(), s.route.Open()); err != nil {
			return err
		}
	}
	for _, s := range c.servers {
		if err := s.Start(); err != nil {
			return err
		}
	}
	for _, n := range c.nodes {
		if err := c.start(n); err != nil {
			return err
		}
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		n.near.Serve(ln)
		c.r.fronts = append(c.r.fronts, "ws://"+ln.Addr().String())
	}
	if what := process.Await(ctx, time.Minute, c.joined); what != "" {
		return fmt.Errorf("no cluster: %s", what)
	}
	return nil
}

func (c *cluster) close() {
	for _, n := range c.nodes {
		if l := n.now.Load(); l != nil {
			l.process.Kill()
		}
		if n.gate.Close(); c.r.fronts != nil {
			n.near.Close()
		}
	}
	for _, s := range c.servers {
		s.Kill()
		s.gate.Close()
		s.route.Close()
	}
}

// start starts a gateway at its place.
func (c *cluster) start(n *node) error {
	l := &life{node: n}
	c.mu.Lock()
	l.number = len(c.all)
	c.all = append(c.all, l)
	c.mu.Unlock()
	flags := append(c.r.flags(c.game, n.listen, "127.0.0.1:0"), "--node-name="+n.name, "--node-listen="+n.gate.Target, "--node-advertise="+n.gate.Addr)
	for _, s := range c.servers {
		flags = append(flags, "--cluster=nats://"+s.gate.Addr)
	}
	var err error
	l.process, err = process.Start(func(line process.Line) { c.logged(l, line) }, filepath.Join(c.r.cfg.Dir, fmt.Sprintf("%s-%d.log", n.name, l.number)), c.parties.Prefix(n.name), c.r.cfg.Bin, flags...)
	if err != nil {
		return err
	}
	n.now.Store(l)
	return n.gate.Open()
}

// logged examines a line of a gateway's log.
func (c *cluster) logged(l *life, line process.Line) {
	c.r.logged(line)
	switch line.Msg {
	case "session.created":
		if len(line.Session) == 40 {
			c.mu.Lock()
			c.lives[line.Session[:8]] = l
			c.mu.Unlock()
			l.id.Store(line.Session[:8])
		}
	case "session.ended":
		c.noteEnd(l, line)
	case "cluster.joined":
		l.id.Store(line.Node)
	case "session.claimed":
		c.noteClaim(l, line)
	case "resume.not_forwarded":
		c.mu.Lock()
		c.why[line.Session] = line.Why
		c.mu.Unlock()
	case "node.up":
		l.known.LoadOrStore(line.Node, now())
	case "drain.released":
		l.handed.Store(int64(line.Sessions))
	case "upgrade.committed":
		l.kept.Add(int64(line.Kept))
	case "node.gone":
		if other := c.lifeOf(line.Node); other != nil && other.lost.Load() == 0 && !other.leaves.Load() {
			c.r.fault("%s takes %s for gone (%s), which lives", l.node.name, other.node.name, line.Evidence)
		}
	}
}

// lifeOf returns the gateway that a session, or a node's id, belongs to.
func (c *cluster) lifeOf(session string) *life {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lives[session[:min(len(session), 8)]]
}

// knew reports whether a gateway had the one with this id in its table at a time.
func (l *life) knew(id string, at int64) bool {
	v, ok := l.known.Load(id)
	return ok && v.(int64) < at
}

// joined returns which gateway does not know all others, "" if all do.
func (c *cluster) joined() string {
	for _, n := range c.nodes {
		if what := n.now.Load().process.Joined(clusterSize); what != "" {
			return n.name + ": " + what
		}
	}
	return ""
}

// isBack reports whether the player has heard anything since, if that can be expected.
func (p *player) isBack(since int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done || p.leave || p.session == "" || p.heard.Load() > since
}
