package gateway_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	namedTest   = regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Za-z0-9]+)`")
	namedTitle  = regexp.MustCompile("`([a-z0-9_/.]+\\.test\\.(?:js|mjs)): ([^`]+)`")
	definedTest = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
)

// Each row of the security page must name tests that exist, or say that it is open.
func TestSecurityPageNamesTestsThatExist(t *testing.T) {
	defined := definedTests(t)
	page, err := os.ReadFile("../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	row := 0
	for line := range strings.Lines(string(page)) {
		names, titles := namedTest.FindAllStringSubmatch(line, -1), namedTitle.FindAllStringSubmatch(line, -1)
		if strings.HasPrefix(line, "| T") {
			row++
			if !strings.HasPrefix(line, fmt.Sprintf("| T%d |", row)) {
				t.Errorf("want row T%d, got %.40s", row, line)
			}
			if len(names)+len(titles) == 0 && !strings.Contains(line, "Open: ") {
				t.Errorf("T%d names no test, and does not say that it is open", row)
			}
		}
		for _, n := range names {
			if !defined[n[1]] {
				t.Errorf("T%d: there is no %s", row, n[1])
			}
		}
		for _, n := range titles {
			source, err := os.ReadFile("../" + n[1])
			if err != nil || !strings.Contains(strings.ReplaceAll(string(source), `\'`, "'"), n[2]) {
				t.Errorf("T%d: there is no %q in %s", row, n[2], n[1])
			}
		}
	}
	if row < 51 {
		t.Errorf("%d rows, want 51 at least", row)
	}
}

// Each resource that a client can make the process hold must have limits, a payer, and a
// test that tries to exceed them.
func TestEachResourceOnTheSecurityPageHasItsBoundsAndATest(t *testing.T) {
	defined := definedTests(t)
	page, err := os.ReadFile("../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	row := 0
	for line := range strings.Lines(string(page)) {
		if !strings.HasPrefix(line, "| H") {
			continue
		}
		row++
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 7 || strings.TrimSpace(cells[0]) != fmt.Sprintf("H%d", row) {
			t.Errorf("want H%d and six cells more, got %d cells: %.60s", row, len(cells), line)
			continue
		}
		for i, cell := range cells {
			if strings.TrimSpace(cell) == "" {
				t.Errorf("H%d: cell %d is empty", row, i+1)
			}
		}
		names := namedTest.FindAllStringSubmatch(cells[6], -1)
		if len(names) == 0 {
			t.Errorf("H%d names no test", row)
		}
		for _, n := range names {
			if !defined[n[1]] {
				t.Errorf("H%d: there is no %s", row, n[1])
			}
		}
	}
	if row < 30 {
		t.Errorf("%d rows, want 30 at least", row)
	}
}

func definedTests(t *testing.T) map[string]bool {
	t.Helper()
	defined := make(map[string]bool)
	err := filepath.WalkDir("..", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == "node_modules":
			return filepath.SkipDir
		case !strings.HasSuffix(p, "_test.go"):
			return nil
		}
		source, err := os.ReadFile(p)
		for _, m := range definedTest.FindAllStringSubmatch(string(source), -1) {
			defined[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return defined
}
