//go:build linux

// Package failover proves durable sessions with real processes: gateways, NATS servers and the
// counting game of docs/games, on one machine.
package failover

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"reseat/gateway/internal/test/freeport"
	"reseat/gateway/internal/test/harness/process"
)

// A stage is a cluster of three gateways with its NATS servers, in front of the counting game.
type stage struct {
	bin, dir, driver string
	tap              net.Listener
	game             *process.Counting
	servers          []*process.NATS
	engine           sync.Mutex // held by what happens to them
	nodes            []*node

	mu     sync.Mutex
	lines  []line
	faults []string
}

// A node is a place for a gateway. Its ports stay.
type node struct {
	name                string
	listen, admin, peer string
	lives               int
	bad                 []string   // lines of earlier lives
	busy                sync.Mutex // held by what happens to it
	*process.Process
}

// A line is one of a gateway's log.
type line struct {
	process.Line
	node *node
}

const size = 3 // gateways

// open starts everything, and waits until the gateways know each other. tick is between two messages of
// the game to a session, in milliseconds.
func (s *stage) open(ctx context.Context, nats, game string, servers, tick int) (err error) {
	if err := os.WriteFile(s.key(), []byte(strings.Repeat("0123456789abcdef", 2)), 0o600); err != nil {
		return err
	}
	if s.game, err = process.StartCounting(game, s.dir, tick); err != nil {
		return err
	}
	if s.tap, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return err
	}
	go s.serveTap()
	if s.servers, err = process.StartNATS(nats, s.dir, servers); err != nil {
		return err
	}
	for i := range size {
		n := &node{name: fmt.Sprint("n", i), listen: freeport.Addr(), admin: freeport.Addr(), peer: freeport.Addr(), lives: i}
		if err := s.start(n); err != nil {
			return err
		}
		s.nodes = append(s.nodes, n)
	}
	if what := process.Await(ctx, time.Minute, s.joined); what != "" {
		return errors.New(what)
	}
	return nil
}

func (s *stage) key() string { return filepath.Join(s.dir, "key") }

// start starts a gateway at its place.
func (s *stage) start(n *node) error {
	driver := s.driver
	if driver == "both" {
		driver = []string{"net", "poll"}[n.lives%2]
	}
	flags := []string{"--listen=" + n.listen, "--admin=" + n.admin, "--node-listen=" + n.peer, "--node-name=" + n.name, "--upstream=ws://" + s.tap.Addr().String(),
		"--driver=" + driver, "--durable=on", "--disconnect=hard", "--grace=20s", "--heartbeat=2s", "--answer-timeout=1s", "--drain=1m", "--log-format=json", "--token-key-file=" + s.key()}
	for _, o := range s.servers {
		flags = append(flags, "--cluster=nats://"+o.Client)
	}
	n.lives++
	if n.Process != nil {
		n.bad = append(n.bad, n.Faults()...)
	}
	told := func(l process.Line) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.lines = append(s.lines, line{l, n})
	}
	p, err := process.Start(told, filepath.Join(s.dir, fmt.Sprintf("%s-%d.log", n.name, n.lives)), nil, s.bin, flags...)
	if err == nil {
		n.Process = p
	}
	return err
}

// said returns the lines with this message.
func (s *stage) said(msg string) (list []line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.lines {
		if l.Msg == msg {
			list = append(list, l)
		}
	}
	return list
}

func (s *stage) fault(err error) {
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.faults = append(s.faults, err.Error())
	}
}

func (s *stage) close() {
	for _, n := range s.nodes {
		n.Kill()
	}
	for _, n := range s.servers {
		n.Kill()
	}
	if s.game != nil {
		s.game.Kill()
	}
	if s.tap != nil {
		s.tap.Close()
	}
}

// joined returns which gateway does not know all others, "" if all do.
func (s *stage) joined() string {
	for _, n := range s.nodes {
		if what := n.Joined(size); what != "" {
			return what
		}
	}
	return ""
}

// serveTap stands before the game server and alters nothing: what has reached it reaches the game
// server, even if the gateway has died since.
func (s *stage) serveTap() {
	for {
		c, err := s.tap.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil { // else no descriptors, for now
			go s.tapped(c)
		}
	}
}

func (s *stage) tapped(c net.Conn) {
	defer c.Close()
	var head bytes.Buffer
	if _, err := http.ReadRequest(bufio.NewReader(io.TeeReader(c, &head))); err != nil {
		return // and the game server sees no connection that has no handshake
	}
	g, err := net.Dial("tcp", s.game.Addr)
	if err != nil {
		return
	}
	defer g.Close()
	g.Write(head.Bytes())
	var up sync.WaitGroup
	up.Go(func() { pass(g, c) })
	pass(c, g)
	io.Copy(io.Discard, g) // the gateway is not there any more
	up.Wait()
}

// pass passes on what from says, to its end. It does without splice(2), whose pipes would take four descriptors
// more for each session.
func pass(to, from net.Conn) {
	io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, 4096))
	to.(*net.TCPConn).CloseWrite()
}

// A trouble is something that happens to a stage. A node is held while it happens to it.
type trouble struct {
	name   string
	weight int
	act    func(ctx context.Context, s *stage, co *company, r *rand.Rand)
}

// toNode has something happen to a node; if that ends its gateway, it is started again after a while.
func toNode(ends bool, act func(ctx context.Context, s *stage, n *node, r *rand.Rand)) func(context.Context, *stage, *company, *rand.Rand) {
	return func(ctx context.Context, s *stage, _ *company, r *rand.Rand) {
		n := s.nodes[r.IntN(size)]
		n.busy.Lock()
		defer n.busy.Unlock()
		if act(ctx, s, n, r); ends {
			process.Sleep(ctx, process.Span(r, 0, 3*time.Second))
			s.fault(s.start(n))
		}
	}
}

// killed kills NATS servers, and starts them again after a while.
func (s *stage) killed(ctx context.Context, r *rand.Rand, with func(), servers ...*process.NATS) {
	s.engine.Lock()
	defer s.engine.Unlock()
	var all sync.WaitGroup
	all.Go(with)
	for _, o := range servers {
		all.Go(o.Kill)
	}
	all.Wait()
	process.Sleep(ctx, process.Span(r, 0, 4*time.Second))
	for _, o := range servers {
		s.fault(o.Start())
	}
}

// leader returns the NATS server that leads a bucket of seats, if there is one.
func (s *stage) leader(r *rand.Rand) []*process.NATS {
	if o := process.Leader(s.servers, fmt.Sprint("KV_reseat_seats_", r.IntN(8))); o != nil {
		return []*process.NATS{o}
	}
	return nil
}

var troubles = []trouble{
	{"killed", 6, toNode(true, func(_ context.Context, _ *stage, n *node, _ *rand.Rand) { n.Kill() })},
	{"killed, with a NATS leader", 3, toNode(true, func(ctx context.Context, s *stage, n *node, r *rand.Rand) {
		s.killed(ctx, r, n.Kill, s.leader(r)...)
	})},
	{"stopped and continued", 5, toNode(false, func(ctx context.Context, _ *stage, n *node, r *rand.Rand) {
		n.Signal(syscall.SIGSTOP)
		process.Sleep(ctx, process.Span(r, 300*time.Millisecond, 6*time.Second))
		n.Signal(syscall.SIGCONT)
	})},
	{"drained", 4, toNode(true, func(_ context.Context, s *stage, n *node, _ *rand.Rand) {
		n.Signal(syscall.SIGTERM)
		s.fault(n.Wait(2 * time.Minute))
	})},
	{"drained, then killed", 2, toNode(true, func(ctx context.Context, _ *stage, n *node, r *rand.Rand) {
		n.Signal(syscall.SIGTERM)
		process.Sleep(ctx, process.Span(r, 0, 1500*time.Millisecond))
		n.Kill()
	})},
	{"NATS leader killed", 3, func(ctx context.Context, s *stage, _ *company, r *rand.Rand) {
		s.killed(ctx, r, func() {}, s.leader(r)...)
	}},
	{"NATS killed, all of it", 1, func(ctx context.Context, s *stage, _ *company, r *rand.Rand) {
		s.killed(ctx, r, func() {}, s.servers...)
	}},
	{"clients away", 4, func(ctx context.Context, _ *stage, co *company, r *rand.Rand) {
		co.each(func(c *client) { c.stay = r.IntN(3) == 0 })
		process.Sleep(ctx, process.Span(r, 100*time.Millisecond, 3*time.Second))
		co.each(func(c *client) { c.stay = false })
	}},
}

// ravage has troubles come, two at a time.
func (s *stage) ravage(ctx context.Context, co *company, seed uint64, d time.Duration, tell func(format string, args ...any)) {
	var bag []trouble
	for _, t := range troubles {
		for range t.weight {
			bag = append(bag, t)
		}
	}
	until := time.Now().Add(d)
	var hands sync.WaitGroup
	for hand := range uint64(2) {
		hands.Go(func() {
			r := rand.New(rand.NewPCG(seed, hand))
			for time.Now().Before(until) && ctx.Err() == nil {
				t, began := bag[r.IntN(len(bag))], time.Now()
				t.act(ctx, s, co, r)
				tell("%s to %s: %s", began.Format("05.000"), time.Now().Format("05.000"), t.name)
				process.Sleep(ctx, process.Span(r, 0, time.Second))
			}
		})
	}
	hands.Wait()
}
