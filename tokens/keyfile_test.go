package tokens

import (
	"bytes"
	"crypto/ecdh"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/golang-jwt/jwt/v5"

	"reseat/tokens/internal/jwttest"
	"reseat/tokens/keyfile"
)

func TestEveryEncodingOfAKeyIsRead(t *testing.T) {
	for _, tt := range []struct {
		name string
		data []byte
		alg  string
		same []byte // another encoding of the same key
	}{
		{"PKCS #1", jwttest.PEM("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(jwttest.RSA())), "PS256", jwttest.PKCS8(jwttest.RSA())},
		{"SEC 1, P-256", jwttest.PEM("EC PRIVATE KEY", jwttest.Must(x509.MarshalECPrivateKey(jwttest.P256()))), "ES256", jwttest.PKCS8(jwttest.P256())},
		{"SEC 1, P-384", jwttest.PEM("EC PRIVATE KEY", jwttest.Must(x509.MarshalECPrivateKey(jwttest.P384()))), "ES384", jwttest.PKCS8(jwttest.P384())},
		{"SEC 1, P-521", jwttest.PEM("EC PRIVATE KEY", jwttest.Must(x509.MarshalECPrivateKey(jwttest.P521()))), "ES512", jwttest.PKCS8(jwttest.P521())},
		{"SEC 1 behind its parameters", append(jwttest.PEM("EC PARAMETERS", []byte{6, 8, 42, 134, 72, 206, 61, 3, 1, 7}),
			jwttest.PEM("EC PRIVATE KEY", jwttest.Must(x509.MarshalECPrivateKey(jwttest.P256())))...), "ES256", jwttest.PKCS8(jwttest.P256())},
		{"PKCS #1 public", jwttest.PEM("RSA PUBLIC KEY", x509.MarshalPKCS1PublicKey(&jwttest.RSA().PublicKey)), "PS256", jwttest.PKIX(jwttest.RSA())},
		{"text before the key", append([]byte("Bag Attributes\n    friendlyName: reseat\n"), jwttest.PKCS8(jwttest.Ed25519())...), "EdDSA", jwttest.PKCS8(jwttest.Ed25519())},
		{"Windows line breaks", bytes.ReplaceAll(jwttest.PKCS8(jwttest.Ed25519()), []byte("\n"), []byte("\r\n")), "EdDSA", jwttest.PKCS8(jwttest.Ed25519())},
	} {
		got, err := parseKey(tt.data)
		want := jwttest.Must(parseKey(tt.same))
		if err != nil || got.method.Alg() != tt.alg || got.id != want.id {
			t.Errorf("%s: kid %q, error %v, want %s and %q", tt.name, got.id, err, tt.alg, want.id)
		}
	}
}

func TestUnusableKeyFilesAreRefusedWithTheReason(t *testing.T) {
	der := jwttest.Must(x509.MarshalPKCS8PrivateKey(jwttest.Ed25519()))
	var utf16PEM []byte
	for _, u := range utf16.Encode([]rune(string(jwttest.PKIX(jwttest.Ed25519())))) {
		utf16PEM = append(utf16PEM, byte(u), byte(u>>8))
	}
	x25519 := jwttest.Must(ecdh.X25519().GenerateKey(rand.Reader))
	for _, tt := range []struct {
		name string
		data []byte
		want string
	}{
		{"empty", nil, "got 0 bytes"},
		{"31 bytes", jwttest.NewSecret()[:31], "got 31 bytes"},
		{"31 characters and a line break", append(bytes.Repeat([]byte("abcdefgh"), 4)[:31], '\n'), "got 31 bytes"},
		{"zeros", make([]byte, 64), "zero bytes"},
		{"larger than 64 KiB", bytes.Repeat(jwttest.NewSecret(), 2049), "larger than 65536 bytes"},
		{"RSA of 1024 bits", pkcs8Lax(t, 1024), "1024"},
		{"RSA of 16384 bits, public", jwttest.PEM("PUBLIC KEY", hugeRSA(t)), "16384 bits"},
		{"P-224", jwttest.PKCS8(jwttest.NewECDSA(elliptic.P224())), "P-224: want P-256"},
		{"X25519", jwttest.PEM("PRIVATE KEY", jwttest.Must(x509.MarshalPKCS8PrivateKey(x25519))), "*ecdh.PrivateKey: want Ed25519, RSA or ECDSA"},
		{"certificate", jwttest.PEM("CERTIFICATE", []byte{1, 2, 3}), `type "CERTIFICATE"`},
		{"OpenSSH private key", jwttest.PEM("OPENSSH PRIVATE KEY", []byte{1, 2, 3}), `type "OPENSSH PRIVATE KEY"`},
		{"encrypted PKCS #8", jwttest.PEM("ENCRYPTED PRIVATE KEY", []byte{1, 2, 3}), "is encrypted"},
		{"encrypted PKCS #1", pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: []byte{1},
			Headers: map[string]string{"Proc-Type": "4,ENCRYPTED", "DEK-Info": "AES-256-CBC,00"}}), "is encrypted"},
		{"damaged DER in PEM", jwttest.PEM("PRIVATE KEY", der[:20]), "PRIVATE KEY: "},
		{"wrong label", jwttest.PEM("EC PRIVATE KEY", der), "EC PRIVATE KEY: "},
		{"cut off", jwttest.PKCS8(jwttest.RSA())[:400], "truncated or damaged"},
		{"damaged base64", bytes.Replace(jwttest.PKCS8(jwttest.RSA()), []byte("\nM"), []byte("\n!"), 1), "truncated or damaged"},
		{"key and a cut off one", append(jwttest.PKCS8(jwttest.Ed25519()), jwttest.PKCS8(jwttest.RSA())[:400]...), "truncated or damaged"},
		{"two keys", append(jwttest.PKCS8(jwttest.Ed25519()), jwttest.PKCS8(jwttest.P256())...), "more than one"},
		{"parameters alone", jwttest.PEM("EC PARAMETERS", []byte{1}), "truncated or damaged"},
		{"private key in DER", der, "in DER"},
		{"public key in DER", jwttest.Must(x509.MarshalPKIXPublicKey(&jwttest.RSA().PublicKey)), "in DER"},
		{"public key in PKCS #1 DER", x509.MarshalPKCS1PublicKey(&jwttest.RSA().PublicKey), "in DER"},
		{"PEM in UTF-16", utf16PEM, "UTF-16"},
		{"PEM in base64", []byte(base64.StdEncoding.EncodeToString(jwttest.PKIX(jwttest.RSA()))), "base64 once more"},
		{"OpenSSH public key", []byte("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIP reseat@example\n"), "OpenSSH public key"},
		{"JWK", []byte(`{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}`), "JWK"},
	} {
		path := jwttest.Write(t, "bad.key", tt.data)
		_, err := Load([]string{path}, Options{})
		wantError(t, err, "token key file "+path+": ", tt.want)
	}
}

// pkcs8Lax encodes RSA keys that are smaller than crypto/rsa allows by default.
func pkcs8Lax(t *testing.T, bits int) []byte {
	t.Setenv("GODEBUG", "rsa1024min=0")
	return jwttest.PKCS8(jwttest.Must(rsa.GenerateKey(rand.Reader, bits)))
}

// hugeRSA is a public key with a modulus of unknown factors.
func hugeRSA(t *testing.T) []byte {
	t.Helper()
	k := jwttest.RSA().PublicKey
	huge := rsa.PublicKey{N: jwttest.Must(rand.Prime(rand.Reader, 64)), E: k.E}
	huge.N.SetBit(huge.N, 16383, 1)
	return jwttest.Must(x509.MarshalPKIXPublicKey(&huge))
}

// Shells write secrets with or without a line break; random bytes may end in the byte of
// one.
func TestLineBreakBelongsToABinarySecretOnly(t *testing.T) {
	text := []byte(hex.EncodeToString(jwttest.NewSecret()))
	id := jwttest.Must(parseKey(text)).id
	for _, end := range []string{"\n", "\r\n", "\n\n"} {
		if got := jwttest.Must(parseKey(append(bytes.Clone(text), end...))).id; got != id {
			t.Errorf("text ending in %q is another key", end)
		}
	}
	if jwttest.Must(parseKey(append(bytes.Clone(text), ' '))).id == id {
		t.Error("a blank at the end of a text makes no difference")
	}
	binary := append(jwttest.NewSecret()[:30], 0x80, '\n')
	k, err := parseKey(binary)
	if err != nil || len(k.private.([]byte)) != 32 {
		t.Errorf("32 random bytes, the last a line feed: %v, want all of them as the key", err)
	}
}

func TestSecretsOf32BytesAndMoreAreRead(t *testing.T) {
	for _, n := range []int{32, 33, 64, 4096, keyfile.MaxLen} {
		secret := make([]byte, n)
		rand.Read(secret)
		k, err := readKey(jwttest.Write(t, "secret", secret))
		if err != nil || k.method != jwt.SigningMethodHS256 || !bytes.Equal(k.private.([]byte), secret) {
			t.Errorf("%d random bytes: %v", n, err)
		}
	}
}

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
