//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"reseat/gateway/internal/test/harness/bench/game"
	"reseat/gateway/internal/test/harness/bench/load"
	"reseat/gateway/internal/test/harness/bench/proxy"
	"reseat/gateway/internal/test/harness/bench/report"
)

// figures are the results of one measurement, by name: see package report.
type figures map[string]float64

// measure does everything that f asks for. It returns the results so far with an error.
func measure(ctx context.Context, f flags) (*report.Results, error) {
	files, err := raiseFiles()
	if err != nil {
		return nil, err
	}
	help, err := exec.Command(f.binary, "--help").Output()
	if err != nil {
		return nil, fmt.Errorf("%s --help: %w", f.binary, err)
	}
	list, subjects, notes, err := plan(f, string(help), files)
	if err != nil {
		return nil, err
	}
	results := report.New(f.binary, "make bench", append(notes, f.notes...))
	if f.short {
		results.Command = "make bench-short"
	}
	for _, w := range list {
		results.Sessions[w.name] = w.sessions
	}
	for _, s := range subjects {
		results.Subjects = append(results.Subjects, report.Subject{Name: s.Name, Title: s.Title})
	}
	r := runner{flags: f, files: min(files, usualFiles), results: results, calm: calm{f.wait}}
	for round := range f.rounds {
		for _, w := range list {
			if err := r.turns(ctx, round, w, subjects); err != nil {
				return results, err
			}
		}
	}
	return results, nil
}

// raiseFiles raises the descriptor limit of this process, and of those it starts, as
// far as permitted.
func raiseFiles() (int, error) {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return 0, fmt.Errorf("limit of open files: %w", err)
	}
	var err error
	for _, n := range []uint64{max(r.Max, manyFiles), max(r.Max, usualFiles), r.Max} { // exceeding the hard limit needs privileges
		if err = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: n, Max: n}); err == nil {
			return int(min(n, manyFiles)), nil
		}
	}
	return 0, fmt.Errorf("raise the limit of open files: %w", err)
}

// A runner runs measurements.
type runner struct {
	flags   flags
	files   int
	results *report.Results
	calm    calm
}

// turns measures every subject with w. Each round starts with another, so that none
// always follows the same one.
func (r *runner) turns(ctx context.Context, round int, w workload, subjects []proxy.Subject) error {
	if w.rounds > 0 && round >= w.rounds {
		return nil
	}
	for i := range subjects {
		s := subjects[(i+round)%len(subjects)]
		if !w.takesPart(s) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		fig, err := r.calm.measure(ctx, func() (figures, error) { return r.one(w, s) })
		if err != nil {
			return fmt.Errorf("round %d, %s, %s: %w", round+1, w.name, s.Name, err)
		}
		fmt.Printf("round %d  %-9s %-16s %s\n", round+1, w.name, s.Name, report.Line(fig))
		r.results.Add(w.name, s.Name, round+1, fig)
	}
	return nil
}

// one measures one subject once, with everything started anew.
func (r *runner) one(w workload, s proxy.Subject) (figures, error) {
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	g, err := game.Start([]string{self, asGame}, w.game)
	if err != nil {
		return nil, err
	}
	defer g.Stop()
	clients, err := w.leg.proxies(dir)
	if err != nil {
		return nil, err
	}
	p, err := s.Start(proxy.Place{Dir: dir, Game: g.Addr, Games: w.game.Hosts, Library: []string{self, asLibrary}, Reseat: r.flags.binary, NATS: r.flags.nats, Files: r.files, Leg: clients})
	if err != nil {
		return nil, err
	}
	defer p.Stop()
	if p.PIDs == nil {
		p.PIDs = []int{g.PID}
	}
	if w.leg != nil {
		return w.onLeg(g, p, clients)
	}
	return r.act(w, s, g, p)
}

func (r *runner) act(w workload, s proxy.Subject, g *game.Handle, p *proxy.Proxy) (figures, error) {
	setup := load.Setup{
		Target: p.Addr, Others: p.Others, Game: g, Resumable: s.Resumable, Sessions: w.sessions, InFlight: 128,
		Down: w.game.Down, Up: w.up, Every: w.every, Grain: w.game.Grain, Echo: w.echo,
	}
	if w.name == "W8" {
		setup.Echo, setup.Storm, setup.InFlight = false, true, stormInFlight
	}
	c, err := load.New(setup)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	fig, err := w.measured(&stage{w: w, game: g, proxy: p, clients: c})
	if err != nil {
		if c.Faults.Any() {
			err = fmt.Errorf("%w: %v", err, c.Faults)
		}
		return nil, fmt.Errorf("%w; the proxy says: %s", err, strings.TrimSpace(p.Log()))
	}
	return fig, nil
}
