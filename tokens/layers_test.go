package tokens

import (
	"errors"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
)

// A bad token is caught by the header check, by the claims parser and by the library. Each
// of them is tested alone here, so that none depends on another that is later removed.

func TestLibraryRefusesByItself(t *testing.T) {
	k := load(t, Options{Now: new(clock).now}, pkcs8(ed25519Key()))
	parser := k.set.Load().signing.parser
	good := jwt.MapClaims{"iss": "reseat", "aud": "reseat", "iat": 1800000000, "nbf": 1800000000, "exp": 1800003600}
	key := func(*jwt.Token) (any, error) { return ed25519Key().Public(), nil }
	if _, err := parser.Parse(mapToken(t, good, "", nil), key); err != nil {
		t.Fatalf("good claims: %v", err)
	}
	for name, tt := range map[string]struct {
		token string
		want  error
	}{
		"no exp":      {mapToken(t, good, "exp", nil), jwt.ErrTokenRequiredClaimMissing},
		"no nbf":      {mapToken(t, good, "nbf", nil), jwt.ErrTokenRequiredClaimMissing},
		"no iss":      {mapToken(t, good, "iss", nil), jwt.ErrTokenRequiredClaimMissing},
		"no aud":      {mapToken(t, good, "aud", nil), jwt.ErrTokenRequiredClaimMissing},
		"other iss":   {mapToken(t, good, "iss", "x"), jwt.ErrTokenInvalidIssuer},
		"other aud":   {mapToken(t, good, "aud", "x"), jwt.ErrTokenInvalidAudience},
		"exp now":     {mapToken(t, good, "exp", 1800000000), jwt.ErrTokenExpired},
		"nbf ahead":   {mapToken(t, good, "nbf", 1800000001), jwt.ErrTokenNotValidYet},
		"iat ahead":   {mapToken(t, good, "iat", 1800000001), jwt.ErrTokenUsedBeforeIssued},
		"two spelled": {laxSignature(t, mapToken(t, good, "", nil)), jwt.ErrTokenMalformed},
	} {
		if _, err := parser.Parse(tt.token, key); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
}

// The key function here returns the type of key that each algorithm expects.
func TestLibraryRefusesOtherAlgorithms(t *testing.T) {
	k := load(t, Options{Now: new(clock).now}, pkcs8(ed25519Key()))
	for _, other := range []struct {
		method          jwt.SigningMethod
		private, public any
	}{
		{jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, jwt.UnsafeAllowNoneSignatureType},
		{jwt.SigningMethodHS256, fuzzSecret, fuzzSecret},
		{jwt.SigningMethodHS384, fuzzSecret, fuzzSecret},
		{jwt.SigningMethodHS512, fuzzSecret, fuzzSecret},
		{jwt.SigningMethodPS256, rsaKey(), &rsaKey().PublicKey},
		{jwt.SigningMethodES256, p256Key(), &p256Key().PublicKey},
	} {
		alg := other.method.Alg()
		token := sign(t, `{"alg":"`+alg+`"}`, body(), other.method, other.private)
		_, err := k.set.Load().signing.parser.Parse(token, func(*jwt.Token) (any, error) { return other.public, nil })
		if !errors.Is(err, jwt.ErrTokenSignatureInvalid) {
			t.Errorf("%s: %v, want %v", alg, err, jwt.ErrTokenSignatureInvalid)
		}
	}
}

// mapToken signs claims with one changed, or omitted if value is nil.
func mapToken(t *testing.T, claims jwt.MapClaims, name string, value any) string {
	t.Helper()
	changed := jwt.MapClaims{}
	for n, v := range claims {
		changed[n] = v
	}
	if changed[name] = value; value == nil {
		delete(changed, name)
	}
	return must(jwt.NewWithClaims(jwt.SigningMethodEdDSA, changed).SignedString(ed25519Key()))
}

// laxSignature changes unused bits of the signature's encoding: 64 bytes leave 4.
func laxSignature(t *testing.T, token string) string {
	t.Helper()
	i := strings.LastIndexByte(token, '.') + 1
	other, ok := respelled(token[i:])
	if !ok {
		t.Fatal("the signature has only one encoding")
	}
	return token[:i] + other
}

func TestHeaderCheckRefusesByItself(t *testing.T) {
	k := load(t, Options{Now: new(clock).now}, newSecret())
	set, kid := k.set.Load(), k.SigningKeyID()
	wide := func(h string) string { // blanks until the last character has unused bits
		for len(h)%3 == 0 {
			h += " "
		}
		return base64url.EncodeToString([]byte(h))
	}
	lax, _ := respelled(wide(header("HS256", kid, "")))
	for name, tt := range map[string]struct {
		header string
		want   error
	}{
		"good":              {wide(header("HS256", kid, "")), nil},
		"two spelled":       {lax, ErrMalformed},
		"none":              {wide(header("none", kid, "")), ErrForged},
		"of the family":     {wide(header("HS512", kid, "")), ErrForged},
		"another":           {wide(header("EdDSA", kid, "")), ErrForged},
		"unknown":           {wide(header("HS257", kid, "")), ErrForged},
		"of an unknown key": {wide(header("none", "x", "")), ErrUnknownKey},
	} {
		got, err := set.signer(tt.header + ".e30.AAAA")
		if !errors.Is(err, tt.want) || (got == nil) != (tt.want != nil) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
}
