package tokens

import (
	"crypto/x509"
	"errors"
	"strings"
	"testing"

	"reseat/tokens/internal/jws"
	"reseat/tokens/internal/jwttest"
)

// A forge makes bad tokens for a gateway that holds an Ed25519 key (which signs),
// an RSA key, a P-256 key and a secret.
type forge struct {
	*jwttest.Forge
	clock  *clock
	keys   *Keys
	secret []byte
}

func newForge(t *testing.T) *forge {
	f := &forge{clock: new(clock), secret: jwttest.NewSecret()}
	f.keys = load(t, Options{Now: f.clock.now}, jwttest.PKCS8(jwttest.Ed25519()), jwttest.PKCS8(jwttest.RSA()), jwttest.PKCS8(jwttest.P256()), f.secret)
	f.Forge = jwttest.NewForge(t, jwttest.Forge{Header: header("EdDSA", f.keys.SigningKeyID()), Claims: contents, MaxLen: MaxLen, Most: maxMembers})
	return f
}

// confusions: valid keys used with another algorithm.
func (f *forge) confusions() []jwttest.Bad {
	rsaKey, p256 := jwttest.RSA(), jwttest.P256()
	rsaID, ecID, secretKid := jwttest.Must(thumbprint(&rsaKey.PublicKey)), jwttest.Must(thumbprint(&p256.PublicKey)), secretID(f.secret)
	var out []jwttest.Bad
	for _, c := range []struct {
		what, alg, kid string
		key            any
	}{
		{"the RSA public key in PEM", "HS256", rsaID, jwttest.PKIX(rsaKey)},
		{"the RSA public key in DER", "HS256", rsaID, jwttest.Must(x509.MarshalPKIXPublicKey(&rsaKey.PublicKey))},
		{"the RSA modulus", "HS256", rsaID, rsaKey.N.Bytes()},
		{"the P-256 public key in PEM", "HS256", ecID, jwttest.PKIX(p256)},
		{"an empty secret", "HS256", secretKid, []byte(nil)},
		{"kid as the secret", "HS256", secretKid, []byte(secretKid)},
		{"the secret", "HS384", secretKid, f.secret},
		{"the secret", "HS512", secretKid, f.secret},
		{"the RSA key", "RS256", rsaID, rsaKey},
		{"the RSA key", "RS512", rsaID, rsaKey},
		{"the RSA key", "PS384", rsaID, rsaKey},
		{"the RSA key", "PS512", rsaID, rsaKey},
		{"another key under the P-256 key's kid", "ES384", ecID, jwttest.P384()},
		{"the RSA key's kid", "EdDSA", rsaID, jwttest.Ed25519()},
		{"another RSA key", "PS256", rsaID, jwttest.OtherRSA()},
	} {
		token := jwttest.Sign(f.T, jwttest.Object(header(c.alg, c.kid)), f.Body(), c.alg, c.key)
		out = append(out, jwttest.Bad{Name: c.alg + " with " + c.what, Token: token, Reason: "forged"})
	}
	lied := jwttest.Sign(f.T, jwttest.Object(header("PS256", rsaID)), f.Body(), "RS256", rsaKey)
	swapped := lied[:strings.IndexByte(lied, '.')] + f.Claimed()[strings.IndexByte(f.Claimed(), '.'):]
	return append(out, jwttest.Bad{Name: "RS256 signature under alg PS256", Token: lied, Reason: "forged"},
		jwttest.Bad{Name: "header of another token", Token: swapped, Reason: "forged"})
}

// own: what only resume tokens have, or may not have.
func (f *forge) own() []jwttest.Bad {
	kid := f.keys.SigningKeyID()
	out := []jwttest.Bad{
		{Name: "typ missing", Token: f.Headed("typ:"), Reason: "malformed"},
		{Name: "kid missing", Token: f.Headed("kid:"), Reason: "malformed"},
		{Name: "gen 0", Token: f.Claimed("gen:0"), Reason: "malformed"},
		{Name: "gen above 2^53", Token: f.Claimed("gen:9007199254740993"), Reason: "malformed"},
		{Name: "nbf ahead by a second", Token: f.Claimed("nbf:1800000001"), Reason: "not_yet"},
		{Name: "deep header", Token: f.With(`,"x":` + strings.Repeat("[", 400) + strings.Repeat("]", 400)), Reason: "forged"},
	}
	for _, kid := range []string{kid + " ", strings.ToUpper(kid), kid[:20], "\x00", strings.Repeat("k", 2000)} {
		out = append(out, jwttest.Bad{Name: "kid " + kid, Token: f.Headed("kid:" + jwttest.Quote(kid)), Reason: "unknown_key"})
	}
	for _, more := range []string{
		`,"x5c":["MIIB"]`, `,"x5t":"AAAA"`, `,"b64":false`, `,"zip":"DEF"`, `,"cty":"JWT"`, `,"enc":"A256GCM"`, `,"Kid":"x"`, `,"ALG":"none"`,
	} {
		out = append(out, jwttest.Bad{Name: "header with " + more, Token: f.With(more), Reason: "forged"})
	}
	for _, typ := range []string{"JWT", "at+jwt", "reseat+jwt ", "jwt"} {
		out = append(out, jwttest.Bad{Name: "typ " + typ, Token: f.Headed("typ:" + jwttest.Quote(typ)), Reason: "forged"})
	}
	for _, name := range []string{"iss", "aud", "sub", "sid", "gen", "iat", "nbf", "exp", "jti"} {
		for _, value := range []string{"", "null", "{}", "true"} {
			out = append(out, jwttest.Bad{Name: name + " " + value, Token: f.Claimed(name + ":" + value), Reason: "malformed"})
		}
	}
	for _, name := range []string{"iss", "sub", "sid", "jti"} {
		for _, value := range []string{`""`, "7", `["reseat"]`} {
			out = append(out, jwttest.Bad{Name: name + " " + value, Token: f.Claimed(name + ":" + value), Reason: "malformed"})
		}
	}
	for _, name := range []string{"gen", "iat", "nbf", "exp"} {
		for _, value := range []string{"-1", "1.5", "7.0", "7e0", "1E3", `"7"`, "18446744073709551616"} {
			out = append(out, jwttest.Bad{Name: name + " " + value, Token: f.Claimed(name + ":" + value), Reason: "malformed"})
		}
	}
	return out
}

func (f *forge) verify(token string) error {
	got, err := f.keys.Verify(token)
	if err != nil && got != (Claims{}) {
		f.T.Errorf("refused with claims %+v", got)
	}
	return err
}

func TestBadTokensAreRefusedForTheirReason(t *testing.T) {
	f := newForge(t)
	if err := f.verify(f.Claimed()); err != nil {
		t.Fatalf("the valid token that the bad ones are derived from is refused: %v", err)
	}
	for _, bad := range [][]jwttest.Bad{f.Bad(), f.confusions(), f.own()} {
		jwttest.CheckRefused[*jws.Refusal](t, bad, f.verify, Reason)
	}
}

func TestReasonsAreAFixedSet(t *testing.T) {
	for err, want := range map[error]string{
		nil: "", ErrTooLong: "too_long", ErrMalformed: "malformed", ErrForged: "forged", ErrUnknownKey: "unknown_key",
		ErrForeign: "foreign", ErrExpired: "expired", ErrNotYet: "not_yet", errors.New("x"): "other",
	} {
		if got := Reason(err); got != want {
			t.Errorf("reason of %v: %q, want %q", err, got, want)
		}
	}
	if !errors.Is(ErrUnknownKey, ErrForged) {
		t.Error("a token by an unknown key is not counted as forged")
	}
}

func TestBadTokenCostsLittle(t *testing.T) {
	f := newForge(t)
	f.CheckCheap(func(token string) { f.keys.Verify(token) })
}
