package session

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// The comments of Session say which file alone writes a group of fields, and which fields above belong
// to it. Two functions write others' fields by their address: walk, which Restore reads a state with,
// and rebase, which moves all times.
func TestFieldsAreWrittenWhereTheirCommentSays(t *testing.T) {
	owner := fieldOwners(t)
	written := map[string]bool{}
	files, _ := filepath.Glob("*.go")
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		write := func(e ast.Expr) {
			field := fieldWritten(e)
			if owner[field] == file {
				written[field] = true
			} else if owner[field] != "" {
				t.Errorf("%v writes s.%s, which only %s may", set.Position(e.Pos()), field, owner[field])
			}
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				return n.Name.Name != "walk" && n.Name.Name != "rebase"
			case *ast.AssignStmt:
				for _, e := range n.Lhs {
					write(e)
				}
			case *ast.IncDecStmt:
				write(n.X)
			case *ast.UnaryExpr:
				if n.Op == token.AND {
					write(n.X)
				}
			}
			return true
		})
	}
	for field, file := range owner {
		if !written[field] {
			t.Errorf("%s does not write %s, which is said to be written there", file, field)
		}
	}
}

// fieldOwners returns the files that Session's comments name, by field.
func fieldOwners(t *testing.T) map[string]string {
	file, err := parser.ParseFile(token.NewFileSet(), "session.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	owner, rule := map[string]string{}, regexp.MustCompile(`Only (\w+\.go) writes these(?:, (\w+) and (\w+))?`)
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok || spec.Name.Name != "Session" {
			return true
		}
		var names []string // the file, and what its comment names of the fields above
		for _, f := range spec.Type.(*ast.StructType).Fields.List {
			if f.Doc != nil {
				names = rule.FindStringSubmatch(f.Doc.Text())
			}
			if names == nil {
				continue
			}
			for _, id := range f.Names {
				owner[id.Name] = names[1]
			}
			for _, above := range names[2:] {
				owner[above] = names[1]
			}
		}
		return false
	})
	delete(owner, "")
	for _, field := range []string{"state", "att", "epoch", "outcome", "graceEnd"} {
		if owner[field] != "transitions.go" {
			t.Fatalf("%s belongs to %q by the comments, want transitions.go", field, owner[field])
		}
	}
	return owner
}

// fieldWritten returns the field of s that a write to e writes: s.F, s.F.G or s.F[i]. A write to what
// a field points to is none.
func fieldWritten(e ast.Expr) string {
	for whole := e; ; {
		switch x := e.(type) {
		case *ast.IndexExpr:
			e = x.X
		case *ast.SelectorExpr:
			if s, ok := x.X.(*ast.Ident); !ok || s.Name != "s" {
				e = x.X
				continue
			}
			f, _ := reflect.TypeFor[Session]().FieldByName(x.Sel.Name)
			if f.Type != nil && f.Type.Kind() == reflect.Pointer && e != whole {
				return ""
			}
			return f.Name
		default:
			return ""
		}
	}
}
