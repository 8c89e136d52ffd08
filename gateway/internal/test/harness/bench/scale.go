//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"time"

	"reseat/gateway/internal/test/harness/bench/game"
	"reseat/gateway/internal/test/harness/bench/load"
	"reseat/gateway/internal/test/harness/bench/proxy"
)

// How proxies scale: a proxy is held to its first processors by taskset, and the others have pairs of a load
// generator, which is this program, and its game server.

const (
	scalePairs   = 6
	scaleMin     = 12 // processors; with fewer there is no room for the pairs beside a proxy on four
	scaleProgram = "scale-load"
	scaleWarm    = time.Second
	scaleTime    = 2 * time.Second
)

// scaleCases are the workloads, for each pair.
func scaleCases() []workload {
	// More would take more descriptors than many systems allow a proxy: see maxFiles.
	cut := tick("cut", 1300, 200*time.Millisecond, 500*time.Millisecond)
	connects := full("connect", 3000, game.Echo, 64, 64)
	return []workload{
		full("echo", 64, game.Echo, 64, 64), tick("tick", 800, 50*time.Millisecond, 200*time.Millisecond),
		full("flood", 8, game.Fire, 1024, 48), connects, cut,
	}
}

// scaling prints what all subjects reach on 1, 4 and 8 processors, as far as there are enough.
func scaling(ctx context.Context, f flags) error {
	all := runtime.NumCPU()
	if all < f.scaleFrom {
		fmt.Printf("\nHow proxies scale with processors is not measured: that takes %d processors, and there are %d.\n", f.scaleFrom, all)
		return nil
	}
	if _, err := raiseFiles(); err != nil {
		return err
	}
	fmt.Println("\n| processors | workload | subject | 1,000/s | cores used | p50 / p99, µs | all back, ms |\n| --- | --- | --- | --- | --- | --- | --- |")
	for _, cpus := range []int{1, 4, 8} {
		if cpus > 1 && cpus+scalePairs/2 > all {
			continue
		}
		for i, w := range scaleCases() {
			if len(f.only) > 0 && !slices.Contains(f.only, w.name) {
				continue
			}
			for _, s := range proxy.Scaled() {
				if len(f.subjects) > 0 && !slices.Contains(f.subjects, s.Name) || w.name == "cut" && !s.Resumable {
					continue
				}
				if err := ctx.Err(); err != nil {
					return err
				}
				line, err := scaleOne(f, cpus, all, i, w, s)
				if err != nil {
					return fmt.Errorf("scale, %d processors, %s, %s: %w", cpus, w.name, s.Name, err)
				}
				fmt.Println(line)
			}
		}
	}
	return nil
}

// A pairSpec says what a pair does.
type pairSpec struct {
	Case, Index int
	Resumable   bool
}

// A pairResult is what it has measured.
type pairResult struct {
	Rate     float64 // messages, or connections, a second
	P50, P99 int64   // ns
	Back     int64   // ns until all have resumed
}

func scaleOne(f flags, cpus, all, index int, w workload, s proxy.Subject) (_ string, err error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	place := proxy.Place{Dir: dir, Self: self, Reseat: f.binary, Files: maxFiles, CPUs: cpus}
	others := []string{"taskset", "-c", fmt.Sprintf("%d-%d", min(cpus, all-1), all-1)}
	pairs := make([]*game.Child, scalePairs)
	for i := range pairs {
		var addr netip.AddrPort
		if pairs[i], err = game.Fork(others, scaleProgram); err != nil {
			return "", err
		}
		defer pairs[i].Stop()
		if err := errors.Join(pairs[i].Tell(pairSpec{index, i, s.Resumable}), pairs[i].Hear(&addr)); err != nil {
			return "", err
		}
		place.Games = append(place.Games, addr)
	}
	x, err := s.Start(place)
	if err != nil {
		return "", err
	}
	defer x.Stop()
	for _, p := range pairs {
		if err := p.Tell(x.Addrs[0]); err != nil {
			return "", err
		}
	}
	ready := true
	for _, p := range pairs {
		if err := p.Hear(&ready); err != nil {
			return "", fmt.Errorf("%w; the proxy says: %s", err, x.Log())
		}
	}
	before, began := cpuOf(x), time.Now()
	for _, p := range pairs {
		if err := p.Tell(true); err != nil {
			return "", err
		}
	}
	var sum pairResult
	var p50s []int64
	for _, p := range pairs {
		var r pairResult
		if err := p.Hear(&r); err != nil {
			return "", fmt.Errorf("%w; the proxy says: %s", err, x.Log())
		}
		sum.Rate, sum.P99, sum.Back = sum.Rate+r.Rate, max(sum.P99, r.P99), max(sum.Back, r.Back)
		p50s = append(p50s, r.P50)
	}
	cores := (cpuOf(x) - before).Seconds() / time.Since(began).Seconds()
	slices.Sort(p50s)
	back, latency := "", ""
	if sum.Back > 0 {
		back = fmt.Sprint(sum.Back / 1e6)
	}
	if sum.P99 > 0 {
		latency = fmt.Sprintf("%d / %d", p50s[len(p50s)/2]/1e3, sum.P99/1e3)
	}
	return fmt.Sprintf("| %d | %s | %s | %.1f | %.2f | %s | %s |", cpus, w.name, s.Title, sum.Rate/1e3, cores, latency, back), nil
}

func cpuOf(x *proxy.Proxy) time.Duration {
	t, _ := proxy.CPU(x.PIDs)
	return t
}

// scaleLoad runs the load generator. It reads its pairSpec, writes the address of its game server, reads that of the
// proxy, reports that it is ready, and begins at the next input.
func scaleLoad() error {
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	var spec pairSpec
	if err := in.Decode(&spec); err != nil {
		return err
	}
	w := scaleCases()[spec.Case]
	w.game.Sessions, w.game.Up = w.sessions, w.up
	handle, err := game.New(w.game)
	if err != nil {
		return err
	}
	defer handle.Stop()
	var target netip.AddrPort
	if err := errors.Join(out.Encode(handle.Addr), in.Decode(&target)); err != nil {
		return err
	}
	setup := load.Setup{
		Targets: []netip.AddrPort{target}, Game: handle, Resumable: spec.Resumable, Sessions: w.sessions, InFlight: 128, Prefix: fmt.Sprint("/", spec.Index),
		Down: w.game.Down, Up: w.up, Every: w.every, Grain: w.game.Grain, Echo: w.echo,
	}
	if w.name == "connect" {
		setup.Echo, setup.Storm, setup.InFlight = false, true, 32
	}
	c, err := load.New(setup)
	if err != nil {
		return err
	}
	defer c.Close()
	var result pairResult
	if w.name == "connect" {
		return errors.Join(out.Encode(true), in.Decode(new(bool)), result.connects(c), out.Encode(result))
	}
	if err := steps(func() error { return c.Connect(patience) }, c.Start, func() error { return c.Run(scaleWarm) }); err != nil {
		return err
	}
	if err := errors.Join(out.Encode(true), in.Decode(new(bool))); err != nil {
		return err
	}
	if w.name == "cut" {
		c.Cut()
		c.Resumes.Reset()
		if err := c.Run(time.Second); err != nil {
			return err
		}
		began := time.Now()
		if err := c.Back(patience); err != nil {
			return err
		}
		result.Back, result.P50, result.P99 = int64(time.Since(began)), int64(c.Resumes.Quantile(0.5)), int64(c.Resumes.Quantile(0.99))
		result.Rate = float64(w.sessions) / time.Duration(result.Back).Seconds()
	} else if err := result.traffic(c, w.game.Mode != game.Fire); err != nil {
		return err
	}
	if _, err := c.Stop(patience); err != nil {
		return err
	}
	return out.Encode(result)
}

// traffic measures the messages of both directions.
func (r *pairResult) traffic(c *load.Client, latencies bool) error {
	c.Measuring = latencies
	before, began := c.Received+c.Written, time.Now()
	if err := c.Run(scaleTime); err != nil {
		return err
	}
	r.Rate = float64(c.Received+c.Written-before) / time.Since(began).Seconds()
	if latencies {
		r.P50, r.P99 = int64(c.Latency.Quantile(0.5)), int64(c.Latency.Quantile(0.99))
	}
	c.Measuring = false
	return nil
}

// connects measures connections that echo one message and close.
func (r *pairResult) connects(c *load.Client) error {
	began := time.Now()
	if err := c.All(patience); err != nil {
		return err
	}
	r.Rate = float64(c.Sessions) / time.Since(began).Seconds()
	return nil
}
