//go:build linux

package main

import (
	"fmt"
	"strings"
	"time"

	"reseat/gateway/internal/test/harness/bench/epoll"
	"reseat/gateway/internal/test/harness/bench/game"
	"reseat/gateway/internal/test/harness/bench/load"
	"reseat/gateway/internal/test/harness/bench/proxy"
)

const (
	patience = 60 * time.Second // for anything that takes a while
	settle   = 3 * time.Second  // before memory is measured
)

// A stage is the setup of one measurement: a game server, a proxy in front of it, and
// clients that are not connected yet.
type stage struct {
	w       workload
	game    *game.Handle
	proxy   *proxy.Proxy
	clients *load.Client
	own     []int        // processes of the clients
	beside  *load.Beside // more clients; nil: none
	empty   proxy.Memory // before there were sessions
	end     game.Report  // set at the end, and at each pause
	perf    *perf        // looks at the proxy meanwhile; nil: none
	opened  []func()     // closes what was started, the last one first
}

// close closes everything that was started.
func (s *stage) close() {
	for i := len(s.opened) - 1; i >= 0; i-- {
		s.opened[i]()
	}
}

// explain adds to an error what may have caused it.
func (s *stage) explain(err error) error {
	if err == nil {
		return nil
	}
	if s.clients != nil && s.clients.Faults.Any() {
		err = fmt.Errorf("%w: %v", err, s.clients.Faults)
	}
	return fmt.Errorf("%w; the proxy says: %s", err, strings.TrimSpace(s.proxy.Log()))
}

// A step is a part of a measurement.
type step func() error

// steps runs steps in order, up to the first error.
func steps(list ...step) error {
	for _, do := range list {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// connect connects all sessions; if each must be at another node than its own, twice.
func (s *stage) connect() error {
	if !s.proxy.Hop {
		return s.clients.Connect(patience)
	}
	return steps(func() error { return s.clients.Connect(patience) }, s.cut, s.back)
}

// connectBeside connects the clients that are there besides.
func (s *stage) connectBeside() error {
	if s.beside == nil {
		return nil
	}
	return <-s.beside.Do(func(c *load.Client) error { return c.Connect(patience) })
}

func (s *stage) start() error { return s.clients.Start() }

// stop stops all traffic, and checks whether anything was lost or damaged.
func (s *stage) stop() (err error) {
	s.end, err = s.clients.Stop(patience)
	return err
}

// pause stops all traffic until resume, and checks whether anything was lost or damaged.
func (s *stage) pause() (err error) {
	s.end, err = s.clients.Pause(patience)
	return err
}

func (s *stage) resume() error { return s.clients.Resume() }

// wait serves the clients for a while.
func (s *stage) wait(d time.Duration) step {
	return func() error { return s.clients.Run(d) }
}

// note records the usage so far.
func (s *stage) note(r *reading) step {
	return func() (err error) {
		*r, err = s.read()
		return err
	}
}

// weigh records the proxy's current memory.
func (s *stage) weigh(m *proxy.Memory) step {
	return func() (err error) {
		*m, err = proxy.MemoryOf(s.proxy.PIDs)
		return err
	}
}

// latencies sets whether latencies are being recorded.
func (s *stage) latencies(on bool) step {
	return func() error { s.clients.Measuring = on; return nil }
}

// A reading is the usage up to a point in time.
type reading struct {
	at                int64
	proxy, load, game time.Duration
	nodes             []time.Duration // the proxy's time by process
	machine           proxy.Machine
	received, written uint64
	bytes             int64 // received
}

func (s *stage) read() (r reading, err error) {
	r.received, r.written, r.bytes = s.clients.Received, s.clients.Written, s.clients.Bytes
	err = steps(
		func() (err error) { r.machine, err = proxy.MachineNow(); return err },
		func() (err error) { r.game, err = proxy.CPU([]int{s.game.PID}); return err },
		func() (err error) { r.load, err = proxy.CPU(s.own); return err },
		func() (err error) { r.nodes, err = proxy.Times(s.proxy.PIDs); return err },
	)
	for _, d := range r.nodes {
		r.proxy += d
	}
	r.at = epoll.Now()
	return r, err
}

// between returns the usage from a to b.
func (s *stage) between(a, b reading) figures {
	sec := float64(b.at-a.at) / 1e9
	messages := float64(b.received - a.received + b.written - a.written)
	cpu, load, game := (b.proxy - a.proxy).Seconds(), (b.load - a.load).Seconds(), (b.game - a.game).Seconds()
	ours := cpu + load + game
	if s.proxy.PIDs[0] == s.game.PID {
		ours -= game // counted as the proxy
	}
	fig := figures{
		"seconds": sec, "cores": cpu / sec, "load_cores": load / sec, "game_cores": game / sec,
		"other_cores": max((b.machine.Busy-a.machine.Busy).Seconds()-ours, 0) / sec,
		"steal_cores": (b.machine.Stolen - a.machine.Stolen).Seconds() / sec,
	}
	if messages > 0 {
		fig["messages"], fig["rate"] = messages, messages/sec
		fig["cpu_us"] = cpu * 1e6 / messages
		if s.w.leg != nil {
			fig["both_us"] = max(cpu, ours-load) * 1e6 / messages
			fig["wire_bytes"] = float64(b.bytes-a.bytes) / max(float64(b.received-a.received), 1)
		}
		s.split(fig, "cpu", messages, a, b)
	}
	return fig
}

// split adds what each of two nodes has used for each of n: the one that has the
// sessions, and the one that the clients are connected to.
func (s *stage) split(fig figures, name string, n float64, a, b reading) {
	if !s.proxy.Hop || len(a.nodes) < 2 || len(b.nodes) < 2 {
		return
	}
	fig[name+"_owner_us"] = (b.nodes[0] - a.nodes[0]).Seconds() * 1e6 / n
	fig[name+"_front_us"] = (b.nodes[1] - a.nodes[1]).Seconds() * 1e6 / n
}

// per returns what each session has added, in KiB.
func (s *stage) per(before, after int64) float64 {
	return float64(after-before) / 1024 / float64(s.w.sessions)
}
