//go:build linux

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"reseat/gateway/internal/test/harness/bench/proxy"
)

// A profile run says where the proxies' processor time goes, by perf(1): system calls,
// wake-ups, and functions by group. It measures each subject three times: undisturbed,
// while perf counts, and while perf samples.

// profiled are the workloads, each with the figures that are its units and its time.
var profiled = map[string]struct{ unit, us string }{
	"W1": {"message", "cpu_us"}, "W3": {"message", "cpu_us"}, "W7": {"resume", "resume_us"}, "W8": {"connection", "connection_us"},
}

// profileTime is for which a steady stream is looked at.
const profileTime = 3 * time.Second

// A perf is one that runs while something is measured.
type perf struct {
	args []string
	cmd  *exec.Cmd
	said bytes.Buffer
}

// from is note, and lets perf begin, if it is wanted.
func (s *stage) from(r *reading) step {
	return func() error {
		if p := s.perf; p != nil {
			pids := strings.Trim(strings.ReplaceAll(fmt.Sprint(s.proxy.PIDs), " ", ","), "[]")
			p.cmd = exec.Command("perf", append(p.args, "-p", pids)...)
			p.cmd.Stdout, p.cmd.Stderr = &p.said, &p.said
			if err := p.cmd.Start(); err != nil {
				return err
			}
			time.Sleep(300 * time.Millisecond) // until it looks
		}
		return s.note(r)()
	}
}

// to is note, and lets perf end.
func (s *stage) to(r *reading) step {
	return func() error {
		err := s.note(r)()
		if p := s.perf; p != nil {
			p.cmd.Process.Signal(syscall.SIGINT)
			if bad := p.cmd.Wait(); bad != nil && !p.cmd.ProcessState.Sys().(syscall.WaitStatus).Signaled() {
				err = fmt.Errorf("perf %s: %w: %s", p.args[0], bad, p.said.Bytes())
			}
		}
		return err
	}
}

// profileAll prints the profiles of all subjects.
func profileAll(ctx context.Context, f flags) error {
	if _, err := exec.LookPath("perf"); err != nil || os.Geteuid() != 0 {
		return errors.New("--profile takes perf(1), of linux-perf or linux-tools, and root")
	}
	names := slices.Sorted(maps.Keys(profiled))
	if f.only == nil {
		f.only = names
	}
	files, err := raiseFiles()
	if err != nil {
		return err
	}
	list, subjects, err := plan(f)
	if err != nil {
		return err
	}
	r := runner{flags: f, own: files}
	for _, w := range list {
		if profiled[w.name].unit == "" {
			return fmt.Errorf("--profile knows %s", strings.Join(names, ", "))
		}
		w.measure = profileTime
		for _, s := range subjects {
			if err := ctx.Err(); err != nil || !w.takesPart(s) {
				continue
			}
			if err := r.profileOne(w, s); err != nil {
				return fmt.Errorf("%s, %s: %w", w.name, s.Name, err)
			}
		}
	}
	return ctx.Err()
}

// profileOne prints the profile of one subject.
func (r *runner) profileOne(w workload, s proxy.Subject) error {
	dir, err := os.MkdirTemp("", "profile-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	what := profiled[w.name]
	run := func(args ...string) (units, us float64, err error) {
		st, err := r.open(w, s)
		if err != nil {
			return 0, 0, err
		}
		defer st.close()
		if args != nil {
			st.perf = &perf{args: args}
		}
		measured := w.measured
		if w.slice != nil {
			measured = func(st *stage) (figures, error) {
				if err := (&lane{stage: st}).warmUp(); err != nil {
					return nil, err
				}
				return w.slice(st)
			}
		}
		fig, err := measured(st)
		if units = float64(w.sessions); what.unit == "message" {
			units = fig["messages"]
		}
		return units, fig[what.us], st.explain(err)
	}
	_, us, err := run()
	if err != nil {
		return err
	}
	counts, data := filepath.Join(dir, "stat"), filepath.Join(dir, "data")
	units, _, err := run("stat", "-x", ";", "-o", counts, "-e", "raw_syscalls:sys_enter,context-switches,page-faults,cache-misses,instructions,syscalls:sys_enter_*")
	if err != nil {
		return err
	}
	stat, err := os.ReadFile(counts)
	if err != nil {
		return err
	}
	if _, _, err = run("record", "-F", "4000", "-o", data); err != nil {
		return err
	}
	samples, err := exec.Command("perf", "report", "-i", data, "--stdio", "--no-children", "-F", "overhead,dso,sym", "-t", ";").Output()
	if err != nil {
		return fmt.Errorf("perf report: %w", err)
	}
	fmt.Printf("\n%s, %s: %.2f µs a %s\n", w.name, s.Name, us, what.unit)
	for _, c := range countsOf(string(stat)) {
		if c.n/units >= 0.005 {
			fmt.Printf("  %-28s %8.2f\n", c.name, c.n/units)
		}
	}
	for _, g := range sharesOf(string(samples)) {
		fmt.Printf("  %-40s %5.1f %%  %7.2f µs\n", g.name, g.n, g.n/100*us)
	}
	return nil
}

// A share is a count, or a percentage, with its name.
type share struct {
	name string
	n    float64
}

// countsOf reads the output of perf stat -x ';', without events that the machine cannot count.
func countsOf(stat string) (list []share) {
	for line := range strings.Lines(stat) {
		f := strings.Split(line, ";")
		if n, err := strconv.ParseFloat(f[0], 64); err == nil && len(f) > 2 {
			list = append(list, share{f[2][strings.LastIndexByte(f[2], ':')+1:], n})
		}
	}
	return list
}

// sharesOf adds up the output of perf report by group, the largest first.
func sharesOf(report string) (list []share) {
	sums := map[string]float64{}
	for line := range strings.Lines(report) {
		f := strings.SplitN(strings.TrimSpace(line), ";", 3)
		n, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(f[0]), "%"), 64)
		if err == nil && len(f) > 2 {
			sums[groupOf(strings.TrimSpace(f[1]), strings.TrimSpace(f[2]))] += n
		}
	}
	for name, n := range sums {
		list = append(list, share{name, n})
	}
	slices.SortFunc(list, func(a, b share) int { return cmp.Or(cmp.Compare(b.n, a.n), strings.Compare(a.name, b.name)) })
	return list
}

// programGroups are the beginnings of functions in a Go program: the first that fits decides.
var programGroups = []struct {
	group string
	names []string
}{
	{"bytes relayed, nothing else", []string{"reseat/gateway/internal/test/harness"}},
	{"gateway: frames, masking, replay", []string{"reseat/gateway/frame", "reseat/gateway/replay", "reseat/gateway/wire"}},
	{"gateway: session core", []string{"reseat/gateway/session"}},
	{"gateway: driver", []string{"reseat/gateway/transport"}},
	{"runtime: garbage collector", []string{"runtime.gc", "runtime.scan", "runtime.(*gc", "runtime.mark", "runtime.grey", "runtime.(*sweep", "runtime.(*mspan", "runtime.bgsweep", "runtime.wb", "internal/runtime/gc", "runtime.heapBits", "runtime.drain"}},
	{"runtime: allocation", []string{"runtime.malloc", "runtime.new", "runtime.make", "runtime.grow", "runtime.nextFree", "runtime.(*mcache", "runtime.(*mcentral", "runtime.memclr"}},
	{"runtime: scheduler, poller, locks, clock", []string{"runtime.", "internal/runtime", "time.now", "gogo", "syscall.", "0x"}},
	{"gateway: handshake, dial, tokens, records", []string{""}},
}

// groupOf returns the group of a function: sym is as perf prints it, [k] or [.] and its name.
func groupOf(dso, sym string) string {
	name, kernel := strings.CutPrefix(sym, "[k] ")
	name = strings.TrimPrefix(name, "[.] ")
	switch {
	case kernel:
		return "kernel"
	case strings.HasPrefix(dso, "nginx"), strings.HasPrefix(dso, "haproxy"), strings.HasPrefix(dso, "lib"):
		return "program: " + dso
	}
	for _, g := range programGroups {
		if slices.ContainsFunc(g.names, func(begin string) bool { return strings.HasPrefix(name, begin) }) {
			return g.group
		}
	}
	return ""
}
