//go:build linux

package main

import (
	"context"
	"fmt"
	"syscall"

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
	list, subjects, err := plan(f)
	if err != nil {
		return nil, err
	}
	results := report.New(f.binary, "make bench")
	if f.short {
		results.Command = "make bench-short"
	}
	for _, w := range list {
		results.Sessions[w.name] = w.sessions
		if w.beside > 0 {
			results.Sessions[w.name] = w.beside
		}
	}
	for _, s := range subjects {
		results.Subjects = append(results.Subjects, report.Subject{Name: s.Name, Title: s.Title})
	}
	r := runner{flags: f, own: files, results: results, calm: calm{left: f.wait()}, cycles: map[string]int{}}
	for round := range f.rounds {
		for _, w := range list {
			if err := r.turns(ctx, round, w, subjects); err != nil {
				return results, err
			}
		}
	}
	return results, nil
}

// raiseFiles raises the descriptor limit of this process, which has the clients of several subjects
// at once, and of those it starts, as far as permitted.
func raiseFiles() (int, error) {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return 0, fmt.Errorf("limit of open files: %w", err)
	}
	const many = 5 * maxFiles
	var err error
	for _, n := range []uint64{max(r.Max, many), max(r.Max, maxFiles)} { // exceeding the hard limit needs privileges
		if err = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: n, Max: n}); err == nil {
			return int(min(n, many)), nil
		}
	}
	return 0, fmt.Errorf("raise the limit of open files to %d: %w", maxFiles, err)
}

// A runner runs measurements.
type runner struct {
	flags   flags
	own     int // descriptors of this process
	results *report.Results
	calm    calm
	cycles  map[string]int // measured so far, by workload
}

// turns measures every subject with w. Each round starts with another, so that none
// always follows the same one.
func (r *runner) turns(ctx context.Context, round int, w workload, subjects []proxy.Subject) error {
	if w.rounds > 0 && round >= w.rounds {
		return nil
	}
	if w.slice != nil {
		return r.bySlices(ctx, round, w, subjects)
	}
	for time := range max(w.times, 1) {
		if err := r.oneByOne(ctx, round, time, w, subjects); err != nil {
			return err
		}
	}
	return nil
}

// oneByOne measures every subject with w, one after the other.
func (r *runner) oneByOne(ctx context.Context, round, time int, w workload, subjects []proxy.Subject) error {
	r.cycles[w.name]++
	for i := range subjects {
		s := subjects[(i+round+time)%len(subjects)]
		if !w.takesPart(s) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		figs, err := r.calm.measure(ctx, func() ([]figures, error) {
			fig, err := r.one(w, s)
			return []figures{fig}, err
		})
		if err != nil {
			return fmt.Errorf("round %d, %s, %s: %w", round+1, w.name, s.Name, err)
		}
		fmt.Printf("round %d  %-9s %-16s %s\n", round+1, w.name, s.Name, report.Line(figs[0]))
		r.results.Add(w.name, s.Name, r.cycles[w.name], figs[0])
	}
	return nil
}

// one measures one subject once, with everything started anew.
func (r *runner) one(w workload, s proxy.Subject) (figures, error) {
	st, err := r.open(w, s)
	if err != nil {
		return nil, err
	}
	defer st.close()
	fig, err := w.measured(st)
	return fig, st.explain(err)
}
