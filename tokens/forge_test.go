package tokens

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
)

// A forge makes bad tokens for a gateway that holds an Ed25519 key (which signs),
// an RSA key, a P-256 key and a secret.
type forge struct {
	t      *testing.T
	clock  *clock
	keys   *Keys
	secret []byte
	evil   string // URL of a listener that nothing may contact
}

func newForge(t *testing.T) *forge {
	f := &forge{t: t, clock: new(clock), secret: newSecret()}
	f.keys = load(t, Options{Now: f.clock.now}, pkcs8(ed25519Key()), pkcs8(rsaKey()), pkcs8(p256Key()), f.secret)
	listener := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("a token made the gateway fetch %s", r.URL)
	}))
	t.Cleanup(listener.Close)
	f.evil = listener.URL
	return f
}

func (f *forge) kid() string       { return f.keys.SigningKeyID() }
func (f *forge) secretKid() string { return secretID(f.secret) }

func (f *forge) kidOf(public any) string { return must(thumbprint(public)) }

// header returns a valid header, with more inserted before its end.
func header(alg, kid, more string) string {
	return fmt.Sprintf(`{"alg":%s,"kid":%s,"typ":"reseat+jwt"%s}`, must(json.Marshal(alg)), must(json.Marshal(kid)), more)
}

// body returns valid claims at the epoch with some replaced: each change is
// "name:json", or "name:" to leave the claim out.
func body(changes ...string) string {
	values := map[string]string{
		"iss": `"reseat"`, "aud": `"reseat"`, "sub": `"player-1"`, "sid": `"s-1"`, "jti": `"j-1"`,
		"gen": "7", "iat": "1800000000", "nbf": "1800000000", "exp": "1800003600",
	}
	for _, c := range changes {
		name, value, _ := strings.Cut(c, ":")
		values[name] = value
	}
	var members []string
	for name, value := range values {
		if value != "" {
			members = append(members, fmt.Sprintf("%q:%s", name, value))
		}
	}
	return "{" + strings.Join(members, ",") + "}"
}

// by signs with the gateway's own first key, so that only the contents are bad.
func (f *forge) by(header, claims string) string {
	f.t.Helper()
	return sign(f.t, header, claims, jwt.SigningMethodEdDSA, ed25519Key())
}

// claimed returns a token with valid signature and header.
func (f *forge) claimed(changes ...string) string {
	f.t.Helper()
	return f.by(header("EdDSA", f.kid(), ""), body(changes...))
}

func (f *forge) good() string { return f.claimed() }

type badToken struct {
	name  string
	token string
	want  error
}

// algorithms: another algorithm than the key's, or none.
func (f *forge) algorithms() []badToken {
	return append(f.confusions(ed25519Key().Public().(ed25519.PublicKey)), []badToken{
		{"alg none without signature", strings.TrimSuffix(f.none("none"), "."), ErrMalformed},
		{"alg none with empty signature", f.none("none"), ErrMalformed},
		{"alg none with some signature", f.none("none") + "AAAA", ErrForged},
		{"alg None", f.none("None") + "AAAA", ErrForged},
		{"alg NONE", f.none("NONE") + "AAAA", ErrForged},
		{"alg empty", f.by(header("", f.kid(), ""), body()), ErrMalformed},
		{"alg missing", f.by(`{"kid":"`+f.kid()+`","typ":"reseat+jwt"}`, body()), ErrMalformed},
		{"alg in lower case", f.by(header("eddsa", f.kid(), ""), body()), ErrForged},
		{"alg Ed25519", f.by(header("Ed25519", f.kid(), ""), body()), ErrForged},
		{"alg a number", f.by(`{"alg":1,"kid":"`+f.kid()+`","typ":"reseat+jwt"}`, body()), ErrMalformed},
	}...)
}

func (f *forge) none(alg string) string {
	return base64url.EncodeToString([]byte(header(alg, f.kid(), ""))) + "." + base64url.EncodeToString([]byte(body())) + "."
}

// confusions: valid keys used with another algorithm.
func (f *forge) confusions(edPublic []byte) []badToken {
	rsaID, ecID := f.kidOf(&rsaKey().PublicKey), f.kidOf(&p256Key().PublicKey)
	hs := func(alg, kid string, secret []byte) string {
		f.t.Helper()
		return sign(f.t, header(alg, kid, ""), body(), jwt.GetSigningMethod(alg), secret)
	}
	rs := func(m jwt.SigningMethod) string {
		f.t.Helper()
		return sign(f.t, header(m.Alg(), rsaID, ""), body(), m, rsaKey())
	}
	return []badToken{
		{"HS256 with the RSA public key in PEM", hs("HS256", rsaID, pkix(rsaKey())), ErrForged},
		{"HS256 with the RSA public key in DER", hs("HS256", rsaID, must(x509.MarshalPKIXPublicKey(&rsaKey().PublicKey))), ErrForged},
		{"HS256 with the RSA modulus", hs("HS256", rsaID, rsaKey().N.Bytes()), ErrForged},
		{"HS256 with the Ed25519 public key", hs("HS256", f.kid(), edPublic), ErrForged},
		{"HS256 with the Ed25519 public key in PEM", hs("HS256", f.kid(), pkix(ed25519Key())), ErrForged},
		{"HS256 with the P-256 public key in PEM", hs("HS256", ecID, pkix(p256Key())), ErrForged},
		{"HS256 with an empty secret", hs("HS256", f.secretKid(), nil), ErrForged},
		{"HS256 with kid as the secret", hs("HS256", f.secretKid(), []byte(f.secretKid())), ErrForged},
		{"HS384 with the secret", hs("HS384", f.secretKid(), f.secret), ErrForged},
		{"HS512 with the secret", hs("HS512", f.secretKid(), f.secret), ErrForged},
		{"RS256 with the RSA key", rs(jwt.SigningMethodRS256), ErrForged},
		{"RS512 with the RSA key", rs(jwt.SigningMethodRS512), ErrForged},
		{"PS384 with the RSA key", rs(jwt.SigningMethodPS384), ErrForged},
		{"PS512 with the RSA key", rs(jwt.SigningMethodPS512), ErrForged},
		{"RS256 signature under alg PS256", sign(f.t, header("PS256", rsaID, ""), body(), jwt.SigningMethodRS256, rsaKey()), ErrForged},
		{"ES384 under the P-256 key's kid", sign(f.t, header("ES384", ecID, ""), body(), jwt.SigningMethodES384, p384Key()), ErrForged},
		{"EdDSA under the RSA key's kid", f.by(header("EdDSA", rsaID, ""), body()), ErrForged},
		{"PS256 by another RSA key", sign(f.t, header("PS256", rsaID, ""), body(), jwt.SigningMethodPS256, otherRSA()), ErrForged},
		{"EdDSA by another key", sign(f.t, header("EdDSA", f.kid(), ""), body(), jwt.SigningMethodEdDSA, newEd25519()), ErrForged},
	}
}

// headers: an unknown, odd or repeated kid, and members that name keys.
func (f *forge) headers() []badToken {
	var out []badToken
	for _, kid := range []string{
		"x", f.kid() + " ", strings.ToUpper(f.kid()), f.kid()[:20], "../../etc/passwd", "/dev/null", "' OR 1=1 --",
		f.evil + "/jwks.json", "\x00", strings.Repeat("k", 2000),
	} {
		out = append(out, badToken{"kid " + kid[:min(len(kid), 30)], f.by(header("EdDSA", kid, ""), body()), ErrUnknownKey})
	}
	jwk := fmt.Sprintf(`,"jwk":{"kty":"OKP","crv":"Ed25519","x":"%s"}`, base64url.EncodeToString(newEd25519()[32:]))
	for name, more := range map[string]string{
		"jku": fmt.Sprintf(`,"jku":"%s/jwks.json"`, f.evil), "x5u": fmt.Sprintf(`,"x5u":"%s/chain.pem"`, f.evil),
		"jwk": jwk, "x5c": `,"x5c":["MIIB"]`, "x5t": `,"x5t":"AAAA"`, "b64": `,"b64":false`, "zip": `,"zip":"DEF"`,
		"crit": `,"crit":["exp"]`, "crit empty": `,"crit":[]`, "crit and b64": `,"b64":true,"crit":["b64"]`,
		"cty": `,"cty":"JWT"`, "enc": `,"enc":"A256GCM"`, "Kid": `,"Kid":"x"`, "ALG": `,"ALG":"none"`,
	} {
		out = append(out, badToken{"header " + name, f.by(header("EdDSA", f.kid(), more), body()), ErrForged})
	}
	plain := func(alg, kid, typ string) string {
		f.t.Helper()
		return f.by(fmt.Sprintf(`{"alg":%s,"kid":%s,"typ":%s}`, alg, kid, typ), body())
	}
	kid := `"` + f.kid() + `"`
	for _, typ := range []string{"JWT", "at+jwt", "RESEAT+JWT", "application/reseat+jwt", "reseat+jwt ", "jwt", "logout+jwt"} {
		out = append(out, badToken{"typ " + typ, plain(`"EdDSA"`, kid, `"`+typ+`"`), ErrForged})
	}
	return append(out, []badToken{
		{"kid twice", f.by(header("EdDSA", f.kid(), `,"kid":"`+f.kid()+`"`), body()), ErrMalformed},
		{"kid twice, once escaped", f.by(header("EdDSA", f.kid(), `,"k\u0069d":"x"`), body()), ErrMalformed},
		{"alg twice", f.by(header("EdDSA", f.kid(), `,"alg":"EdDSA"`), body()), ErrMalformed},
		{"kid a list", plain(`"EdDSA"`, `[`+kid+`]`, `"reseat+jwt"`), ErrMalformed},
		{"kid null", plain(`"EdDSA"`, `null`, `"reseat+jwt"`), ErrMalformed},
		{"kid empty", plain(`"EdDSA"`, `""`, `"reseat+jwt"`), ErrMalformed},
		{"kid missing", f.by(`{"alg":"EdDSA","typ":"reseat+jwt"}`, body()), ErrMalformed},
		{"typ missing", f.by(`{"alg":"EdDSA","kid":`+kid+`}`, body()), ErrMalformed},
		{"header null", f.by(`null`, body()), ErrMalformed},
		{"header a list", f.by(`[`+header("EdDSA", f.kid(), "")+`]`, body()), ErrMalformed},
		{"header a string", f.by(`"EdDSA"`, body()), ErrMalformed},
		{"header empty object", f.by(`{}`, body()), ErrMalformed},
		{"header followed by more", f.by(header("EdDSA", f.kid(), "")+`{}`, body()), ErrMalformed},
		{"header with many members", f.by(header("EdDSA", f.kid(), manyMembers(40)), body()), ErrMalformed},
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
	for _, name := range []string{"iss", "aud", "sub", "sid", "gen", "iat", "nbf", "exp", "jti"} {
		out = append(out,
			badToken{"no " + name, f.claimed(name + ":"), ErrMalformed},
			badToken{name + " null", f.claimed(name + ":null"), ErrMalformed},
			badToken{name + " an object", f.claimed(name + ":{}"), ErrMalformed},
			badToken{name + " true", f.claimed(name + ":true"), ErrMalformed})
	}
	for _, name := range []string{"iss", "sub", "sid", "jti"} {
		out = append(out,
			badToken{name + " empty", f.claimed(name + `:""`), ErrMalformed},
			badToken{name + " a number", f.claimed(name + ":7"), ErrMalformed},
			badToken{name + " a list", f.claimed(name + `:["reseat"]`), ErrMalformed})
	}
	for _, name := range []string{"gen", "iat", "nbf", "exp"} {
		for _, value := range []string{"-1", "-0", "1.5", "7.0", "7e0", "1E3", `"7"`, "18446744073709551616", "1e400", "99999999999999999"} {
			out = append(out, badToken{name + " " + value, f.claimed(name + ":" + value), ErrMalformed})
		}
	}
	return append(out, []badToken{
		{"gen 0", f.claimed("gen:0"), ErrMalformed},
		{"gen above 2^53", f.claimed("gen:9007199254740993"), ErrMalformed},
		{"exp 0", f.claimed("exp:0"), ErrExpired},
		{"exp in capitals only", f.claimed("exp:", "EXP:1800003600"), ErrMalformed},
		{"exp twice", f.by(header("EdDSA", f.kid(), ""), strings.TrimSuffix(body(), "}")+`,"exp":1900000000}`), ErrMalformed},
		{"sub twice, once escaped", f.by(header("EdDSA", f.kid(), ""), strings.TrimSuffix(body(), "}")+`,"\u0073ub":"x"}`), ErrMalformed},
		{"aud a list with null", f.claimed(`aud:["reseat",null]`), ErrMalformed},
		{"aud a list with a number", f.claimed(`aud:["reseat",7]`), ErrMalformed},
		{"aud an empty list", f.claimed(`aud:[]`), ErrForeign},
		{"aud empty", f.claimed(`aud:""`), ErrForeign},
		{"aud with another ending", f.claimed(`aud:"reseat2"`), ErrForeign},
		{"aud in capitals", f.claimed(`aud:"Reseat"`), ErrForeign},
		{"aud two words", f.claimed(`aud:"reseat staging"`), ErrForeign},
		{"iss another", f.claimed(`iss:"https://id.example"`), ErrForeign},
		{"foreign and expired", f.claimed(`iss:"x"`, "exp:1"), ErrForeign},
		{"claims null", f.by(header("EdDSA", f.kid(), ""), `null`), ErrMalformed},
		{"claims a list", f.by(header("EdDSA", f.kid(), ""), `[]`), ErrMalformed},
		{"claims empty", f.by(header("EdDSA", f.kid(), ""), ``), ErrMalformed},
		{"claims followed by more", f.by(header("EdDSA", f.kid(), ""), body()+`{}`), ErrMalformed},
		{"claims not UTF-8", f.claimed("sub:\"a\xff\""), ErrMalformed},
		{"claims with an overlong encoding", f.claimed("x:\"\xc0\xae\""), ErrMalformed},
		{"claims with a control character", f.claimed("sub:\"a\x01\""), ErrMalformed},
		{"claims with a BOM", f.by(header("EdDSA", f.kid(), ""), "\ufeff"+body()), ErrMalformed},
		{"claims with many members", f.by(header("EdDSA", f.kid(), ""), strings.TrimSuffix(body(), "}")+manyMembers(40)+"}"), ErrMalformed},
		{"claims 2,600 lists deep, cut off", f.by(header("EdDSA", f.kid(), ""), strings.Repeat("[", 2600)), ErrMalformed},
	}...)
}

// spellings: valid tokens in another encoding.
func (f *forge) spellings() []badToken {
	good := f.good()
	parts := strings.Split(good, ".")
	padded := func(i int) string {
		p := append([]string(nil), parts...)
		p[i] += "="
		return strings.Join(p, ".")
	}
	standard := base64.RawStdEncoding.EncodeToString([]byte{0xfb, 0xff})
	out := []badToken{
		{"empty", "", ErrMalformed},
		{"one dot", ".", ErrMalformed},
		{"two dots", "..", ErrMalformed},
		{"header alone", parts[0], ErrMalformed},
		{"two parts", parts[0] + "." + parts[1], ErrMalformed},
		{"four parts", good + ".AAAA", ErrMalformed},
		{"five parts, as a JWE", good + ".AAAA.AAAA", ErrMalformed},
		{"trailing dot", good + ".", ErrMalformed},
		{"leading dot", "." + good, ErrMalformed},
		{"trailing line break", good + "\n", ErrMalformed},
		{"leading blank", " " + good, ErrMalformed},
		{"carriage return inside", good[:9] + "\r" + good[9:], ErrMalformed},
		{"line break in the signature", good[:len(good)-3] + "\n" + good[len(good)-3:], ErrMalformed},
		{"NUL at the end", good + "\x00", ErrMalformed},
		{"Bearer before it", "Bearer " + good, ErrMalformed},
		{"padded header", padded(0), ErrMalformed},
		{"padded claims", padded(1), ErrMalformed},
		{"padded signature", padded(2), ErrMalformed},
		{"standard alphabet", parts[0] + "." + parts[1] + "." + standard, ErrMalformed},
		{"JSON serialization", fmt.Sprintf(`{"protected":%q,"payload":%q,"signature":%q}`, parts[0], parts[1], parts[2]), ErrMalformed},
		{"signature cut", good[:len(good)-2], ErrForged},
		{"signature longer", good + "AAAA", ErrForged},
		{"one signature character more", good + "B", ErrMalformed},
		{"not UTF-8", "\xff\xfe" + good, ErrMalformed},
		{"not base64", "!.!.!", ErrMalformed},
		{"bytes that are no JSON", "____.____.____", ErrMalformed},
	}
	for i := range 3 { // the last character's unused bits set, if there are any
		if other, ok := respelled(parts[i]); ok {
			p := append([]string(nil), parts...)
			p[i] = other
			out = append(out, badToken{fmt.Sprintf("part %d with trailing bits", i), strings.Join(p, "."), ErrMalformed})
		}
	}
	return out
}

// respelled returns another base64url text that a lax decoder decodes to the same
// bytes.
func respelled(part string) (string, bool) {
	if len(part)%4 == 0 {
		return "", false
	}
	want := must(base64url.DecodeString(part))
	for _, c := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_" {
		other := part[:len(part)-1] + string(c)
		if got, err := base64url.DecodeString(other); err == nil && string(got) == string(want) && other != part {
			return other, true
		}
	}
	return "", false
}

// sizes: long or deeply nested tokens.
func (f *forge) sizes() []badToken {
	deep := func(n int) string { return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) }
	return []badToken{
		{"a megabyte of dots", strings.Repeat(".", 1<<20), ErrTooLong},
		{"MaxLen dots", strings.Repeat(".", MaxLen), ErrMalformed},
		{"one byte too long", strings.Repeat("A", MaxLen+1), ErrTooLong},
		{"good but too long", f.claimed(`x:"` + strings.Repeat("x", MaxLen) + `"`), ErrTooLong},
		{"a megabyte of signature", f.good() + strings.Repeat("A", 1<<20), ErrTooLong},
		{"deep header", f.by(header("EdDSA", f.kid(), `,"x":`+deep(400)), body()), ErrForged},
		{"deep header, cut off", f.by(header("EdDSA", f.kid(), `,"x":`+strings.Repeat("[", 2000)), body()), ErrMalformed},
		{"deep claims, wrong signature", corrupt(f.claimed("x:" + deep(400))), ErrForged},
	}
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

func (f *forge) all() []badToken {
	out := []badToken{
		{"one bit of the signature", corrupt(f.good()), ErrForged},
		{"signature of another token", swapSignature(f.claimed("gen:8"), f.good()), ErrForged},
		{"signature of another token, header swapped", swapSignature(sign(f.t, header("HS256", f.secretKid(), ""), body(), jwt.SigningMethodHS256, f.secret), f.good()), ErrForged},
		{"nbf ahead", f.claimed("nbf:1800000001"), ErrNotYet},
		{"iat ahead", f.claimed("iat:1800000061"), ErrNotYet},
		{"expired", f.claimed("exp:1800000000"), ErrExpired},
	}
	for _, more := range [][]badToken{f.algorithms(), f.headers(), f.contents(), f.spellings(), f.sizes()} {
		out = append(out, more...)
	}
	return out
}

func swapSignature(token, from string) string {
	return token[:strings.LastIndexByte(token, '.')] + from[strings.LastIndexByte(from, '.'):]
}
