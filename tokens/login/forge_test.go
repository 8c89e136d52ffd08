package login

import (
	"context"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A forge makes bad tokens for a gateway whose JWKS comes by URL and holds an Ed25519
// key ed, an RSA key rsa that its alg pins to RS256, an RSA key free without alg, and
// a P-256 key ec.
type forge struct {
	t       *testing.T
	v       *Verifier
	journal *journal
	fetches atomic.Int32 // of the JWKS
	evil    string       // URL of a listener that nothing may contact
}

func newForge(t *testing.T) *forge {
	f := &forge{t: t, journal: new(journal)}
	listener := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("a token made the gateway fetch %s", r.URL)
	}))
	t.Cleanup(listener.Close)
	f.evil = listener.URL
	keys := jwks(jwk("ed", ed25519Key(), ""), jwk("rsa", rsaKey(), `,"alg":"RS256"`), jwk("free", otherRSA(), ""), jwk("ec", p256Key(), ""))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		f.fetches.Add(1)
		fmt.Fprint(w, keys)
	}))
	t.Cleanup(server.Close)
	once := pace{every: time.Hour, retry: time.Hour, retryMax: time.Hour, cooldown: time.Hour}
	c := Config{JWKS: server.URL, Issuer: "https://id.example", Audience: "arena", Log: f.journal.logger(), Now: atEpoch}
	f.v = must(open(context.Background(), c, newTransport(), once))
	t.Cleanup(f.v.Close)
	return f
}

// by signs with the Ed25519 key of the set, so that only the contents are bad.
func (f *forge) by(header, claims string) string {
	f.t.Helper()
	return sign(f.t, header, claims, "EdDSA", ed25519Key())
}

func (f *forge) headed(more string) string {
	f.t.Helper()
	return f.by(head("EdDSA", "ed", more), body())
}

func (f *forge) claimed(changes ...string) string {
	f.t.Helper()
	return f.by(head("EdDSA", "ed", ""), body(changes...))
}

func (f *forge) good() string { f.t.Helper(); return f.claimed() }

type badToken struct {
	name  string
	token string
	want  error
}

// algorithms: another algorithm than the key's, or none.
func (f *forge) algorithms() []badToken {
	none := func(alg string) string {
		return base64url.EncodeToString([]byte(head(alg, "ed", ""))) + "." + base64url.EncodeToString([]byte(body())) + "."
	}
	by := func(alg, kid string, private any) string {
		f.t.Helper()
		return sign(f.t, head(alg, kid, ""), body(), alg, private)
	}
	public := func(k *rsa.PrivateKey) []byte { return pkix(k) }
	der := func(text []byte) []byte { block, _ := pem.Decode(text); return block.Bytes }
	edPublic := ed25519Key().Public().(ed25519.PublicKey)
	return []badToken{
		{"alg none without signature", strings.TrimSuffix(none("none"), "."), ErrMalformed},
		{"alg none with empty signature", none("none"), ErrMalformed},
		{"alg none with some signature", none("none") + "AAAA", ErrForged},
		{"alg None", none("None") + "AAAA", ErrForged},
		{"alg NONE", none("NONE") + "AAAA", ErrForged},
		{"alg empty", f.by(head("", "ed", ""), body()), ErrMalformed},
		{"alg missing", f.by(`{"kid":"ed"}`, body()), ErrMalformed},
		{"alg a number", f.by(`{"alg":1,"kid":"ed"}`, body()), ErrMalformed},
		{"alg in lower case", f.by(head("eddsa", "ed", ""), body()), ErrForged},
		{"alg twice", f.headed(`,"alg":"EdDSA"`), ErrMalformed},
		{"HS256 with the RSA public key in PEM", by("HS256", "rsa", public(rsaKey())), ErrForged},
		{"HS256 with the RSA public key in DER", by("HS256", "rsa", der(public(rsaKey()))), ErrForged},
		{"HS256 with the RSA public key in PKCS #1", by("HS256", "rsa", x509.MarshalPKCS1PublicKey(&rsaKey().PublicKey)), ErrForged},
		{"HS256 with the RSA modulus", by("HS256", "rsa", rsaKey().N.Bytes()), ErrForged},
		{"HS256 with the JWK", by("HS256", "rsa", []byte(jwk("rsa", rsaKey(), `,"alg":"RS256"`))), ErrForged},
		{"HS256 with the Ed25519 public key", by("HS256", "ed", []byte(edPublic)), ErrForged},
		{"HS256 with the P-256 public key in PEM", by("HS256", "ec", pkix(p256Key())), ErrForged},
		{"HS256 with an empty secret", by("HS256", "ed", []byte{}), ErrForged},
		{"RS384 with the key pinned to RS256", by("RS384", "rsa", rsaKey()), ErrForged},
		{"RS512 with the key pinned to RS256", by("RS512", "rsa", rsaKey()), ErrForged},
		{"PS256 with the key pinned to RS256", by("PS256", "rsa", rsaKey()), ErrForged},
		{"RS256 signature under alg PS256", sign(f.t, head("PS256", "free", ""), body(), "RS256", otherRSA()), ErrForged},
		{"RS256 by another RSA key", by("RS256", "rsa", otherRSA()), ErrForged},
		{"ES384 under the P-256 key's kid", by("ES384", "ec", p384Key()), ErrForged},
		{"ES256 under the RSA key's kid", by("ES256", "free", p256Key()), ErrForged},
		{"EdDSA under the RSA key's kid", f.by(head("EdDSA", "rsa", ""), body()), ErrForged},
		{"EdDSA by another key", sign(f.t, head("EdDSA", "ed", ""), body(), "EdDSA", otherEd()), ErrForged},
	}
}

// headers: an unknown, odd or repeated kid, and members that name keys.
func (f *forge) headers() []badToken {
	var out []badToken
	for _, kid := range []string{
		"x", "ed ", "ED", "e", "../../etc/passwd", "/dev/null", "' OR 1=1 --", f.evil + "/jwks.json", strings.Repeat("k", maxKid),
	} {
		out = append(out, badToken{"kid " + kid[:min(len(kid), 30)], f.by(head("EdDSA", kid, ""), body()), ErrUnknownKey})
	}
	for _, kid := range []string{`""`, `"\u0000"`, `"ed\n"`, quote(strings.Repeat("k", maxKid+1)), "null", "7", `["ed"]`, `{"ed":1}`} {
		out = append(out, badToken{"kid " + kid[:min(len(kid), 30)], f.by(`{"alg":"EdDSA","kid":`+kid+`}`, body()), ErrMalformed})
	}
	own := fmt.Sprintf(`,"jwk":{"kty":"OKP","crv":"Ed25519","x":"%s"}`, base64url.EncodeToString(otherEd()[32:]))
	for name, more := range map[string]string{
		"jku": fmt.Sprintf(`,"jku":"%s/jwks.json"`, f.evil), "x5u": fmt.Sprintf(`,"x5u":"%s/chain.pem"`, f.evil), "jwk": own,
		"jku null": `,"jku":null`, "crit": `,"crit":["exp"]`, "crit empty": `,"crit":[]`, "crit and b64": `,"b64":false,"crit":["b64"]`,
		"typ of a resume token": `,"typ":"reseat+jwt"`, "typ of a resume token in capitals": `,"typ":"RESEAT+JWT"`,
		"typ of a resume token in full": `,"typ":"application/reseat+jwt"`, "typ of a logout token": `,"typ":"logout+jwt"`,
		"typ of an event": `,"typ":"secevent+jwt"`, "typ of a proof": `,"typ":"dpop+jwt"`,
	} {
		out = append(out, badToken{"header " + name, f.headed(more), ErrForged})
	}
	return append(out, []badToken{
		{"its own jwk, signed by it", sign(f.t, head("EdDSA", "ed", own), body(), "EdDSA", otherEd()), ErrForged},
		{"kid twice", f.headed(`,"kid":"ed"`), ErrMalformed},
		{"kid twice, once escaped", f.headed(`,"k\u0069d":"x"`), ErrMalformed},
		{"no kid, and four keys", f.by(head("EdDSA", "", ""), body()), ErrUnknownKey},
		{"typ a list", f.headed(`,"typ":["JWT"]`), ErrMalformed},
		{"typ null", f.headed(`,"typ":null`), ErrMalformed},
		{"header null", f.by(`null`, body()), ErrMalformed},
		{"header a list", f.by(`[`+head("EdDSA", "ed", "")+`]`, body()), ErrMalformed},
		{"header empty", f.by(`{}`, body()), ErrMalformed},
		{"header followed by more", f.by(head("EdDSA", "ed", "")+`{}`, body()), ErrMalformed},
		{"header with many members", f.headed(manyMembers(maxMembers)), ErrMalformed},
	}...)
}

// manyMembers returns n members, each with a comma before it.
func manyMembers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"m%d":0`, i)
	}
	return b.String()
}

// contents: claims that are missing, of another type, or out of range.
func (f *forge) contents() []badToken {
	var out []badToken
	for _, name := range []string{"iss", "aud", "nbf", "iat", "exp"} {
		for _, value := range []string{"null", "{}", "true", `[7]`, `[null]`} {
			out = append(out, badToken{name + " " + value, f.claimed(name + ":" + value), ErrMalformed})
		}
	}
	for _, name := range []string{"nbf", "iat", "exp"} {
		for _, value := range []string{"-1", "-0", "-1e3", `"1800003600"`, "253402300800", "1e400", "99999999999999999999"} {
			out = append(out, badToken{name + " " + value, f.claimed(name + ":" + value), ErrMalformed})
		}
	}
	return append(out, []badToken{
		{"iss a number", f.claimed("iss:7"), ErrMalformed},
		{"aud a number", f.claimed("aud:7"), ErrMalformed},
		{"no exp", f.claimed("exp:"), ErrMalformed},
		{"exp in capitals only", f.claimed("exp:", "EXP:1800003600"), ErrMalformed},
		{"exp twice", f.by(head("EdDSA", "ed", ""), strings.TrimSuffix(body(), "}")+`,"exp":1900000000}`), ErrMalformed},
		{"sub twice, once escaped", f.by(head("EdDSA", "ed", ""), strings.TrimSuffix(body(), "}")+`,"\u0073ub":"x"}`), ErrMalformed},
		{"exp 0", f.claimed("exp:0"), ErrExpired},
		{"expired", f.claimed("exp:1800000000"), ErrExpired},
		{"nbf ahead", f.claimed("nbf:1800000031"), ErrNotYet},
		{"iat ahead", f.claimed("iat:1800000031"), ErrNotYet},
		{"iss another", f.claimed(`iss:"https://id2.example"`), ErrForeign},
		{"aud another", f.claimed(`aud:"lobby"`), ErrForeign},
		{"no aud", f.claimed("aud:"), ErrForeign},
		{"foreign and expired", f.claimed(`iss:"x"`, "exp:1"), ErrForeign},
		{"no sub", f.claimed("sub:"), ErrNoSubject},
		{"sub empty", f.claimed(`sub:""`), ErrNoSubject},
		{"no sub and a wrong signature", corrupt(f.claimed("sub:")), ErrForged},
		{"no sub and expired", f.claimed("sub:", "exp:1"), ErrNoSubject},
		{"claims null", f.by(head("EdDSA", "ed", ""), `null`), ErrMalformed},
		{"claims a list", f.by(head("EdDSA", "ed", ""), `[]`), ErrMalformed},
		{"claims empty", f.by(head("EdDSA", "ed", ""), ``), ErrMalformed},
		{"claims followed by more", f.by(head("EdDSA", "ed", ""), body()+`{}`), ErrMalformed},
		{"claims not UTF-8", f.claimed("sub:\"a\xff\""), ErrMalformed},
		{"claims with a control character", f.claimed("sub:\"a\x01\""), ErrMalformed},
		{"claims with a BOM", f.by(head("EdDSA", "ed", ""), "\ufeff"+body()), ErrMalformed},
		{"claims with many members", f.by(head("EdDSA", "ed", ""), strings.TrimSuffix(body(), "}")+manyMembers(maxMembers)+"}"), ErrMalformed},
	}...)
}

// spellings: valid tokens in another encoding, and long or deeply nested ones.
func (f *forge) spellings() []badToken {
	good := f.good()
	parts := strings.Split(good, ".")
	deep := func(n int) string { return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) }
	out := []badToken{
		{"empty", "", ErrMalformed},
		{"two dots", "..", ErrMalformed},
		{"two parts", parts[0] + "." + parts[1], ErrMalformed},
		{"four parts", good + ".AAAA", ErrMalformed},
		{"five parts, as a JWE", good + ".AAAA.AAAA", ErrMalformed},
		{"trailing dot", good + ".", ErrMalformed},
		{"trailing line break", good + "\n", ErrMalformed},
		{"leading blank", " " + good, ErrMalformed},
		{"line break in the signature", good[:len(good)-3] + "\n" + good[len(good)-3:], ErrMalformed},
		{"NUL at the end", good + "\x00", ErrMalformed},
		{"Bearer before it", "Bearer " + good, ErrMalformed},
		{"padded signature", good + "=", ErrMalformed},
		{"percent-encoded dot", strings.Replace(good, ".", "%2E", 1), ErrMalformed},
		{"standard alphabet", parts[0] + "." + parts[1] + "." + base64.RawStdEncoding.EncodeToString([]byte{0xfb, 0xff}), ErrMalformed},
		{"JSON serialization", fmt.Sprintf(`{"protected":%q,"payload":%q,"signature":%q}`, parts[0], parts[1], parts[2]), ErrMalformed},
		{"signature cut", good[:len(good)-2], ErrForged},
		{"signature longer", good + "AAAA", ErrForged},
		{"signature of another token", parts[0] + "." + parts[1] + "." + strings.Split(f.claimed(`sub:"player-2"`), ".")[2], ErrForged},
		{"one bit of the signature", corrupt(good), ErrForged},
		{"signature with trailing bits", respelled(f.t, good), ErrMalformed},
		{"not UTF-8", "\xff\xfe" + good, ErrMalformed},
		{"bytes that are no JSON", "____.____.____", ErrMalformed},
		{"a megabyte of dots", strings.Repeat(".", 1<<20), ErrTooLong},
		{"MaxLen dots", strings.Repeat(".", MaxLen), ErrMalformed},
		{"good but too long", f.claimed(`x:"` + strings.Repeat("x", MaxLen) + `"`), ErrTooLong},
		{"deep header, cut off", f.headed(`,"x":` + strings.Repeat("[", 4000)), ErrMalformed},
		{"deep claims, wrong signature", corrupt(f.claimed("x:" + deep(900))), ErrForged},
	}
	return out
}

// respelled changes unused bits of the signature's encoding: 64 bytes leave 4.
func respelled(t *testing.T, token string) string {
	t.Helper()
	i := strings.LastIndexByte(token, '.') + 1
	want := must(base64url.DecodeString(token[i:]))
	for _, c := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_" {
		other := token[:len(token)-1] + string(c)
		if got, err := base64url.DecodeString(other[i:]); err == nil && string(got) == string(want) && other != token {
			return other
		}
	}
	t.Fatal("the signature has only one encoding")
	return ""
}

// corrupt changes one character in the middle of the signature.
func corrupt(token string) string {
	i := len(token) - 40
	c := byte('A')
	if token[i] == c {
		c = 'B'
	}
	return token[:i] + string(c) + token[i+1:]
}

func (f *forge) all() (out []badToken) {
	for _, more := range [][]badToken{f.algorithms(), f.headers(), f.contents(), f.spellings()} {
		out = append(out, more...)
	}
	return out
}
