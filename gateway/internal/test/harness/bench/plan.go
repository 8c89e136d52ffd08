//go:build linux

package main

import (
	"fmt"
	"slices"
	"time"

	"reseat/gateway/internal/test/harness/bench/game"
	"reseat/gateway/internal/test/harness/bench/message"
	"reseat/gateway/internal/test/harness/bench/proxy"
)

// tickGrain makes about three messages go out together in W1, as from a server that
// checks its clock now and then.
const tickGrain = 250 * time.Microsecond

// A workload is one kind of traffic, or of fault.
type workload struct {
	name     string
	sessions int
	game     game.Spec
	every    time.Duration // interval of a client's messages
	up       message.Kind
	echo     bool
	warm     time.Duration
	measure  time.Duration // for idle: how long it is measured
	rounds   int           // max
	times    int           // how often measured is called in a round; zero: once
	measured func(*stage) (figures, error)
	slice    func(*stage) (figures, error) // instead of measured: one slice of it
	cycles   int                           // of slices, in each round
	beside   int                           // more sessions, without traffic
	settle   time.Duration                 // between the last connection and the first slice
	extra    bool                          // only if it is asked for by name
	only     []string                      // subjects, if not all
	leg      *leg                          // other properties of the connections; nil: none
	short    bool                          // part of the short form
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

// echo returns a workload with one message in flight, at full speed.
func echo(name string, n, size int) workload {
	return workload{
		name: name, sessions: n, echo: true, up: binary(message.Up, size),
		game: game.Spec{Mode: game.Echo, Down: binary(message.Down, size)},
		warm: 500 * time.Millisecond, measure: 500 * time.Millisecond, slice: steady, cycles: 8,
	}
}

// w1 returns the messages of W1 under another name.
func w1(name string) workload {
	return tick(name, 500, 50*time.Millisecond, 200*time.Millisecond)
}

// workloads returns all workloads, in order.
func workloads() []workload {
	fire := workload{
		name: "W4", sessions: 16, up: binary(message.Up, 48),
		game: game.Spec{Mode: game.Fire, Down: binary(message.Down, 1024)},
		warm: 500 * time.Millisecond, measure: 500 * time.Millisecond, slice: steady, cycles: 8,
	}
	list := []workload{
		w1("W1").inShort(),
		tick("W2", 2000, 100*time.Millisecond, 400*time.Millisecond),
		echo("W3", 64, 64).inShort(), fire.inShort(), echo("W5", 8, 64<<10).inShort(),
	}
	list = append(list, faults()...)
	list = append(list, legs()...)
	list = append(list, clusters()...)
	for _, n := range []int{100, 1000, maxSessions} {
		list = append(list, grown(tick(grownName(n), n, time.Duration(n)*growthTick, 4*time.Duration(n)*growthTick)))
	}
	acks := grown(tick("Gacks", maxSessions, maxSessions*growthTick, 4*maxSessions*growthTick))
	acks.only = []string{proxy.Reseat, "plain"}
	return append(list, acks)
}

// faults returns the workloads with idle, disconnected and resuming clients.
func faults() []workload {
	w6, det, w8 := echo("W6", 9000, 256), tick("W6det", 4000, 62500*time.Microsecond, 0), echo("W8", 10000, 64)
	w6.measure, w6.measured, w6.rounds = 3*time.Second, idle, 1 // memory is reproducible to a percent or two
	det.game.Down, det.game.Limit, det.measured, det.rounds = binary(message.Down, 1024), 32, detached, 1
	det.only = []string{proxy.Reseat}
	w8.measured = storm
	w8.times = 2
	for _, w := range []*workload{&w6, &det, &w8} {
		w.slice, w.cycles = nil, 0
	}
	w7 := tick("W7", 5000, 200*time.Millisecond, 500*time.Millisecond)
	w7.slice, w7.cycles, w7.only = mass, 3, []string{proxy.Reseat, "hs256", "eddsa"}
	beside := w1("W1W7")
	beside.slice, beside.beside, beside.game.Idle, beside.cycles = crowded, 5000, 5000, 5
	beside.only = []string{proxy.Reseat}
	return []workload{w6, det, w7.inShort(), beside, w8}
}

// clusters returns the workloads of several nodes.
func clusters() []workload {
	h1, h3 := w1("H1"), echo("H3", 64, 64)
	h7 := tick("H7", 1000, 200*time.Millisecond, 500*time.Millisecond)
	h7.slice, h7.cycles = mass, 3
	c1 := w1("C1")
	c1.extra = true
	c40 := tick("C40", 40_000, 40_000*growthTick, 4*40_000*growthTick)
	c40.measured, c40.slice, c40.cycles, c40.times, c40.game.Hosts = growth, nil, 0, 3, 5
	c40.measure, c40.extra = 4*time.Second, true
	h1.only, h3.only, h7.only = []string{proxy.Reseat, "hop"}, []string{proxy.Reseat, "hop"}, []string{proxy.Reseat, "hop"}
	c1.only = []string{proxy.Reseat, "nodes3", "nodes5"}
	c40.only = []string{"nodes5"} // one process has not enough ports
	return []workload{h1, h3, h7, c1, c40}
}

// Descriptors that a process may have: with a game server that listens at one address, and at several.
const (
	usualFiles = 20_000
	manyFiles  = 100_000
)

const (
	maxSessions = 100_000                // of growth: as many as the machine allows
	firstPings  = 17 * time.Second       // by then a gateway has pinged each session once; the next time is 30 s later
	growthTick  = 100 * time.Microsecond // interval of the server's messages over all sessions
)

func grownName(sessions int) string {
	if sessions == maxSessions {
		return "Gmax"
	}
	return fmt.Sprintf("G%d", sessions)
}

// grown returns one of the workloads that only differ in how many sessions share the
// same traffic.
func grown(w workload) workload {
	w.warm, w.cycles = 2*time.Second, 6
	if w.sessions == maxSessions {
		w.settle = firstPings
	}
	w.only = []string{proxy.NGINX, proxy.Reseat, "plain"}
	if w.name == "Gmax" { // see Gacks for the others
		w.only = []string{proxy.NGINX, proxy.Reseat}
	}
	return w
}

func (w workload) inShort() workload {
	w.short = true
	return w
}

// plan returns the workloads and the subjects that f asks for, as far as this machine's
// descriptor limit allows.
func plan(f flags, help string, files int) ([]workload, []proxy.Subject, []string, error) {
	var notes []string
	subjects := append(proxy.Subjects(help), f.others...)
	list := workloads()
	if err := known(f, list, subjects); err != nil {
		return nil, nil, nil, err
	}
	subjects = slices.DeleteFunc(subjects, func(s proxy.Subject) bool {
		if f.subjects != nil {
			return !slices.Contains(f.subjects, s.Name)
		}
		return s.Named || f.short && len(s.Only) > 0
	})
	list = slices.DeleteFunc(list, func(w workload) bool {
		return f.only != nil && !slices.Contains(f.only, w.name) || f.only == nil && (f.short && !w.short || w.extra)
	})
	for i := range list {
		w := &list[i]
		if f.short {
			w.shorten()
		}
		allowed := files
		if w.game.Hosts <= 1 { // the ports of one address are fewer than descriptors may be
			allowed = min(files, usualFiles)
		}
		if most := (allowed - 200) / 2; w.open() > most { // a proxy has two per session
			if w.beside > 0 {
				most = min(most-w.sessions, w.beside)
			}
			if w.sessions == maxSessions {
				most = most / 10 * 9 // leave some headroom
			} else {
				notes = append(notes, fmt.Sprintf("%s has %d sessions in place of %d: a process may open %d files here.", w.name, most, w.most(), files))
			}
			w.limit(most)
		}
		w.game.Sessions, w.game.Up = w.sessions+w.beside, w.up
	}
	return list, subjects, notes, nil
}

// limit reduces w to n sessions; if sessions share the traffic, each gets more of it.
func (w *workload) limit(n int) {
	if w.sessions == maxSessions {
		w.game.Every, w.every = time.Duration(n)*growthTick, 4*time.Duration(n)*growthTick
	}
	if w.beside > 0 {
		w.beside, w.game.Idle = n, n
		return
	}
	w.sessions = n
}

// most returns how many sessions of the kind that limit reduces there are.
func (w workload) most() int {
	if w.beside > 0 {
		return w.beside
	}
	return w.sessions
}

// open returns how many sessions are open at once.
func (w workload) open() int {
	if w.name == "W8" {
		return stormInFlight
	}
	return w.sessions + w.beside
}

func (w *workload) shorten() {
	w.warm, w.measure = min(w.warm, 200*time.Millisecond), min(w.measure, 600*time.Millisecond)
	w.cycles = min(w.cycles, 2)
	w.limit(min(w.most(), 2000))
}

// known returns an error for an unknown name.
func known(f flags, list []workload, subjects []proxy.Subject) error {
	for _, name := range f.only {
		if !slices.ContainsFunc(list, func(w workload) bool { return w.name == name }) {
			return fmt.Errorf("--only: there is no workload %q", name)
		}
	}
	for _, name := range f.subjects {
		if !slices.ContainsFunc(subjects, func(s proxy.Subject) bool { return s.Name == name }) {
			return fmt.Errorf("--subjects: there is no subject %q", name)
		}
	}
	return nil
}

// takesPart reports whether subject s is measured in w.
func (w workload) takesPart(s proxy.Subject) bool {
	if !s.Does(w.name) || w.leg != nil && !w.leg.takes(s) {
		return false
	}
	return len(w.only) == 0 || slices.Contains(w.only, s.Base()) || s.Other
}
