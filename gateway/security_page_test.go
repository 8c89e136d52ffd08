package gateway_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	namedTest   = regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Za-z0-9]+)`")
	namedTitle  = regexp.MustCompile("`([a-z0-9_/.]+\\.test\\.(?:js|mjs)): ([^`]+)`")
	threatRow   = regexp.MustCompile(`^\| [TH]`)
	definedTest = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
)

// Each row T of the security page must name tests that exist, or say that it is open. Each row H, a resource that a client can
// make the process hold, must have limits, a payer, and a test that tries to exceed them.
func TestSecurityPageNamesTestsThatExist(t *testing.T) {
	defined := definedTests(t)
	page, err := os.ReadFile("../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]int{}
	for line := range strings.Lines(string(page)) {
		names, titles := namedTest.FindAllStringSubmatch(line, -1), namedTitle.FindAllStringSubmatch(line, -1)
		for _, n := range names {
			if !defined[n[1]] {
				t.Errorf("there is no %s: %.60s", n[1], line)
			}
		}
		for _, n := range titles {
			source, err := os.ReadFile("../" + n[1])
			if err != nil || !strings.Contains(strings.ReplaceAll(string(source), `\'`, "'"), n[2]) {
				t.Errorf("there is no %q in %s: %.60s", n[2], n[1], line)
			}
		}
		kind := threatRow.FindString(line)
		if kind == "" {
			continue
		}
		rows[kind]++
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if want := fmt.Sprint(strings.TrimPrefix(kind, "| "), rows[kind]); strings.TrimSpace(cells[0]) != want {
			t.Errorf("want row %s, got %.60s", want, line)
		}
		if len(names)+len(titles) == 0 && (kind == "| H" || !strings.Contains(line, "Open: ")) {
			t.Errorf("%sno test is named, and it does not say that it is open", cells[0])
		}
		if kind == "| H" && (len(cells) != 7 || slices.ContainsFunc(cells, func(c string) bool { return strings.TrimSpace(c) == "" })) {
			t.Errorf("%swant seven cells with text: %.60s", cells[0], line)
		}
	}
	if rows["| T"] < 51 || rows["| H"] < 30 {
		t.Errorf("%v rows, want 51 of T and 30 of H at least", rows)
	}
}

func definedTests(t *testing.T) map[string]bool {
	t.Helper()
	defined := make(map[string]bool)
	for _, source := range repository(t, "_test.go") {
		for _, m := range definedTest.FindAllStringSubmatch(source, -1) {
			defined[m[1]] = true
		}
	}
	return defined
}
