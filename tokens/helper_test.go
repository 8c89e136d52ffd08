package tokens

import (
	"sync/atomic"
	"testing"
	"time"

	"reseat/tokens/internal/jwttest"
)

// A clock stands still until it is set. The zero clock is at the epoch.
type clock struct{ since atomic.Int64 }

func (c *clock) now() time.Time      { return jwttest.Epoch.Add(time.Duration(c.since.Load())) }
func (c *clock) set(d time.Duration) { c.since.Store(int64(d)) }

// claims are valid for an hour.
func claims() Claims {
	return Claims{Session: "s-1", Subject: "player-1", Gen: 7, Expires: jwttest.Epoch.Add(time.Hour)}
}

type keyKind struct {
	alg  string
	file []byte
}

// keyKinds is one key file for each algorithm.
func keyKinds() []keyKind {
	return []keyKind{
		{"HS256", jwttest.NewSecret()},
		{"EdDSA", jwttest.PKCS8(jwttest.Ed25519())},
		{"PS256", jwttest.PKCS8(jwttest.RSA())},
		{"ES256", jwttest.PKCS8(jwttest.P256())},
		{"ES384", jwttest.PKCS8(jwttest.P384())},
		{"ES512", jwttest.PKCS8(jwttest.P521())},
	}
}

// load loads one key file for each of contents.
func load(t testing.TB, o Options, contents ...[]byte) *Keys {
	t.Helper()
	var files []string
	for _, data := range contents {
		files = append(files, jwttest.Write(t, "key", data))
	}
	k, err := Load(files, o)
	if err != nil {
		t.Fatalf("load: %v", err)
	}
	return k
}

func issue(t testing.TB, k *Keys, c Claims) string {
	t.Helper()
	token, _, err := k.Issue(c)
	if err != nil {
		t.Fatalf("issue: %v", err)
	}
	return token
}

// header returns the header of a resume token.
func header(alg, kid string) map[string]string {
	return map[string]string{"alg": jwttest.Quote(alg), "kid": jwttest.Quote(kid), "typ": `"reseat+jwt"`}
}

// contents are valid claims at the epoch.
var contents = map[string]string{
	"iss": `"reseat"`, "aud": `"reseat"`, "sub": `"player-1"`, "sid": `"s-1"`, "jti": `"j-1"`,
	"gen": "7", "iat": "1800000000", "nbf": "1800000000", "exp": "1800003600",
}
