//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// A keyring is the signing keys' files: the newest signs, the others verify.
type keyring struct {
	dir   string
	turns int
}

// keyFiles is how many keys there are at a time. A cookie is never renewed, so its key
// must exist as long as a plain client gets disconnected.
const keyFiles = 12

func (k *keyring) name(i int) string { return filepath.Join(k.dir, fmt.Sprintf("key%d", i)) }

// turn makes a new signing key; the oldest is removed.
func (k *keyring) turn() error {
	k.turns++
	for i := range keyFiles {
		text := fmt.Sprintf("chaos key %d, of the run in %s, long enough for HS256", k.turns-i, k.dir)
		if err := os.WriteFile(k.name(i), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (k *keyring) flags() (list []string) {
	for i := range keyFiles {
		list = append(list, "--token-key-file="+k.name(i))
	}
	return list
}
