package tokens

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"reseat/tokens/internal/jwttest"
)

func fuzzKeys(t testing.TB) *Keys {
	return load(t, Options{Now: new(clock).now}, jwttest.Secret, jwttest.PKCS8(jwttest.FixedEd25519))
}

// FuzzVerify: no input may panic, every error must be of a known kind, and an accepted
// token must equal, byte for byte, what the key's holder would have made.
func FuzzVerify(f *testing.F) {
	k := fuzzKeys(f)
	good := issue(f, k, claims())
	for _, token := range []string{good, good + "\n", good + "=", jwttest.Corrupt(good), "..", "e30.e30.AAAA", strings.ToUpper(good)} {
		f.Add(token)
	}
	f.Fuzz(func(t *testing.T, token string) {
		got, err := k.Verify(token)
		if err != nil {
			if got != (Claims{}) || Reason(err) == "other" {
				t.Errorf("refused with claims %+v, reason %q, error %v", got, Reason(err), err)
			}
			return
		}
		jwttest.CheckSpelling(t, token, func(text string) ([]byte, error) {
			if got.KeyID == secretID(jwttest.Secret) {
				return jwt.SigningMethodHS256.Sign(text, jwttest.Secret)
			}
			return jwt.SigningMethodEdDSA.Sign(text, jwttest.FixedEd25519)
		})
		if got.Session == "" || got.Subject == "" || got.Gen < 1 || got.Gen > maxGen || !got.Expires.After(jwttest.Epoch) || got.IssuedAt.After(jwttest.Epoch) {
			t.Errorf("accepted with claims %+v", got)
		}
	})
}

// FuzzSignedContents signs any header and claims with a valid key. Exactly those may pass
// that a second, slower implementation accepts.
func FuzzSignedContents(f *testing.F) {
	k := fuzzKeys(f)
	kid := k.SigningKeyID()
	valid := jwttest.Object(header("HS256", kid))
	for _, more := range []string{"", `,"crit":["x"]`, `,"kid":"x"`, `,"\u006bid":"x"`} {
		f.Add([]byte(strings.TrimSuffix(valid, "}")+more+"}"), []byte(jwttest.Object(contents)))
	}
	for _, change := range []string{"gen:0", "gen:9007199254740993", "exp:1800000000", `aud:["x","reseat"]`, "x:{}", "jti:null", `sub:"\ud800"`} {
		f.Add([]byte(valid), []byte(jwttest.Object(contents, change)))
	}
	f.Add([]byte(jwttest.Object(header("EdDSA", kid))), []byte("null"))
	f.Fuzz(func(t *testing.T, header, claims []byte) {
		token := jwttest.Sign(t, string(header), string(claims), "HS256", jwttest.Secret)
		got, err := k.Verify(token)
		want := len(token) <= MaxLen && goodHeader(header, kid) && goodClaims(claims)
		if (err == nil) != want {
			t.Errorf("header %q, claims %q: %+v, error %v, want accepted: %v", header, claims, got, err, want)
		}
		if len(token) > MaxLen && !errors.Is(err, ErrTooLong) {
			t.Errorf("%d bytes: error %v, want %v", len(token), err, ErrTooLong)
		}
	})
}

func goodHeader(data []byte, kid string) bool {
	o, ok := jwttest.Reference(data, maxMembers)
	return ok && len(o) == 3 && jwttest.Text(o, "alg") == "HS256" && jwttest.Text(o, "kid") == kid && jwttest.Text(o, "typ") == "reseat+jwt"
}

// goodClaims checks claims at the epoch, 1800000000.4.
func goodClaims(data []byte) bool {
	o, ok := jwttest.Reference(data, maxMembers)
	if !ok || jwttest.Text(o, "iss") != "reseat" || !jwttest.Names(o, "aud", "reseat") {
		return false
	}
	for _, name := range []string{"sub", "sid", "jti"} {
		if jwttest.Text(o, name) == "" {
			return false
		}
	}
	return within(o, "gen", 1, 1<<53) && within(o, "iat", 0, 1800000060) && within(o, "nbf", 0, 1800000000) &&
		within(o, "exp", 1800000001, 253402300799)
}

func within(o map[string]json.RawMessage, name string, low, high uint64) bool {
	raw := o[name]
	var n uint64 // encoding/json reads no sign, fraction or exponent into it
	return json.Unmarshal(raw, &n) == nil && string(raw) != "null" && n >= low && n <= high
}
