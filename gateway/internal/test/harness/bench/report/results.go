// Package report stores, summarizes and writes the results of measurements.
package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"reseat/gateway/internal/test/harness/bench/stat"
)

// Results are a whole run.
type Results struct {
	Date     string         `json:"date"`
	Command  string         `json:"command"`
	Machine  Machine        `json:"machine"`
	Notes    []string       `json:"notes,omitempty"` // of a person, on the run
	Sessions map[string]int `json:"sessions"`        // per workload
	Subjects []Subject      `json:"subjects"`
	Samples  []Sample       `json:"samples"`
}

// A Subject is something that was measured.
type Subject struct {
	Name  string `json:"name"`
	Title string `json:"title"`
}

// A Sample is one measurement: figures by name. Names end in their unit.
type Sample struct {
	Workload string             `json:"w"`
	Subject  string             `json:"s"`
	Round    int                `json:"r"`
	Figures  map[string]float64 `json:"f"`
}

// New returns the Results of a run that starts now.
func New(binary, command string) *Results {
	return &Results{
		Date: time.Now().UTC().Format(time.DateOnly), Command: command, Machine: thisMachine(binary), Sessions: map[string]int{},
	}
}

// Add adds a measurement.
func (r *Results) Add(workload, subject string, round int, f map[string]float64) {
	r.Samples = append(r.Samples, Sample{workload, subject, round, maps.Clone(f)})
}

// rounds returns the values of a figure, by round.
func (r *Results) rounds(workload, subject, figure string) map[int]float64 {
	m := map[int]float64{}
	for _, s := range r.Samples {
		if v, ok := s.Figures[figure]; ok && s.Workload == workload && s.Subject == subject {
			m[s.Round] = v
		}
	}
	return m
}

// spread summarizes a figure.
func (r *Results) spread(workload, subject, figure string) stat.Spread {
	return stat.Of(slices.Collect(maps.Values(r.rounds(workload, subject, figure))))
}

// shown summarizes a figure as a table shows it: of all slices together, if that is known.
func (r *Results) shown(workload, subject, figure string) stat.Spread {
	if all := r.spread(workload, subject, "all_"+figure); all.N > 0 {
		return all
	}
	return r.spread(workload, subject, figure)
}

// ratio summarizes the ratio of a figure to another subject's, round by round.
func (r *Results) ratio(workload, subject, figure, other string) stat.Spread {
	return stat.Of(stat.Ratios(r.rounds(workload, subject, figure), r.rounds(workload, other, figure)))
}

// has reports whether a workload was measured at all.
func (r *Results) has(workload string) bool {
	return slices.ContainsFunc(r.Samples, func(s Sample) bool { return s.Workload == workload })
}

// raw returns r as JSON, a sample per line, each figure with four digits.
func (r *Results) raw() ([]byte, error) {
	short := *r
	short.Samples = nil
	b, err := json.MarshalIndent(short, "", "  ")
	if err != nil {
		return nil, err
	}
	b, _ = bytes.CutSuffix(b, []byte("null\n}"))
	b = append(b, '[')
	for i, s := range r.Samples {
		s.Figures = maps.Clone(s.Figures)
		for name, v := range s.Figures {
			s.Figures[name], _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64)
		}
		line, err := json.Marshal(s)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, "\n    "...), line...)
	}
	return append(b, "\n  ]\n}\n"...), nil
}

// Write writes performance.md and performance.json into dir. The page is made of the
// figures in performance.json, so that it does not change when it is made again.
func Write(r *Results, dir string) error {
	raw, err := r.raw()
	if err != nil {
		return err
	}
	r = new(Results)
	if err := json.Unmarshal(raw, r); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, "performance.json"), raw, 0o644), os.WriteFile(filepath.Join(dir, "performance.md"), []byte(document(r)), 0o644))
}

// Line formats one measurement in a line, to show progress.
func Line(f map[string]float64) string {
	var b strings.Builder
	for _, name := range []string{"cpu_us", "all_cpu_us", "all_p50_us", "all_p99_us", "connection_us", "resume_us", "back_ms", "rate", "p50_us", "p99_us", "opened_kib", "used_kib", "detached_kib", "cores", "load_cores", "game_cores", "other_cores", "paused_cores"} {
		if v, ok := f[name]; ok {
			fmt.Fprintf(&b, "%s %s  ", name, number(v))
		}
	}
	return strings.TrimSpace(b.String())
}
