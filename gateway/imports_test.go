package gateway

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// mayImport is the order of the packages: which others each may import. The arrows point one
// way: config, admin, demo -> gateway -> transport -> session -> replay, wire, frame. A
// package that is not listed may import any, but none of these may import it.
var mayImport = map[string][]string{
	"gateway/config":            {"gateway", "gateway/policy", "gateway/transport", "gateway/secure", "gateway/session", "tokens", "tokens/login", "upstream"},
	"gateway/secure":            {"gateway/transport/rawconn", "tokens/keyfile"},
	"gateway/client":            {"gateway/wire"},
	"gateway/admin":             {"gateway", "gateway/policy", "gateway/registry", "gateway/events", "gateway/session", "gateway/frame", "gateway/wire", "tokens/keyfile", "tokens/strict", "upstream", "web"},
	"gateway/demo":              {"gateway", "gateway/handshake", "gateway/policy", "upstream", "upstream/demo", "web"},
	"gateway":                   {"gateway/cluster", "gateway/deflate", "gateway/hop", "gateway/policy", "gateway/registry", "gateway/pipe", "gateway/transport", "gateway/transport/rawconn", "gateway/events", "gateway/handshake", "gateway/listen", "gateway/session", "gateway/replay", "gateway/frame", "gateway/wire", "tokens", "tokens/generation", "tokens/login", "upstream"},
	"gateway/policy":            {"gateway/session", "tokens/login", "upstream"},
	"gateway/registry":          {"gateway/policy", "gateway/events", "gateway/frame", "gateway/replay", "gateway/session", "gateway/tlv", "gateway/transport", "gateway/wire", "tokens", "tokens/generation", "upstream"},
	"gateway/listen":            {"gateway/transport/rawconn", "upstream/head"},
	"gateway/handshake":         {"gateway/deflate", "gateway/transport/rawconn", "gateway/frame"},
	"gateway/deflate":           {"gateway/frame", "gateway/wire"},
	"gateway/transport":         {"gateway/transport/epoll", "gateway/transport/netio", "gateway/transport/rawconn", "gateway/session", "gateway/wire"},
	"gateway/transport/netio":   {"gateway/transport/rawconn", "gateway/session"},
	"gateway/transport/epoll":   {"gateway/transport/rawconn", "gateway/transport/uring", "gateway/session"},
	"gateway/transport/uring":   {},
	"gateway/transport/rawconn": {},
	"gateway/events":            {},
	"gateway/session":           {"gateway/replay", "gateway/frame", "gateway/tlv", "gateway/wire", "tokens/generation"},
	"gateway/cluster":           {"gateway/tlv"},
	"gateway/cluster/engine":    {"gateway/cluster", "gateway/events"},
	"gateway/hop":               {},
	"gateway/pipe":              {},
	"gateway/tlv":               {},
	"gateway/replay":            {"gateway/frame"},
	"gateway/wire":              {"gateway/frame", "tokens/strict"},
	"gateway/frame":             {},
	"gateway/asynclog":          {},
	"gateway/handover":          {},
	"gateway/webhook":           {"gateway/events", "tokens/keyfile"},
	"gateway/server":            {"gateway", "gateway/cluster", "gateway/cluster/engine", "gateway/hop", "gateway/policy", "gateway/admin", "gateway/events", "gateway/handover", "gateway/listen", "gateway/pipe", "gateway/secure", "gateway/session", "gateway/transport", "gateway/transport/rawconn", "gateway/config", "gateway/demo", "gateway/asynclog", "gateway/webhook", "tokens", "tokens/keyfile", "tokens/login", "upstream", "web"},
	"tokens":                    {"tokens/generation", "tokens/keyfile", "tokens/strict"},
	"tokens/generation":         {},
	"tokens/keyfile":            {},
	"tokens/login":              {"tokens/keyfile", "tokens/strict"},
	"tokens/strict":             {},
	"upstream":                  {},
	"upstream/head":             {},
	"upstream/demo":             {},
	"web":                       {},
}

// pure are the packages without sockets, clocks, locks and goroutines, and the exceptions
// from impure that each may import.
var pure = map[string][]string{
	"gateway/session":   {"time"},     // for durations
	"gateway/replay":    {"sync"},     // the Store is shared by many sessions
	"gateway/wire":      {"net/http"}, // http.Header
	"gateway/frame":     {},
	"gateway/tlv":       {},
	"tokens/generation": {},
	"tokens/strict":     {},
}

// impure are the imports that pure packages may not use.
var impure = []string{"bufio", "context", "crypto/rand", "crypto/tls", "io", "log", "log/slog", "math/rand", "math/rand/v2", "net", "net/http", "os", "runtime", "sync", "syscall", "time", "unsafe"}

// clocks are the functions of package time that read the clock or wait.
var clocks = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}

// sources calls f for every file of the module that is not a test.
func sources(t *testing.T, f func(pkg string, file *ast.File, set *token.FileSet)) {
	t.Helper()
	root := ".."
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		name := d.Name()
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name == "testdata" || name == "node_modules" || name != ".." && strings.HasPrefix(name, ".")):
			return filepath.SkipDir
		case d.IsDir(), !strings.HasSuffix(name, ".go"), strings.HasSuffix(name, "_test.go"):
			return nil
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, p, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(p))
		f(filepath.ToSlash(dir), file, set)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// imports returns the paths that a file imports.
func imports(file *ast.File) (list []string) {
	for _, i := range file.Imports {
		p, _ := strconv.Unquote(i.Path.Value)
		list = append(list, p)
	}
	return list
}

func TestImportsPointOneWay(t *testing.T) {
	seen := map[string]bool{}
	sources(t, func(pkg string, file *ast.File, _ *token.FileSet) {
		allowed, known := mayImport[pkg]
		seen[pkg] = true
		for _, p := range imports(file) {
			own, ok := strings.CutPrefix(p, "reseat/")
			if ok && known && !slices.Contains(allowed, own) {
				t.Errorf("%s may not import %s", pkg, own)
			}
		}
	})
	for pkg := range mayImport {
		if !seen[pkg] {
			t.Errorf("no package %s was found", pkg)
		}
	}
}

// onlyIn are libraries that one package alone imports, so that they can be replaced, and so that
// it stands in one place what is asked of them.
var onlyIn = map[string]string{"github.com/nats-io/": "gateway/cluster/engine"}

func TestLibrariesStayInTheirPackage(t *testing.T) {
	found := map[string]bool{}
	sources(t, func(pkg string, file *ast.File, set *token.FileSet) {
		for _, p := range imports(file) {
			for library, owner := range onlyIn {
				if !strings.HasPrefix(p, library) {
					continue
				}
				found[library] = true
				if pkg != owner {
					t.Errorf("%s imports %s, which only %s may", pkg, p, owner)
				}
			}
		}
	})
	for library := range onlyIn {
		if !found[library] {
			t.Errorf("nobody imports %s", library)
		}
	}
}

// The table itself must have no cycle.
func TestImportTableHasNoCycle(t *testing.T) {
	below := map[string]int{} // the depth below a package
	var depth func(pkg string, above []string) int
	depth = func(pkg string, above []string) int {
		if slices.Contains(above, pkg) {
			t.Fatalf("a circle: %v", append(above, pkg))
		}
		n := 0
		for _, p := range mayImport[pkg] {
			n = max(n, 1+depth(p, append(above, pkg)))
		}
		below[pkg] = n
		return n
	}
	for _, pkg := range slices.Sorted(maps.Keys(mayImport)) {
		depth(pkg, nil)
	}
	order := []string{"gateway/frame", "gateway/replay", "gateway/session", "gateway/transport", "gateway/registry", "gateway", "gateway/admin"}
	if !slices.IsSortedFunc(order, func(a, b string) int { return below[a] - below[b] }) {
		t.Errorf("%v", below)
	}
}

func TestPurePackagesUseNoSocketClockOrLock(t *testing.T) {
	sources(t, func(pkg string, file *ast.File, set *token.FileSet) {
		allowed, ok := pure[pkg]
		if !ok {
			return
		}
		for _, p := range imports(file) {
			if p == "sync/atomic" && slices.Contains(allowed, "sync") {
				continue
			}
			if slices.Contains(impure, p) && !slices.Contains(allowed, p) || p == "sync/atomic" {
				t.Errorf("%s imports %s", pkg, p)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if what := effect(n); what != "" {
				t.Errorf("%s: %s", set.Position(n.Pos()), what)
			}
			return true
		})
	})
}

// effect names what a pure package may not do.
func effect(n ast.Node) string {
	switch n := n.(type) {
	case *ast.GoStmt:
		return "starts a goroutine"
	case *ast.SelectStmt, *ast.SendStmt, *ast.ChanType:
		return "uses a channel"
	case *ast.SelectorExpr:
		if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(clocks, n.Sel.Name) {
			return "time." + n.Sel.Name
		}
		if x, ok := n.X.(*ast.Ident); ok && x.Name == "http" && n.Sel.Name != "Header" {
			return "http." + n.Sel.Name
		}
	}
	return ""
}

// A dot import or another name would hide a package from the tests above.
func TestImportsAreNotRenamed(t *testing.T) {
	sources(t, func(pkg string, file *ast.File, set *token.FileSet) {
		for _, i := range file.Imports {
			p, _ := strconv.Unquote(i.Path.Value)
			if _, ok := pure[pkg]; ok && i.Name != nil && i.Name.Name != path.Base(p) {
				t.Errorf("%s: %s is imported as %s", set.Position(i.Pos()), p, i.Name.Name)
			}
		}
	})
}
