package tokens

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// Of two concurrent Reloads, the one that began later has read the newer file, and its keys
// must stay. So it must not read before the first one has stored its keys.
func TestReloadsAreSerialized(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	write := func(secret string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(strings.Repeat(secret, 8)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("an older")
	k, err := Load([]string{file}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	older := k.SigningKeyID()
	k.reload.Lock() // a Reload that has read the older key, and not stored it yet
	write("the new!")
	done := make(chan error)
	go func() { done <- k.Reload() }()
	for range 10_000 { // long enough
		runtime.Gosched()
		if k.SigningKeyID() != older {
			t.Fatal("a Reload does not wait for the one before it, whose older keys would then replace the newer")
		}
	}
	k.reload.Unlock()
	if err := <-done; err != nil || k.SigningKeyID() == older {
		t.Errorf("the newer key is not in force: %v", err)
	}
}
