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
	"path/filepath"
	"testing"
	"unicode/utf16"

	"github.com/golang-jwt/jwt/v5"

	"reseat/tokens/keyfile"
)

func TestEveryEncodingOfAKeyIsRead(t *testing.T) {
	for _, tt := range []struct {
		name string
		data []byte
		alg  string
		same []byte // another encoding of the same key
	}{
		{"PKCS #1", pemOf("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(rsaKey())), "PS256", pkcs8(rsaKey())},
		{"SEC 1, P-256", pemOf("EC PRIVATE KEY", must(x509.MarshalECPrivateKey(p256Key()))), "ES256", pkcs8(p256Key())},
		{"SEC 1, P-384", pemOf("EC PRIVATE KEY", must(x509.MarshalECPrivateKey(p384Key()))), "ES384", pkcs8(p384Key())},
		{"SEC 1, P-521", pemOf("EC PRIVATE KEY", must(x509.MarshalECPrivateKey(p521Key()))), "ES512", pkcs8(p521Key())},
		{"SEC 1 behind its parameters", append(pemOf("EC PARAMETERS", []byte{6, 8, 42, 134, 72, 206, 61, 3, 1, 7}),
			pemOf("EC PRIVATE KEY", must(x509.MarshalECPrivateKey(p256Key())))...), "ES256", pkcs8(p256Key())},
		{"PKCS #1 public", pemOf("RSA PUBLIC KEY", x509.MarshalPKCS1PublicKey(&rsaKey().PublicKey)), "PS256", pkix(rsaKey())},
		{"text before the key", append([]byte("Bag Attributes\n    friendlyName: reseat\n"), pkcs8(ed25519Key())...), "EdDSA", pkcs8(ed25519Key())},
		{"Windows line breaks", bytes.ReplaceAll(pkcs8(ed25519Key()), []byte("\n"), []byte("\r\n")), "EdDSA", pkcs8(ed25519Key())},
	} {
		got, err := parseKey(tt.data)
		want := must(parseKey(tt.same))
		if err != nil || got.method.Alg() != tt.alg || got.id != want.id {
			t.Errorf("%s: kid %q, error %v, want %s and %q", tt.name, got.id, err, tt.alg, want.id)
		}
	}
}

func TestUnusableKeyFilesAreRefusedWithTheReason(t *testing.T) {
	der := must(x509.MarshalPKCS8PrivateKey(ed25519Key()))
	var utf16PEM []byte
	for _, u := range utf16.Encode([]rune(string(pkix(ed25519Key())))) {
		utf16PEM = append(utf16PEM, byte(u), byte(u>>8))
	}
	x25519 := must(ecdh.X25519().GenerateKey(rand.Reader))
	for _, tt := range []struct {
		name string
		data []byte
		want string
	}{
		{"empty", nil, "got 0 bytes"},
		{"31 bytes", newSecret()[:31], "got 31 bytes"},
		{"31 characters and a line break", append(bytes.Repeat([]byte("abcdefgh"), 4)[:31], '\n'), "got 31 bytes"},
		{"zeros", make([]byte, 64), "zero bytes"},
		{"larger than 64 KiB", bytes.Repeat(newSecret(), 2049), "larger than 65536 bytes"},
		{"RSA of 1024 bits", pkcs8Lax(t, 1024), "1024"},
		{"RSA of 16384 bits, public", pemOf("PUBLIC KEY", hugeRSA(t)), "16384 bits"},
		{"P-224", pkcs8(newECDSA(elliptic.P224())), "P-224: want P-256"},
		{"X25519", pemOf("PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(x25519))), "*ecdh.PrivateKey: want Ed25519, RSA or ECDSA"},
		{"certificate", pemOf("CERTIFICATE", []byte{1, 2, 3}), `type "CERTIFICATE"`},
		{"OpenSSH private key", pemOf("OPENSSH PRIVATE KEY", []byte{1, 2, 3}), `type "OPENSSH PRIVATE KEY"`},
		{"encrypted PKCS #8", pemOf("ENCRYPTED PRIVATE KEY", []byte{1, 2, 3}), "is encrypted"},
		{"encrypted PKCS #1", pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: []byte{1},
			Headers: map[string]string{"Proc-Type": "4,ENCRYPTED", "DEK-Info": "AES-256-CBC,00"}}), "is encrypted"},
		{"damaged DER in PEM", pemOf("PRIVATE KEY", der[:20]), "PRIVATE KEY: "},
		{"wrong label", pemOf("EC PRIVATE KEY", der), "EC PRIVATE KEY: "},
		{"cut off", pkcs8(rsaKey())[:400], "truncated or damaged"},
		{"damaged base64", bytes.Replace(pkcs8(rsaKey()), []byte("\nM"), []byte("\n!"), 1), "truncated or damaged"},
		{"key and a cut off one", append(pkcs8(ed25519Key()), pkcs8(rsaKey())[:400]...), "truncated or damaged"},
		{"two keys", append(pkcs8(ed25519Key()), pkcs8(p256Key())...), "more than one"},
		{"parameters alone", pemOf("EC PARAMETERS", []byte{1}), "truncated or damaged"},
		{"private key in DER", der, "in DER"},
		{"public key in DER", must(x509.MarshalPKIXPublicKey(&rsaKey().PublicKey)), "in DER"},
		{"public key in PKCS #1 DER", x509.MarshalPKCS1PublicKey(&rsaKey().PublicKey), "in DER"},
		{"PEM in UTF-16", utf16PEM, "UTF-16"},
		{"PEM in base64", []byte(base64.StdEncoding.EncodeToString(pkix(rsaKey()))), "base64 once more"},
		{"OpenSSH public key", []byte("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIP reseat@example\n"), "OpenSSH public key"},
		{"JWK", []byte(`{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}`), "JWK"},
	} {
		path := write(t, "bad.key", tt.data)
		_, err := Load([]string{path}, Options{})
		wantError(t, err, "token key file "+path+": ", tt.want)
	}
}

// pkcs8Lax encodes RSA keys that are smaller than crypto/rsa allows by default.
func pkcs8Lax(t *testing.T, bits int) []byte {
	t.Setenv("GODEBUG", "rsa1024min=0")
	return pkcs8(must(rsa.GenerateKey(rand.Reader, bits)))
}

// hugeRSA is a public key with a modulus of unknown factors.
func hugeRSA(t *testing.T) []byte {
	t.Helper()
	k := rsaKey().PublicKey
	huge := rsa.PublicKey{N: must(rand.Prime(rand.Reader, 64)), E: k.E}
	huge.N.SetBit(huge.N, 16383, 1)
	return must(x509.MarshalPKIXPublicKey(&huge))
}

func TestMissingFileIsNamedOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "absent.key")
	_, err := Load([]string{write(t, "key", newSecret()), path}, Options{})
	wantError(t, err, "token key file "+path+": open: ")
	if err != nil && bytes.Count([]byte(err.Error()), []byte(path)) != 1 {
		t.Errorf("the error does not contain the path exactly once: %v", err)
	}
	_, err = Load([]string{t.TempDir()}, Options{})
	wantError(t, err, "is a directory")
}

// Shells write secrets with or without a line break; random bytes may end in the byte of
// one.
func TestLineBreakBelongsToABinarySecretOnly(t *testing.T) {
	text := []byte(hex.EncodeToString(newSecret()))
	id := must(parseKey(text)).id
	for _, end := range []string{"\n", "\r\n", "\n\n"} {
		if got := must(parseKey(append(bytes.Clone(text), end...))).id; got != id {
			t.Errorf("text ending in %q is another key", end)
		}
	}
	if must(parseKey(append(bytes.Clone(text), ' '))).id == id {
		t.Error("a blank at the end of a text makes no difference")
	}
	binary := append(newSecret()[:30], 0x80, '\n')
	k, err := parseKey(binary)
	if err != nil || len(k.private.([]byte)) != 32 {
		t.Errorf("32 random bytes, the last a line feed: %v, want all of them as the key", err)
	}
}

func TestSecretsOf32BytesAndMoreAreRead(t *testing.T) {
	for _, n := range []int{32, 33, 64, 4096, keyfile.MaxLen} {
		secret := make([]byte, n)
		rand.Read(secret)
		k, err := readKey(write(t, "secret", secret))
		if err != nil || k.method != jwt.SigningMethodHS256 || !bytes.Equal(k.private.([]byte), secret) {
			t.Errorf("%d random bytes: %v", n, err)
		}
	}
}
