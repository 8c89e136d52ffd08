//go:build linux

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"reseat/gateway/internal/test/harness/bench/proxy"
	"reseat/gateway/internal/test/harness/bench/report"
	"reseat/gateway/internal/test/harness/bench/stat"
)

// Compared subjects are measured in slices: all of them are up at once, each with a game
// server and clients of its own, and one at a time has traffic, for about a second. A
// shared machine changes more within a minute than two subjects differ, but little from
// one slice to the next. A cycle is a slice of each subject, in an order of its own, and
// is a round of the results: ratios are formed within it.
//
// A slice begins where the subject's previous one ended, in what is sent and in what
// clients owe acks for.

// A lane is one subject of those that take turns.
type lane struct {
	*stage
	subject proxy.Subject
	total   total
}

// A total is what a lane's slices add up to.
type total struct {
	cpu, messages float64 // seconds, data messages
	latency       stat.Hist
	began         reading // of the present pause
	pausedCPU     time.Duration
	paused        time.Duration
}

// bySlices measures all subjects with w, as many at once as files, this process's limit
// of descriptors, allows.
func (r *runner) bySlices(ctx context.Context, round int, w workload, subjects []proxy.Subject) error {
	taking := slices.DeleteFunc(slices.Clone(subjects), func(s proxy.Subject) bool { return !w.takesPart(s) })
	for _, group := range groups(taking, (r.own-200)/(w.sessions+w.beside)) {
		if err := r.group(ctx, round, w, group); err != nil {
			return err
		}
	}
	return nil
}

// groups divides subjects into groups of at most n, with nginx in each.
func groups(list []proxy.Subject, n int) (all [][]proxy.Subject) {
	base := slices.IndexFunc(list, func(s proxy.Subject) bool { return s.Name == proxy.NGINX })
	if base < 0 || n < 2 || len(list) <= n {
		return slices.Collect(slices.Chunk(list, max(n, 1)))
	}
	others := slices.Delete(slices.Clone(list), base, base+1)
	for chunk := range slices.Chunk(others, n-1) {
		all = append(all, append([]proxy.Subject{list[base]}, chunk...))
	}
	return all
}

// group measures subjects that take turns.
func (r *runner) group(ctx context.Context, round int, w workload, subjects []proxy.Subject) error {
	var lanes []*lane
	defer func() {
		r.calm.meanwhile = nil
		for _, l := range lanes {
			l.close()
		}
	}()
	r.calm.meanwhile = func() error { return serve(lanes) }
	for _, s := range subjects {
		st, err := r.open(w, s)
		if err != nil {
			return fmt.Errorf("round %d, %s, %s: %w", round+1, w.name, s.Name, err)
		}
		l := &lane{stage: st, subject: s}
		lanes = append(lanes, l)
		st.clients.Meanwhile = r.calm.meanwhile
		if err := l.explain(steps(l.warmUp, r.calm.meanwhile)); err != nil {
			return fmt.Errorf("round %d, %s, %s: %w", round+1, w.name, s.Name, err)
		}
	}
	if err := r.calm.rest(ctx, w.settle); err != nil {
		return fmt.Errorf("round %d, %s, %w", round+1, w.name, err)
	}
	random := rand.New(rand.NewPCG(uint64(round), uint64(len(w.name))))
	for range w.cycles {
		if err := r.cycle(ctx, lanes, random.Perm(len(lanes))); err != nil {
			return fmt.Errorf("round %d, %s, %w", round+1, w.name, err)
		}
	}
	for _, l := range lanes {
		fig, err := l.finish()
		if err := l.explain(err); err != nil {
			return fmt.Errorf("round %d, %s, %s: %w", round+1, w.name, l.subject.Name, err)
		}
		r.results.Add(w.name, l.subject.Name, r.cycles[w.name], fig)
		fmt.Printf("round %d  %-9s %-16s %s\n", round+1, w.name, l.subject.Name, report.Line(fig))
	}
	return nil
}

// cycle measures a slice of each lane, in the given order.
func (r *runner) cycle(ctx context.Context, lanes []*lane, order []int) error {
	figs, err := r.calm.measure(ctx, func() ([]figures, error) {
		figs := make([]figures, len(lanes))
		for _, i := range order {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			fig, err := lanes[i].turn()
			if err == nil {
				err = r.calm.meanwhile()
			}
			if err := lanes[i].explain(err); err != nil {
				return nil, fmt.Errorf("%s: %w", lanes[i].subject.Name, err)
			}
			figs[i] = fig
		}
		return figs, nil
	})
	if err != nil {
		return err
	}
	w := lanes[0].w
	r.cycles[w.name]++
	for i, l := range lanes {
		l.total.add(figs[i], &l.clients.Latency)
		r.results.Add(w.name, l.subject.Name, r.cycles[w.name], figs[i])
	}
	return nil
}

// serve answers what gateways ask clients that have a pause.
func serve(lanes []*lane) error {
	for _, l := range lanes {
		if err := l.clients.Serve(); err != nil {
			return fmt.Errorf("%s in its pause: %w: %v", l.subject.Name, err, l.clients.Faults)
		}
	}
	return nil
}

// warmUp connects the clients, and lets the traffic run until it is steady.
func (l *lane) warmUp() error {
	return steps(l.weigh(&l.empty), l.connect, l.start, l.wait(l.w.warm), l.pause, l.quiet, l.note(&l.total.began))
}

// turn is the lane's slice of a cycle.
func (l *lane) turn() (figures, error) {
	var ended reading
	if err := l.note(&ended)(); err != nil {
		return nil, err
	}
	t := &l.total
	t.pausedCPU += ended.proxy - t.began.proxy
	t.paused += time.Duration(ended.at - t.began.at)
	l.clients.Latency.Reset()
	fig, err := l.w.slice(l.stage)
	if err != nil {
		return nil, err
	}
	return fig, steps(l.quiet, l.note(&t.began))
}

// How little a proxy must use before the next one's slice begins, and how long that may
// take: it has to handle the acks of the pause, perhaps to collect garbage.
const (
	quietWindow  = 20 * time.Millisecond
	quietCores   = 0.05
	quietWindows = 50
)

// quiet waits until the proxy has nothing left to do.
func (l *lane) quiet() error {
	before, err := proxy.CPU(l.proxy.PIDs)
	for range quietWindows {
		if err := l.wait(quietWindow)(); err != nil {
			return err
		}
		now, err := proxy.CPU(l.proxy.PIDs)
		if err != nil || (now-before).Seconds() < quietCores*quietWindow.Seconds() {
			return err
		}
		before = now
	}
	return err
}

// add adds a slice that counts.
func (t *total) add(f figures, latency *stat.Hist) {
	t.messages += f["messages"]
	t.cpu += f["cpu_us"] * f["messages"] / 1e6
	t.latency.Add(latency)
}

// finish compares what was sent with what arrived, and returns what the slices add up
// to.
func (l *lane) finish() (figures, error) {
	var used int64
	err := steps(l.weigh(&used), l.stop)
	t := &l.total
	fig := figures{"used_mib": float64(used-l.empty) / (1 << 20)}
	if t.messages > 0 {
		fig["all_cpu_us"], fig["all_messages"] = t.cpu*1e6/t.messages, t.messages
	}
	if q := t.latency.Quantiles(); q.N > 0 {
		fig["all_p50_us"], fig["all_p99_us"] = q.P50, q.P99
	}
	if t.paused > 0 {
		fig["paused_cores"] = t.pausedCPU.Seconds() / t.paused.Seconds()
	}
	return fig, err
}
