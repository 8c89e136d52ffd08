package gateway

import (
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"reseat/gateway/wire"
)

// read returns a file of the repository.
func read(t *testing.T, name string) string {
	b, err := os.ReadFile(filepath.Join("..", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// doc.go names a package without gateway/.
func TestDocNamesEveryPackage(t *testing.T) {
	doc := read(t, "gateway/doc.go")
	doc = doc[strings.Index(doc, "# Who owns what"):strings.Index(doc, "# Exactly-once delivery")]
	seen := map[string]bool{"gateway": true, "gateway/internal/test": true}
	for pkg := range sources(t) {
		top, _, _ := strings.Cut(pkg, "/")
		if seen[pkg] || !slices.Contains([]string{"gateway", "tokens", "upstream", "web"}, top) || strings.Contains(pkg, "internal/") {
			continue
		}
		seen[pkg] = true
		if name := strings.TrimPrefix(pkg, "gateway/"); !regexp.MustCompile(`[\t ]` + name + `\b`).MatchString(doc) {
			t.Errorf("gateway/doc.go, who owns what, does not name %s", name)
		}
	}
	if len(seen) < 40 {
		t.Errorf("%d packages: the test is broken", len(seen))
	}
}

func TestContributingNamesFilesThatExist(t *testing.T) {
	named := regexp.MustCompile("`((?:gateway|tokens|upstream|web|testdata)/[\\w./-]+)`").FindAllStringSubmatch(read(t, "CONTRIBUTING.md"), -1)
	for _, m := range named {
		if _, err := os.Stat(filepath.Join("..", m[1])); err != nil && m[1] != "testdata/compat/NAME.mjs" {
			t.Errorf("CONTRIBUTING.md names %s: %v", m[1], err)
		}
	}
	if len(named) < 15 {
		t.Errorf("%d files: the test is broken", len(named))
	}
}

// The row of CONTRIBUTING.md for a new close code lists these places.
func TestCloseCodesAreTheSameEverywhere(t *testing.T) {
	const page, client, types = "docs/protocol.md", "web/client/closecode.js", "web/reseat.d.ts"
	table := read(t, page)
	table = table[strings.Index(table, "### 6.1 "):strings.Index(table, "### 6.2 ")]
	text := map[string]string{page: table, client: read(t, client), types: read(t, types)}
	codes := 0
	for code := range 5000 {
		name := wire.Name(code)
		if name == "" {
			continue
		}
		codes++
		for place, line := range map[string]string{
			page:   fmt.Sprintf("| %d | `%s` |", code, name),
			client: fmt.Sprintf("  %s: %d,", strings.ToUpper(name), code),
			types:  fmt.Sprintf("  readonly %s: %d;", strings.ToUpper(name), code),
		} {
			if !strings.Contains(text[place], line) {
				t.Errorf("%s lacks %q", place, line)
			}
		}
	}
	if codes != len(wire.Names()) {
		t.Errorf("%d codes were looked for, want %d", codes, len(wire.Names()))
	}
}

// The fields of log lines may change, keys may not. The lower-case methods are those of the gateway's
// own loggers.
func TestKeysOfLogLinesAreDotted(t *testing.T) {
	dotted, keys := regexp.MustCompile(`^[a-z0-9_]+(\.[a-z0-9_]+)+$`), map[string]bool{}
	for pkg, file := range sources(t) {
		if strings.Contains(pkg, "internal/test") {
			continue
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			method, ok := call.Fun.(*ast.SelectorExpr)
			key, isText := call.Args[0].(*ast.BasicLit)
			if !ok || !isText || !slices.Contains([]string{"Debug", "Info", "Warn", "Error"}, method.Sel.Name) &&
				(pkg != "gateway" || !slices.Contains([]string{"info", "warn", "log"}, method.Sel.Name)) {
				return true
			}
			text, _ := strconv.Unquote(key.Value)
			keys[text] = true
			if !dotted.MatchString(text) {
				t.Errorf("%s logs %q", pkg, text)
			}
			return true
		})
	}
	if len(keys) < 60 {
		t.Errorf("%d keys: the test is broken", len(keys))
	}
}

// A comment above a function or type that begins with another name was written for another.
func TestDocCommentsBeginWithTheNameTheyDocument(t *testing.T) {
	check := func(doc *ast.CommentGroup, name, pkg string) {
		words := strings.Fields(doc.Text())
		if len(words) > 1 && slices.Contains([]string{"A", "An", "The"}, words[0]) {
			words = words[1:]
		}
		if len(words) > 0 && strings.TrimSuffix(strings.TrimRight(words[0], ",.:;"), "'s") != name {
			t.Errorf("%s: the comment above %s begins with %s", pkg, name, words[0])
		}
	}
	for pkg, file := range sources(t) {
		if strings.HasPrefix(pkg, "gateway/internal/test/harness") {
			continue
		}
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				check(d.Doc, d.Name.Name, pkg)
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if s, ok := s.(*ast.TypeSpec); ok && s.Doc != nil {
						check(s.Doc, s.Name.Name, pkg)
					} else if ok && !d.Lparen.IsValid() {
						check(d.Doc, s.Name.Name, pkg)
					}
				}
			}
		}
	}
}
