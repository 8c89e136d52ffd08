package gateway_test

import (
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"reseat/gateway/internal/test/sim"
)

var (
	headingNumber  = regexp.MustCompile(`(?m)^#{2,3} ([0-9]+(?:\.[0-9]+)?)\.? `)
	sectionsCited  = regexp.MustCompile(`\bprotocol,? sections? ([0-9]+(?:\.[0-9]+)?)(?: and ([0-9]+(?:\.[0-9]+)?))?`)
	foreignCited   = regexp.MustCompile(`\b(?:reseat\.v1|interface),? sections? [0-9]`)
	pageCited      = regexp.MustCompile(`\bdocs/(?:design/)?[a-z-]+\.md\b`)
	codeOfModel    = regexp.MustCompile("((?:`[#\\w]+`, )*`[#\\w]+`) in `([\\w/.]+)`")
	citingSuffixes = []string{".go", ".js", ".mjs", ".ts", ".pml", ".md", ".txt", ".yaml", ".conf"}
)

// faultsOfCitations returns the citations in a text that do not resolve: missing sections of
// the protocol page, missing pages, and documents outside of the repository.
func faultsOfCitations(text string, sections []string, page func(name string) bool) (faults []string) {
	words := strings.Join(strings.Fields(strings.NewReplacer("//", " ", " * ", " ").Replace(text)), " ") // across line ends
	for _, m := range sectionsCited.FindAllStringSubmatch(words, -1) {
		for _, n := range m[1:] {
			if n != "" && !slices.Contains(sections, n) {
				faults = append(faults, m[0])
			}
		}
	}
	faults = append(faults, foreignCited.FindAllString(words, -1)...)
	for _, name := range pageCited.FindAllString(words, -1) {
		if !page(name) {
			faults = append(faults, name)
		}
	}
	return faults
}

func protocolSections(t *testing.T) (list []string) {
	t.Helper()
	b, err := os.ReadFile(protocolPage)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range headingNumber.FindAllStringSubmatch(string(b), -1) {
		list = append(list, m[1])
	}
	return list
}

func TestCitationsResolve(t *testing.T) {
	sections := protocolSections(t)
	if len(sections) < 12 {
		t.Fatalf("%s has the sections %v", protocolPage, sections)
	}
	page := func(name string) bool {
		_, err := os.Stat(filepath.Join("..", name))
		return err == nil
	}
	cited := 0
	for name, text := range repository(t, citingSuffixes...) {
		if name == "../testdata/compat/reseat-v0.mjs" || filepath.Base(name) == "pages_test.go" { // the former is kept unchanged
			continue
		}
		for _, fault := range faultsOfCitations(text, sections, page) {
			t.Errorf("%s cites %q", name, fault)
		}
		cited += len(sectionsCited.FindAllString(text, -1))
	}
	if cited < 50 {
		t.Errorf("%d citations", cited)
	}
}

// The model's rules were transferred by hand: the table that says where must follow the code.
func TestModelNamesCodeThatExists(t *testing.T) {
	text, err := os.ReadFile("../testdata/model/README.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, place := range codeOfModel.FindAllStringSubmatch(string(text), -1) {
		code, err := os.ReadFile(filepath.Join("..", place[2]))
		if err != nil {
			t.Error(err)
			continue
		}
		for _, name := range strings.Split(place[1], ", ") {
			name = strings.Trim(name, "`")
			if found++; !regexp.MustCompile(`(?m)^(func (\([^)]*\) )?|type |\s*|(export )?class )` + regexp.QuoteMeta(name) + `\b.*\{`).Match(code) {
				t.Errorf("%s is not in %s", name, place[2])
			}
		}
	}
	if found < 40 {
		t.Errorf("%d names", found)
	}
}

// repository yields the name and the text of each file whose name ends in a suffix.
func repository(t *testing.T, suffixes ...string) iter.Seq2[string, string] {
	return func(yield func(name, text string) bool) {
		err := filepath.WalkDir("..", func(name string, d fs.DirEntry, err error) error {
			switch base := filepath.Base(name); {
			case err != nil:
				return err
			case d.IsDir() && (slices.Contains([]string{"node_modules", "out", "bin", "dist"}, base) || len(base) > 2 && base[0] == '.'):
				return filepath.SkipDir
			case d.IsDir() || !slices.ContainsFunc(suffixes, func(suffix string) bool { return strings.HasSuffix(name, suffix) }):
				return nil
			}
			text, err := os.ReadFile(name)
			if err == nil && !yield(name, string(text)) {
				return filepath.SkipAll
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestUnresolvedCitationsAreFound(t *testing.T) {
	sections := []string{"5", "5.4"}
	page := func(name string) bool { return name == "docs/faq.md" }
	for text, want := range map[string]int{
		"protocol section 5": 0, "// by protocol\n// section 5.4.": 0, "docs/faq.md": 0, "RFC 6455 section 7.4.1": 0,
		"protocol section 9": 1, "protocol\n\t// sections 5 and 12": 1, "protocol sections 8 and 12": 2,
		"reseat.v1 section 5": 1, "interface\n// section 3": 1, "docs/nowhere.md": 1, "docs/design/nowhere.md": 1,
	} {
		if got := faultsOfCitations(text, sections, page); len(got) != want {
			t.Errorf("%q: %q, want %d", text, got, want)
		}
	}
}

var quoted = regexp.MustCompile("`([^`]+)`")

// Each row of the simulation's list of interleavings must name a counter of the simulation,
// or a test; and each counter of an interleaving must be in the list.
func TestProofNamesATestForEachInterleaving(t *testing.T) {
	page, err := os.ReadFile("internal/test/sim/README.md")
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

var (
	namedTest  = regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Za-z0-9]+)`")
	namedTitle = regexp.MustCompile("`([a-z0-9_/.]+\\.test\\.(?:js|mjs)): ([^`]+)`")
	threatRow  = regexp.MustCompile(`^\| [TH]`)
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

// definedTests are the names of all tests, fuzz targets and benchmarks.
func definedTests(t *testing.T) map[string]bool {
	t.Helper()
	defined := make(map[string]bool)
	for _, source := range repository(t, "_test.go") {
		for line := range strings.Lines(source) {
			if name, ok := strings.CutPrefix(line, "func "); ok {
				name, _, _ = strings.Cut(name, "(")
				defined[name] = true
			}
		}
	}
	return defined
}
