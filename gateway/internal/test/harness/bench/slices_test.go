//go:build linux

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"reseat/gateway/internal/test/harness/bench/proxy"
	"reseat/gateway/internal/test/harness/bench/report"
	"reseat/gateway/internal/test/harness/bench/stat"
)

func TestNginxIsInEachGroup(t *testing.T) {
	list := []proxy.Subject{{Name: "direct"}, {Name: proxy.NGINX}, {Name: "a"}, {Name: "b"}, {Name: "c"}}
	for n, want := range map[int]string{
		9: "direct nginx a b c", 5: "direct nginx a b c", 3: "nginx direct a|nginx b c", 2: "nginx direct|nginx a|nginx b|nginx c",
		1: "direct|nginx|a|b|c", 0: "direct|nginx|a|b|c",
	} {
		var got []string
		for _, g := range groups(slices.Clone(list), n) {
			var names []string
			for _, s := range g {
				names = append(names, s.Name)
			}
			got = append(got, strings.Join(names, " "))
		}
		if s := strings.Join(got, "|"); s != want {
			t.Errorf("%d at once: %q, want %q", n, s, want)
		}
	}
	if got := groups(slices.Clone(list[2:]), 2); len(got) != 2 || len(got[0]) != 2 {
		t.Errorf("without nginx: %v", got)
	}
}

// small returns a runner of the subjects that need no installation, and a small W1.
func small(t *testing.T) (*runner, workload, []proxy.Subject) {
	t.Helper()
	gateway := filepath.Join(t.TempDir(), "reseat")
	if err := os.WriteFile(gateway, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	f := mustParse(t, "--wait", "0", "--only", "W1", "--subjects", "direct,library", "--reseat", gateway)
	list, subjects, _, err := plan(f, "", 20000)
	if err != nil {
		t.Fatal(err)
	}
	w := list[0]
	w.warm, w.measure, w.sessions, w.game.Sessions, w.cycles = 10*time.Millisecond, 200*time.Millisecond, 20, 20, 3
	return &runner{flags: f, own: 20000, files: 20000, results: report.New(gateway, "test", nil), cycles: map[string]int{}}, w, subjects
}

// 20 sessions make 100 messages in 0.2 s, all at one rate: if others' messages were
// counted, there would be twice as many.
func TestSliceHasOnlyItsOwnTraffic(t *testing.T) {
	r, w, subjects := small(t)
	if err := r.turns(context.Background(), 0, w, subjects); err != nil {
		t.Fatal(err)
	}
	sums := map[string]float64{}
	for _, s := range r.results.Samples {
		f := s.Figures
		if f["all_messages"] > 0 {
			if f["all_messages"] != sums[s.Subject] {
				t.Errorf("%s: %v messages in all, %v in its slices", s.Subject, f["all_messages"], sums[s.Subject])
			}
			continue
		}
		sums[s.Subject] += f["messages"]
		if rate := f["rate"]; rate < 350 || rate > 650 {
			t.Errorf("%s, cycle %d: %v messages a second, want 500", s.Subject, s.Round, rate)
		}
	}
	if len(r.results.Samples) != 2*(3+1) || r.cycles["W1"] != 3 {
		t.Errorf("%d samples of %d cycles", len(r.results.Samples), r.cycles["W1"])
	}
}

// If one slice of a cycle was disturbed, all are repeated: they are neighbours.
func TestDisturbedCycleIsRepeatedAndCountsOnce(t *testing.T) {
	c := calm{left: time.Hour}
	cancelled, cancel := context.WithCancel(context.Background())
	cancel() // so that it does not wait for an idle machine
	calls := 0
	figs, err := c.measureAll(cancelled, func() ([]figures, error) {
		calls++
		return []figures{{"other_cores": 0}, {"other_cores": float64(2 - calls)}}, nil
	})
	if err != nil || calls != 2 || len(figs) != 2 || figs[0]["tries"] != 2 {
		t.Errorf("%d calls, %v, %v", calls, figs, err)
	}
	if _, err := c.measureAll(cancelled, func() ([]figures, error) { return nil, errors.New("broken") }); err == nil {
		t.Error("a cycle that failed is repeated until it does not")
	}
}

func TestWaitingForAnIdleMachineServesThoseThatPause(t *testing.T) {
	served := 0
	c := calm{left: time.Millisecond, meanwhile: func() error { served++; return nil }}
	c.await(context.Background())
	if served != 1 {
		t.Errorf("served %d times", served)
	}
}

func TestTotalIsWeighedByMessages(t *testing.T) {
	var sum total
	var h stat.Hist
	h.Record(1000)
	sum.add(figures{"cpu_us": 10, "messages": 300}, &h)
	sum.add(figures{"cpu_us": 20, "messages": 100}, &h)
	if us := sum.cpu * 1e6 / sum.messages; us < 12.49 || us > 12.51 || sum.latency.N() != 2 {
		t.Errorf("%v µs, %d latencies", us, sum.latency.N())
	}
}
