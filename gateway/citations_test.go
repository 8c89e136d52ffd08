package gateway_test

import (
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	headingNumber  = regexp.MustCompile(`(?m)^#{2,3} ([0-9]+(?:\.[0-9]+)?)\.? `)
	sectionsCited  = regexp.MustCompile(`\bprotocol,? sections? ([0-9]+(?:\.[0-9]+)?)(?: and ([0-9]+(?:\.[0-9]+)?))?`)
	foreignCited   = regexp.MustCompile(`\b(?:reseat\.v1|interface),? sections? [0-9]`)
	pageCited      = regexp.MustCompile(`\bdocs/[a-z-]+\.md\b`)
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
		if name == "../testdata/compat/reseat-v0.mjs" || filepath.Base(name) == "citations_test.go" { // the former is kept unchanged
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
		"reseat.v1 section 5": 1, "interface\n// section 3": 1, "docs/nowhere.md": 1,
	} {
		if got := faultsOfCitations(text, sections, page); len(got) != want {
			t.Errorf("%q: %q, want %d", text, got, want)
		}
	}
}
