package tokens

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/golang-jwt/jwt/v5"
)

// The keys of the fuzz targets are fixed, so that tokens in the corpus stay valid.
var (
	fuzzSecret  = []byte("0123456789abcdefghijklmnopqrstuvwxyz")
	fuzzEd25519 = ed25519.NewKeyFromSeed(fuzzSecret[:ed25519.SeedSize])
)

func fuzzKeys(t testing.TB) *Keys {
	return load(t, Options{Now: new(clock).now}, fuzzSecret, pkcs8(fuzzEd25519))
}

// FuzzVerify: no input may panic, every error must be of a known kind, and an accepted
// token must equal, byte for byte, what the key's holder would have made.
func FuzzVerify(f *testing.F) {
	k := fuzzKeys(f)
	good := issue(f, k, claims())
	for _, token := range []string{good, good + "\n", good + "=", corrupt(good), "..", "e30.e30.AAAA", strings.ToUpper(good)} {
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
		text := token[:strings.LastIndexByte(token, '.')]
		var again string
		switch got.KeyID {
		case secretID(fuzzSecret):
			again = base64url.EncodeToString(must(jwt.SigningMethodHS256.Sign(text, fuzzSecret)))
		case must(thumbprint(fuzzEd25519.Public())):
			again = base64url.EncodeToString(must(jwt.SigningMethodEdDSA.Sign(text, fuzzEd25519)))
		}
		if token != text+"."+again {
			t.Errorf("accepted, though its signer would have signed %q: %q", again, token)
		}
		if parts := strings.Split(text, "."); reencoded(parts[0]) != parts[0] || reencoded(parts[1]) != parts[1] {
			t.Errorf("accepted in a second spelling: %q", token)
		}
		if got.Session == "" || got.Subject == "" || got.Gen < 1 || got.Gen > maxGen || !got.Expires.After(epoch) || got.IssuedAt.After(epoch) {
			t.Errorf("accepted with claims %+v", got)
		}
	})
}

func reencoded(part string) string {
	return base64url.EncodeToString(must(base64url.DecodeString(part)))
}

// FuzzSignedContents signs any header and claims with a valid key. Exactly those may pass
// that a second, slower implementation accepts.
func FuzzSignedContents(f *testing.F) {
	k := fuzzKeys(f)
	kid := k.SigningKeyID()
	for _, more := range []string{"", `,"crit":["x"]`, `,"kid":"x"`, `,"\u006bid":"x"`} {
		f.Add([]byte(header("HS256", kid, more)), []byte(body()))
	}
	for _, change := range []string{"gen:0", "gen:9007199254740993", "exp:1800000000", `aud:["x","reseat"]`, "x:{}", "jti:null", `sub:"\ud800"`} {
		f.Add([]byte(header("HS256", kid, "")), []byte(body(change)))
	}
	f.Add([]byte(header("EdDSA", kid, "")), []byte("null"))
	f.Fuzz(func(t *testing.T, header, claims []byte) {
		token := sign(t, string(header), string(claims), jwt.SigningMethodHS256, fuzzSecret)
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
	o, ok := membersOf(data)
	return ok && len(o) == 3 && stringOf(o, "alg") == "HS256" && stringOf(o, "kid") == kid && stringOf(o, "typ") == "reseat+jwt"
}

// goodClaims checks claims at the epoch, 1800000000.4.
func goodClaims(data []byte) bool {
	o, ok := membersOf(data)
	if !ok || stringOf(o, "iss") != "reseat" || !namesReseat(o) {
		return false
	}
	for _, name := range []string{"sub", "sid", "jti"} {
		if stringOf(o, name) == "" {
			return false
		}
	}
	return within(o, "gen", 1, 1<<53) && within(o, "iat", 0, 1800000060) && within(o, "nbf", 0, 1800000000) &&
		within(o, "exp", 1800000001, 253402300799)
}

// membersOf reads a JSON object with the standard library's stream of JSON tokens. It
// returns false for an object that must be refused.
func membersOf(data []byte) (map[string]json.RawMessage, bool) {
	d := json.NewDecoder(bytes.NewReader(data))
	if open, err := d.Token(); err != nil || open != json.Delim('{') || !utf8.Valid(data) || !json.Valid(data) {
		return nil, false
	}
	o := map[string]json.RawMessage{}
	for d.More() {
		name, err := d.Token()
		if err != nil || o[name.(string)] != nil {
			return nil, false
		}
		var value json.RawMessage
		if d.Decode(&value) != nil {
			return nil, false
		}
		o[name.(string)] = value
	}
	return o, len(o) <= maxMembers
}

// stringOf returns a member that is a string, "" if it is not.
func stringOf(o map[string]json.RawMessage, name string) string {
	raw := o[name]
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return ""
	}
	s, _ := v.(string)
	return s
}

func namesReseat(o map[string]json.RawMessage) bool {
	raw := o["aud"]
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return false
	}
	list, ok := v.([]any)
	if !ok {
		return v == "reseat"
	}
	found := false
	for _, e := range list {
		s, ok := e.(string)
		if !ok {
			return false
		}
		found = found || s == "reseat"
	}
	return found
}

func within(o map[string]json.RawMessage, name string, low, high uint64) bool {
	raw := o[name]
	var n uint64 // encoding/json reads no sign, fraction or exponent into it
	return json.Unmarshal(raw, &n) == nil && string(raw) != "null" && n >= low && n <= high
}
