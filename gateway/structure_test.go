package gateway

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"iter"
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
	"gateway/config":            {"gateway/newest", "gateway", "gateway/policy", "gateway/registry", "gateway/transport", "gateway/secure", "gateway/session", "tokens", "tokens/keyfile", "tokens/login", "upstream"},
	"gateway/secure":            {"gateway/transport/rawconn", "tokens/keyfile"},
	"gateway/client":            {"gateway/wire"},
	"gateway/admin":             {"gateway/newest", "gateway/cluster", "gateway/control", "gateway/faults", "gateway/owner", "gateway/upgrade", "gateway/watch", "gateway/front", "gateway/gate", "gateway", "gateway/policy", "gateway/registry", "gateway/events", "gateway/session", "gateway/frame", "gateway/wire", "tokens/keyfile", "tokens/login", "tokens/strict", "upstream", "web"},
	"gateway/demo":              {"gateway/control", "gateway/owner", "gateway", "gateway/handshake", "gateway/policy", "upstream", "upstream/demo", "web"},
	"gateway/dev":               {"gateway", "gateway/faults", "gateway/handshake", "gateway/registry", "gateway/wire", "tokens", "tokens/keyfile", "web"},
	"gateway/faults":            {},
	"gateway":                   {"gateway/newest", "gateway/control", "gateway/upgrade", "gateway/owner", "gateway/dial", "gateway/watch", "gateway/front", "gateway/gate", "gateway/cluster", "gateway/deflate", "gateway/hop", "gateway/policy", "gateway/registry", "gateway/pipe", "gateway/transport", "gateway/transport/rawconn", "gateway/events", "gateway/handshake", "gateway/listen", "gateway/session", "gateway/replay", "gateway/frame", "gateway/wire", "tokens", "tokens/generation", "tokens/login", "upstream"},
	"gateway/front":             {"gateway/replay", "gateway/frame", "gateway/gate", "gateway/handshake", "gateway/hop", "gateway/policy", "gateway/registry", "gateway/wire", "upstream"},
	"gateway/gate":              {},
	"gateway/control":           {"gateway/newest", "gateway/gate", "gateway/owner", "gateway/registry", "gateway/session", "gateway/wire"},
	"gateway/upgrade":           {"gateway/cluster", "gateway/dial", "gateway/events", "gateway/front", "gateway/gate", "gateway/handover", "gateway/handshake", "gateway/listen", "gateway/owner", "gateway/pipe", "gateway/policy", "gateway/registry", "gateway/replay", "gateway/session", "gateway/transport", "gateway/transport/rawconn", "gateway/watch", "gateway/webhook", "gateway/wire", "tokens", "upstream"},
	"gateway/owner":             {"gateway/cluster", "gateway/dial", "gateway/front", "gateway/gate", "gateway/handshake", "gateway/hop", "gateway/link", "gateway/pipe", "gateway/policy", "gateway/registry", "gateway/replay", "gateway/session", "gateway/transport", "gateway/watch", "gateway/wire", "tokens", "tokens/generation", "upstream"},
	"gateway/dial":              {"gateway/front", "gateway/gate", "gateway/listen", "gateway/registry", "gateway/session", "gateway/transport", "gateway/watch", "gateway/wire", "upstream"},
	"gateway/watch":             {"gateway/events", "gateway/front", "gateway/handshake", "gateway/policy", "gateway/registry", "gateway/replay", "gateway/session", "gateway/transport", "gateway/wire", "tokens/login", "upstream"},
	"gateway/policy":            {"gateway/newest", "gateway/session", "tokens/login", "upstream"},
	"gateway/registry":          {"gateway/newest", "gateway/policy", "gateway/events", "gateway/frame", "gateway/replay", "gateway/session", "gateway/tlv", "gateway/transport", "gateway/wire", "tokens", "tokens/generation", "upstream"},
	"gateway/listen":            {"gateway/transport/rawconn"},
	"gateway/handshake":         {"gateway/deflate", "gateway/transport/rawconn", "gateway/frame"},
	"gateway/deflate":           {"gateway/frame", "gateway/wire"},
	"gateway/transport":         {"gateway/link", "gateway/transport/epoll", "gateway/transport/netio", "gateway/transport/rawconn", "gateway/session", "gateway/wire"},
	"gateway/transport/netio":   {"gateway/transport/rawconn", "gateway/session"},
	"gateway/transport/epoll":   {"gateway/link", "gateway/transport/rawconn", "gateway/session"},
	"gateway/transport/rawconn": {},
	"gateway/events":            {},
	"gateway/session":           {"gateway/newest", "gateway/replay", "gateway/frame", "gateway/tlv", "gateway/wire", "tokens/generation"},
	"gateway/cluster":           {"gateway/tlv"},
	"gateway/cluster/engine":    {"gateway/cluster", "gateway/events"},
	"gateway/hop":               {},
	"gateway/link":              {"gateway/transport/rawconn"},
	"gateway/pipe":              {},
	"gateway/tlv":               {},
	"gateway/replay":            {"gateway/frame"},
	"gateway/newest":            {},
	"gateway/wire":              {"gateway/frame", "tokens/strict"},
	"gateway/frame":             {},
	"gateway/asynclog":          {},
	"gateway/handover":          {},
	"gateway/webhook":           {"gateway/events", "tokens/keyfile"},
	"gateway/server":            {"gateway/control", "gateway/upgrade", "gateway/owner", "gateway/registry", "gateway/watch", "gateway", "gateway/cluster", "gateway/cluster/engine", "gateway/hop", "gateway/policy", "gateway/admin", "gateway/events", "gateway/handover", "gateway/link", "gateway/listen", "gateway/secure", "gateway/session", "gateway/transport", "gateway/transport/rawconn", "gateway/config", "gateway/demo", "gateway/dev", "gateway/faults", "gateway/asynclog", "gateway/webhook", "tokens", "tokens/keyfile", "tokens/login", "upstream", "web"},
	"tokens":                    {"tokens/generation", "tokens/internal/jws", "tokens/keyfile", "tokens/strict"},
	"tokens/internal/jws":       {"tokens/strict"},
	"tokens/generation":         {},
	"tokens/keyfile":            {},
	"tokens/login":              {"tokens/internal/jws", "tokens/keyfile", "tokens/strict"},
	"tokens/strict":             {},
	"upstream":                  {},
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
	"gateway/newest":    {},
	"gateway/tlv":       {},
	"tokens/generation": {},
	"tokens/strict":     {},
}

// impure are the imports that pure packages may not use.
var impure = []string{"bufio", "context", "crypto/rand", "crypto/tls", "io", "log", "log/slog", "math/rand", "math/rand/v2", "net", "net/http", "os", "runtime", "sync", "syscall", "time", "unsafe"}

// clocks are the functions of package time that read the clock or wait.
var clocks = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}

// sources yields every file of the module that is not a test, with its package.
func sources(t *testing.T) iter.Seq2[string, *ast.File] {
	return func(yield func(pkg string, file *ast.File) bool) {
		err := filepath.WalkDir("..", func(p string, d fs.DirEntry, err error) error {
			name := d.Name()
			switch {
			case err != nil:
				return err
			case d.IsDir() && (name == "testdata" || name == "node_modules" || name != ".." && strings.HasPrefix(name, ".")):
				return filepath.SkipDir
			case d.IsDir(), !strings.HasSuffix(name, ".go"), strings.HasSuffix(name, "_test.go"):
				return nil
			}
			file, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.SkipObjectResolution|parser.ParseComments)
			if err == nil && !yield(strings.TrimPrefix(filepath.ToSlash(filepath.Dir(p)), "../"), file) {
				return filepath.SkipAll
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// onlyIn are libraries that one package alone imports, so that they can be replaced, and so that
// it stands in one place what is asked of them.
var onlyIn = map[string]string{"github.com/nats-io/": "gateway/cluster/engine"}

func TestImportsPointOneWay(t *testing.T) {
	seen := map[string]bool{}
	for pkg, file := range sources(t) {
		allowed, known := mayImport[pkg]
		seen[pkg] = true
		for _, i := range file.Imports {
			p, _ := strconv.Unquote(i.Path.Value)
			if own, ok := strings.CutPrefix(p, "reseat/"); ok && known && !slices.Contains(allowed, own) {
				t.Errorf("%s may not import %s", pkg, own)
			}
			for library, owner := range onlyIn {
				if strings.HasPrefix(p, library) {
					seen[library] = true
					if pkg != owner {
						t.Errorf("%s imports %s, which only %s may", pkg, p, owner)
					}
				}
			}
		}
	}
	for _, name := range slices.Concat(slices.Collect(maps.Keys(mayImport)), slices.Collect(maps.Keys(onlyIn))) {
		if !seen[name] {
			t.Errorf("no package %s was found", name)
		}
	}
}

// A dot import or another name would hide a package.
func TestPurePackagesUseNoSocketClockOrLock(t *testing.T) {
	for pkg, file := range sources(t) {
		allowed, ok := pure[pkg]
		if !ok {
			continue
		}
		for _, i := range file.Imports {
			p, _ := strconv.Unquote(i.Path.Value)
			atomics := p == "sync/atomic" && !slices.Contains(allowed, "sync")
			if slices.Contains(impure, p) && !slices.Contains(allowed, p) || atomics {
				t.Errorf("%s imports %s", pkg, p)
			}
			if i.Name != nil && i.Name.Name != path.Base(p) {
				t.Errorf("%s imports %s as %s", pkg, p, i.Name.Name)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if what := effect(n); what != "" {
				t.Errorf("%s %s", pkg, what)
			}
			return true
		})
	}
}

// effect names what a pure package may not do.
func effect(n ast.Node) string {
	switch n := n.(type) {
	case *ast.GoStmt:
		return "starts a goroutine"
	case *ast.SelectStmt, *ast.SendStmt, *ast.ChanType:
		return "uses a channel"
	case *ast.SelectorExpr:
		x, ok := n.X.(*ast.Ident)
		if ok && (x.Name == "time" && slices.Contains(clocks, n.Sel.Name) || x.Name == "http" && n.Sel.Name != "Header") {
			return "uses " + x.Name + "." + n.Sel.Name
		}
	}
	return ""
}

// empty imports every package as one that declares nothing: references between the files
// of one package need no more.
type empty struct{}

func (empty) Import(p string) (*types.Package, error) {
	pkg := types.NewPackage(p, path.Base(p))
	pkg.MarkComplete()
	return pkg, nil
}

// A reader of one file must not need those above it: what two files need of each other
// belongs into a third.
func TestFilesHaveNoCyclicReferences(t *testing.T) {
	for _, dir := range []string{".", "control", "front", "upgrade"} {
		t.Run(dir, func(t *testing.T) { wantNoCycle(t, dir) })
	}
}

func wantNoCycle(t *testing.T, dir string) {
	var files []*ast.File
	set := token.NewFileSet()
	for _, f := range sourcesOf(t, dir) {
		files, set = append(files, f.File), f.set
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	cfg := types.Config{Importer: empty{}, Error: func(error) {}} // what the empty packages lack
	pkg, _ := cfg.Check("reseat/gateway", set, files, info)
	uses := map[string]map[string]string{} // file, another that it refers to, by what
	for id, o := range info.Uses {
		if v, ok := o.(*types.Var); o.Pkg() != pkg || ok && (v.IsField() || v.Parent() != pkg.Scope()) {
			continue
		}
		from, to := filepath.Base(set.Position(id.Pos()).Filename), filepath.Base(set.Position(o.Pos()).Filename)
		if from != to {
			if uses[from] == nil {
				uses[from] = map[string]string{}
			}
			uses[from][to] = o.Name()
		}
	}
	if len(uses) == 0 || dir == "." && uses["serve.go"]["gateway.go"] == "" {
		t.Fatalf("references of %d files were found: the test is broken", len(uses))
	}
	done := map[string]bool{}
	var visit func(file string, above []string)
	visit = func(file string, above []string) {
		if i := slices.Index(above, file); i >= 0 {
			cycle := append(above[i:], file)
			var by []string
			for j, f := range cycle[1:] {
				by = append(by, uses[cycle[j]][f])
			}
			t.Errorf("cycle: %s, by %s", strings.Join(cycle, " -> "), strings.Join(by, ", "))
			return
		}
		if done[file] {
			return
		}
		for _, to := range slices.Sorted(maps.Keys(uses[file])) {
			visit(to, append(slices.Clone(above), file))
		}
		done[file] = true
	}
	for _, file := range slices.Sorted(maps.Keys(uses)) {
		visit(file, nil)
	}
}

// What does not fit into this package belongs into one of its own, beside it.
func TestGatewayStaysSmall(t *testing.T) {
	const maxLines, maxMethods = 2600, 70
	lines, methods := 0, 0
	for _, f := range sourcesOf(t, ".") {
		lines += f.set.Position(f.FileEnd).Line
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil && types.ExprString(fn.Recv.List[0].Type) == "*Gateway" {
				methods++
			}
		}
	}
	if methods == 0 || methods > maxMethods || lines > maxLines {
		t.Errorf("Gateway has %d methods, want at most %d; its package has %d lines, want at most %d", methods, maxMethods, lines, maxLines)
	}
}

type sourceFile struct {
	*ast.File
	set *token.FileSet
}

// sourcesOf are the files of a package that are not tests.
func sourcesOf(t *testing.T, dir string) (list []sourceFile) {
	t.Helper()
	names, err := filepath.Glob(dir + "/*.go")
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, sourceFile{f, set})
	}
	return list
}
