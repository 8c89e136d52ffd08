package login

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/golang-jwt/jwt/v5"

	"reseat/tokens/internal/jwttest"
)

// FuzzVerify: no input may panic, every error must be of a known kind, and an accepted
// token must equal, byte for byte, what the key's holder would have made.
func FuzzVerify(f *testing.F) {
	set := bySet(f, jwk("ed", jwttest.FixedEd25519, ""))
	secret := byFile(f, jwttest.Secret)
	good := edToken(f, "ed", jwttest.FixedEd25519)
	for _, token := range []string{
		good, good + "\n", good + "=", jwttest.Corrupt(good), "..", "e30.e30.AAAA", strings.ToUpper(good), edToken(f, "", jwttest.FixedEd25519, "exp:1"),
		jwttest.Sign(f, head("HS256", "", ""), body(), "HS256", jwttest.Secret), jwttest.Sign(f, head("HS256", "ed", ""), body(), "HS256", []byte(jwttest.FixedEd25519[32:])),
		jwttest.Sign(f, head("EdDSA", "ed", `,"typ":"reseat+jwt"`), body(), "EdDSA", jwttest.FixedEd25519),
	} {
		f.Add(token)
	}
	f.Fuzz(func(t *testing.T, token string) {
		for v, signature := range map[*Verifier]func(string) ([]byte, error){
			set:    func(text string) ([]byte, error) { return jwt.SigningMethodEdDSA.Sign(text, jwttest.FixedEd25519) },
			secret: func(text string) ([]byte, error) { return jwt.SigningMethodHS256.Sign(text, jwttest.Secret) },
		} {
			player, err := v.Verify(context.Background(), token)
			if err != nil {
				if player != "" || Reason(err) == "other" || Reason(err) == "no_keys" || Reason(err) == "missing" {
					t.Errorf("refused with player %q, error %v", player, err)
				}
				continue
			}
			jwttest.CheckSpelling(t, token, signature)
			if same, err := v.VerifyExpired(context.Background(), token); same != player || err != nil {
				t.Errorf("with expiry %q, without it %q, error %v", player, same, err)
			}
		}
	})
}

// FuzzSignedContents signs any header and claims with a valid key. Exactly those may pass
// that a second, slower implementation accepts.
func FuzzSignedContents(f *testing.F) {
	v := byFile(f, jwttest.Secret)
	for _, more := range []string{"", `,"crit":["x"]`, `,"kid":"x"`, `,"\u006bid":"x","kid":"y"`, `,"typ":"Reseat+JWT"`, `,"typ":"application/jwt"`, `,"x5u":0`} {
		f.Add([]byte(head("HS256", "", more)), []byte(body()))
	}
	for _, change := range []string{"exp:0", "exp:1.8e9", "exp:1800000000.5", `aud:["x","arena"]`, "nbf:null", "iat:1800000031", "x:{}", `sub:"\ud800"`, `sub:" a"`, "sub:7", "iss:"} {
		f.Add([]byte(head("HS256", "", "")), []byte(body(change)))
	}
	f.Add([]byte(head("EdDSA", "", "")), []byte("null"))
	f.Fuzz(func(t *testing.T, header, claims []byte) {
		token := jwttest.Sign(t, string(header), string(claims), "HS256", jwttest.Secret)
		player, err := v.Verify(context.Background(), token)
		want := len(token) <= MaxLen && goodHeader(header) && goodClaims(claims)
		if (err == nil) != want || (player != "") != want {
			t.Errorf("header %q, claims %q: player %q, error %v, want accepted: %v", header, claims, player, err, want)
		}
	})
}

func goodHeader(data []byte) bool {
	o, ok := jwttest.Reference(data, maxMembers)
	if !ok || jwttest.Text(o, "alg") != "HS256" {
		return false
	}
	for _, name := range []string{"crit", "jku", "jwk", "x5u"} {
		if o[name] != nil {
			return false
		}
	}
	k, y := jwttest.Text(o, "kid"), jwttest.Text(o, "typ")
	if o["kid"] != nil && (k == "" || len(k) > 256 || strings.ContainsFunc(k, unicode.IsControl)) || o["typ"] != nil && y == "" {
		return false
	}
	other := strings.TrimPrefix(strings.ToLower(y), "application/")
	return !slices.Contains([]string{"reseat+jwt", "logout+jwt", "secevent+jwt", "dpop+jwt"}, other)
}

// goodClaims checks claims at the epoch, 1800000000.4.
func goodClaims(data []byte) bool {
	o, ok := jwttest.Reference(data, maxMembers)
	sub := jwttest.Text(o, "sub")
	if !ok || jwttest.Text(o, "iss") != "https://id.example" || sub == "" || len(sub) > 256 || strings.TrimSpace(sub) != sub {
		return false
	}
	for _, r := range sub {
		if unicode.IsControl(r) || r == '\ufffd' {
			return false
		}
	}
	return jwttest.Names(o, "aud", "arena") && within(o, "exp", 1800000000.4, 253402300799) && optional(o, "nbf") && optional(o, "iat")
}

func optional(o map[string]json.RawMessage, name string) bool {
	return o[name] == nil || within(o, name, -1, 1800000030.4)
}

// within reports whether a date is above low, at most high, and not negative.
func within(o map[string]json.RawMessage, name string, low, high float64) bool {
	var n any
	if json.Unmarshal(o[name], &n) != nil { // 1e400 is JSON, and no number here
		return false
	}
	date, ok := n.(float64)
	return ok && date > low && date <= high && !math.Signbit(date)
}
