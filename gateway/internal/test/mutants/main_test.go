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

const patience = 2 * time.Minute

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// The short form of make mutants: those whose packages are small.
func TestPlantedBugsAreNoticed(t *testing.T) {
	list, err := choose(root(t), "^bytes/(top-bit|mask-tail|trim-off-by-one|seventeen-digits)$|^tokens/spent-")
	if err != nil || len(list) != 6 {
		t.Fatalf("%d mutants, %v", len(list), err)
	}
	for _, r := range tryAll(t.Context(), root(t), list, 2, patience) {
		if r.err != nil || !strings.HasPrefix(r.noticed, "Test") {
			t.Errorf("%s: noticed by %q, %v", r.Name, r.noticed, r.err)
		}
	}
}

// What is no bug is noticed by nobody, and what does not compile is no bug either.
func TestWhatIsNoBugIsNotNoticed(t *testing.T) {
	harmless := mutant.Mutant{Name: "x", Why: "a comment", Tests: []string{"./tokens/generation"}, Edits: []mutant.Edit{
		{File: "tokens/generation/generation.go", Old: "// Issued returns the newest", New: "// Issued gives the newest"},
	}}
	if r := try(t.Context(), root(t), harmless, patience); r.noticed != "" || r.err != nil {
		t.Errorf("noticed by %q, %v", r.noticed, r.err)
	}
	senseless := harmless
	senseless.Edits = []mutant.Edit{{File: "tokens/generation/generation.go", Old: "return l.issued + 1", New: "return l.nothing"}}
	if r := try(t.Context(), root(t), senseless, patience); r.noticed != "" || r.err == nil || !strings.Contains(r.err.Error(), "does not compile") {
		t.Errorf("noticed by %q, %v", r.noticed, r.err)
	}
	if status := tell([]result{{Mutant: harmless}}); status != 1 {
		t.Errorf("status %d for a bug that nobody noticed", status)
	}
}

// The proof page says how many are planted where.
func TestTheProofPageCountsEveryMutant(t *testing.T) {
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
		"session": "the session core", "bytes": "replay buffer, frames, control messages", "tokens": "tokens and generations",
		"drivers": "the two drivers", "client": "the browser client", "gateway": "the gateway itself", "parts": "TLS, webhooks, settings, logins, Go client",
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
