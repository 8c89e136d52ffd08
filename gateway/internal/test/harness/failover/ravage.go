//go:build linux

package failover

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	"reseat/gateway/internal/test/harness/chaos/process"
)

// A trouble is something that happens to a stage. It returns what it was.
type trouble struct {
	name   string
	weight int
	act    func(ctx context.Context, s *stage, co *company, r *rand.Rand) string
}

var troubles = []trouble{
	{"kill", 6, func(ctx context.Context, s *stage, _ *company, r *rand.Rand) string {
		n := s.take(r)
		defer n.busy.Unlock()
		n.Kill()
		return s.again(ctx, n, r)
	}},
	{"kill with leader", 3, func(ctx context.Context, s *stage, _ *company, r *rand.Rand) string {
		n := s.take(r)
		defer n.busy.Unlock()
		leader := s.leader(fmt.Sprint("KV_reseat_seats_", r.IntN(8)))
		s.engine.Lock()
		defer s.engine.Unlock()
		var both sync.WaitGroup
		both.Go(n.Kill)
		if leader != nil {
			both.Go(leader.Kill)
		}
		both.Wait()
		what := s.again(ctx, n, r)
		if leader != nil {
			sleep(ctx, span(r, 0, 4*time.Second))
			if err := leader.Start(); err != nil {
				s.fault("%v", err)
			}
			what += fmt.Sprint(", with ", leader.Name)
		}
		return what
	}},
	{"stop", 5, func(ctx context.Context, s *stage, _ *company, r *rand.Rand) string {
		n := s.take(r)
		defer n.busy.Unlock()
		d := span(r, 300*time.Millisecond, 6*time.Second)
		n.Signal(syscall.SIGSTOP)
		sleep(ctx, d)
		n.Signal(syscall.SIGCONT)
		return fmt.Sprint(n.name, " for ", d)
	}},
	{"drain", 4, func(ctx context.Context, s *stage, _ *company, r *rand.Rand) string {
		n := s.take(r)
		defer n.busy.Unlock()
		began := time.Now()
		n.Signal(syscall.SIGTERM)
		if err := n.Wait(45 * time.Second); err != nil {
			s.fault("%s after SIGTERM: %v", n.name, err)
		}
		return fmt.Sprint(s.again(ctx, n, r), ", drained in ", time.Since(began).Round(time.Millisecond))
	}},
	{"drain, then kill", 2, func(ctx context.Context, s *stage, _ *company, r *rand.Rand) string {
		n := s.take(r)
		defer n.busy.Unlock()
		n.Signal(syscall.SIGTERM)
		d := span(r, 0, 1500*time.Millisecond)
		sleep(ctx, d)
		n.Kill()
		return fmt.Sprint(s.again(ctx, n, r), ", after ", d)
	}},
	{"NATS leader killed", 3, func(ctx context.Context, s *stage, _ *company, r *rand.Rand) string {
		s.engine.Lock()
		defer s.engine.Unlock()
		leader := s.leader(fmt.Sprint("KV_reseat_seats_", r.IntN(8)))
		if leader == nil {
			return "there is none"
		}
		leader.Kill()
		sleep(ctx, span(r, 0, 4*time.Second))
		if err := leader.Start(); err != nil {
			s.fault("%v", err)
		}
		return leader.Name
	}},
	{"NATS killed, all of it", 1, func(ctx context.Context, s *stage, _ *company, r *rand.Rand) string {
		s.engine.Lock()
		defer s.engine.Unlock()
		for _, o := range s.servers {
			o.Kill()
		}
		d := span(r, 0, 4*time.Second)
		sleep(ctx, d)
		for _, o := range s.servers {
			if err := o.Start(); err != nil {
				s.fault("%v", err)
			}
		}
		return fmt.Sprint("for ", d)
	}},
	{"clients away", 4, func(ctx context.Context, s *stage, co *company, r *rand.Rand) string {
		var some []*client
		for _, c := range co.clients {
			if r.IntN(3) == 0 {
				some = append(some, c)
				c.locked(func() { c.stay = true })
			}
		}
		d := span(r, 100*time.Millisecond, 3*time.Second)
		sleep(ctx, d)
		for _, c := range some {
			c.locked(func() { c.stay = false })
		}
		return fmt.Sprint(len(some), " for ", d)
	}},
}

func span(r *rand.Rand, from, to time.Duration) time.Duration {
	return (from + time.Duration(r.Int64N(int64(to-from)+1))).Round(time.Millisecond)
}

// take returns a node that nothing else happens to.
func (s *stage) take(r *rand.Rand) *node {
	n := s.nodes[r.IntN(len(s.nodes))]
	n.busy.Lock()
	return n
}

// again starts a node again, after a while.
func (s *stage) again(ctx context.Context, n *node, r *rand.Rand) string {
	d := span(r, 0, 3*time.Second)
	sleep(ctx, d)
	if err := s.start(n); err != nil {
		s.fault("%s does not start again: %v", n.name, err)
	}
	return fmt.Sprint(n.name, ", back after ", d)
}

func (s *stage) fault(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, fmt.Sprintf(format, args...))
}

// leader returns the NATS server that leads a stream, nil if none does.
func (s *stage) leader(stream string) *process.NATS {
	for _, asked := range s.servers {
		name := asked.Leader(stream)
		for _, o := range s.servers {
			if o.Name == name {
				return o
			}
		}
	}
	return nil
}

// ravage has troubles come, two at a time, and counts them.
func (s *stage) ravage(ctx context.Context, co *company, seed uint64, d time.Duration, counts map[string]int, tell func(format string, args ...any)) {
	total := 0
	for _, t := range troubles {
		total += t.weight
	}
	until := time.Now().Add(d)
	var mu sync.Mutex
	var hands sync.WaitGroup
	for hand := range uint64(2) {
		hands.Go(func() {
			r := rand.New(rand.NewPCG(seed, hand))
			for time.Now().Before(until) && ctx.Err() == nil {
				left := r.IntN(total)
				t := troubles[0]
				for _, t = range troubles {
					if left -= t.weight; left < 0 {
						break
					}
				}
				began := time.Now()
				what := t.act(ctx, s, co, r)
				tell("%s %s: %s", began.Format("05.000"), t.name, what)
				mu.Lock()
				counts[t.name]++
				mu.Unlock()
				sleep(ctx, span(r, 0, time.Second))
			}
		})
	}
	hands.Wait()
}
