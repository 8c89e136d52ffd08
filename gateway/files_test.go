package gateway

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

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
	set := token.NewFileSet()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	cfg := types.Config{Importer: empty{}, Error: func(error) {}} // what the empty packages lack
	pkg, _ := cfg.Check("reseat/gateway", set, files, info)
	uses := map[string]map[string]string{} // file, another that it refers to, by what
	for id, o := range info.Uses {
		if v, ok := o.(*types.Var); o.Pkg() != pkg || ok && (v.IsField() || v.Parent() != pkg.Scope()) {
			continue
		}
		from, to := set.Position(id.Pos()).Filename, set.Position(o.Pos()).Filename
		if from != to {
			if uses[from] == nil {
				uses[from] = map[string]string{}
			}
			uses[from][to] = o.Name()
		}
	}
	if len(uses) < 15 || uses["serve.go"]["gateway.go"] == "" {
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
