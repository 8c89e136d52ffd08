package mutant

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// root is the module's.
const root = "../../../../.."

// A mutant whose text no longer occurs tests nothing. Refactorings hit this first.
func TestEveryMutantApplies(t *testing.T) {
	list, err := Load(filepath.Join(root, "testdata/mutants"))
	if err != nil {
		t.Fatal(err)
	}
	if len(list) < 30 {
		t.Errorf("only %d mutants", len(list))
	}
	seen := map[string]bool{}
	for _, m := range list {
		if seen[m.Name] {
			t.Errorf("two mutants %s", m.Name)
		}
		seen[m.Name] = true
		if _, err := m.Apply(root); err != nil {
			t.Error(err)
		}
	}
}

func TestMissingTextIsAnError(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.go"), []byte("one\ntwo\ntwo\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for old, want := range map[string]string{"one": "", "two": "stands 2 times", "three": "stands 0 times"} {
		list, err := parse("x", "mutant m\nwhy  w\ntest .\nin a.go\n<<<<\n"+old+"\n====\nnew\n>>>>\n")
		if err != nil {
			t.Fatal(err)
		}
		files, err := list[0].Apply(dir)
		switch {
		case want == "" && (err != nil || files["a.go"] != "new\ntwo\ntwo\n"):
			t.Errorf("%s: %q, %v", old, files["a.go"], err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v", old, err)
		}
	}
}

func TestInvalidFilesAreRefused(t *testing.T) {
	for _, text := range []string{"why x", "mutant m\nin a\n<<<<\nx\n", "mutant m\nin a\nx\n", "mutant m\nwhat x"} {
		if _, err := parse("x", text); err == nil {
			t.Errorf("%q was read", text)
		}
	}
}
