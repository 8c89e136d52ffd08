package login

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// epoch is the time of test clocks, in the middle of a second.
var epoch = time.Unix(1_800_000_000, 400_000_000)

func atEpoch() time.Time { return epoch }

var base64url = base64.RawURLEncoding

// Private keys are slow to make, so each is made once. Tests must not change them.
var (
	rsaKey     = sync.OnceValue(newRSA)
	otherRSA   = sync.OnceValue(newRSA)
	ed25519Key = sync.OnceValue(newEd25519)
	otherEd    = sync.OnceValue(newEd25519)
	p256Key    = sync.OnceValue(func() *ecdsa.PrivateKey { return newECDSA(elliptic.P256()) })
	p384Key    = sync.OnceValue(func() *ecdsa.PrivateKey { return newECDSA(elliptic.P384()) })
	p521Key    = sync.OnceValue(func() *ecdsa.PrivateKey { return newECDSA(elliptic.P521()) })
	secretKey  = []byte("0123456789abcdefghijklmnopqrstuvwxyz")
)

func newRSA() *rsa.PrivateKey { return must(rsa.GenerateKey(rand.Reader, 2048)) }

func newEd25519() ed25519.PrivateKey {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	return must(private, err)
}

func newECDSA(c elliptic.Curve) *ecdsa.PrivateKey { return must(ecdsa.GenerateKey(c, rand.Reader)) }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func pkix(private crypto.Signer) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: must(x509.MarshalPKIXPublicKey(private.Public()))})
}

// jwk encodes the public key of a signer as a JWK, with more inserted before its end, after
// a comma.
func jwk(kid string, private crypto.Signer, more string) string {
	enc := base64url.EncodeToString
	var members string
	switch p := private.Public().(type) {
	case ed25519.PublicKey:
		members = fmt.Sprintf(`"kty":"OKP","crv":"Ed25519","x":"%s"`, enc(p))
	case *rsa.PublicKey:
		members = fmt.Sprintf(`"kty":"RSA","n":"%s","e":"AQAB"`, enc(p.N.Bytes()))
	case *ecdsa.PublicKey:
		point := must(p.Bytes())
		x, y := point[1:1+len(point)/2], point[1+len(point)/2:]
		members = fmt.Sprintf(`"kty":"EC","crv":"%s","x":"%s","y":"%s"`, p.Curve.Params().Name, enc(x), enc(y))
	}
	if kid != "" {
		members += `,"kid":` + quote(kid)
	}
	return "{" + members + more + "}"
}

func jwks(keys ...string) string { return `{"keys":[` + strings.Join(keys, ",") + `]}` }

func quote(s string) string { return string(must(json.Marshal(s))) }

// head returns a valid header, with more inserted before its end.
func head(alg, kid, more string) string {
	h := `{"alg":` + quote(alg)
	if kid != "" {
		h += `,"kid":` + quote(kid)
	}
	return h + more + "}"
}

// body returns valid claims at the epoch with some replaced: each change is
// "name:json", or "name:" to leave the claim out.
func body(changes ...string) string {
	values := map[string]string{
		"iss": `"https://id.example"`, "aud": `"arena"`, "sub": `"player-1"`,
		"iat": "1800000000", "nbf": "1800000000", "exp": "1800003600",
	}
	for _, c := range changes {
		name, value, _ := strings.Cut(c, ":")
		values[name] = value
	}
	var members []string
	for name, value := range values {
		if value != "" {
			members = append(members, fmt.Sprintf("%q:%s", name, value))
		}
	}
	return "{" + strings.Join(members, ",") + "}"
}

// sign makes a token of any header and claims, given as JSON text, with the algorithm and
// key: what a forger, or a faulty issuer, would send.
func sign(t testing.TB, header, claims, alg string, private any) string {
	t.Helper()
	text := base64url.EncodeToString([]byte(header)) + "." + base64url.EncodeToString([]byte(claims))
	signature, err := jwt.GetSigningMethod(alg).Sign(text, private)
	if err != nil {
		t.Fatalf("sign: %v", err)
	}
	return text + "." + base64url.EncodeToString(signature)
}

// edToken returns a token signed by an Ed25519 key with this kid, with claims made by body.
func edToken(t testing.TB, kid string, private ed25519.PrivateKey, changes ...string) string {
	t.Helper()
	return sign(t, head("EdDSA", kid, ""), body(changes...), "EdDSA", private)
}

// write writes data to a new file and returns its path.
func write(t testing.TB, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	replace(t, path, data)
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

// A journal is a log that can be read while it is written.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

func (j *journal) count(part string) int { return strings.Count(j.String(), part) }

func (j *journal) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// start is New at the epoch and with the test's own log, unless c says otherwise.
func start(t testing.TB, c Config) *Verifier {
	t.Helper()
	if c.Now == nil {
		c.Now = atEpoch
	}
	if c.Log == nil {
		c.Log = new(journal).logger()
	}
	v, err := New(context.Background(), c)
	if err != nil {
		t.Fatalf("new: %v", err)
	}
	t.Cleanup(v.Close)
	return v
}

// byFile returns a Verifier with a key file.
func byFile(t testing.TB, key []byte) *Verifier {
	t.Helper()
	return start(t, Config{KeyFile: write(t, "key", key), Issuer: "https://id.example", Audience: "arena"})
}

// bySet returns a Verifier with a JWKS file.
func bySet(t testing.TB, keys ...string) *Verifier {
	t.Helper()
	return start(t, Config{JWKS: write(t, "jwks.json", []byte(jwks(keys...))), Issuer: "https://id.example", Audience: "arena"})
}

// wantPlayer fails the test unless v takes the token for player-1's.
func wantPlayer(t testing.TB, v *Verifier, token string) {
	t.Helper()
	if got, err := v.Verify(context.Background(), token); got != "player-1" || err != nil {
		t.Errorf("player %q, error %v, want player-1", got, err)
	}
}

// wantRefused fails the test unless v refuses the token for this reason.
func wantRefused(t testing.TB, v *Verifier, token string, want error) {
	t.Helper()
	got, err := v.Verify(context.Background(), token)
	if got != "" || Reason(err) != Reason(want) {
		t.Errorf("player %q, error %v, want none and: %v", got, err, want)
	}
}
