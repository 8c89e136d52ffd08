//go:build linux

package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"reseat/gateway/internal/test/harness/process"
)

// The short form of make soak.
func TestSoakFindsNoGrowth(t *testing.T) {
	bin, err := process.Program("", "reseat-race")
	if err != nil {
		t.Fatal(err)
	}
	for _, driver := range []string{"net", "poll"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			r, err := Run(t.Context(), Config{Sessions: 1500, AtOnce: 40, Rounds: 10, Driver: driver, Bin: bin, Dir: t.TempDir(), Seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			r.Print(&b)
			if len(r.faults) > 0 {
				t.Error(b.String())
			}
			if r.resumes-r.late < 400 || len(r.ends) != len(kinds) {
				t.Errorf("too little has happened:\n%s", b.String())
			}
		})
	}
}

// Growth of any figure is detected, and fluctuation is not.
func TestGrowthIsDetected(t *testing.T) {
	flat := func(i int) sample {
		wave := float64(i % 3)
		return sample{sessions: 1000 * i, heap: 5e6 + 4e5*wave, resident: 6e7 + 3e6*wave, goroutines: 20 + 2*wave, descriptors: 12 + wave}
	}
	// A short run ends before its first tombstone does.
	var short []sample
	for i := range 20 {
		short = append(short, sample{sessions: 1000 * i, at: time.Duration(i) * time.Second, heap: 5e6 + 800e3*float64(i)})
		short[i].tombstones = ended(short[:i], short[i])
	}
	short = append(short, sample{sessions: 19000, at: time.Minute, heap: 5e6})
	if said := judge(short); said != nil {
		t.Errorf("of tombstones: %q", said)
	}
	for name, grow := range map[string]func(s *sample, i float64){
		"":            func(*sample, float64) {},
		"live heap":   func(s *sample, i float64) { s.heap += 1e6 * i },
		"resident":    func(s *sample, i float64) { s.resident += 8e6 * i },
		"goroutines":  func(s *sample, i float64) { s.goroutines += 2 * i },
		"descriptors": func(s *sample, i float64) { s.descriptors += 2 * i },
		"replay":      func(s *sample, i float64) { s.buffers += 100 * i },
	} {
		var samples []sample
		for i := range 20 {
			s := flat(i)
			grow(&s, float64(i))
			samples = append(samples, s)
		}
		said := strings.Join(judge(samples), "; ")
		if name == "" && said != "" || !strings.Contains(said, name) {
			t.Errorf("what grows is %q, and it says %q", name, said)
		}
	}
}
