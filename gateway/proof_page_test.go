package gateway_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"reseat/gateway/internal/test/sim"
)

var quoted = regexp.MustCompile("`([^`]+)`")

// Each row of the proof page's list of interleavings must name a counter of the simulation,
// or a test; and each counter of an interleaving must be in the list.
func TestProofPageNamesATestForEachInterleaving(t *testing.T) {
	page, err := os.ReadFile("../docs/proof.md")
	if err != nil {
		t.Fatal(err)
	}
	defined, counted := definedTests(t), new(sim.Coverage).Missing()
	row, named := 0, map[string]bool{}
	for line := range strings.Lines(string(page)) {
		if !strings.HasPrefix(line, "| R") {
			continue
		}
		row++
		cells := strings.Split(line, "|")
		if len(cells) != 6 || cells[1] != fmt.Sprintf(" R%d ", row) {
			t.Fatalf("want row R%d of four cells, got %.60q", row, line)
		}
		counters, tests := quoted.FindAllStringSubmatch(cells[3], -1), quoted.FindAllStringSubmatch(cells[4], -1)
		if len(counters)+len(tests) == 0 {
			t.Errorf("R%d: neither a counter nor a test", row)
		}
		for _, c := range counters {
			named[c[1]] = true
			if !slices.Contains(counted, c[1]) {
				t.Errorf("R%d: the simulation counts no %q", row, c[1])
			}
		}
		for _, n := range tests {
			if !defined[n[1]] {
				t.Errorf("R%d: there is no %s", row, n[1])
			}
		}
	}
	if row < 26 {
		t.Errorf("%d rows, want 26 at least", row)
	}
	for _, c := range counted {
		if len(c) > 1 && c[0] == 'R' && c[1] >= '0' && c[1] <= '9' && !named[c] {
			t.Errorf("the simulation counts %q, and no row names it", c)
		}
	}
}

// The proof page has the number of fuzz targets.
func TestProofPageCountsTheFuzzTargets(t *testing.T) {
	page, err := os.ReadFile("../docs/proof.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, source := range repository(t, "_test.go") {
		n += strings.Count(source, "\nfunc Fuzz")
	}
	if want := fmt.Sprintf("There are %d fuzz targets", n); !strings.Contains(string(page), want) {
		t.Errorf("the page does not say %q", want)
	}
}
