//go:build linux

package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"reseat/gateway/internal/test/harness/bench/epoll"
	"reseat/gateway/internal/test/harness/bench/game"
	"reseat/gateway/internal/test/harness/bench/load"
	"reseat/gateway/internal/test/harness/bench/proxy"
)

const patience = 60 * time.Second // for anything that takes a while

// A stage is the setup of one measurement: a game server, a proxy in front of it, and
// clients that are not connected yet.
type stage struct {
	w       workload
	game    *game.Handle
	proxy   *proxy.Proxy
	clients *load.Client
	own     []int        // processes of the clients
	beside  *load.Beside // more clients; nil: none
	empty   int64        // bytes of memory before there were sessions
	end     game.Report  // set at the end, and at each pause
	opened  []func()     // closes what was started, the last one first
}

// open starts what a measurement needs.
func (r *runner) open(w workload, s proxy.Subject) (_ *stage, err error) {
	st := &stage{w: w, own: []int{os.Getpid()}}
	defer func() {
		if err != nil {
			st.close()
		}
	}()
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return nil, err
	}
	st.opened = append(st.opened, func() { os.RemoveAll(dir) })
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if st.game, err = game.New(w.game); err != nil {
		return nil, err
	}
	st.opened = append(st.opened, st.game.Stop)
	place := proxy.Place{Dir: dir, Game: st.game.Addr, Self: self, Reseat: r.flags.binary, NATS: r.flags.nats, Files: maxFiles, Patient: w.slice != nil}
	if w.tls {
		if place.Leg, err = proxy.WithTLS(dir); err != nil {
			return nil, err
		}
	}
	place.Leg.Deflate = w.deflate
	if st.proxy, err = s.Start(place); err != nil {
		return nil, err
	}
	st.opened = append(st.opened, st.proxy.Stop)
	if st.proxy.PIDs == nil {
		st.proxy.PIDs = []int{st.game.PID}
	}
	if w.relayed {
		relay, err := place.Relay(st.proxy.Addrs[0])
		if err != nil {
			return nil, err
		}
		st.opened = append(st.opened, relay.Stop)
		st.proxy.Addrs, st.own = relay.Addrs, append(st.own, relay.PIDs...)
	}
	return st, st.players(s)
}

// players makes the clients.
func (s *stage) players(of proxy.Subject) (err error) {
	w := s.w
	setup := load.Setup{
		Targets: s.proxy.Addrs, Game: s.game, Resumable: of.Resumable, Sessions: w.sessions, InFlight: 128,
		Down: w.game.Down, Up: w.up, Every: w.every, Grain: w.game.Grain, Echo: w.echo, Deflate: w.deflate,
	}
	if s.proxy.Hop {
		setup.Targets = setup.Targets[:1]
	}
	if w.name == "W8" {
		setup.Echo, setup.Storm, setup.InFlight = false, true, stormInFlight
	}
	if s.clients, err = load.New(setup); err != nil {
		return err
	}
	s.opened = append(s.opened, s.clients.Close)
	if w.beside == 0 {
		return nil
	}
	setup.First, setup.Sessions, setup.Every = w.sessions, w.beside, 0
	if s.beside, err = load.NewBeside(setup); err != nil {
		return err
	}
	s.opened = append(s.opened, s.beside.Close)
	return nil
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
	connect := func(c *load.Client) error { return c.Connect(patience) }
	if err := connect(s.clients); err != nil {
		return err
	}
	if s.beside != nil {
		return <-s.beside.Do(connect)
	}
	if s.proxy.Hop {
		return steps(s.cut, s.back)
	}
	return nil
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

// cut resets all connections.
func (s *stage) cut() error {
	s.clients.Cut()
	s.clients.Resumes.Reset()
	s.clients.InFlight = cutInFlight
	if s.proxy.Hop {
		s.clients.Targets, s.clients.InFlight = s.proxy.Addrs[1:2], hopInFlight
	}
	return nil
}

// back resumes all sessions and waits until each has received what it missed.
func (s *stage) back() error { return s.clients.Back(patience) }

// wait serves the clients for a while.
func (s *stage) wait(d time.Duration) step {
	return func() error { return s.clients.Run(d) }
}

// weigh records the proxy's current memory.
func (s *stage) weigh(bytes *int64) step {
	return func() (err error) {
		*bytes, err = proxy.Memory(s.proxy.PIDs)
		return err
	}
}

// latencies sets whether latencies are being recorded.
func (s *stage) latencies(on bool) step {
	return func() error { s.clients.Measuring = on; return nil }
}

// addLatencies adds the latencies of what has just been measured.
func (s *stage) addLatencies(fig figures) {
	if q := s.clients.Latency.Quantiles(); q.N > 0 {
		fig["p50_us"], fig["p99_us"] = q.P50, q.P99
	}
}

// A reading is the usage up to a point in time.
type reading struct {
	at                int64
	proxy, load, game time.Duration
	machine           proxy.Machine
	received, written uint64
	bytes             int64 // received
}

// note records the usage so far.
func (s *stage) note(r *reading) step {
	return func() error {
		r.received, r.written, r.bytes = s.clients.Received, s.clients.Written, s.clients.Bytes
		err := steps(
			func() (err error) { r.machine, err = proxy.MachineNow(); return err },
			func() (err error) { r.game, err = proxy.CPU([]int{s.game.PID}); return err },
			func() (err error) { r.load, err = proxy.CPU(s.own); return err },
			func() (err error) { r.proxy, err = proxy.CPU(s.proxy.PIDs); return err },
		)
		r.at = epoll.Now()
		return err
	}
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
		fig["messages"], fig["rate"], fig["cpu_us"] = messages, messages/sec, cpu*1e6/messages
		if s.w.relayed {
			fig["wire_bytes"] = float64(b.bytes-a.bytes) / max(float64(b.received-a.received), 1)
		}
	}
	return fig
}

// per returns what each session has added, in KiB.
func (s *stage) per(before, after int64) float64 {
	return float64(after-before) / 1024 / float64(s.w.sessions)
}
