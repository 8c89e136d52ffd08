//go:build linux

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"reseat/gateway/internal/test/harness/bench/game"
	"reseat/gateway/internal/test/harness/bench/message"
	"reseat/gateway/internal/test/harness/bench/proxy"
)

const (
	maxFiles    = 20_000                 // descriptors of a process: the ports of one address are not many more
	maxSessions = 8910                   // of growth: a proxy has two descriptors for each
	firstPings  = 17 * time.Second       // by then a gateway has pinged each session once; the next time is 30 s later
	growthTick  = 100 * time.Microsecond // interval of the server's messages over all sessions
	tickGrain   = 250 * time.Microsecond // about three messages go out together in W1, as from a server that checks its clock now and then
)

// A workload is one kind of traffic, or of fault.
type workload struct {
	name     string
	sessions int
	game     game.Spec
	every    time.Duration // interval of a client's messages
	up       message.Kind
	echo     bool
	warm     time.Duration
	measure  time.Duration                 // for idle: how long it is measured
	rounds   int                           // max
	times    int                           // how often measured is called in a round; zero: once
	measured func(*stage) (figures, error) // all of it, with everything started anew
	slice    func(*stage) (figures, error) // instead of measured: one slice of it
	cycles   int                           // of slices, in each round
	beside   int                           // more sessions, without traffic
	settle   time.Duration                 // between the last connection and the first slice
	extra    bool                          // only if it is asked for by name
	only     []string                      // subjects, if not all
	relayed  bool                          // clients connect to a relay, for these properties:
	tls      bool
	deflate  bool
	short    bool // part of the short form
}

func binary(way message.Way, size int) message.Kind { return message.Kind{Way: way, Size: size} }

// tick returns a workload with messages at a fixed rate, both ways.
func tick(name string, n int, every, upEvery time.Duration) workload {
	return workload{
		name: name, sessions: n, every: upEvery, up: binary(message.Up, 48),
		game: game.Spec{Mode: game.Tick, Down: binary(message.Down, 128), Every: every, Grain: tickGrain},
		warm: time.Second, measure: 750 * time.Millisecond, slice: steady, cycles: 8,
	}
}

// w1 returns the messages of W1 under another name, for some of the subjects.
func w1(name string, only ...string) workload {
	w := tick(name, 500, 50*time.Millisecond, 200*time.Millisecond)
	w.only = only
	return w
}

// full returns a workload at full speed.
func full(name string, n int, mode game.Mode, down, up int) workload {
	return workload{
		name: name, sessions: n, echo: mode == game.Echo, up: binary(message.Up, up),
		game: game.Spec{Mode: mode, Down: binary(message.Down, down)},
		warm: 500 * time.Millisecond, measure: 500 * time.Millisecond, slice: steady, cycles: 8,
	}
}

// alone returns w measured one subject after the other.
func alone(w workload, measured func(*stage) (figures, error)) workload {
	w.measured, w.slice, w.cycles = measured, nil, 0
	return w
}

// workloads returns all workloads, in order.
func workloads() []workload {
	list := []workload{
		w1("W1").inShort(),
		tick("W2", 2000, 100*time.Millisecond, 400*time.Millisecond),
		full("W3", 64, game.Echo, 64, 64).inShort(),
		full("W4", 16, game.Fire, 1024, 48).inShort(),
		full("W5", 8, game.Echo, 64<<10, 64<<10).inShort(),
	}
	list = append(list, faults()...)
	list = append(list, relayed()...)
	h7 := tick("H7", 1000, 200*time.Millisecond, 500*time.Millisecond)
	h7.slice, h7.cycles, h7.only = mass, 3, []string{proxy.Reseat, "hop"}
	c1 := w1("C1", proxy.Reseat, "nodes3", "nodes5")
	c1.extra = true
	list = append(list, w1("H1", proxy.Reseat, "hop"), h7, c1)
	for _, n := range []int{100, 1000, maxSessions} {
		list = append(list, grown(fmt.Sprint("G", n), n, proxy.NGINX, proxy.Reseat, "plain"))
	}
	gmax := &list[len(list)-1] // for whose plain clients there are no descriptors: see Gacks
	gmax.name, gmax.only = "Gmax", []string{proxy.NGINX, proxy.Reseat}
	return append(list, grown("Gacks", maxSessions, proxy.Reseat, "plain"))
}

// faults returns the workloads with idle, disconnected and resuming clients.
func faults() []workload {
	w6, w8 := alone(full("W6", maxSessions, game.Echo, 256, 256), idle), alone(full("W8", 10000, game.Echo, 64, 64), storm)
	w6.measure, w6.rounds, w8.times = 3*time.Second, 1, 2 // memory is reproducible to a percent or two
	det := alone(tick("W6det", 4000, 62500*time.Microsecond, 0), detached)
	det.game.Down, det.game.Limit, det.rounds, det.only = binary(message.Down, 1024), 32, 1, []string{proxy.Reseat}
	w7 := tick("W7", 5000, 200*time.Millisecond, 500*time.Millisecond)
	w7.slice, w7.cycles, w7.only = mass, 3, []string{proxy.Reseat, "eddsa"}
	beside := w1("W1W7", proxy.Reseat)
	beside.slice, beside.beside, beside.cycles = crowded, 5000, 5
	return []workload{w6, det, w7.inShort(), beside, w8}
}

// relayed returns the workloads with TLS and compression, and what they are compared with: like W1, with fewer
// sessions. All pass a relay, which has TLS where the clients have none.
func relayed() []workload {
	list := []workload{w1("noTLS"), w1("TLS"), alone(full("W6TLS", 2000, game.Echo, 256, 256), idle), w1("nodeflate"), w1("deflate")}
	for i := range list {
		w := &list[i]
		w.relayed, w.tls, w.deflate = true, strings.HasSuffix(w.name, "TLS") && w.name != "noTLS", w.name == "deflate"
		w.only = []string{proxy.Direct, proxy.NGINX, "plain"}
		if w.slice != nil {
			w.sessions = 200
		}
		if i > 2 { // game state, which compresses, in place of W1's bytes
			w.up = message.Kind{Way: message.Up, Size: 48, Text: true}
			w.game.Down = message.Kind{Way: message.Down, Size: 512, Text: true, State: true}
		}
	}
	list[2].measure, list[2].rounds = time.Second, 1
	return list
}

// grown returns one of the workloads that only differ in how many sessions share the same traffic.
func grown(name string, n int, only ...string) workload {
	w := tick(name, n, time.Duration(n)*growthTick, 4*time.Duration(n)*growthTick)
	w.warm, w.cycles, w.only = 2*time.Second, 6, only
	if n == maxSessions {
		w.settle = firstPings
	}
	return w
}

func (w workload) inShort() workload {
	w.short = true
	return w
}

// plan returns the workloads and the subjects that f asks for.
func plan(f flags) ([]workload, []proxy.Subject, error) {
	list, subjects := workloads(), append(proxy.Subjects(), f.others...)
	for _, name := range f.only {
		if !slices.ContainsFunc(list, func(w workload) bool { return w.name == name }) {
			return nil, nil, fmt.Errorf("--only: there is no workload %q", name)
		}
	}
	for _, name := range f.subjects {
		if !slices.ContainsFunc(subjects, func(s proxy.Subject) bool { return s.Name == name }) {
			return nil, nil, fmt.Errorf("--subjects: there is no subject %q", name)
		}
	}
	subjects = slices.DeleteFunc(subjects, func(s proxy.Subject) bool {
		if f.subjects != nil {
			return !slices.Contains(f.subjects, s.Name)
		}
		return f.short && len(s.Only) > 0
	})
	list = slices.DeleteFunc(list, func(w workload) bool {
		return f.only != nil && !slices.Contains(f.only, w.name) || f.only == nil && (f.short && !w.short || w.extra)
	})
	for i := range list {
		w := &list[i]
		if f.short {
			w.warm, w.measure, w.cycles = min(w.warm, 200*time.Millisecond), min(w.measure, 600*time.Millisecond), min(w.cycles, 2)
			w.sessions, w.beside = min(w.sessions, 2000), min(w.beside, 2000)
		}
		w.game.Sessions, w.game.Idle, w.game.Up = w.sessions+w.beside, w.beside, w.up
	}
	return list, subjects, nil
}

// takesPart reports whether subject s is measured in w. The game server itself has no TLS.
func (w workload) takesPart(s proxy.Subject) bool {
	if w.tls && s.Name == proxy.Direct || len(s.Only) > 0 && !slices.Contains(s.Only, w.name) {
		return false
	}
	return len(w.only) == 0 || slices.Contains(w.only, s.Base()) || s.Other
}
