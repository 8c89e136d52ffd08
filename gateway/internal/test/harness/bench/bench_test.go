//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"reseat/gateway/internal/test/harness/bench/proxy"
	"reseat/gateway/internal/test/harness/bench/report"
)

// TestMain is also the game server, two of the proxies and the relay, for TestWholeRun.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "serve-") {
		main()
		return
	}
	os.Exit(m.Run())
}

// planned returns the plan of a command line.
func planned(args string) ([]workload, []proxy.Subject, error) {
	f, err := parse(strings.Fields(args))
	if err != nil {
		return nil, nil, err
	}
	return plan(f)
}

func TestPlanIsWhatIsAskedFor(t *testing.T) {
	for args, want := range map[string]string{ // workloads, with the number of subjects that take part; or an error
		"":        "W1 8, W2 8, W3 8, W4 8, W5 8, W6 8, W6det 2, W7 4, W1W7 2, W8 10, noTLS 4, TLS 3, W6TLS 3, nodeflate 4, deflate 4, H1 4, H7 4, G100 5, G1000 5, Gmax 3, Gacks 4",
		"--short": "W1 8, W3 8, W4 8, W5 8, W7 2",
		"--only W3,W1,C1 --subjects reseat@net,nodes3@net,nginx": "W1 2, W3 2, C1 2",
		"--only W1 --also mine=/bin/true":                        "W1 9",
		"--only W9":                                              `--only: there is no workload "W9"`,
		"--subjects apache":                                      `--subjects: there is no subject "apache"`,
		"W1":                                                     `what is "W1"?`,
		"--also x":                                               `invalid value "x" for flag -also: want name=binary`,
	} {
		list, subjects, err := planned(args)
		var all []string
		for _, w := range list {
			n := 0
			for _, s := range subjects {
				if w.takesPart(s) {
					n++
				}
			}
			all = append(all, fmt.Sprint(w.name, " ", n))
			if open := w.sessions + w.beside; w.name != "W8" && 2*open+200 > maxFiles {
				t.Errorf("%q: %s has %d sessions open at once, each with two descriptors of %d", args, w.name, open, maxFiles)
			}
		}
		got := strings.Join(all, ", ")
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: %s; want %s", args, got, want)
		}
	}
}

func TestNginxIsInEachGroup(t *testing.T) {
	list := []proxy.Subject{{Name: "direct"}, {Name: proxy.NGINX}, {Name: "a"}, {Name: "b"}, {Name: "c"}}
	for n, want := range map[int]string{5: "direct nginx a b c", 3: "nginx direct a|nginx b c", 2: "nginx direct|nginx a|nginx b|nginx c", 0: "direct|nginx|a|b|c"} {
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
}

// If one slice of a cycle was disturbed, all are repeated: they are neighbours.
func TestOnlyDisturbedMeasurementsAreRepeated(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel() // so that it does not wait for an idle machine
	for name, tt := range map[string]struct {
		others []float64 // measured by each try
		left   time.Duration
	}{
		"calm":              {[]float64{.1}, time.Hour},
		"disturbed once":    {[]float64{.9, .1}, time.Hour},
		"disturbed always":  {[]float64{.9, .9, .9}, time.Hour},
		"no time to repeat": {[]float64{.9}, 0},
	} {
		c, calls := calm{left: tt.left}, 0
		figs, err := c.measure(cancelled, func() ([]figures, error) {
			calls++
			return []figures{{"other_cores": 0}, {"other_cores": tt.others[min(calls, len(tt.others))-1]}}, nil
		})
		if err != nil || calls != len(tt.others) || figs[0]["tries"] != float64(calls) {
			t.Errorf("%s: %d tries, %v, %v; want %d", name, calls, figs, err, len(tt.others))
		}
	}
}

// The subjects that need no installation, in each way of measuring.
func TestWholeRun(t *testing.T) {
	list, subjects, err := planned("--short --only W1,W8,TLS,nodeflate,deflate --subjects direct,library")
	if err != nil {
		t.Fatal(err)
	}
	r := runner{own: maxFiles, results: report.New(filepath.Join(t.TempDir(), "none"), "test"), cycles: map[string]int{}}
	for _, w := range list {
		w.warm, w.measure, w.sessions, w.game.Sessions = 10*time.Millisecond, 250*time.Millisecond, 16, 16
		if err := r.turns(t.Context(), 0, w, subjects); err != nil {
			t.Fatal(err)
		}
	}
	// Two cycles, and what they add up to; W8 twice; the last two by one subject.
	if got, want := len(r.results.Samples), 2*(2+1)+2*2+2*(2+1); got != want {
		t.Errorf("%d samples, want %d", got, want)
	}
	sums := map[string]float64{} // of messages
	for _, s := range r.results.Samples {
		if all := s.Figures["all_messages"]; all > 0 {
			if key := s.Workload + s.Subject; all != sums[key] {
				t.Errorf("%s: %v messages in all, %v in its slices", key, all, sums[key])
			}
			continue
		}
		sums[s.Workload+s.Subject] += s.Figures["messages"]
		if s.Figures["seconds"] <= 0 {
			t.Errorf("%+v: nothing was measured", s)
		}
	}
	for key, n := range sums {
		if n == 0 {
			t.Errorf("%s: no message in any slice", key)
		}
	}
}
