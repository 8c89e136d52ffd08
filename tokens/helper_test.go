package tokens

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// epoch is the start of test clocks: in the middle of a second, so that rounding
// shows.
var epoch = time.Unix(1_800_000_000, 400_000_000)

// A clock stands still until it is set. The zero clock is at the epoch.
type clock struct{ since atomic.Int64 }

func (c *clock) now() time.Time      { return epoch.Add(time.Duration(c.since.Load())) }
func (c *clock) set(d time.Duration) { c.since.Store(int64(d)) }

// claims are valid for an hour.
func claims() Claims {
	return Claims{Session: "s-1", Subject: "player-1", Gen: 7, Expires: epoch.Add(time.Hour)}
}

// Private keys are slow to make, so each is made once. Tests must not change them.
var (
	rsaKey     = sync.OnceValue(func() *rsa.PrivateKey { return must(rsa.GenerateKey(rand.Reader, 2048)) })
	otherRSA   = sync.OnceValue(func() *rsa.PrivateKey { return must(rsa.GenerateKey(rand.Reader, 2048)) })
	ed25519Key = sync.OnceValue(newEd25519)
	p256Key    = sync.OnceValue(func() *ecdsa.PrivateKey { return newECDSA(elliptic.P256()) })
	p384Key    = sync.OnceValue(func() *ecdsa.PrivateKey { return newECDSA(elliptic.P384()) })
	p521Key    = sync.OnceValue(func() *ecdsa.PrivateKey { return newECDSA(elliptic.P521()) })
)

func newEd25519() ed25519.PrivateKey {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	return must(private, err)
}

func newECDSA(c elliptic.Curve) *ecdsa.PrivateKey { return must(ecdsa.GenerateKey(c, rand.Reader)) }

func newSecret() []byte {
	secret := make([]byte, 32)
	rand.Read(secret)
	return secret
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func pkcs8(private any) []byte {
	return pemOf("PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(private)))
}

func pkix(private crypto.Signer) []byte {
	return pemOf("PUBLIC KEY", must(x509.MarshalPKIXPublicKey(private.Public())))
}

// keyKinds is one key file for each algorithm.
func keyKinds() []struct {
	alg  string
	file []byte
} {
	return []struct {
		alg  string
		file []byte
	}{
		{"HS256", newSecret()},
		{"EdDSA", pkcs8(ed25519Key())},
		{"PS256", pkcs8(rsaKey())},
		{"ES256", pkcs8(p256Key())},
		{"ES384", pkcs8(p384Key())},
		{"ES512", pkcs8(p521Key())},
	}
}

// write writes data to a new file and returns its path.
func write(t testing.TB, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// replace swaps the contents of a file at once, as an operator must.
func replace(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// load loads one key file for each of contents.
func load(t testing.TB, o Options, contents ...[]byte) *Keys {
	t.Helper()
	var files []string
	for _, data := range contents {
		files = append(files, write(t, "key", data))
	}
	k, err := Load(files, o)
	if err != nil {
		t.Fatalf("load: %v", err)
	}
	return k
}

func issue(t testing.TB, k *Keys, c Claims) string {
	t.Helper()
	token, _, err := k.Issue(c)
	if err != nil {
		t.Fatalf("issue: %v", err)
	}
	return token
}

// sign makes a token of any header and claims, given as JSON text, with the method and key:
// what a forger, or a faulty gateway, would send.
func sign(t testing.TB, header, claims string, method jwt.SigningMethod, private any) string {
	t.Helper()
	text := base64url.EncodeToString([]byte(header)) + "." + base64url.EncodeToString([]byte(claims))
	signature, err := method.Sign(text, private)
	if err != nil {
		t.Fatalf("sign: %v", err)
	}
	return text + "." + base64url.EncodeToString(signature)
}
