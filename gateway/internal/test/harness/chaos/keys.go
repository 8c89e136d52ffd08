//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// A keyring is the signing keys' files: the newest signs, the others verify.
type keyring struct {
	dir     string
	turns   int
	content []string
}

// keyFiles is how many keys there are at a time. A cookie is never renewed, so its key
// must exist as long as a plain client gets disconnected.
const keyFiles = 12

func newKeyring(dir string) (*keyring, error) {
	k := &keyring{dir: dir}
	for range keyFiles {
		k.content = append(k.content, k.fresh())
	}
	return k, k.write()
}

func (k *keyring) fresh() string {
	k.turns++
	return fmt.Sprintf("chaos key %d, of the run in %s, long enough for HS256", k.turns, k.dir)
}

func (k *keyring) name(i int) string { return filepath.Join(k.dir, fmt.Sprintf("key%d", i)) }

func (k *keyring) write() error {
	for i, c := range k.content {
		if err := os.WriteFile(k.name(i), []byte(c), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// turn makes a new signing key; the oldest is removed.
func (k *keyring) turn() error {
	k.content = append([]string{k.fresh()}, k.content[:keyFiles-1]...)
	return k.write()
}

func (k *keyring) flags() (list []string) {
	for i := range keyFiles {
		list = append(list, "--token-key-file="+k.name(i))
	}
	return list
}
