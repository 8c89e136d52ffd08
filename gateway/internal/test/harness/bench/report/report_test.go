package report

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sample returns a run of two rounds with round numbers.
func sample() *Results {
	r := &Results{Date: "2026-01-02", Command: "make bench", Sessions: map[string]int{"W1": 500, "W6": 9000, "W7": 5000},
		Notes:    []string{"A machine that nobody has."},
		Subjects: []Subject{{"direct", "no proxy"}, {"nginx", "nginx, 1 worker"}, {"reseat@net", "**Reseat**, net driver"}, {"reseat@poll", "**Reseat**, poll driver"}}}
	for round := 1; round <= 2; round++ {
		k := float64(round)
		r.Add("W1", "nginx", round, map[string]float64{"cpu_us": 10 * k, "p50_us": 100, "p99_us": 300, "p999_us": 500})
		r.Add("W1", "reseat@net", round, map[string]float64{"cpu_us": 20 * k, "p50_us": 105, "p99_us": 400, "p999_us": 900, "other_cores": .1 * k})
		r.Add("W1", "reseat@poll", round, map[string]float64{"cpu_us": 10*k + k*k, "p50_us": 90, "p99_us": 200, "p999_us": 300})
		r.Add("W6", "reseat@poll", round, map[string]float64{"opened_kib": 4 + k, "used_kib": 7})
	}
	return r
}

func TestRatiosAreTakenWithinEachRound(t *testing.T) {
	r := sample()
	if s := r.ratio("W1", "reseat@net", "cpu_us", "nginx"); s.Median != 2 || s.Low != 2 || s.High != 2 {
		t.Errorf("%+v: the machine was half as fast in the second round, and so were both", s)
	}
	if s := r.ratio("W1", "reseat@poll", "cpu_us", "nginx"); s.Low != 1.1 || s.High != 1.2 {
		t.Errorf("%+v", s)
	}
	if s := r.ratio("W1", "direct", "cpu_us", "nginx"); s.N != 0 {
		t.Errorf("%+v of a subject that was not measured", s)
	}
}

func TestTableShowsMedianAndSpreadOfWhatWasMeasured(t *testing.T) {
	got := sample().build(versus("W1"), versus("W2"), column{title: "µs", workload: "W1", figures: quantiles}).String()
	want := `|  | W1 | µs |
| --- | --- | --- |
| nginx, 1 worker | 1.00 [1.00–1.00] | 100 / 300 / 500 |
| **Reseat**, net driver | 2.00 [2.00–2.00] | 105 / 400 / 900 |
| **Reseat**, poll driver | 1.15 [1.10–1.20] | 90.0 / 200 / 300 |
`
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if s := sample().build(versus("W3")).String(); s != "" {
		t.Errorf("a table of nothing: %q", s)
	}
}

func TestMissedBarIsReported(t *testing.T) {
	got := sample().barTable().String()
	for _, want := range []string{
		"| W1, CPU per message, × nginx | net | ≤ 1.60 | 2.00 [2.00–2.00] | **missed** |",
		"| W1, CPU per message, × nginx | poll | ≤ 1.25 | 1.15 [1.10–1.20] | met |",
		"| W1, median latency, × nginx | net | ≤ 1.10 | 1.05 [1.05–1.05] | met |",
		"| W6, KiB a session, opened | poll | ≤ 5.00 | 5.50 [5.00–6.00] | **missed** |",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("want %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "W3") {
		t.Error("it speaks of what was not measured")
	}
}

func TestRateMustNotBeBelowItsBar(t *testing.T) {
	b := bar{least: true}
	if b.met(.84, .85) || !b.met(.85, .85) || !b.met(2, .85) {
		t.Error("least")
	}
}

func TestNumberHasThreeDigits(t *testing.T) {
	for v, want := range map[float64]string{0: "0", .00123: "0.001", .0234: "0.023", .5: "0.500", 1.234: "1.23", 12.34: "12.3", 123.4: "123", 56789: "56789", 9.999: "10.00"} {
		if got := number(v); got != want {
			t.Errorf("%v: %q, want %q", v, got, want)
		}
	}
}

func TestResultsRoundTrip(t *testing.T) {
	dir, r := t.TempDir(), sample()
	r.Add("W2", "nginx", 1, map[string]float64{"cpu_us": 12.3456, "p50_us": 91.649, "p99_us": 11469, "p999_us": 15663}) // not of four digits
	if err := Write(r, dir); err != nil {
		t.Fatal(err)
	}
	again, err := Read(filepath.Join(dir, "performance.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(again.Samples) != len(r.Samples) || again.Sessions["W6"] != 9000 {
		t.Errorf("%+v", again)
	}
	page, err := os.ReadFile(filepath.Join(dir, "performance.md"))
	if err != nil {
		t.Fatal(err)
	}
	if document(again) != string(page) {
		t.Error("the page made again is another one")
	}
	for name := range charts(r) {
		if !strings.Contains(string(page), "]("+name+")") {
			t.Errorf("the page does not show %s", name)
		}
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	if strings.Contains(string(page), "<no value>") || !strings.Contains(string(page), "A machine that nobody has.") {
		t.Errorf("%s", page)
	}
}

func TestRawResultsOfNothingAreJSON(t *testing.T) {
	b, err := new(Results).raw()
	if err != nil || !json.Valid(b) {
		t.Errorf("%v: %s", err, b)
	}
}

func TestOtherLoadIsAddedUp(t *testing.T) {
	got := sample().strangers()
	if !strings.Contains(got, "0.200 at most") {
		t.Error(got)
	}
}

func TestChartIsWellFormedAndHasADarkScheme(t *testing.T) {
	for name, c := range charts(sliced()) {
		svg := c.SVG()
		d := xml.NewDecoder(strings.NewReader(svg))
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if !strings.Contains(svg, "prefers-color-scheme:dark") || strings.Count(svg, "<rect") < 2 || strings.Contains(svg, "NaN") {
			t.Errorf("%s: %s", name, svg)
		}
	}
}

func TestChartScalesToItsHighest(t *testing.T) {
	c := chart{title: "a < b", groups: []group{{"g", []stroke{{title: "x", value: sample().spread("W1", "nginx", "cpu_us")}}}}}
	if c.highest() != 20 {
		t.Errorf("%v", c.highest())
	}
	if svg := c.SVG(); !strings.Contains(svg, "a &lt; b") || !strings.Contains(svg, `width="360.0"`) { // 15 of 20
		t.Error(svg)
	}
}

// nginx can't compress, but the cost of compression by the game server is comparable.
func TestCostOfTLSAndCompressionIsReportedIfMeasured(t *testing.T) {
	if page := document(sample()); strings.Contains(page, "## TLS and compression") {
		t.Error("it speaks of what was not measured")
	}
	r := sample()
	r.Sessions["TLS"] = 200
	r.Add("noTLS", "nginx", 1, map[string]float64{"cpu_us": 10, "p50_us": 100, "p99_us": 200})
	r.Add("TLS", "nginx", 1, map[string]float64{"cpu_us": 12, "p50_us": 110, "p99_us": 220})
	r.Add("noTLS", "reseat@poll", 1, map[string]float64{"cpu_us": 11, "p50_us": 100, "p99_us": 200})
	r.Add("nodeflate", "nginx", 1, map[string]float64{"cpu_us": 10, "both_us": 15, "p50_us": 100, "p99_us": 200, "wire_bytes": 516})
	r.Add("deflate", "nginx", 1, map[string]float64{"cpu_us": 9, "both_us": 20, "p50_us": 110, "p99_us": 220, "wire_bytes": 250})
	page := document(r)
	for _, want := range []string{
		"200 sessions at W1's rates",
		"| nginx, 1 worker | 10.0 [10.0–10.0] | 12.0 [12.0–12.0] | 1.00 [1.00–1.00] | 1.00 [1.00–1.00] | 100 / 200 | 110 / 220 |",
		"| **Reseat**, poll driver | 11.0 [11.0–11.0] |  | 1.10 [1.10–1.10] |  | 100 / 200 |  |",
		"| nginx, 1 worker | 10.0 [10.0–10.0] | 9.00 [9.00–9.00] | 15.0 [15.0–15.0] | 20.0 [20.0–20.0] | 100 / 200 | 110 / 220 | 516 | 250 |",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("want %q in\n%s", want, page)
		}
	}
}

// sliced returns a run in slices, with the workloads that need them.
func sliced() *Results {
	r := sample()
	r.Slices = true
	r.Subjects = append(r.Subjects, Subject{"plain@net", "**Reseat**, plain clients, net driver"}, Subject{"plain@poll", "**Reseat**, plain clients, poll driver"}, Subject{"hop@net", "**Reseat**, at another node, net driver"})
	r.Sessions["W1W7"] = 5000
	r.Add("W1", "reseat@net", 3, map[string]float64{"all_p50_us": 101, "all_p99_us": 333, "all_p999_us": 444, "paused_cores": .004})
	for round := 1; round <= 2; round++ {
		k := float64(round)
		r.Add("Gmax", "nginx", round, map[string]float64{"cpu_us": 10 * k, "used_kib": 4, "used_mib": 4})
		r.Add("Gacks", "plain@net", round, map[string]float64{"cpu_us": 10 * k})
		r.Add("Gacks", "reseat@net", round, map[string]float64{"cpu_us": 12 * k})
		r.Add("Gacks", "plain@poll", round, map[string]float64{"cpu_us": 10 * k})
		r.Add("Gacks", "reseat@poll", round, map[string]float64{"cpu_us": 11 * k})
		r.Add("W1W7", "reseat@net", round, map[string]float64{"p50_us": 100, "p99_us": 200, "storm_p50_us": 150, "storm_p99_us": 500, "times_p50_us": 1.5, "times_p99_us": 2.5, "back_ms": 900 * k})
		r.Add("H1", "reseat@net", round, map[string]float64{"cpu_us": 10 * k, "p50_us": 100, "p99_us": 200})
		r.Add("H1", "hop@net", round, map[string]float64{"cpu_us": 30 * k, "cpu_owner_us": 14, "cpu_front_us": 16, "p50_us": 150, "p99_us": 300})
		r.Add("H7", "hop@net", round, map[string]float64{"resume_us": 500, "resume_owner_us": 200, "resume_front_us": 300, "back_ms": 700})
		r.Add("U1000", "reseat@net", round, map[string]float64{"frozen_ms": 30, "wait_ms": 33})
		r.Add("U8000", "reseat@net", round, map[string]float64{"frozen_ms": 280, "wait_ms": 290 + k})
	}
	return r
}

func TestPageOfSlicesHasTheirTables(t *testing.T) {
	page := document(sliced())
	for _, want := range []string{
		"- **Slices.**", "Meanwhile a proxy used 0.004 cores at most (reseat@net with W1).", "the quartiles",
		"| **Reseat**, net driver | 101 / 333 / 444 |", // of all slices together
		"| **Reseat**, net driver | 1.05 [1.05–1.05] | 1.33 [1.33–1.33] |",
		"|  | W1 | Gmax |\n| --- | --- | --- |\n| **Reseat**, net driver |  | 1.20 [1.20–1.20] |", // acks
		"while 5,000 other connections", "| **Reseat**, net driver | 100 / 200 | 150 / 500 | 1.50 [1.50–1.50] | 2.50 [2.50–2.50] | 1350 [900–1800] |",
		"| **Reseat**, at another node, net driver | 45.0 [30.0–60.0] | 3.00 [3.00–3.00] | 14.0 / 16.0 | 150 / 300 |",
		"| **Reseat**, at another node, net driver | 500 [500–500] |  | 200 / 300 | 700 [700–700] |",
		"| **Reseat**, net driver | 30.0 [30.0–30.0] | 33.0 [33.0–33.0] | 280 [280–280] | 292 [291–292] |",
		"| Gmax, resumable clients, × plain ones | net | ≤ 1.20 | 1.20 [1.20–1.20] | met |",
		"| W1, p99 latency beside a mass reconnect, × alone | net | ≤ 2.00 | 2.50 [2.50–2.50] | **missed** |",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("want %q in\n%s", want, page)
		}
	}
	if strings.Contains(page, "Equal conditions") || strings.Contains(page, "<no value>") {
		t.Error("it describes another method")
	}
	if old := document(sample()); !strings.Contains(old, "Equal conditions") || strings.Contains(old, "Slices.") || strings.Contains(old, "Forwarded") {
		t.Errorf("a run without slices is described as one: %s", old)
	}
	for _, name := range []string{"performance-acks.svg", "performance-reconnect.svg", "performance-upgrade.svg"} {
		if _, ok := charts(sliced())[name]; !ok || !strings.Contains(page, "]("+name+")") {
			t.Errorf("%s is missing", name)
		}
	}
}

func TestChartLeavesRoomForItsLongestLabel(t *testing.T) {
	for _, title := range []string{"x", "Reseat, plain clients of a long name, net driver"} {
		c := chart{groups: []group{{"g", []stroke{{title: title, value: sample().spread("W1", "nginx", "cpu_us")}}}}}
		if left := c.labelWidth() - labelGap; left < 7*len(title) || !strings.Contains(c.SVG(), fmt.Sprintf(`x="%d"`, left)) {
			t.Errorf("%q ends at %d", title, left)
		}
	}
}

// The committed page is the result of the template and the committed results, so that
// neither is edited alone.
func TestCommittedPageIsGeneratedFromItsResults(t *testing.T) {
	const docs = "../../../../../../docs/"
	r, err := Read(docs + "performance.json")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(docs + "performance.md")
	if err != nil {
		t.Fatal(err)
	}
	if document(r) != string(page) {
		t.Error("docs/performance.md is not made of performance.json and performance.md.tmpl")
	}
}
