// Command idle reports tests that cannot fail: neither they nor what they call ever
// fails a test. It is a tool of go vet: make lint.
package main

import (
	"go/ast"
	"go/types"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/inspect"
	"golang.org/x/tools/go/analysis/unitchecker"
	"golang.org/x/tools/go/ast/inspector"
	"golang.org/x/tools/go/types/typeutil"
)

func main() { unitchecker.Main(analyzer) }

var analyzer = &analysis.Analyzer{
	Name:      "idle",
	Doc:       "report tests that cannot fail",
	Requires:  []*analysis.Analyzer{inspect.Analyzer},
	FactTypes: []analysis.Fact{new(mayFail)},
	Run:       run,
}

// mayFail is the fact of a function that can fail the test that calls it.
type mayFail struct{}

func (*mayFail) AFact()         {}
func (*mayFail) String() string { return "may fail" }

// failing are the methods of testing.TB that fail a test. A test that uses its context
// or ends by itself asserts by ending: the go command's timeout fails it.
var failing = map[string]bool{"Error": true, "Errorf": true, "Fail": true, "FailNow": true, "Fatal": true, "Fatalf": true}

func run(pass *analysis.Pass) (any, error) {
	if !isOurs(pass.Pkg.Path()) {
		return nil, nil
	}
	calls := map[*types.Func][]*types.Func{} // within the package
	var tests []*ast.FuncDecl
	pass.ResultOf[inspect.Analyzer].(*inspector.Inspector).Preorder([]ast.Node{(*ast.FuncDecl)(nil)}, func(n ast.Node) {
		decl := n.(*ast.FuncDecl)
		fn, ok := pass.TypesInfo.Defs[decl.Name].(*types.Func)
		if !ok || decl.Body == nil {
			return
		}
		if isTest(pass, decl) {
			tests = append(tests, decl)
		}
		ast.Inspect(decl.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if fails(pass, n) {
					pass.ExportObjectFact(fn, new(mayFail))
				}
			case *ast.Ident: // called, or handed on
				if used, ok := pass.TypesInfo.Uses[n].(*types.Func); ok {
					calls[fn] = append(calls[fn], used.Origin())
				}
			}
			return true
		})
	})
	for changed := true; changed; {
		changed = false
		for fn, callees := range calls {
			if pass.ImportObjectFact(fn, new(mayFail)) {
				continue
			}
			for _, callee := range callees {
				if pass.ImportObjectFact(callee, new(mayFail)) {
					pass.ExportObjectFact(fn, new(mayFail))
					changed = true
					break
				}
			}
		}
	}
	for _, decl := range tests {
		if !pass.ImportObjectFact(pass.TypesInfo.Defs[decl.Name], new(mayFail)) {
			pass.Reportf(decl.Pos(), "%s cannot fail: nothing that it calls fails a test", decl.Name.Name)
		}
	}
	return nil, nil
}

// isTest reports whether the go command runs the function as a test. A fuzz target
// asserts by not panicking.
func isTest(pass *analysis.Pass, decl *ast.FuncDecl) bool {
	file := pass.Fset.Position(decl.Pos()).Filename
	name := decl.Name.Name
	return strings.HasSuffix(file, "_test.go") && decl.Recv == nil && name != "TestMain" && strings.HasPrefix(name, "Test")
}

// fails reports whether the call itself can fail a test: a method of testing.TB, panic,
// or a function of another module that is given the test.
func fails(pass *analysis.Pass, call *ast.CallExpr) bool {
	switch callee := typeutil.Callee(pass.TypesInfo, call).(type) {
	case *types.Builtin:
		return callee.Name() == "panic"
	case *types.Func:
		if callee.Pkg() == nil {
			return false
		}
		switch path := callee.Pkg().Path(); {
		case path == "testing":
			return failing[callee.Name()]
		case path == "testing/synctest", isOurs(path):
			return false // what is in their bodies counts
		}
	}
	for _, arg := range call.Args {
		if isTB(pass.TypesInfo.TypeOf(arg)) {
			return true
		}
	}
	return false
}

func isOurs(path string) bool {
	return path == "reseat" || strings.HasPrefix(path, "reseat/") || strings.HasPrefix(path, "reseat_test")
}

func isTB(t types.Type) bool {
	if p, ok := t.(*types.Pointer); ok {
		t = p.Elem()
	}
	named, ok := t.(*types.Named)
	if !ok || named.Obj().Pkg() == nil || named.Obj().Pkg().Path() != "testing" {
		return false
	}
	switch named.Obj().Name() {
	case "T", "F", "TB":
		return true
	}
	return false
}
