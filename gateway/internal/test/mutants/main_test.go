package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"reseat/gateway/internal/test/mutants/mutant"
)

const timeout = 10 * time.Minute

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// The short form of make mutants: only small packages.
func TestPlantedBugsAreDetected(t *testing.T) {
	list, err := choose(root(t), "^bytes/(top-bit|mask-tail|trim-off-by-one|seventeen-digits)$|^tokens/spent-")
	if err != nil || len(list) != 6 {
		t.Fatalf("%d mutants, %v", len(list), err)
	}
	for _, r := range tryAll(t.Context(), root(t), list, 2, timeout) {
		if r.err != nil || !strings.HasPrefix(r.detected, "Test") {
			t.Errorf("%s: noticed by %q, %v", r.Name, r.detected, r.err)
		}
	}
}

// A change that is no bug is not detected, and a change that does not compile is no bug
// either.
func TestHarmlessChangeIsNotDetected(t *testing.T) {
	harmless := mutant.Mutant{Name: "x", Why: "a comment", Tests: []string{"./tokens/generation"}, Edits: []mutant.Edit{
		{File: "tokens/generation/generation.go", Old: "// Issued returns the newest", New: "// Issued gives the newest"},
	}}
	if r := try(t.Context(), root(t), harmless, nil, timeout); r.detected != "" || r.err != nil {
		t.Errorf("noticed by %q, %v", r.detected, r.err)
	}
	senseless := harmless
	senseless.Edits = []mutant.Edit{{File: "tokens/generation/generation.go", Old: "return l.issued + 1", New: "return l.nothing"}}
	if r := try(t.Context(), root(t), senseless, nil, timeout); r.detected != "" || r.err == nil || !strings.Contains(r.err.Error(), "does not compile") {
		t.Errorf("noticed by %q, %v", r.detected, r.err)
	}
	if status := printTable([]result{{Mutant: harmless}}); status != 1 {
		t.Errorf("status %d for an undetected bug", status)
	}
}

// Tests that fail without a mutant detect nothing, even if others in the package would.
func TestFailingBaselineDetectsNothing(t *testing.T) {
	dir := module(t, map[string]string{
		"good/a.go":        "package good\n\nconst One = 1\n",
		"good/a_test.go":   "package good\n\nimport \"testing\"\n\nfunc TestOne(t *testing.T) {\n\tif One != 1 {\n\t\tt.Fail()\n\t}\n}\n",
		"broken/a_test.go": "package broken\n\nimport \"testing\"\n\nfunc TestAnyway(t *testing.T) { t.Fail() }\n",
		"torn/a_test.go":   "package torn\n\nfunc\n",
	})
	planted := func(tests ...string) mutant.Mutant {
		return mutant.Mutant{Name: "x", Why: "not one", Tests: tests, Edits: []mutant.Edit{{File: "good/a.go", Old: "= 1", New: "= 2"}}}
	}
	results := tryAll(t.Context(), dir, []mutant.Mutant{planted("./good"), planted("./good", "./broken"), planted("./torn")}, 2, timeout)
	for i, want := range []string{"", "./broken without any mutant: fails at TestAnyway", "./torn without any mutant: does not compile"} {
		r := results[i]
		if want == "" && (r.err != nil || r.detected != "TestOne") {
			t.Errorf("where the tests pass: noticed by %q, %v", r.detected, r.err)
		}
		if want != "" && (r.err == nil || !strings.HasPrefix(r.err.Error(), want) || r.detected != "") {
			t.Errorf("noticed by %q, %v, want %s", r.detected, r.err, want)
		}
	}
	if status := printTable(results); status != 2 {
		t.Errorf("status %d", status)
	}
}

// module writes a module with these files, and returns its directory.
func module(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	files["go.mod"] = "module m\n"
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// docs/proof.md says how many mutants there are of each kind.
func TestProofPageCountsEveryMutant(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root(t), "docs/proof.md"))
	if err != nil {
		t.Fatal(err)
	}
	list, err := choose(root(t), "")
	if err != nil {
		t.Fatal(err)
	}
	planted := map[string]int{}
	for _, m := range list {
		file, _, _ := strings.Cut(m.Name, "/")
		planted[file]++
	}
	rows := map[string]string{
		"session": "the session core", "bytes": "replay buffer, frames, control messages", "decoders": "decoders of outside input: frames, deflate, upgrade channel, control messages",
		"tokens": "tokens and generations, logins, key files, strict JSON",
		"state":  "a frozen session: each field left out", "records": "a session's record in an upgrade: each field left out", "drivers": "the two drivers", "client": "the browser client", "gateway": "the gateway itself", "parts": "TLS, webhooks, settings, logins, compression, Go client", "cluster": "the cluster", "seats": "seats of durable sessions", "owners": "owners of durable sessions: claims, hand-offs, fencing", "games": "the counting game server in Go",
	}
	for file, n := range planted {
		if row := fmt.Sprintf("\n| %s | %d |", rows[file], n); !strings.Contains(string(page), row) {
			t.Errorf("%d mutants in %s: no row %q", n, file, row)
		}
	}
	if sum := fmt.Sprintf("| **together** | **%d** | **%d noticed** |", len(list), len(list)); !strings.Contains(string(page), sum) {
		t.Errorf("no row %q", sum)
	}
}
