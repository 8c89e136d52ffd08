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

// TestMain is also the game server and two of the proxies, for TestWholeRunWithoutInstallations.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == asGame || os.Args[1] == asLibrary || os.Args[1] == asFloor) {
		main()
		return
	}
	os.Exit(m.Run())
}

func names(list []workload) (s []string) {
	for _, w := range list {
		s = append(s, w.name)
	}
	return s
}

func mustParse(t *testing.T, args ...string) flags {
	t.Helper()
	f, err := parse(args)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestPlanIsEverythingByDefault(t *testing.T) {
	list, subjects, notes, err := plan(mustParse(t), "", manyFiles)
	extra := []string{"W1even", "W1text", "C1", "C40"} // only by their names
	if err != nil || len(list) != len(workloads())-len(extra) || len(subjects) != 12 || notes != nil {
		t.Errorf("%v, %d subjects, %q, %v", names(list), len(subjects), notes, err)
	}
	for _, w := range list {
		if slices.Contains(extra, w.name) {
			t.Errorf("%s is measured unasked", w.name)
		}
	}
	list, _, _, err = plan(mustParse(t, "--only", strings.Join(extra, ",")), "", manyFiles)
	if err != nil || !slices.Equal(names(list), extra) {
		t.Errorf("%v, %v", names(list), err)
	}
	list, subjects, _, err = plan(mustParse(t, "--only", "W3,W1", "--subjects", "reseat,nginx"), "", 20000)
	if err != nil || strings.Join(names(list), " ") != "W1 W3" || len(subjects) != 2 {
		t.Errorf("%v, %v, %v", names(list), subjects, err)
	}
}

func TestShortPlanIsShort(t *testing.T) {
	f := mustParse(t, "--short")
	list, subjects, _, err := plan(f, "  --driver auto|net|poll  what moves the bytes", 20000)
	if err != nil {
		t.Fatal(err)
	}
	if sum := expected(f, list, subjects, 20000); sum+f.wait > 3*time.Minute || len(list) < 4 {
		t.Errorf("%v of measuring, %v", sum, names(list))
	}
}

// expected is how long a run takes, about: with all pauses, but on a machine of its own.
func expected(f flags, list []workload, subjects []proxy.Subject, files int) (sum time.Duration) {
	const (
		begin  = 150 * time.Millisecond // of a proxy, and of its game server
		each   = 200 * time.Microsecond // to connect a session
		finish = 100 * time.Millisecond // of a slice, until all is quiet
	)
	for _, w := range list {
		taking := slices.DeleteFunc(slices.Clone(subjects), func(s proxy.Subject) bool { return !w.takesPart(s) })
		var round time.Duration
		at := len(taking)
		if w.slice != nil {
			at = (files - 200) / w.open()
		}
		for _, group := range groups(taking, at) {
			once := begin + time.Duration(w.open())*each + w.warm
			if w.name == "W6" || w.name == "W6det" {
				once += 2*settle + max(w.measure, 3*time.Second)
			} else if w.slice == nil {
				once += w.measure
				once *= time.Duration(max(w.times, 1))
			}
			round += w.settle
			once += time.Duration(w.cycles) * (guard + w.measure + finish)
			if w.name == "W7" || w.name == "H7" || w.name == "W1W7" || w.upgrades {
				once += time.Duration(w.cycles) * 2 * time.Second
			}
			round += time.Duration(len(group)) * once
		}
		rounds := f.rounds
		if w.rounds > 0 {
			rounds = min(rounds, w.rounds)
		}
		sum += time.Duration(rounds) * round
	}
	return sum
}

func TestWholePlanTakesTwentyMinutes(t *testing.T) {
	f := mustParse(t)
	list, subjects, _, err := plan(f, "  --driver auto|net|poll  what moves the bytes", usualFiles)
	if err != nil {
		t.Fatal(err)
	}
	if sum := expected(f, list, subjects, usualFiles); sum > 18*time.Minute { // starting everything takes the rest
		t.Errorf("%v", sum)
		for _, w := range list {
			t.Log(w.name, expected(f, []workload{w}, subjects, usualFiles))
		}
	}
}

func TestUnknownNameIsRefused(t *testing.T) {
	for _, args := range [][]string{{"--only", "W9"}, {"--subjects", "apache"}} {
		if _, _, _, err := plan(mustParse(t, args...), "", 20000); err == nil || !strings.Contains(err.Error(), args[1]) {
			t.Errorf("%v: %v", args, err)
		}
	}
	for _, args := range [][]string{{"W1"}, {"--also", "x"}, {"--rounds", "many"}} {
		if _, err := parse(args); err == nil {
			t.Errorf("%v is taken", args)
		}
	}
}

func TestFewDescriptorsMakeFewerSessions(t *testing.T) {
	list, _, notes, err := plan(mustParse(t), "", 4200)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range list {
		if 2*w.open()+200 > 4200 {
			t.Errorf("%s has %d sessions", w.name, w.open())
		}
	}
	if len(notes) != 5 || !strings.Contains(notes[0], "W6 has 2000 sessions in place of 9000") {
		t.Errorf("%q", notes)
	}
}

// Only subjects with sessions can be disconnected; W7 also compares their keys.
func TestWorkloadsOfEachSubject(t *testing.T) {
	var cut []string
	for _, w := range workloads() {
		for _, s := range proxy.Subjects("--driver net|poll") {
			if w.name == "W7" && w.takesPart(s) {
				cut = append(cut, s.Name)
			}
		}
	}
	if want := []string{"reseat@net", "hs256@net", "eddsa@net", "reseat@poll", "hs256@poll", "eddsa@poll"}; !slices.Equal(cut, want) {
		t.Errorf("%q", cut)
	}
}

func TestOnlyDisturbedMeasurementsAreRepeated(t *testing.T) {
	cancelled, cancel := context.WithCancel(context.Background())
	cancel() // so that it does not wait for an idle machine
	for name, tt := range map[string]struct {
		others []float64 // measured by each try
		left   time.Duration
		tries  int
	}{
		"calm":              {[]float64{.1}, time.Hour, 1},
		"disturbed once":    {[]float64{.9, .1}, time.Hour, 2},
		"disturbed always":  {[]float64{.9, .9, .9}, time.Hour, attempts},
		"no time to repeat": {[]float64{.9}, 0, 1},
	} {
		c, calls := calm{left: tt.left}, 0
		fig, err := c.measure(cancelled, func() (figures, error) {
			calls++
			return figures{"other_cores": tt.others[calls-1]}, nil
		})
		if err != nil || calls != tt.tries || fig["tries"] != float64(tt.tries) {
			t.Errorf("%s: %d tries, %v, %v", name, calls, fig, err)
		}
	}
	c := calm{left: time.Hour}
	if _, err := c.measure(cancelled, func() (figures, error) { return nil, errors.New("broken") }); err == nil {
		t.Error("a run that failed is repeated until it does not")
	}
}

func TestSubjectThatDoesNotStartIsAnError(t *testing.T) {
	f := mustParse(t, "--only", "W8", "--subjects", "reseat@poll", "--reseat", filepath.Join(t.TempDir(), "nothing"))
	list, subjects, _, err := plan(f, "  --driver auto|net|poll", 20000)
	if err != nil {
		t.Fatal(err)
	}
	r := runner{flags: f, own: 20000, files: 20000}
	if _, err := r.open(list[0], subjects[0]); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// A whole run, briefly, with the two subjects that need no installation.
func TestWholeRunWithoutInstallations(t *testing.T) {
	gateway := filepath.Join(t.TempDir(), "reseat")
	if err := os.WriteFile(gateway, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	f := mustParse(t, "--short", "--rounds", "1", "--wait", "0", "--only", "W1text,W8,nodeflate,deflate", "--subjects", "direct,library,floor", "--reseat", gateway)
	list, subjects, _, err := plan(f, "", 20000)
	if err != nil {
		t.Fatal(err)
	}
	r := runner{flags: f, own: 20000, files: 20000, results: report.New(gateway, "test", nil), cycles: map[string]int{}}
	for _, w := range list {
		w.warm, w.measure, w.sessions, w.game.Sessions = 10*time.Millisecond, 50*time.Millisecond, 16, 16
		if err := r.turns(context.Background(), 0, w, subjects); err != nil {
			t.Fatal(err)
		}
	}
	// Two cycles of W1text, and what they add up to, and W8 twice; the others by one subject.
	if len(r.results.Samples) != 3*(2+1)+3*2+2+2 {
		t.Fatalf("%d samples", len(r.results.Samples))
	}
	for _, s := range r.results.Samples {
		if s.Figures["all_messages"] > 0 {
			continue
		}
		if s.Figures["seconds"] <= 0 || s.Figures["messages"] <= 0 || s.Figures["cores"] <= 0 {
			t.Errorf("%+v", s)
		}
	}
}
