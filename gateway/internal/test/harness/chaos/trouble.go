//go:build linux

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"reseat/gateway/internal/test/harness/chaos/fault"
	"reseat/gateway/internal/test/harness/process"
)

// A trouble is something that happens to a cluster, for a while.
type trouble struct {
	name   string
	weight int
	act    func(ctx context.Context, c *cluster, r *rand.Rand) string // returns to whom
}

// troubles are all of them. A gateway that is not there is never more than one.
var troubles = []trouble{
	{"line between two nodes", 8, func(ctx context.Context, c *cluster, r *rand.Rand) string {
		from, to := two(r, c.nodes)
		return c.storm(ctx, r, 4*time.Second, way{from.name, to.name, to.gate})
	}},
	{"node without the others", 3, func(ctx context.Context, c *cluster, r *rand.Rand) string {
		one := pick(r, c.nodes)
		var ways []way
		for _, other := range c.nodes {
			if other != one {
				ways = append(ways, way{one.name, other.name, other.gate}, way{other.name, one.name, one.gate})
			}
		}
		return c.storm(ctx, r, 4*time.Second, ways...)
	}},
	{"line to a NATS server", 4, func(ctx context.Context, c *cluster, r *rand.Rand) string {
		from, to := pick(r, c.nodes), pick(r, c.servers)
		return c.storm(ctx, r, 6*time.Second, way{from.name, to.Name, to.gate})
	}},
	{"node without NATS", 4, func(ctx context.Context, c *cluster, r *rand.Rand) string {
		one := pick(r, c.nodes)
		var ways []way
		for _, s := range c.servers {
			ways = append(ways, way{one.name, s.Name, s.gate})
		}
		return c.storm(ctx, r, 6*time.Second, ways...)
	}},
	{"line between two NATS servers", 3, func(ctx context.Context, c *cluster, r *rand.Rand) string {
		from, to := two(r, c.servers)
		return c.storm(ctx, r, 6*time.Second, way{from.Name, to.Name, to.route})
	}},
	{"gateway stopped and continued", 5, func(ctx context.Context, c *cluster, r *rand.Rand) string {
		n := pick(r, c.nodes)
		n.busy.Lock()
		defer n.busy.Unlock()
		defer c.outage(n.name, "")()
		l := n.now.Load()
		l.process.Signal(syscall.SIGSTOP)
		defer l.process.Signal(syscall.SIGCONT)
		d := process.Span(r, 300*time.Millisecond, 4*time.Second)
		if r.IntN(3) == 0 { // until others take it for silent
			d += 5 * time.Second
		}
		sleep(ctx, d)
		return fmt.Sprint(n.name, " for ", d)
	}},
	{"gateway killed", 4, func(ctx context.Context, c *cluster, r *rand.Rand) string {
		n := pick(r, c.nodes)
		return c.replace(ctx, n, r, func(l *life) { c.kill(n, l) })
	}},
	{"gateway drained", 2, func(ctx context.Context, c *cluster, r *rand.Rand) string {
		n := pick(r, c.nodes)
		return c.replace(ctx, n, r, func(l *life) {
			l.leaves.Store(true)
			l.lost.Store(now() + int64(c.r.cfg.Drain-time.Second))
			l.process.Signal(syscall.SIGTERM)
			if err := l.process.Wait(c.r.cfg.Drain + time.Minute); err != nil {
				c.r.fault("%s after SIGTERM: %v", n.name, err)
			}
			l.lost.Store(min(l.lost.Load(), now()))
			n.gate.Refuse()
			c.outage(n.name, "")()
		})
	}},
	{"gateway drained, then killed", 1, func(ctx context.Context, c *cluster, r *rand.Rand) string {
		n := pick(r, c.nodes)
		return c.replace(ctx, n, r, func(l *life) {
			l.leaves.Store(true)
			l.lost.Store(now())
			l.handed.Store(int64(2 * c.r.cfg.Sessions)) // at most, since it will not say how many: also those whose first hello was lost
			l.process.Signal(syscall.SIGTERM)
			sleep(ctx, process.Span(r, 0, 1500*time.Millisecond))
			c.kill(n, l)
		})
	}},
	{"gateway upgraded", 4, func(_ context.Context, c *cluster, r *rand.Rand) string {
		n := pick(r, c.nodes)
		n.busy.Lock()
		defer n.busy.Unlock()
		key, err := n.now.Load().process.Upgrade(5 * time.Minute)
		if err != nil {
			c.r.fault("%s: %v", n.name, err)
		}
		return n.name + ": " + key
	}},
	{"gateway and a NATS leader killed at once", 3, func(ctx context.Context, c *cluster, r *rand.Rand) string {
		n, s := pick(r, c.nodes), c.leaderOf(fmt.Sprint("KV_reseat_seats_", r.IntN(8)))
		if s == nil {
			return "there is none"
		}
		s.busy.Lock()
		defer s.busy.Unlock()
		what := c.replace(ctx, n, r, func(l *life) {
			var both sync.WaitGroup
			both.Go(s.Kill)
			c.kill(n, l)
			both.Wait()
		})
		sleep(ctx, process.Span(r, 0, 3*time.Second))
		c.mustStart(s)
		return fmt.Sprint(what, ", and ", s.Name)
	}},
	{"NATS server killed", 3, func(ctx context.Context, c *cluster, r *rand.Rand) string {
		return c.restart(ctx, r, pick(r, c.servers), 4*time.Second)
	}},
	{"NATS leader killed", 3, func(ctx context.Context, c *cluster, r *rand.Rand) string {
		s := c.leaderOf("KV_reseat_nodes")
		if s == nil {
			return "there is none"
		}
		return c.restart(ctx, r, s, 4*time.Second)
	}},
	{"NATS server stopped and continued", 3, func(ctx context.Context, c *cluster, r *rand.Rand) string {
		s := pick(r, c.servers)
		s.busy.Lock()
		defer s.busy.Unlock()
		s.Signal(syscall.SIGSTOP)
		d := process.Span(r, 300*time.Millisecond, 6*time.Second)
		sleep(ctx, d)
		s.Signal(syscall.SIGCONT)
		return fmt.Sprint(s.Name, " for ", d)
	}},
	{"NATS servers killed, all at once", 2, func(ctx context.Context, c *cluster, r *rand.Rand) string {
		empty := r.IntN(2) == 0
		for _, s := range c.servers {
			s.busy.Lock()
			defer s.busy.Unlock()
		}
		for _, s := range c.servers {
			s.Kill()
			if empty {
				c.emptied.Store(now())
				s.Empty()
			}
		}
		d := process.Span(r, 0, 5*time.Second)
		sleep(ctx, d)
		for _, s := range c.servers {
			c.mustStart(s)
		}
		return fmt.Sprint("for ", d, ", disks emptied: ", empty)
	}},
	{"NATS servers restarted, one soon after the other", 1, func(ctx context.Context, c *cluster, r *rand.Rand) string {
		for _, s := range c.servers {
			c.restart(ctx, r, s, 0)
			sleep(ctx, 500*time.Millisecond)
		}
		return "all"
	}},
}

func pick[T any](r *rand.Rand, list []T) T { return list[r.IntN(len(list))] }

func two[T any](r *rand.Rand, list []T) (T, T) {
	i := r.IntN(len(list))
	return list[i], list[(i+1+r.IntN(len(list)-1))%len(list)]
}

// A way is the line from one party to another.
type way struct {
	from, to string
	gate     *fault.Gate
}

// storm spoils lines for a while. At the end a black hole lets everything pass that was sent
// meanwhile, or has become a broken connection.
func (c *cluster) storm(ctx context.Context, r *rand.Rand, most time.Duration, ways ...way) string {
	list := fault.Weathers(process.Span(r, 50*time.Millisecond, 800*time.Millisecond), 2<<10<<r.IntN(6))
	w, d := list[r.IntN(len(list))], process.Span(r, 200*time.Millisecond, most)
	gently, breaks := r.IntN(2) == 0, w.Hold != [2]bool{} && r.IntN(2) == 0
	for _, x := range ways {
		defer c.outage(x.from, x.to)()
		if x.gate.Set(x.from, w); w.Reset {
			x.gate.Cut(x.from, gently)
		}
	}
	sleep(ctx, d)
	for _, x := range ways {
		if x.gate.Set(x.from, fault.Weather{}); breaks {
			x.gate.Cut(x.from, gently)
		}
	}
	return fmt.Sprintf("%s to %s and %d more: %v for %v, then broken: %v", ways[0].from, ways[0].to, len(ways)-1, w, d, w.Reset || breaks)
}

// replace ends a gateway, and starts another at its place.
func (c *cluster) replace(ctx context.Context, n *node, r *rand.Rand, end func(l *life)) string {
	c.replacing.Lock()
	defer c.replacing.Unlock()
	n.busy.Lock()
	defer n.busy.Unlock()
	l := n.now.Load()
	end(l)
	c.release(l)
	d := process.Span(r, 0, 3*time.Second)
	sleep(ctx, d)
	defer c.outage(n.name, "")()
	if err := c.start(n); err != nil {
		c.r.fault("%s does not start again: %v", n.name, err)
	}
	return fmt.Sprint(n.name, ", back after ", d)
}

// release ends what a plain client does after its gateway was lost: it cannot know that its next
// session is another one.
func (c *cluster) release(l *life) {
	for _, p := range c.r.living() {
		if p.end == cookie && c.lifeOf(p.sessionID()) == l {
			p.mu.Lock()
			p.finishLocked("lost", 0)
			drop := p.drop
			p.mu.Unlock()
			if drop != nil {
				drop()
			}
		}
	}
}

// kill kills a gateway.
func (c *cluster) kill(n *node, l *life) {
	defer c.outage(n.name, "")()
	l.killed.Store(true)
	l.lost.Store(now())
	n.gate.Refuse()
	l.process.Kill()
	n.gate.Cut("", false)
}

func (c *cluster) mustStart(s *server) {
	if err := s.Start(); err != nil {
		c.r.fault("%s does not start again: %v", s.Name, err)
	}
}

func (c *cluster) restart(ctx context.Context, r *rand.Rand, s *server, most time.Duration) string {
	s.busy.Lock()
	defer s.busy.Unlock()
	s.Kill()
	d := process.Span(r, 0, most)
	sleep(ctx, d)
	c.mustStart(s)
	return fmt.Sprint(s.Name, " for ", d)
}

// leaderOf returns the NATS server that leads the group of a stream, nil if none does.
func (c *cluster) leaderOf(stream string) *server {
	if i := slices.Index(c.nats, process.Leader(c.nats, stream)); i >= 0 {
		return c.servers[i]
	}
	return nil
}

// outage notes a fault, and returns what notes its end.
func (c *cluster) outage(from, to string) (over func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outages = slices.DeleteFunc(c.outages, func(o outage) bool { return o.over > 0 && time.Duration(now()-o.over) > time.Minute })
	began := now()
	c.outages = append(c.outages, outage{from: from, to: to, began: began})
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for i, o := range c.outages {
			if o == (outage{from: from, to: to, began: began}) {
				c.outages[i].over = now()
				return
			}
		}
	}
}

// aftermath is how long a judgement is used, and a connection may take to be made.
const aftermath = 1500 * time.Millisecond

// watchMachine notes when this machine stood still, which is a fault on all ways: gateways limit their dials to each
// other.
func (c *cluster) watchMachine(ctx context.Context) {
	for last := now(); sleep(ctx, 50*time.Millisecond); last = now() {
		if time.Duration(now()-last) > 250*time.Millisecond {
			c.stoodStill.Store(now())
		}
	}
}

// touched reports whether a fault may have touched the way from a front node to an owner, from since
// on.
func (c *cluster) touched(front, owner string, since int64) bool {
	since -= int64(aftermath + c.r.cfg.Late)
	if c.stoodStill.Load() > since {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.outages, func(o outage) bool {
		mine := o.to == "" && (o.from == front || o.from == owner) || o.from == front && o.to == owner
		return mine && (o.over == 0 || o.over > since)
	})
}

// ravage has troubles come in rounds, two at a time. After each round everything must recover.
func (c *cluster) ravage(ctx context.Context, until time.Time) {
	total := 0
	for _, t := range troubles {
		total += t.weight
	}
	for n := uint64(0); c.goesOn(until) && ctx.Err() == nil; {
		end := time.Now().Add(min(c.r.cfg.Round, max(time.Until(until), c.r.cfg.Round/4)))
		var hands sync.WaitGroup
		var mu sync.Mutex
		for range 2 {
			hands.Go(func() {
				for time.Now().Before(end) && ctx.Err() == nil {
					mu.Lock()
					r := rand.New(rand.NewPCG(c.r.cfg.Seed, n|1<<46))
					n++
					mu.Unlock()
					left := r.IntN(total)
					t := troubles[slices.IndexFunc(troubles, func(t trouble) bool { left -= t.weight; return left < 0 })]
					began := now()
					what := t.act(ctx, c, r)
					c.tell("%s: %s; it began at %.3f", t.name, what, float64(began)/1e9)
					c.mu.Lock()
					c.counts[t.name]++
					c.troubles++
					c.mu.Unlock()
					sleep(ctx, process.Span(r, 0, time.Second))
				}
			})
		}
		hands.Wait()
		c.rest(ctx)
	}
}

// Within what time the sessions, and the table of each node, are back once the faults are over. NATS
// itself takes up to ten seconds for a new leader, and has one after the other.
const (
	sessionsBack = 15 * time.Second
	nodesBack    = 40 * time.Second
)

// rest waits until everything is back.
func (c *cluster) rest(ctx context.Context) {
	players, began := c.r.living(), now()
	for _, x := range []struct {
		what    string
		limit   time.Duration
		missing func() string
	}{
		{"sessions", sessionsBack, func() string {
			for _, p := range players {
				if c.r.mustSurvive(p) && !p.isBack(began) {
					return fmt.Sprintf("session %d (%s) is not back", p.id, p.sessionID())
				}
			}
			return ""
		}},
		{"nodes", nodesBack, c.joined},
	} {
		if missing := process.Await(ctx, x.limit+c.r.cfg.Late, x.missing); missing != "" {
			c.r.fault("%v after the last fault %s", x.limit+c.r.cfg.Late, missing)
		}
		c.note("all "+x.what+" back after the faults of a round", time.Duration(now()-began))
		c.tell("all %s back after %v", x.what, time.Duration(now()-began).Round(time.Millisecond))
	}
	for _, n := range c.nodes {
		c.settles(ctx, n.now.Load(), false)
	}
}

// mustSurvive reports whether a player's session must continue after the faults of a round. A session on a durable
// route does not survive its node before its seat has been written: its resumes get 4504 for up to a grace period.
func (r *run) mustSurvive(p *player) bool {
	p.mu.Lock()
	covered := p.covered
	p.mu.Unlock()
	return covered || !r.lost(p.sessionID())
}

// settles waits until a gateway's metrics are consistent, and at the end also with its log and with
// what the game servers saw.
func (c *cluster) settles(ctx context.Context, l *life, atEnd bool) {
	what := ""
	limit := 5 * time.Second
	if atEnd {
		limit += c.r.cfg.Grace + 2*c.r.cfg.Heartbeat
	}
	for until := time.Now().Add(limit + c.r.cfg.Late); time.Now().Before(until) && ctx.Err() == nil; sleep(ctx, 100*time.Millisecond) {
		if what = c.consistent(l, atEnd); what == "" {
			return
		}
	}
	if what != "" {
		c.r.fault("%s: %s", l.node.name, what)
	}
}

func (c *cluster) note(what string, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slowest[what] = max(c.slowest[what], took)
}

// mostTrace is how many lines a report has of what has happened to a cluster.
const mostTrace = 400

// tell notes what has happened, and says so if that is asked for.
func (c *cluster) tell(format string, args ...any) {
	line := fmt.Sprintf("%8.3f ", float64(now())/1e9) + fmt.Sprintf(format, args...)
	c.mu.Lock()
	if len(c.trace) >= mostTrace {
		c.trace = append(c.trace[:0], c.trace[mostTrace/2:]...)
	}
	c.trace = append(c.trace, line)
	c.mu.Unlock()
	if c.r.cfg.Verbose {
		fmt.Fprintln(os.Stderr, line)
	}
}
