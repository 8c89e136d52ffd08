package tokens

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"os"
	"testing"
)

func derive(t *testing.T, k *Keys, purpose string) [][]byte {
	t.Helper()
	return must(k.Derive(purpose, 32))
}

func TestSameKeyDerivesTheSameInEveryForm(t *testing.T) {
	block := func(kind string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}) }
	for name, forms := range map[string][2][]byte{
		"rsa":    {pkcs8(rsaKey()), block("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(rsaKey()))},
		"ecdsa":  {pkcs8(p256Key()), block("EC PRIVATE KEY", must(x509.MarshalECPrivateKey(p256Key())))},
		"secret": {[]byte("0123456789abcdefghijklmnopqrstuvwxyz"), []byte("0123456789abcdefghijklmnopqrstuvwxyz\n")},
	} {
		a, b := derive(t, load(t, Options{}, forms[0]), "x"), derive(t, load(t, Options{}, forms[1]), "x")
		if len(a) != 1 || len(b) != 1 || !bytes.Equal(a[0], b[0]) {
			t.Errorf("%s: %x and %x", name, a, b)
		}
	}
}

func TestEachPrivateKeyDerivesInOrderAndPublicKeysNothing(t *testing.T) {
	all := derive(t, load(t, Options{}, pkcs8(ed25519Key()), pkix(rsaKey()), pkcs8(p256Key()), pkcs8(ed25519Key())), "x")
	first, second := derive(t, load(t, Options{}, pkcs8(ed25519Key())), "x"), derive(t, load(t, Options{}, pkcs8(p256Key())), "x")
	if len(all) != 2 || !bytes.Equal(all[0], first[0]) || !bytes.Equal(all[1], second[0]) {
		t.Errorf("%x, want %x and %x", all, first, second)
	}
	if other := derive(t, load(t, Options{}, pkcs8(ed25519Key())), "y"); bytes.Equal(other[0], first[0]) {
		t.Error("two purposes derive the same")
	}
	if bytes.Contains(first[0], ed25519Key().Seed()) {
		t.Error("what is derived holds the key")
	}
}

func TestReloadDerivesFromTheNewKeys(t *testing.T) {
	k := load(t, Options{}, newSecret())
	before := derive(t, k, "x")
	if err := os.WriteFile(k.files[0], newSecret(), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := k.Reload(); err != nil {
		t.Fatal(err)
	}
	if after := derive(t, k, "x"); bytes.Equal(before[0], after[0]) {
		t.Error("the old key is still derived from")
	}
}
