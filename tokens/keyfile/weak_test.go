package keyfile

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWeakKeysAreReported(t *testing.T) {
	random := make([]byte, 32)
	rand.Read(random)
	_, ed, _ := ed25519.GenerateKey(rand.Reader)
	small, _ := rsa.GenerateKey(rand.Reader, 2048)
	large, _ := rsa.GenerateKey(rand.Reader, 3072)
	for name, c := range map[string]struct {
		key  any
		want string
	}{
		"random":     {Secret(random), ""},
		"one letter": {Secret(bytes.Repeat([]byte("a"), 32)), "not random"},
		"ten digits": {Secret(strings.Repeat("0123456789", 4)), "not random"},
		"Ed25519":    {ed, ""},
		"RSA 2048":   {small, ""},
		"RSA 3072":   {large, "RSA of 3072 bits"},
	} {
		if got := Weakness(c.key); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q in it", name, got, c.want)
		}
	}
}

func TestExposureOfAFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[os.FileMode]struct {
		readers  string
		writable bool
	}{
		0o600: {}, 0o400: {}, 0o640: {"its group", false}, 0o644: {"everybody on this machine", false}, 0o666: {"everybody on this machine", true}, 0o602: {"", true},
	} {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
		if readers, writable := Exposure(name); readers != want.readers || writable != want.writable {
			t.Errorf("mode %o: %q %v, want %+v", mode, readers, writable, want)
		}
	}
	if readers, writable := Exposure(name + "none"); readers != "" || writable {
		t.Errorf("no file: %q %v", readers, writable)
	}
}
