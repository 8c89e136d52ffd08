package login

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"reseat/tokens/internal/jwttest"
	"reseat/tokens/keyfile"
)

// usable returns the kids of a set with the number of algorithms of each.
func usable(s *keySet) map[string]int {
	out := map[string]int{}
	for _, k := range s.all() {
		out[k.kid] += len(k.algs)
	}
	return out
}

func TestKeysThatCannotBeUsedDoNotHarmTheOthers(t *testing.T) {
	small := `{"kty":"RSA","kid":"small","n":"` + jwttest.Encode(jwttest.RSA().N.Bytes()[:128]) + `","e":"AQAB"}`
	private := strings.TrimSuffix(jwk("private", jwttest.OtherEd25519(), ""), "}") + `,"d":"` + jwttest.Encode(jwttest.OtherEd25519().Seed()) + `"}`
	for name, tt := range map[string]struct {
		other string
		note  string // "" for no warning
	}{
		"for encryption":               {jwk("enc", jwttest.OtherRSA(), `,"use":"enc","alg":"RSA-OAEP"`), ""},
		"for key agreement":            {jwk("dh", jwttest.P384(), `,"key_ops":["deriveKey"]`), ""},
		"symmetric":                    {`{"kty":"oct","kid":"oct","k":"` + jwttest.Encode(jwttest.Secret) + `"}`, "is symmetric"},
		"public and symmetric at once": {jwk("both", jwttest.P384(), `,"k":"`+jwttest.Encode(jwttest.Secret)+`"`), "is symmetric"},
		"private":                      {private, "is a private key"},
		"with an alg of another type":  {jwk("x", jwttest.OtherRSA(), `,"alg":"ES256"`), `alg "ES256", which is not one of`},
		"with a symmetric alg":         {jwk("x", jwttest.OtherRSA(), `,"alg":"HS256"`), `alg "HS256"`},
		"with alg none":                {jwk("x", jwttest.OtherRSA(), `,"alg":"none"`), `alg "none"`},
		"with a long alg":              {jwk("x", jwttest.OtherRSA(), `,"alg":"`+strings.Repeat("A", 5000)+`"`), `alg "AAAAAAAAAAAAAAAA",`},
		"RSA of 1024 bits":             {small, "1024 bits"},
		"of a type unknown":            {`{"kty":"AKP","kid":"x","alg":"ML-DSA-44","pub":"AAAA"}`, "AKP"},
		"on a curve unknown":           {`{"kty":"EC","kid":"x","crv":"secp256k1","x":"AAAA","y":"AAAA"}`, "secp256k1"},
		"X25519":                       {`{"kty":"OKP","kid":"x","crv":"X25519","x":"` + jwttest.Encode(jwttest.OtherEd25519()[32:]) + `"}`, "*ecdh.PublicKey"},
		"not on its curve":             {`{"kty":"EC","kid":"x","crv":"P-256","x":"AAAA","y":"AAAA"}`, "cannot be read"},
		"far off its curve":            {`{"kty":"EC","kid":"x","crv":"P-256","x":"` + strings.Repeat("_", 4000) + `","y":"AAAA"}`, "cannot be read"},
		"Ed25519, too short":           {`{"kty":"OKP","kid":"x","crv":"Ed25519","x":"AAAA"}`, "cannot be read"},
		"without exponent":             {`{"kty":"RSA","kid":"x","n":"AAAA"}`, "cannot be read"},
		"with an exponent of 1":        {`{"kty":"RSA","kid":"x","n":"` + jwttest.Encode(jwttest.RSA().N.Bytes()) + `","e":"AQ"}`, "cannot be read"},
		"no base64":                    {`{"kty":"OKP","kid":"x","crv":"Ed25519","x":"!!!!"}`, "cannot be read"},
		"no object":                    {`7`, "is no JWK"},
		"null":                         {`null`, "cannot be read"},
		"kid a number":                 {`{"kty":"OKP","kid":7,"crv":"Ed25519","x":"AAAA"}`, "is no JWK"},
		"without a kid":                {jwk("", jwttest.OtherEd25519(), ""), "has no kid, and is not the only key"},
	} {
		t.Run(name, func(t *testing.T) {
			set, err := parseSet([]byte(jwks(tt.other, jwk("good", jwttest.Ed25519(), ""))))
			if err != nil {
				t.Fatal(err)
			}
			if got := usable(set); len(got) != 1 || got["good"] != 1 {
				t.Errorf("usable are %v, want good alone", got)
			}
			if tt.note == "" && len(set.notes) > 0 || tt.note != "" && (len(set.notes) != 1 || !strings.Contains(set.notes[0].why, tt.note)) {
				t.Errorf("notes %.300q, want %q", set.notes, tt.note)
			}
		})
	}
}

func TestKeysAreReadAsTheirIssuersWriteThem(t *testing.T) {
	for name, tt := range map[string]struct {
		key  string
		algs int
	}{
		"RSA without alg":           {jwk("k", jwttest.RSA(), ""), 6},
		"RSA with alg and use":      {jwk("k", jwttest.RSA(), `,"use":"sig","alg":"RS256"`), 1},
		"RSA with key_ops":          {jwk("k", jwttest.RSA(), `,"key_ops":["verify"]`), 6},
		"RSA with certificates":     {jwk("k", jwttest.RSA(), `,"x5t":"AAAA","x5c":["not a certificate"],"x5u":"https://x"`), 6},
		"EC with alg":               {jwk("k", jwttest.P521(), `,"alg":"ES512"`), 1},
		"Ed25519 without alg":       {jwk("k", jwttest.Ed25519(), ""), 1},
		"Ed25519 with alg":          {jwk("k", jwttest.Ed25519(), `,"alg":"EdDSA"`), 1},
		"with members unknown":      {jwk("k", jwttest.Ed25519(), `,"issuer":"https://x","exp":1`), 1},
		"with padding in its value": {strings.Replace(jwk("k", jwttest.Ed25519(), ""), `","kid"`, `=","kid"`, 1), 1},
	} {
		set, err := parseSet([]byte(jwks(tt.key)))
		if err != nil || usable(set)["k"] != tt.algs || set.only == nil || len(set.notes) > 0 {
			t.Errorf("%s: %v, notes %v, error %v, want %d algorithms", name, usable(set), set.notes, err, tt.algs)
		}
	}
}

// Two keys with one kid: the result must not depend on their order.
func TestKeysOfOneKid(t *testing.T) {
	one, two := jwk("k", jwttest.Ed25519(), ""), jwk("k", jwttest.OtherEd25519(), "")
	rsa256, rsa512, rsaAny := jwk("k", jwttest.RSA(), `,"alg":"RS256"`), jwk("k", jwttest.RSA(), `,"alg":"PS512"`), jwk("k", jwttest.OtherRSA(), "")
	for name, tt := range map[string]struct {
		keys []string
		want int // algorithms
	}{
		"the same twice":                  {[]string{one, one}, 2},
		"two of one type":                 {[]string{one, two}, 0},
		"two of one type, one of another": {[]string{one, two, rsa256}, 0},
		"two of different types":          {[]string{one, rsaAny}, 7},
		"one key, two algs":               {[]string{rsa256, rsa512}, 2},
		"two keys, two algs":              {[]string{rsa512, rsaAny, rsa256}, 0},
	} {
		for range 2 {
			set := jwttest.Must(parseSet([]byte(jwks(tt.keys...))))
			if got := usable(set)["k"]; got != tt.want || (len(set.notes) > 0) != (tt.want == 0) {
				t.Errorf("%s: %d algorithms, notes %v, want %d", name, got, set.notes, tt.want)
			}
			slices.Reverse(tt.keys)
		}
	}
}

func TestInvalidSetIsAnError(t *testing.T) {
	for text, want := range map[string]string{
		"": "is no JSON", "<html>": "is no JSON", string(jwttest.PKIX(jwttest.Ed25519())): "is no JSON",
		"null": `named "keys"`, "7": `named "keys"`, "[]": `named "keys"`, "{}": `named "keys"`, `{"keys":null}`: `named "keys"`,
		`{"keys":{}}`: `named "keys"`, `{"error":"not today"}`: `named "keys"`, jwk("k", jwttest.Ed25519(), ""): `named "keys"`,
	} {
		if set, err := parseSet([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, error %v, want %q", text, set, err, want)
		}
	}
	if set, err := parseSet([]byte(`{"keys":[]}`)); err != nil || set.size() != 0 {
		t.Errorf("an empty set, which revokes all keys: %v", err)
	}
}

// In any set, each key must have only algorithms of its own type.
func FuzzSet(f *testing.F) {
	for _, seed := range []string{
		jwks(jwk("k", jwttest.Ed25519(), "")), jwks(jwk("a", jwttest.RSA(), `,"alg":"RS256"`), jwk("a", jwttest.P256(), "")), `{"keys":[{"kty":"oct","k":"AAAA"}]}`, `{"keys":null}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		set, err := parseSet(data)
		if err != nil {
			return
		}
		if !json.Valid(data) {
			t.Errorf("read as a set though it is no JSON: %q", data)
		}
		for _, k := range set.all() {
			if keyfile.CheckPublic(k.public) != nil || len(k.algs) == 0 {
				t.Errorf("%q has the algorithms %v for %T", data, k.algs, k.public)
			}
			for _, alg := range k.algs {
				if !slices.Contains(algorithms(k.public), alg) {
					t.Errorf("%q verifies %s with a %T", data, alg, k.public)
				}
			}
		}
	})
}

// A key file with an unusable key is refused at the start, and the error names the file,
// once.
func TestUnusableFilesAreRefusedAtTheStart(t *testing.T) {
	for name, tt := range map[string]struct {
		data []byte
		jwks bool
		want string
	}{
		"empty key file":   {nil, false, "got 0 bytes"},
		"short secret":     {jwttest.Secret[:31], false, "got 31 bytes"},
		"JWKS as key file": {[]byte(jwks(jwk("k", jwttest.Ed25519(), ""))), false, "is JSON"},
		"PEM as JWKS":      {jwttest.PKIX(jwttest.Ed25519()), true, "is no JSON: want a JWK Set"},
		"a JWK as JWKS":    {[]byte(jwk("k", jwttest.Ed25519(), "")), true, `no list named "keys"`},
		"empty JWKS":       {[]byte(`{"keys":[]}`), true, "holds no key that can be used"},
		"secrets as JWKS":  {[]byte(jwks(`{"kty":"oct","k":"AAAA"}`)), true, "holds no key that can be used: the first is symmetric"},
		"huge JWKS":        {[]byte(`{"keys":[]}` + strings.Repeat(" ", maxSet)), true, "larger than 262144 bytes"},
	} {
		c := Config{KeyFile: jwttest.Write(t, "bad", tt.data), Log: new(journal).logger()}
		path := c.KeyFile
		if tt.jwks {
			c.JWKS, c.KeyFile = path, ""
		}
		_, err := New(context.Background(), c)
		if err == nil || !strings.HasPrefix(err.Error(), path+": ") || !strings.Contains(err.Error(), tt.want) || strings.Count(err.Error(), path) != 1 {
			t.Errorf("%s: error %v, want %q", name, err, tt.want)
		}
	}
	for _, c := range []Config{{JWKS: "/no/such/file"}, {KeyFile: "/no/such/file"}} {
		if _, err := New(context.Background(), c); err == nil || !strings.HasPrefix(err.Error(), "/no/such/file: open: ") {
			t.Errorf("%+v: error %v", c, err)
		}
	}
}
