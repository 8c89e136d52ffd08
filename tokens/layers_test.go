package tokens

import (
	"errors"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"reseat/tokens/internal/jwttest"
)

// A bad token is caught by the header check, by the claims parser and by the library. Each
// of them is tested alone here, so that none depends on another that is later removed.

func TestLibraryRefusesByItself(t *testing.T) {
	k := load(t, Options{Now: new(clock).now}, jwttest.PKCS8(jwttest.Ed25519()))
	parser := k.set.Load().signing.parser
	good := jwt.MapClaims{"iss": "reseat", "aud": "reseat", "iat": 1800000000, "nbf": 1800000000, "exp": 1800003600}
	key := func(*jwt.Token) (any, error) { return jwttest.Ed25519().Public(), nil }
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
		"two spelled": {respelled(t, mapToken(t, good, "", nil), 2), jwt.ErrTokenMalformed},
	} {
		if _, err := parser.Parse(tt.token, key); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
}

// The key function here returns the type of key that each algorithm expects.
func TestLibraryRefusesOtherAlgorithms(t *testing.T) {
	k := load(t, Options{Now: new(clock).now}, jwttest.PKCS8(jwttest.Ed25519()))
	for _, other := range []struct {
		method          jwt.SigningMethod
		private, public any
	}{
		{jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, jwt.UnsafeAllowNoneSignatureType},
		{jwt.SigningMethodHS256, jwttest.Secret, jwttest.Secret},
		{jwt.SigningMethodHS384, jwttest.Secret, jwttest.Secret},
		{jwt.SigningMethodHS512, jwttest.Secret, jwttest.Secret},
		{jwt.SigningMethodPS256, jwttest.RSA(), &jwttest.RSA().PublicKey},
		{jwt.SigningMethodES256, jwttest.P256(), &jwttest.P256().PublicKey},
	} {
		alg := other.method.Alg()
		token := jwttest.Sign(t, `{"alg":"`+alg+`"}`, jwttest.Object(contents), alg, other.private)
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
	return jwttest.Must(jwt.NewWithClaims(jwt.SigningMethodEdDSA, changed).SignedString(jwttest.Ed25519()))
}

// respelled is another text for the same token.
func respelled(t *testing.T, token string, part int) string {
	t.Helper()
	other, ok := jwttest.Respelled(token, part)
	if !ok {
		t.Fatalf("part %d of %s has only one encoding", part, token)
	}
	return other
}
