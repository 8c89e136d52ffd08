package tokens

import (
	"bytes"
	"crypto/x509"
	"os"
	"testing"

	"reseat/tokens/internal/jwttest"
)

func derive(t *testing.T, k *Keys, purpose string) [][]byte {
	t.Helper()
	return jwttest.Must(k.Derive(purpose, 32))
}

func TestSameKeyDerivesTheSameInEveryForm(t *testing.T) {
	for name, forms := range map[string][2][]byte{
		"rsa":    {jwttest.PKCS8(jwttest.RSA()), jwttest.PEM("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(jwttest.RSA()))},
		"ecdsa":  {jwttest.PKCS8(jwttest.P256()), jwttest.PEM("EC PRIVATE KEY", jwttest.Must(x509.MarshalECPrivateKey(jwttest.P256())))},
		"secret": {[]byte("0123456789abcdefghijklmnopqrstuvwxyz"), []byte("0123456789abcdefghijklmnopqrstuvwxyz\n")},
	} {
		a, b := derive(t, load(t, Options{}, forms[0]), "x"), derive(t, load(t, Options{}, forms[1]), "x")
		if len(a) != 1 || len(b) != 1 || !bytes.Equal(a[0], b[0]) {
			t.Errorf("%s: %x and %x", name, a, b)
		}
	}
}

func TestEachPrivateKeyDerivesInOrderAndPublicKeysNothing(t *testing.T) {
	all := derive(t, load(t, Options{}, jwttest.PKCS8(jwttest.Ed25519()), jwttest.PKIX(jwttest.RSA()), jwttest.PKCS8(jwttest.P256()), jwttest.PKCS8(jwttest.Ed25519())), "x")
	first, second := derive(t, load(t, Options{}, jwttest.PKCS8(jwttest.Ed25519())), "x"), derive(t, load(t, Options{}, jwttest.PKCS8(jwttest.P256())), "x")
	if len(all) != 2 || !bytes.Equal(all[0], first[0]) || !bytes.Equal(all[1], second[0]) {
		t.Errorf("%x, want %x and %x", all, first, second)
	}
	if other := derive(t, load(t, Options{}, jwttest.PKCS8(jwttest.Ed25519())), "y"); bytes.Equal(other[0], first[0]) {
		t.Error("two purposes derive the same")
	}
	if bytes.Contains(first[0], jwttest.Ed25519().Seed()) {
		t.Error("what is derived holds the key")
	}
}

func TestReloadDerivesFromTheNewKeys(t *testing.T) {
	k := load(t, Options{}, jwttest.NewSecret())
	before := derive(t, k, "x")
	if err := os.WriteFile(k.files[0], jwttest.NewSecret(), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := k.Reload(); err != nil {
		t.Fatal(err)
	}
	if after := derive(t, k, "x"); bytes.Equal(before[0], after[0]) {
		t.Error("the old key is still derived from")
	}
}
