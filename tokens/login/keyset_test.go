package login

import (
	"context"
	"slices"
	"strings"
	"testing"

	"reseat/tokens/internal/jwttest"
	"reseat/tokens/keyfile"
)

// readSet reads a JWKS that a server answers with.
func readSet(data string) (*keySet, error) {
	s := new(site)
	s.now(answer{set: data})
	return fetch(context.Background(), "https://id.example/", s.RoundTrip)
}

// usable returns the kids of a set with the number of algorithms of each.
func usable(s *keySet) map[string]int {
	out := map[string]int{}
	for _, k := range s.keys {
		out[k.kid] += len(k.algs)
	}
	return out
}

func TestKeysThatCannotBeUsedAreIgnored(t *testing.T) {
	small := `{"kty":"RSA","kid":"small","n":"` + jwttest.Encode(jwttest.RSA().N.Bytes()[:128]) + `","e":"AQAB"}`
	private := strings.TrimSuffix(jwk("private", jwttest.OtherEd25519(), ""), "}") + `,"d":"` + jwttest.Encode(jwttest.OtherEd25519().Seed()) + `"}`
	for name, tt := range map[string]struct {
		other  string
		reason string // "" for no warning
	}{
		"for encryption":              {jwk("enc", jwttest.OtherRSA(), `,"use":"enc","alg":"RSA-OAEP"`), ""},
		"for key agreement":           {jwk("dh", jwttest.P384(), `,"key_ops":["deriveKey"]`), ""},
		"of a type unknown":           {`{"kty":"AKP","kid":"x","alg":"ML-DSA-44","pub":"AAAA"}`, ""},
		"on a curve unknown":          {`{"kty":"EC","kid":"x","crv":"secp256k1","x":"AAAA","y":"AAAA"}`, ""},
		"null":                        {`null`, ""},
		"symmetric":                   {`{"kty":"oct","kid":"oct","k":"` + jwttest.Encode(jwttest.Secret) + `"}`, "is symmetric"},
		"private":                     {private, "is a private key"},
		"with an alg of another type": {jwk("x", jwttest.OtherRSA(), `,"alg":"ES256"`), `alg "ES256", which is not one of`},
		"with a symmetric alg":        {jwk("x", jwttest.OtherRSA(), `,"alg":"HS256"`), `alg "HS256"`},
		"with a long alg":             {jwk("x", jwttest.OtherRSA(), `,"alg":"`+strings.Repeat("A", 5000)+`"`), `alg "AAAAAAAAAAAAAAAA",`},
		"RSA of 1024 bits":            {small, "1024 bits"},
		"X25519":                      {`{"kty":"OKP","kid":"x","crv":"X25519","x":"` + jwttest.Encode(jwttest.OtherEd25519()[32:]) + `"}`, "*ecdh.PublicKey"},
	} {
		t.Run(name, func(t *testing.T) {
			set, err := readSet(jwks(tt.other, jwk("good", jwttest.Ed25519(), "")))
			if err != nil {
				t.Fatal(err)
			}
			if got := usable(set); len(got) != 1 || got["good"] != 1 {
				t.Errorf("usable are %v, want good alone", got)
			}
			if tt.reason == "" && len(set.ignored) > 0 || tt.reason != "" && (len(set.ignored) != 1 || !strings.Contains(set.ignored[0].reason, tt.reason)) {
				t.Errorf("ignored %.300q, want one with %q", set.ignored, tt.reason)
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
		"RSA with certificates":     {jwk("k", jwttest.RSA(), `,"x5t":"AAAA","x5c":[],"x5u":"https://x"`), 6},
		"EC with alg":               {jwk("k", jwttest.P521(), `,"alg":"ES512"`), 1},
		"Ed25519 without alg":       {jwk("k", jwttest.Ed25519(), ""), 1},
		"Ed25519 with alg":          {jwk("k", jwttest.Ed25519(), `,"alg":"EdDSA"`), 1},
		"with members unknown":      {jwk("k", jwttest.Ed25519(), `,"issuer":"https://x","exp":1`), 1},
		"with padding in its value": {strings.Replace(jwk("k", jwttest.Ed25519(), ""), `","kid"`, `=","kid"`, 1), 1},
	} {
		set, err := readSet(jwks(tt.key))
		if err != nil {
			t.Errorf("%s: error %v, want %d algorithms", name, err, tt.algs)
		} else if usable(set)["k"] != tt.algs || len(set.ignored) > 0 {
			t.Errorf("%s: %v, ignored %v, want %d algorithms", name, usable(set), set.ignored, tt.algs)
		}
	}
}

// Several keys may have one kid. Their order must not matter.
func TestKeysOfOneKid(t *testing.T) {
	one, two, other := jwk("k", jwttest.Ed25519(), ""), jwk("k", jwttest.OtherEd25519(), ""), jwk("k", jwttest.RSA(), `,"alg":"RS256"`)
	rs256 := jwttest.Sign(t, head("RS256", "k", ""), body(), "RS256", jwttest.RSA())
	rs512 := jwttest.Sign(t, head("RS512", "k", ""), body(), "RS512", jwttest.RSA())
	for _, keys := range [][]string{{one, two, other}, {two, other, one}, {other, one, two}} {
		v := bySet(t, keys...)
		wantPlayer(t, v, edToken(t, "k", jwttest.Ed25519()))
		wantPlayer(t, v, edToken(t, "k", jwttest.OtherEd25519()))
		wantPlayer(t, v, rs256)
		wantRefused(t, v, rs512, ErrForged)
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
		set, err := readSet(string(data))
		if err != nil {
			return
		}
		for _, k := range set.keys {
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
		"PEM as JWKS":      {jwttest.PKIX(jwttest.Ed25519()), true, "decode JWK Set"},
		"a JWK as JWKS":    {[]byte(jwk("k", jwttest.Ed25519(), "")), true, "holds no key that can be used"},
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
		if _, err := New(context.Background(), c); err == nil || !strings.HasPrefix(err.Error(), "/no/such/file: no such file") {
			t.Errorf("%+v: error %v", c, err)
		}
	}
}
