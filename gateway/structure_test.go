package gateway

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"reseat/gateway/registry"
	"reseat/gateway/wire"
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
	rows := len(regexp.MustCompile("(?m)^\\| [0-9]+ \\| `[a-z0-9_]+` \\|").FindAllString(table, -1))
	if codes != len(wire.Names()) || rows != codes {
		t.Errorf("%d codes were looked for, want %d; %s has %d rows", codes, len(wire.Names()), page, rows)
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

// A token is replaced after half of its lifetime, or earlier if it would not outlive twice
// the heartbeat plus the grace period: protocol section 7.
func TestRenewalTime(t *testing.T) {
	const s, m, h = time.Second, time.Minute, time.Hour
	for _, c := range []struct {
		name                         string
		life, heartbeat, grace, want time.Duration
	}{
		{"half its life", h, 15 * s, 30 * s, 30 * m},
		{"three quarters of what is spare", 10 * m, 15 * s, 5 * m, 202500 * time.Millisecond},
		{"the grace period is half its life", 10 * m, 0, 5 * m, 225 * s},
		{"spare is two thirds: both are the same", 9 * m, 0, 3 * m, 4*m + 30*s},
		{"hardly anything is spare", 10 * m, 15 * s, 9*m + 29900*time.Millisecond, minRenewInterval},
		{"nothing is spare", 10 * m, 15 * s, 9*m + 30*s, 5 * m},
		{"less than nothing", 10 * m, h, h, 5 * m},
		{"a life shorter than the least pause", 600 * time.Millisecond, 0, 0, 300 * time.Millisecond},
	} {
		if got := renewal(c.life, c.heartbeat, c.grace); got != c.want {
			t.Errorf("%s: life %v, heartbeat %v, grace %v: renewed after %v, want %v", c.name, c.life, c.heartbeat, c.grace, got, c.want)
		}
	}
	for life := time.Second; life < 48*h; life = life*3/2 + 7 {
		for grace := time.Duration(0); grace < 24*h; grace = grace*2 + 11*s {
			at := renewal(life, 15*s, grace)
			if spare := life - 30*s - grace; spare > time.Second && life-at < 30*s+grace {
				t.Errorf("life %v, grace %v: renewed after %v, too late for a drop just before", life, grace, at)
			}
			if at <= 0 || at > life/2 {
				t.Errorf("life %v, grace %v: renewed after %v", life, grace, at)
			}
		}
	}
}
func TestDurationIsFormattedAsFlagsParseIt(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", time.Millisecond: "1ms", 1500 * time.Millisecond: "1.5s", 45 * time.Second: "45s", time.Minute: "1m", 90 * time.Second: "1m30s",
		10 * time.Minute: "10m", time.Hour: "1h", time.Hour + time.Second: "1h0m1s", time.Hour + 10*time.Minute: "1h10m", 100*time.Hour + 5*time.Minute: "100h5m",
	} {
		got := registry.FormatDuration(d)
		if back, err := time.ParseDuration(got); got != want || back != d || err != nil {
			t.Errorf("%v is written %q, which reads %v, %v; want %q", d, got, back, err, want)
		}
	}
}
