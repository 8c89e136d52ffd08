package login

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"reseat/tokens/internal/jws"
	"reseat/tokens/internal/jwttest"
)

// A forge makes bad tokens for a gateway whose JWKS comes by URL and holds an Ed25519
// key ed, an RSA key rsa that its alg pins to RS256, an RSA key free without alg, and
// a P-256 key ec.
type forge struct {
	*jwttest.Forge
	v       *Verifier
	journal *journal
	fetches atomic.Int32 // of the JWKS
}

func newForge(t *testing.T) *forge {
	f := &forge{journal: new(journal)}
	f.Forge = jwttest.NewForge(t, jwttest.Forge{Header: map[string]string{"alg": `"EdDSA"`, "kid": `"ed"`}, Claims: contents, MaxLen: MaxLen, Most: maxMembers})
	keys := jwks(jwk("ed", jwttest.Ed25519(), ""), jwk("rsa", jwttest.RSA(), `,"alg":"RS256"`), jwk("free", jwttest.OtherRSA(), ""), jwk("ec", jwttest.P256(), ""))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		f.fetches.Add(1)
		fmt.Fprint(w, keys)
	}))
	t.Cleanup(server.Close)
	c := Config{JWKS: server.URL, Issuer: "https://id.example", Audience: "arena", Log: f.journal.logger(), Now: atEpoch}
	f.v = jwttest.Must(open(context.Background(), c, overNetwork()))
	t.Cleanup(f.v.Close)
	return f
}

// confusions: valid keys used with another algorithm.
func (f *forge) confusions() []jwttest.Bad {
	rsaKey, edPublic := jwttest.RSA(), jwttest.Ed25519().Public().(ed25519.PublicKey)
	var out []jwttest.Bad
	for _, c := range []struct {
		what, alg, kid string
		key            any
	}{
		{"the RSA public key in PEM", "HS256", "rsa", jwttest.PKIX(rsaKey)},
		{"the RSA public key in DER", "HS256", "rsa", jwttest.Must(x509.MarshalPKIXPublicKey(&rsaKey.PublicKey))},
		{"the RSA public key in PKCS #1", "HS256", "rsa", x509.MarshalPKCS1PublicKey(&rsaKey.PublicKey)},
		{"the RSA modulus", "HS256", "rsa", rsaKey.N.Bytes()},
		{"the JWK", "HS256", "rsa", []byte(jwk("rsa", rsaKey, `,"alg":"RS256"`))},
		{"the Ed25519 public key", "HS256", "ed", []byte(edPublic)},
		{"the P-256 public key in PEM", "HS256", "ec", jwttest.PKIX(jwttest.P256())},
		{"the key pinned to RS256", "RS384", "rsa", rsaKey},
		{"the key pinned to RS256", "RS512", "rsa", rsaKey},
		{"the key pinned to RS256", "PS256", "rsa", rsaKey},
		{"another RSA key", "RS256", "rsa", jwttest.OtherRSA()},
		{"another key under the P-256 key's kid", "ES384", "ec", jwttest.P384()},
		{"the RSA key's kid", "ES256", "free", jwttest.P256()},
		{"the RSA key's kid", "EdDSA", "rsa", jwttest.Ed25519()},
	} {
		token := jwttest.Sign(f.T, head(c.alg, c.kid, ""), body(), c.alg, c.key)
		out = append(out, jwttest.Bad{Name: c.alg + " with " + c.what, Token: token, Reason: "forged"})
	}
	lied := jwttest.Sign(f.T, head("PS256", "free", ""), body(), "RS256", jwttest.OtherRSA())
	return append(out, jwttest.Bad{Name: "RS256 signature under alg PS256", Token: lied, Reason: "forged"})
}

// own: what only logins have, or may not have.
func (f *forge) own() []jwttest.Bad {
	out := []jwttest.Bad{
		{Name: "no kid, and four keys", Token: f.Headed("kid:"), Reason: "unknown_key"},
		{Name: "jku null", Token: f.With(`,"jku":null`), Reason: "forged"},
		{Name: "typ of a resume token", Token: f.Headed(`typ:"reseat+jwt"`), Reason: "forged"},
		{Name: "nbf ahead by a second more than the leeway", Token: f.Claimed("nbf:1800000031"), Reason: "not_yet"},
		{Name: "iat ahead by a second more than the leeway", Token: f.Claimed("iat:1800000031"), Reason: "not_yet"},
		{Name: "no aud", Token: f.Claimed("aud:"), Reason: "foreign"},
		{Name: "no sub", Token: f.Claimed("sub:"), Reason: "no_subject"},
		{Name: "sub empty", Token: f.Claimed(`sub:""`), Reason: "no_subject"},
		{Name: "no sub and a wrong signature", Token: jwttest.Corrupt(f.Claimed("sub:")), Reason: "forged"},
		{Name: "no sub and expired", Token: f.Claimed("sub:", "exp:1"), Reason: "no_subject"},
	}
	for _, kid := range []string{"ed ", "ED", "e", strings.Repeat("k", maxKid)} {
		out = append(out, jwttest.Bad{Name: "kid " + kid, Token: f.Headed("kid:" + jwttest.Quote(kid)), Reason: "unknown_key"})
	}
	for _, kid := range []string{`"\u0000"`, `"ed\n"`, jwttest.Quote(strings.Repeat("k", maxKid+1)), "7", `{"ed":1}`} {
		out = append(out, jwttest.Bad{Name: "kid " + kid, Token: f.Headed("kid:" + kid), Reason: "malformed"})
	}
	return out
}

func TestBadTokensAreRefusedForTheirReason(t *testing.T) {
	f := newForge(t)
	wantPlayer(t, f.v, f.Claimed())
	for what, verify := range map[string]func(context.Context, string) (string, error){"": f.v.Verify, "expired": f.v.VerifyExpired} {
		for _, bad := range [][]jwttest.Bad{f.Bad(), f.confusions(), f.own()} {
			if what == "expired" {
				bad = unexpired(bad)
			}
			jwttest.CheckRefused[*jws.Refusal](t, bad, func(token string) error {
				player, err := verify(context.Background(), token)
				if player != "" {
					t.Errorf("player %q, error %v, want none", player, err)
				}
				return err
			}, Reason)
			for _, b := range bad {
				_, err := verify(context.Background(), b.Token)
				jwttest.CheckQuotesNothing(t, b, Challenge(err)+f.journal.String())
			}
		}
	}
	if !strings.Contains(f.journal.String(), "login.keys_loaded") {
		t.Error("nothing at all is in the log that was searched")
	}
	if n := f.fetches.Load(); n != 1 {
		t.Errorf("the JWKS was fetched %d times, though the first fetch was less than the cooldown ago", n)
	}
}

// unexpired are those that are not refused for their exp.
func unexpired(bad []jwttest.Bad) (kept []jwttest.Bad) {
	for _, b := range bad {
		if b.Reason != "expired" {
			kept = append(kept, b)
		}
	}
	return kept
}

func TestBadTokenCostsLittle(t *testing.T) {
	f := newForge(t)
	f.CheckCheap(func(token string) { f.v.Verify(context.Background(), token) })
}
