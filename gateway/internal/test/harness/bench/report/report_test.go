package report

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/performance.md and its charts anew from performance.json")

// sample returns a run of two rounds with round numbers.
func sample() *Results {
	r := New("", "make bench", []string{"A machine that nobody has."})
	r.Sessions = map[string]int{"W1": 500, "W6": 9000, "W7": 5000, "W1W7": 5000, "TLS": 200}
	for _, s := range []string{"direct", "nginx", "reseat@net", "reseat@poll", "plain@net", "plain@poll", "hop@net", "hs256@poll"} {
		r.Subjects = append(r.Subjects, Subject{s, s})
	}
	for round := 1; round <= 2; round++ {
		k := float64(round)
		for _, f := range []struct {
			workload, subject string
			figures           map[string]float64
		}{
			{"W1", "nginx", map[string]float64{"cpu_us": 10 * k, "p50_us": 100, "p99_us": 300, "p999_us": 500}},
			{"W1", "reseat@net", map[string]float64{"cpu_us": 20 * k, "p50_us": 105, "p99_us": 400, "p999_us": 900, "other_cores": .1 * k}},
			{"W1", "reseat@poll", map[string]float64{"cpu_us": 10*k + k*k, "p50_us": 90, "p99_us": 200, "p999_us": 300}},
			{"W6", "reseat@poll", map[string]float64{"opened_kib": 4 + k, "used_kib": 7}},
			{"Gmax", "nginx", map[string]float64{"cpu_us": 10 * k, "used_kib": 4, "used_mib": 4}},
			{"Gacks", "plain@net", map[string]float64{"cpu_us": 10 * k}},
			{"Gacks", "reseat@net", map[string]float64{"cpu_us": 12 * k}},
			{"W1W7", "reseat@net", map[string]float64{"p50_us": 100, "p99_us": 200, "storm_p50_us": 150, "storm_p99_us": 500, "times_p50_us": 1.5, "times_p99_us": 2.5, "back_ms": 900 * k}},
			{"H1", "reseat@net", map[string]float64{"cpu_us": 10 * k, "p50_us": 100, "p99_us": 200}},
			{"H1", "hop@net", map[string]float64{"cpu_us": 30 * k, "cpu_owner_us": 14, "cpu_front_us": 16, "p50_us": 150, "p99_us": 300}},
			{"noTLS", "nginx", map[string]float64{"cpu_us": 10, "p50_us": 100, "p99_us": 200}},
			{"TLS", "nginx", map[string]float64{"cpu_us": 12, "p50_us": 110, "p99_us": 220}},
			{"W8", "nginx", map[string]float64{"connection_us": 84}},
			{"W8", "hs256@poll", map[string]float64{"connection_us": 259}},
		} {
			r.Add(f.workload, f.subject, round, f.figures)
		}
	}
	r.Add("W1", "reseat@net", 3, map[string]float64{"all_p50_us": 101, "all_p99_us": 333, "all_p999_us": 444, "paused_cores": .004})
	return r
}

func TestPageHasTheTablesOfWhatWasMeasured(t *testing.T) {
	page := document(sample())
	for _, want := range []string{
		"> A machine that nobody has.", "while 5,000 other connections", "200 sessions at W1's rates", "0.200 at most in any one",
		"Meanwhile a proxy used 0.004 cores at most (reseat@net with W1).",
		"| reseat@net | 2.00 [2.00–2.00] |", // within each round, though the second was half as fast
		"| reseat@poll | 1.15 [1.10–1.20] |",
		"| reseat@net | 101 / 333 |", // of all slices together
		"| hop@net | 45.0 | 3.00 [3.00–3.00] | 150 / 300 |",
		"| nginx | 10.0 [10.0–10.0] | 12.0 [12.0–12.0] | 1.00 [1.00–1.00] |",
		"| W1, CPU per message, × nginx | net | ≤ 1.60 | 2.00 [2.00–2.00] |\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
	for _, bad := range []string{"<no value>", "NaN", "## Capacity", "## Cluster", "| W3, CPU", "| W1, CPU per message, × nginx | poll"} {
		if strings.Contains(page, bad) {
			t.Errorf("%q in\n%s", bad, page)
		}
	}
}

func TestTerminalHasTheTablesOfWhatWasMeasured(t *testing.T) {
	text := Text(sample())
	for _, want := range []string{
		"| reseat@net | 101 / 333 / 444 |",
		"|  | W1 | Gmax |\n| --- | --- | --- |\n| reseat@net |  | 1.20 [1.20–1.20] |",
		"| reseat@net | 100 / 200 | 150 / 500 | 1.50 [1.50–1.50] | 2.50 [2.50–2.50] | 1350 [900–1800] |",
		"| hop@net | 45.0 [30.0–60.0] | 3.00 [3.00–3.00] | 14.0 / 16.0 | 150 / 300 |",
		"| nginx | 10.0 [10.0–10.0] | 12.0 [12.0–12.0] | 1.00 [1.00–1.00] | 1.00 [1.00–1.00] | 100 / 200 | 110 / 220 |",
		// Targets. Those in time scale with nginx's: here it takes twice as long.
		"| W1, CPU per message, × nginx | net | ≤ 1.60 | 2.00 [2.00–2.00] | **missed** |",
		"| W1, CPU per message, × nginx | poll | ≤ 1.25 | 1.15 [1.10–1.20] | met |",
		"| W6, KiB a session, opened | poll | ≤ 5.00 | 5.50 [5.00–6.00] | **missed** |",
		"| W8, CPU µs a connection, HS256 | poll | ≤ 130 × 2.0 = 260 | 259 [259–259] | met |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func TestChartsAreWellFormed(t *testing.T) {
	dir := t.TempDir()
	if err := Write(sample(), dir); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "performance.md"))
	if err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*.svg"))
	if len(files) != 4 {
		t.Errorf("charts %q, want 4", files)
	}
	for _, file := range files {
		name := filepath.Base(file)
		svg, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(page), "]("+name+")") {
			t.Errorf("%s: %v, or the page does not show it", name, err)
		}
		for d := xml.NewDecoder(strings.NewReader(string(svg))); err == nil; _, err = d.Token() {
		}
		if !errors.Is(err, io.EOF) || strings.Contains(string(svg), "NaN") || !strings.Contains(string(svg), "<rect") {
			t.Errorf("%s: %v\n%s", name, err, svg)
		}
	}
	c := chart{title: "a < b", groups: []group{{"g", []stroke{{title: "x", value: sample().spread("W1", "nginx", "cpu_us")}}}}}
	if svg := c.SVG(); !strings.Contains(svg, "a &lt; b") || !strings.Contains(svg, `width="360.0"`) { // 15 of 20
		t.Error(svg)
	}
}

func TestMillionPlayersAreComputedFromTheFigures(t *testing.T) {
	r := New("", "", nil)
	r.Subjects = []Subject{{Name: "reseat@poll"}}
	for w, f := range map[string]map[string]float64{"W2": {"cpu_us": 10}, "W6": {"used_kib": 4, "opened_kib": 4}, "W6det": {"detached_kib": 36}, "W7": {"resume_us": 100}} {
		r.Add(w, "reseat@poll", 0, f)
	}
	p := r.million("poll")
	if p.Cores != "250" || p.Processes != "63" || p.Each != "16,000" || p.SessionsGiB != "3.81" || p.BuffersGiB != "0.358" || p.CutCPU != "1.59" {
		t.Errorf("%+v", p)
	}
	if got, want := r.capacityTable().String(), "| poll driver | 260,000 | 26,000 |  | 100,000 |  | 10,000 |"; !strings.Contains(got, want) {
		t.Errorf("%s\nwithout %s", got, want)
	}
}

func TestNumbersAreRounded(t *testing.T) {
	for v, want := range map[float64]string{0: "0", .00123: "0.001", .0234: "0.023", .5: "0.500", 1.234: "1.23", 12.34: "12.3", 123.4: "123", 56789: "56789", 9.999: "10.00"} {
		if got := number(v); got != want {
			t.Errorf("number %v: %q, want %q", v, got, want)
		}
	}
	for v, want := range map[float64]string{7: "7", 99.4: "99", 128: "130", 1234: "1,200", 987654: "990,000", 12500000: "13,000,000"} {
		if got := thousands(v); got != want {
			t.Errorf("thousands %v: %q, want %q", v, got, want)
		}
	}
}

// The committed page is the result of the template and the committed results, so that
// neither is edited alone.
func TestCommittedPageIsGeneratedFromItsResults(t *testing.T) {
	const docs = "../../../../../../docs/"
	raw, err := os.ReadFile(docs + "performance.json")
	if err != nil {
		t.Fatal(err)
	}
	r := new(Results)
	if err := json.Unmarshal(raw, r); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := Write(r, docs); err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile(docs + "performance.md")
	if err != nil {
		t.Fatal(err)
	}
	if document(r) != string(page) {
		t.Error("docs/performance.md is not made of performance.json and performance.md.tmpl: go test ./bench/report -run Committed -update")
	}
	for name, c := range charts(r) {
		if svg, err := os.ReadFile(docs + name); err != nil || string(svg) != c.SVG() {
			t.Errorf("docs/%s is not made of performance.json (%v)", name, err)
		}
	}
}
