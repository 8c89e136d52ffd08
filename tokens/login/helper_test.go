package login

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"reseat/tokens/internal/jwttest"
)

func atEpoch() time.Time { return jwttest.Epoch }

// jwk encodes the public key of a signer as a JWK, with more inserted before its end, after
// a comma.
func jwk(kid string, private crypto.Signer, more string) string {
	enc := jwttest.Encode[[]byte]
	var members string
	switch p := private.Public().(type) {
	case ed25519.PublicKey:
		members = fmt.Sprintf(`"kty":"OKP","crv":"Ed25519","x":"%s"`, enc(p))
	case *rsa.PublicKey:
		members = fmt.Sprintf(`"kty":"RSA","n":"%s","e":"AQAB"`, enc(p.N.Bytes()))
	case *ecdsa.PublicKey:
		point := jwttest.Must(p.Bytes())
		x, y := point[1:1+len(point)/2], point[1+len(point)/2:]
		members = fmt.Sprintf(`"kty":"EC","crv":"%s","x":"%s","y":"%s"`, p.Curve.Params().Name, enc(x), enc(y))
	}
	if kid != "" {
		members += `,"kid":` + jwttest.Quote(kid)
	}
	return "{" + members + more + "}"
}

func jwks(keys ...string) string { return `{"keys":[` + strings.Join(keys, ",") + `]}` }

// head returns a valid header, with more inserted before its end.
func head(alg, kid, more string) string {
	h := `{"alg":` + jwttest.Quote(alg)
	if kid != "" {
		h += `,"kid":` + jwttest.Quote(kid)
	}
	return h + more + "}"
}

// contents are valid claims at the epoch.
var contents = map[string]string{
	"iss": `"https://id.example"`, "aud": `"arena"`, "sub": `"player-1"`,
	"iat": "1800000000", "nbf": "1800000000", "exp": "1800003600",
}

// body returns them with changes: see jwttest.Object.
func body(changes ...string) string { return jwttest.Object(contents, changes...) }

// edToken returns a token signed by an Ed25519 key with this kid, with claims made by body.
func edToken(t testing.TB, kid string, private ed25519.PrivateKey, changes ...string) string {
	t.Helper()
	return jwttest.Sign(t, head("EdDSA", kid, ""), body(changes...), "EdDSA", private)
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

// start is New at the jwttest.Epoch and with the test's own log, unless c says otherwise.
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
	return start(t, Config{KeyFile: jwttest.Write(t, "key", key), Issuer: "https://id.example", Audience: "arena"})
}

// bySet returns a Verifier with a JWKS file.
func bySet(t testing.TB, keys ...string) *Verifier {
	t.Helper()
	return start(t, Config{JWKS: jwttest.Write(t, "jwks.json", []byte(jwks(keys...))), Issuer: "https://id.example", Audience: "arena"})
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
