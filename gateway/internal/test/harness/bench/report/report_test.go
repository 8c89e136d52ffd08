package report

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/performance.md anew from performance.json")

// Of a run of few workloads, the page and the terminal have the tables of those. Ratios are formed within
// a round, and targets in time scale with nginx's figures: here it takes twice as long.
func TestWhatWasMeasuredIsShown(t *testing.T) {
	r := New("", "make bench")
	r.Notes = []string{"A machine that nobody has."}
	for _, s := range []string{"nginx", "reseat@net", "reseat@poll"} {
		r.Subjects = append(r.Subjects, Subject{s, s})
	}
	for round := 1; round <= 2; round++ {
		k := float64(round)
		r.Add("W1", "nginx", round, map[string]float64{"cpu_us": 10 * k, "p50_us": 100})
		r.Add("W1", "reseat@net", round, map[string]float64{"cpu_us": 20 * k, "p50_us": 105, "p99_us": 400, "other_cores": .1 * k})
		r.Add("W1", "reseat@poll", round, map[string]float64{"cpu_us": 10*k + k*k})
		r.Add("W6", "reseat@poll", round, map[string]float64{"opened_kib": 4 + k, "used_kib": 7})
		r.Add("W8", "nginx", round, map[string]float64{"connection_us": 84})
		r.Add("W8", "reseat@poll", round, map[string]float64{"connection_us": 259})
	}
	r.Add("W1", "reseat@net", 2, map[string]float64{"all_p50_us": 101, "all_p99_us": 333, "paused_cores": .004})
	page, text := document(r), Text(r)
	both := []string{"| reseat@net | 2.00 [2.00–2.00] |", "| reseat@poll | 1.15 [1.10–1.20] |", "| reseat@net | 101 / 333 |",
		"0.200 at most in any one", "Meanwhile a proxy used 0.004 cores at most (reseat@net with W1)."}
	for what, tt := range map[string]struct {
		got       string
		want, bad []string
	}{
		"page": {page, append(both, "> A machine that nobody has.", "| W1, CPU per message, × nginx | net | ≤ 1.60 | 2.00 [2.00–2.00] |\n"),
			[]string{"<no value>", "NaN", "## Capacity", "## TLS", "| W3, CPU", "× nginx | poll"}},
		"terminal": {text, append(both, "| W1, CPU per message, × nginx | net | ≤ 1.60 | 2.00 [2.00–2.00] | **missed** |", "| W1, CPU per message, × nginx | poll | ≤ 1.25 | 1.15 [1.10–1.20] | met |",
			"| W6, KiB a session, opened | poll | ≤ 5.00 | 5.50 [5.00–6.00] | **missed** |", "| W8, CPU µs a connection, HS256 | poll | ≤ 130 × 2.0 = 260 | 259 [259–259] | met |"), []string{"NaN", "TLS"}},
	} {
		for _, want := range tt.want {
			if !strings.Contains(tt.got, want) {
				t.Errorf("%s: no %q in\n%s", what, want, tt.got)
			}
		}
		for _, bad := range tt.bad {
			if strings.Contains(tt.got, bad) {
				t.Errorf("%s: %q in\n%s", what, bad, tt.got)
			}
		}
	}
}

func TestMillionPlayersAreComputedFromTheFigures(t *testing.T) {
	r := New("", "")
	for w, f := range map[string]map[string]float64{"W2": {"cpu_us": 10}, "W6": {"used_kib": 4, "opened_kib": 4}, "W6det": {"detached_kib": 36}, "W7": {"resume_us": 100}} {
		r.Add(w, "reseat@poll", 0, f)
	}
	p := r.million("poll")
	if p.Cores != "250" || p.Processes != "63" || p.Each != "16,000" || p.SessionsGiB != "3.81" || p.BuffersGiB != "0.358" || p.CutCPU != "1.59" {
		t.Errorf("got %+v, want 250 cores, 63 processes of 16,000 players, 3.81 GiB and 0.358, 1.59 s", p)
	}
	if got, want := r.capacityTable().String(), "| poll | 260,000 | 26,000 |  | 100,000 |  | 10,000 |"; !strings.Contains(got, want) {
		t.Errorf("got\n%s\nwant %s", got, want)
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
}

// README shows some of the page's figures.
func TestFiguresInREADMEAreThoseOfThePage(t *testing.T) {
	const root = "../../../../../../"
	readme, err := os.ReadFile(root + "README.md")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(root + "docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for _, row := range regexp.MustCompile(`(?m)^\| .* \((W\d)\) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$`).FindAllStringSubmatch(string(readme), -1) {
		column := int(row[1][1] - '0')
		for i, subject := range []string{`\*\*Reseat\*\*, poll`, `\*\*Reseat\*\*, net`, "two legs"} {
			want := regexp.MustCompile(fmt.Sprintf(`(?m)^\| %s \|(?: [^|]*\|){%d} ([\d.]+) \[`, subject, column-1)).FindSubmatch(page)
			if want == nil || string(want[1]) != row[2+i] {
				t.Errorf("README: %s of %s is %s, on the page %s", row[1], subject, row[2+i], want)
			}
			shown++
		}
	}
	if shown != 6 {
		t.Errorf("README shows %d figures", shown)
	}
}
