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
)

// TestMain is also the game server, two of the proxies and the relay, for TestWholeRun.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "serve-") {
		main()
		return
	}
	os.Exit(m.Run())
}

const help = "  --driver auto|net|poll  what moves the bytes"

// planned returns the plan of a command line.
func planned(t *testing.T, files int, args ...string) (list []workload, subjects []proxy.Subject, notes []string) {
	t.Helper()
	f, err := parse(args)
	if err == nil {
		list, subjects, notes, err = plan(f, help, files)
	}
	if err != nil {
		t.Fatal(err)
	}
	return list, subjects, notes
}

func TestPlanIsWhatIsAskedFor(t *testing.T) {
	for _, tt := range []struct {
		args      string
		workloads string
		subjects  int
	}{
		{"", "W1 W2 W3 W4 W5 W6 W6det W7 W1W7 W8 noTLS TLS W6TLS nodeflate deflate H1 H3 H7 G100 G1000 Gmax Gacks", 19},
		{"--short", "W1 W3 W4 W5 W7", 8},
		{"--only W3,W1,C40 --subjects reseat@net,nginx,floor", "W1 W3 C40", 3},
		{"--only W1 --also mine=/bin/true", "W1", 20},
	} {
		list, subjects, notes := planned(t, manyFiles, strings.Fields(tt.args)...)
		var names []string
		for _, w := range list {
			names = append(names, w.name)
		}
		if got := strings.Join(names, " "); got != tt.workloads || len(subjects) != tt.subjects || notes != nil {
			t.Errorf("%q: %s by %d subjects, notes %q; want %s by %d", tt.args, got, len(subjects), notes, tt.workloads, tt.subjects)
		}
	}
}

func TestUnknownNameIsRefused(t *testing.T) {
	for _, args := range []string{"--only W9", "--subjects apache", "W1", "--also x", "--rounds many"} {
		f, err := parse(strings.Fields(args))
		if err == nil {
			_, _, _, err = plan(f, help, usualFiles)
		}
		if word := args[strings.LastIndex(args, " ")+1:]; err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v, want an error that names it", args, err)
		}
	}
}

func TestFewDescriptorsMakeFewerSessions(t *testing.T) {
	list, _, notes := planned(t, 4200)
	for _, w := range list {
		if 2*w.open()+200 > 4200 {
			t.Errorf("%s has %d sessions open at once, each with two descriptors of 4200", w.name, w.open())
		}
	}
	if len(notes) != 4 || !strings.Contains(notes[0], "W6 has 2000 sessions in place of 9000") {
		t.Errorf("notes %q", notes)
	}
}

func TestWorkloadsHaveTheSubjectsThatCanTakePart(t *testing.T) {
	for name, want := range map[string]string{
		"W7":      "reseat@net hs256@net eddsa@net reseat@poll hs256@poll eddsa@poll",
		"TLS":     "nginx plain@net plain@poll",              // the game server has none
		"deflate": "direct nginx plain@net",                  // there is one driver
		"noTLS":   "direct nginx plain@net plain@poll",       // to compare TLS with
		"H1":      "reseat@net hop@net reseat@poll hop@poll", // what is resumed at another node
	} {
		list, subjects, _ := planned(t, usualFiles, "--only", name)
		var got []string
		for _, s := range subjects {
			if list[0].takesPart(s) {
				got = append(got, s.Name)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %s", name, got, want)
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
	broken := errors.New("broken")
	c := calm{left: time.Hour}
	if _, err := c.measure(cancelled, func() ([]figures, error) { return nil, broken }); err != broken {
		t.Errorf("a run that failed: %v, want its error", err)
	}
}

// The subjects that need no installation, in each way of measuring.
func TestWholeRun(t *testing.T) {
	gateway := filepath.Join(t.TempDir(), "reseat")
	if err := os.WriteFile(gateway, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	list, subjects, _ := planned(t, usualFiles, "--short", "--only", "W1,W8,nodeflate,deflate", "--subjects", "direct,library,floor", "--reseat", gateway)
	r := runner{own: usualFiles, files: usualFiles, results: report.New(gateway, "test", nil), cycles: map[string]int{}}
	for _, w := range list {
		w.warm, w.measure, w.sessions, w.game.Sessions = 10*time.Millisecond, 50*time.Millisecond, 16, 16
		if err := r.turns(t.Context(), 0, w, subjects); err != nil {
			t.Fatal(err)
		}
	}
	// Two cycles of W1, and what they add up to; W8 twice; the others twice by one subject.
	if got, want := len(r.results.Samples), 3*(2+1)+3*2+2+2; got != want {
		t.Errorf("%d samples, want %d", got, want)
	}
	sums := map[string]float64{} // of the messages of W1
	for _, s := range r.results.Samples {
		if all := s.Figures["all_messages"]; all > 0 {
			if all != sums[s.Subject] {
				t.Errorf("%s: %v messages in all, %v in its slices", s.Subject, all, sums[s.Subject])
			}
			continue
		}
		if s.Workload == "W1" {
			sums[s.Subject] += s.Figures["messages"]
		}
		if s.Figures["seconds"] <= 0 || s.Figures["messages"] <= 0 || s.Figures["cores"] <= 0 {
			t.Errorf("%+v: nothing was measured", s)
		}
	}
}

func TestFunctionsAreGrouped(t *testing.T) {
	got := sharesOf(`# a comment

    60.50%;[kernel.kallsyms];[k] tcp_ack
    20.00%;[kernel.kallsyms];[k] unheard_of
     5.50%;reseat;[.] main.main
     5.00%;reseat;[.] reseat/gateway/frame.Remask
     9.00%;[kernel.kallsyms];[k] tcp_push
`)
	want := []share{{"kernel: TCP and IP, both directions", 69.5}, {"kernel: the rest", 20}, {"program: the rest", 5.5}, {"gateway: frames, masking, replay", 5}}
	if !slices.Equal(got, want) {
		t.Errorf("shares %v, want %v", got, want)
	}
	counts := countsOf("# started on\n\n1200;;raw_syscalls:sys_enter;300;100.00;;\n<not supported>;;cache-misses;0;100.00;;\n400;;syscalls:sys_enter_sendto;300;100.00;;\n")
	if want := []share{{"sys_enter", 1200}, {"cache-misses", -1}, {"sendto", 400}}; !slices.Equal(counts, want) {
		t.Errorf("counts %v, want %v", counts, want)
	}
}
