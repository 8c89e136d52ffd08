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
// checks its clock now and then. W1even does without.
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
	measured func(*stage) (figures, error)
	only     []string // subjects, if not all
	leg      *leg     // other properties of the connections, with clients of another kind; nil: none
	short    bool     // part of the short form
}

func binary(way message.Way, size int) message.Kind { return message.Kind{Way: way, Size: size} }

func letters(way message.Way, size int) message.Kind {
	return message.Kind{Way: way, Size: size, Text: true}
}

// workloads returns all workloads, in order.
func workloads() []workload {
	tick := func(name string, n int, every, upEvery time.Duration, kind func(message.Way, int) message.Kind) workload {
		return workload{
			name: name, sessions: n, every: upEvery, up: kind(message.Up, 48),
			game: game.Spec{Mode: game.Tick, Down: kind(message.Down, 128), Every: every, Grain: tickGrain},
			warm: time.Second, measure: 4 * time.Second, measured: traffic,
		}
	}
	echo := func(name string, n, size int) workload {
		return workload{
			name: name, sessions: n, echo: true, up: binary(message.Up, size),
			game: game.Spec{Mode: game.Echo, Down: binary(message.Down, size)},
			warm: 500 * time.Millisecond, measure: 2500 * time.Millisecond, measured: traffic,
		}
	}
	fire := workload{
		name: "W4", sessions: 16, up: binary(message.Up, 48),
		game: game.Spec{Mode: game.Fire, Down: binary(message.Down, 1024)},
		warm: 500 * time.Millisecond, measure: 2500 * time.Millisecond, measured: traffic,
	}
	w6, det, w8 := echo("W6", 9000, 256), tick("W6det", 4000, 62500*time.Microsecond, 0, binary), echo("W8", 10000, 64)
	w6.measure, w6.measured, w6.rounds = 15*time.Second, idle, 1 // memory is reproducible to a percent or two
	det.game.Down, det.game.Limit, det.measured, det.rounds = binary(message.Down, 1024), 32, detached, 3
	det.only = []string{proxy.Reseat}
	w7 := tick("W7", 5000, 200*time.Millisecond, 500*time.Millisecond, binary)
	w7.measured, w7.only = cutAll, []string{proxy.Reseat, "hs256", "eddsa"}
	w8.measured = storm
	even := tick("W1even", 500, 50*time.Millisecond, 200*time.Millisecond, binary)
	even.game.Grain = 0
	list := []workload{
		tick("W1", 500, 50*time.Millisecond, 200*time.Millisecond, binary).inShort(),
		even,
		tick("W1text", 500, 50*time.Millisecond, 200*time.Millisecond, letters),
		tick("W2", 2000, 100*time.Millisecond, 400*time.Millisecond, binary),
		echo("W3", 64, 64).inShort(),
		fire.inShort(),
		echo("W5", 8, 64<<10).inShort(),
		w6, det, w7.inShort(), w8,
		withLeg("noTLS", leg{}), withLeg("TLS", leg{tls: true}),
		withLeg("nodeflate", leg{state: true}), withLeg("deflate", leg{state: true, deflate: true}),
	}
	h1, h3 := tick("H1", 500, 50*time.Millisecond, 200*time.Millisecond, binary), echo("H3", 64, 64)
	h7 := tick("H7", 1000, 200*time.Millisecond, 500*time.Millisecond, binary)
	h7.measured = cutAll
	c40 := tick("C40", 40_000, 40_000*growthTick, 4*40_000*growthTick, binary)
	c40.measured, c40.rounds, c40.game.Hosts = growth, 3, 5
	for _, w := range []workload{h1, h3, h7, c40} {
		w.only = []string{proxy.Reseat, "hop", "nodes3", "nodes5"} // one process has not enough ports for C40
		if w.name == "C40" {
			w.only = []string{"nodes5"}
		}
		list = append(list, w)
	}
	for _, n := range []int{100, 1000, maxSessions} {
		list = append(list, grown(tick(grownName(n), n, time.Duration(n)*growthTick, 4*time.Duration(n)*growthTick, binary)))
	}
	return list
}

// Descriptors that a process may have: with a game server that listens at one address, and at several.
const (
	usualFiles = 20_000
	manyFiles  = 100_000
)

const (
	maxSessions = 100_000                // of growth: as many as the machine allows
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
	w.measured, w.rounds = growth, 3
	w.only = []string{proxy.NGINX, proxy.Reseat, "plain"}
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
		return f.subjects != nil && !slices.Contains(f.subjects, s.Name) || f.subjects == nil && f.short && len(s.Only) > 0
	})
	list = slices.DeleteFunc(list, func(w workload) bool {
		return f.only != nil && !slices.Contains(f.only, w.name) || f.only == nil && f.short && !w.short
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
			if w.sessions == maxSessions {
				most = most / 10 * 9 // leave some headroom
			} else {
				notes = append(notes, fmt.Sprintf("%s has %d sessions in place of %d: a process may open %d files here.", w.name, most, w.sessions, files))
			}
			w.limit(most)
		}
		w.game.Sessions, w.game.Up = w.sessions, w.up
	}
	return list, subjects, notes, nil
}

// limit reduces w to n sessions; if sessions share the traffic, each gets more of it.
func (w *workload) limit(n int) {
	if w.sessions == maxSessions {
		w.game.Every, w.every = time.Duration(n)*growthTick, 4*time.Duration(n)*growthTick
	}
	w.sessions = n
}

// open returns how many sessions are open at once.
func (w workload) open() int {
	if w.name == "W8" {
		return stormInFlight
	}
	return w.sessions
}

func (w *workload) shorten() {
	w.warm, w.measure = min(w.warm, 200*time.Millisecond), min(w.measure, 600*time.Millisecond)
	if w.sessions > 2000 {
		w.sessions = 2000
	}
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
