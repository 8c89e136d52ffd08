package login

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/golang-jwt/jwt/v5"
)

// The keys of the fuzz targets are fixed, so that tokens in the corpus stay valid.
var fuzzEd25519 = ed25519.NewKeyFromSeed(secretKey[:ed25519.SeedSize])

// FuzzVerify: no input may panic, every error must be of a known kind, and an accepted
// token must equal, byte for byte, what the key's holder would have made.
func FuzzVerify(f *testing.F) {
	set := bySet(f, jwk("ed", fuzzEd25519, ""))
	secret := byFile(f, secretKey)
	good := edToken(f, "ed", fuzzEd25519)
	for _, token := range []string{
		good, good + "\n", good + "=", corrupt(good), "..", "e30.e30.AAAA", strings.ToUpper(good), edToken(f, "", fuzzEd25519, "exp:1"),
		sign(f, head("HS256", "", ""), body(), "HS256", secretKey), sign(f, head("HS256", "ed", ""), body(), "HS256", []byte(fuzzEd25519[32:])),
		sign(f, head("EdDSA", "ed", `,"typ":"reseat+jwt"`), body(), "EdDSA", fuzzEd25519),
	} {
		f.Add(token)
	}
	f.Fuzz(func(t *testing.T, token string) {
		for v, signature := range map[*Verifier]func(string) ([]byte, error){
			set:    func(text string) ([]byte, error) { return jwt.SigningMethodEdDSA.Sign(text, fuzzEd25519) },
			secret: func(text string) ([]byte, error) { return jwt.SigningMethodHS256.Sign(text, secretKey) },
		} {
			player, err := v.Verify(context.Background(), token)
			if err != nil {
				if player != "" || Reason(err) == "other" || Reason(err) == "no_keys" || Reason(err) == "missing" {
					t.Errorf("refused with player %q, error %v", player, err)
				}
				continue
			}
			text := token[:strings.LastIndexByte(token, '.')]
			if again := text + "." + base64url.EncodeToString(must(signature(text))); token != again {
				t.Errorf("accepted, though its signer would have made %q: %q", again, token)
			}
			if parts := strings.Split(text, "."); reencoded(parts[0]) != parts[0] || reencoded(parts[1]) != parts[1] {
				t.Errorf("accepted in a second spelling: %q", token)
			}
			if same, err := v.VerifyExpired(context.Background(), token); same != player || err != nil {
				t.Errorf("with expiry %q, without it %q, error %v", player, same, err)
			}
		}
	})
}

func reencoded(part string) string {
	return base64url.EncodeToString(must(base64url.DecodeString(part)))
}

// FuzzSignedContents signs any header and claims with a valid key. Exactly those may pass
// that a second, slower implementation accepts.
func FuzzSignedContents(f *testing.F) {
	v := byFile(f, secretKey)
	for _, more := range []string{"", `,"crit":["x"]`, `,"kid":"x"`, `,"\u006bid":"x","kid":"y"`, `,"typ":"Reseat+JWT"`, `,"typ":"application/jwt"`, `,"x5u":0`} {
		f.Add([]byte(head("HS256", "", more)), []byte(body()))
	}
	for _, change := range []string{"exp:0", "exp:1.8e9", "exp:1800000000.5", `aud:["x","arena"]`, "nbf:null", "iat:1800000031", "x:{}", `sub:"\ud800"`, `sub:" a"`, "sub:7", "iss:"} {
		f.Add([]byte(head("HS256", "", "")), []byte(body(change)))
	}
	f.Add([]byte(head("EdDSA", "", "")), []byte("null"))
	f.Fuzz(func(t *testing.T, header, claims []byte) {
		token := sign(t, string(header), string(claims), "HS256", secretKey)
		player, err := v.Verify(context.Background(), token)
		want := len(token) <= MaxLen && goodHeader(header) && goodClaims(claims)
		if (err == nil) != want || (player != "") != want {
			t.Errorf("header %q, claims %q: player %q, error %v, want accepted: %v", header, claims, player, err, want)
		}
	})
}

// members reads a JSON object with the standard library, with the names that it has once;
// false if a name is repeated, or if it is no object or has too many members.
func members(data []byte) (map[string]any, bool) {
	d := json.NewDecoder(strings.NewReader(string(data)))
	open, err := d.Token()
	if err != nil || open != json.Delim('{') || strings.ToValidUTF8(string(data), "") != string(data) || !json.Valid(data) {
		return nil, false
	}
	o := map[string]any{}
	for d.More() {
		name, _ := d.Token()
		if _, twice := o[name.(string)]; twice {
			return nil, false
		}
		var raw json.RawMessage
		if d.Decode(&raw) != nil {
			return nil, false
		}
		var value any
		if json.Unmarshal(raw, &value) != nil { // 1e400 is JSON, and no number here
			value = string(raw)
		}
		o[name.(string)] = value
	}
	return o, len(o) <= maxMembers
}

func goodHeader(data []byte) bool {
	o, ok := members(data)
	if !ok || o["alg"] != "HS256" {
		return false
	}
	for _, name := range []string{"crit", "jku", "jwk", "x5u"} {
		if _, there := o[name]; there {
			return false
		}
	}
	kid, hasKid := o["kid"]
	typ, hasTyp := o["typ"]
	k, _ := kid.(string)
	y, _ := typ.(string)
	if hasKid && (k == "" || len(k) > 256 || strings.ContainsFunc(k, unicode.IsControl)) || hasTyp && y == "" {
		return false
	}
	other := strings.TrimPrefix(strings.ToLower(y), "application/")
	return !slices.Contains([]string{"reseat+jwt", "logout+jwt", "secevent+jwt", "dpop+jwt"}, other)
}

// goodClaims checks claims at the epoch, 1800000000.4.
func goodClaims(data []byte) bool {
	o, ok := members(data)
	sub, _ := o["sub"].(string)
	if !ok || o["iss"] != "https://id.example" || sub == "" || len(sub) > 256 || strings.TrimSpace(sub) != sub {
		return false
	}
	for _, r := range sub {
		if unicode.IsControl(r) || r == '\ufffd' {
			return false
		}
	}
	aud := fmt.Sprintf("%q", o["aud"])
	list, isList := o["aud"].([]any)
	for _, a := range list {
		if _, ok := a.(string); !ok {
			return false
		}
	}
	if isList && !slices.Contains(list, "arena") || !isList && aud != `"arena"` {
		return false
	}
	return within(o, "exp", 1800000000.4, 253402300799) && optional(o, "nbf") && optional(o, "iat")
}

func optional(o map[string]any, name string) bool {
	_, there := o[name]
	return !there || within(o, name, -1, 1800000030.4)
}

// within reports whether a date is above low, at most high, and not negative.
func within(o map[string]any, name string, low, high float64) bool {
	n, ok := o[name].(float64)
	return ok && n > low && n <= high && !math.Signbit(n)
}
