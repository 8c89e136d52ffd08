package jwttest

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
)

var base64url = base64.RawURLEncoding

// Encode returns the base64url of s, Decode the text of one.
func Encode[T ~string | ~[]byte](s T) string { return base64url.EncodeToString([]byte(s)) }

// Decode is the lax inverse of Encode.
func Decode(s string) []byte { return Must(base64url.DecodeString(s)) }

// Quote returns s as JSON.
func Quote(s string) string { return string(Must(json.Marshal(s))) }

// Object returns a JSON object of values with some replaced: each change is "name:json", or "name:" to leave
// the member out.
func Object(values map[string]string, changes ...string) string {
	values = maps.Clone(values)
	for _, c := range changes {
		name, value, _ := strings.Cut(c, ":")
		values[name] = value
	}
	var members []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if values[name] != "" {
			members = append(members, fmt.Sprintf("%q:%s", name, values[name]))
		}
	}
	return "{" + strings.Join(members, ",") + "}"
}

// Members returns n members for an object, each with a comma before it.
func Members(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"m%d":0`, i)
	}
	return b.String()
}

// Sign makes a token of any header and claims, given as JSON text, with the algorithm and key:
// what a forger, or a faulty issuer, would send.
func Sign(t testing.TB, header, claims, alg string, private any) string {
	t.Helper()
	text := Encode(header) + "." + Encode(claims)
	signature, err := jwt.GetSigningMethod(alg).Sign(text, private)
	if err != nil {
		t.Fatalf("sign: %v", err)
	}
	return text + "." + Encode(signature)
}

// Corrupt changes one character in the middle of the signature.
func Corrupt(token string) string {
	i := len(token) - 40
	c := "A"
	if token[i] == 'A' {
		c = "B"
	}
	return token[:i] + c + token[i+1:]
}

// Respelled returns a token with another text for one of its parts, which a lax decoder decodes to the same
// bytes; ok is false if that part has only one.
func Respelled(token string, part int) (other string, ok bool) {
	parts := strings.Split(token, ".")
	text := parts[part]
	for _, c := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_" {
		parts[part] = text[:len(text)-1] + string(c)
		got, err := base64url.DecodeString(parts[part])
		if err == nil && string(got) == string(Decode(text)) && parts[part] != text && len(text)%4 > 0 {
			return strings.Join(parts, "."), true
		}
	}
	return "", false
}

// A Bad token must be refused for a reason, as in metrics and logs.
type Bad struct {
	Name, Token, Reason string
}

// A Forge makes bad tokens for a verifier that has the Ed25519 key of this package.
type Forge struct {
	T      *testing.T
	Header map[string]string // of a valid token that this key has signed
	Claims map[string]string
	MaxLen int
	Most   int // members of a header or a claims set
	Evil   string
}

// NewForge returns a Forge with a listener that nothing may contact, whose URL is Evil.
func NewForge(t *testing.T, f Forge) *Forge {
	listener := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("a token made the gateway fetch %s", r.URL)
	}))
	t.Cleanup(listener.Close)
	f.T, f.Evil = t, listener.URL
	return &f
}

// By signs with the key of the verifier, so that only the contents are bad.
func (f *Forge) By(header, claims string) string {
	f.T.Helper()
	return Sign(f.T, header, claims, "EdDSA", Ed25519())
}

// Head returns a valid header with changes, Body valid claims.
func (f *Forge) Head(changes ...string) string { return Object(f.Header, changes...) }

// Body returns valid claims with changes.
func (f *Forge) Body(changes ...string) string { return Object(f.Claims, changes...) }

// Headed returns a token that is valid but for changes in its header.
func (f *Forge) Headed(changes ...string) string {
	f.T.Helper()
	return f.By(f.Head(changes...), f.Body())
}

// With returns a token whose header has more before its end, which may repeat a member.
func (f *Forge) With(more string) string {
	f.T.Helper()
	return f.By(strings.TrimSuffix(f.Head(), "}")+more+"}", f.Body())
}

// Claimed returns a token that is valid but for changes in its claims.
func (f *Forge) Claimed(changes ...string) string {
	f.T.Helper()
	return f.By(f.Head(), f.Body(changes...))
}

// Bad returns tokens that every verifier must refuse.
func (f *Forge) Bad() []Bad {
	f.T.Helper()
	return slices.Concat(f.algorithms(), f.headers(), f.contents(), f.spellings())
}

// algorithms: none, another than the key's, or a public key taken for a secret.
func (f *Forge) algorithms() []Bad {
	none := func(alg string) string { return Encode(f.Head("alg:"+Quote(alg))) + "." + Encode(f.Body()) + "." }
	by := func(alg string, private any) string {
		return Sign(f.T, f.Head("alg:"+Quote(alg)), f.Body(), alg, private)
	}
	public := []byte(Ed25519().Public().(ed25519.PublicKey))
	return []Bad{
		{"alg none without signature", strings.TrimSuffix(none("none"), "."), "malformed"},
		{"alg none with empty signature", none("none"), "malformed"},
		{"alg none with some signature", none("none") + "AAAA", "forged"},
		{"alg None", none("None") + "AAAA", "forged"},
		{"alg NONE", none("NONE") + "AAAA", "forged"},
		{"alg empty", f.Headed(`alg:""`), "malformed"},
		{"alg missing", f.Headed("alg:"), "malformed"},
		{"alg a number", f.Headed("alg:1"), "malformed"},
		{"alg in lower case", f.Headed(`alg:"eddsa"`), "forged"},
		{"alg Ed25519", f.Headed(`alg:"Ed25519"`), "forged"},
		{"alg twice", f.With(`,"alg":"EdDSA"`), "malformed"},
		{"HS256 with the public key", by("HS256", public), "forged"},
		{"HS256 with the public key in PEM", by("HS256", PKIX(Ed25519())), "forged"},
		{"HS256 with an empty secret", by("HS256", []byte{}), "forged"},
		{"RS256 under the Ed25519 key's kid", by("RS256", RSA()), "forged"},
		{"EdDSA by another key", by("EdDSA", OtherEd25519()), "forged"},
	}
}

// headers: members that name keys, or that no verifier may pass over.
func (f *Forge) headers() []Bad {
	own := `,"jwk":{"kty":"OKP","crv":"Ed25519","x":"` + Encode(OtherEd25519()[32:]) + `"}`
	out := []Bad{
		{"its own jwk, signed by it", Sign(f.T, strings.TrimSuffix(f.Head(), "}")+own+"}", f.Body(), "EdDSA", OtherEd25519()), "forged"},
		{"kid twice", f.With(`,"kid":"x"`), "malformed"},
		{"kid twice, once escaped", f.With(`,"k\u0069d":"x"`), "malformed"},
		{"kid empty", f.Headed(`kid:""`), "malformed"},
		{"kid null", f.Headed("kid:null"), "malformed"},
		{"kid a list", f.Headed(`kid:["x"]`), "malformed"},
		{"typ a list", f.Headed(`typ:["JWT"]`), "malformed"},
		{"typ null", f.Headed("typ:null"), "malformed"},
		{"header null", f.By("null", f.Body()), "malformed"},
		{"header a list", f.By("["+f.Head()+"]", f.Body()), "malformed"},
		{"header a string", f.By(`"EdDSA"`, f.Body()), "malformed"},
		{"header empty", f.By("{}", f.Body()), "malformed"},
		{"header followed by more", f.By(f.Head()+"{}", f.Body()), "malformed"},
		{"header with many members", f.With(Members(f.Most)), "malformed"},
		{"deep header, cut off", f.With(`,"x":` + strings.Repeat("[", f.MaxLen/2)), "malformed"},
	}
	for _, kid := range []string{"x", "../../etc/passwd", "/dev/null", "' OR 1=1 --", f.Evil + "/jwks.json", strings.Repeat("k", 256)} {
		out = append(out, Bad{"kid " + kid, f.Headed("kid:" + Quote(kid)), "unknown_key"})
	}
	for _, more := range []string{
		`,"jku":"` + f.Evil + `/jwks.json"`, `,"x5u":"` + f.Evil + `/chain.pem"`, own, `,"crit":["exp"]`, `,"crit":[]`, `,"b64":false,"crit":["b64"]`,
	} {
		out = append(out, Bad{"header with " + more, f.With(more), "forged"})
	}
	for _, typ := range []string{"application/reseat+jwt", "RESEAT+JWT", "logout+jwt", "secevent+jwt", "dpop+jwt"} {
		out = append(out, Bad{"typ " + typ, f.Headed("typ:" + Quote(typ)), "forged"})
	}
	return out
}

// contents: claims that are missing, of another type, out of range, or not for this verifier.
func (f *Forge) contents() []Bad {
	twice := func(more string) string { return f.By(f.Head(), strings.TrimSuffix(f.Body(), "}")+more+"}") }
	out := []Bad{
		{"iss a number", f.Claimed("iss:7"), "malformed"},
		{"aud a number", f.Claimed("aud:7"), "malformed"},
		{"no exp", f.Claimed("exp:"), "malformed"},
		{"exp in capitals only", f.Claimed("exp:", "EXP:1800003600"), "malformed"},
		{"exp twice", twice(`,"exp":1900000000`), "malformed"},
		{"sub twice, once escaped", twice(`,"\u0073ub":"x"`), "malformed"},
		{"exp 0", f.Claimed("exp:0"), "expired"},
		{"expired", f.Claimed("exp:1800000000"), "expired"},
		{"nbf ahead", f.Claimed("nbf:1800000061"), "not_yet"},
		{"iat ahead", f.Claimed("iat:1800000061"), "not_yet"},
		{"iss another", f.Claimed(`iss:"https://id2.example"`), "foreign"},
		{"aud another", f.Claimed(`aud:"lobby"`), "foreign"},
		{"aud an empty list", f.Claimed("aud:[]"), "foreign"},
		{"aud empty", f.Claimed(`aud:""`), "foreign"},
		{"foreign and expired", f.Claimed(`iss:"x"`, "exp:1"), "foreign"},
		{"claims null", f.By(f.Head(), "null"), "malformed"},
		{"claims a list", f.By(f.Head(), "[]"), "malformed"},
		{"claims empty", f.By(f.Head(), ""), "malformed"},
		{"claims followed by more", f.By(f.Head(), f.Body()+"{}"), "malformed"},
		{"claims not UTF-8", f.Claimed("sub:\"a\xff\""), "malformed"},
		{"claims with an overlong encoding", f.Claimed("x:\"\xc0\xae\""), "malformed"},
		{"claims with a control character", f.Claimed("sub:\"a\x01\""), "malformed"},
		{"claims with a BOM", f.By(f.Head(), "\ufeff"+f.Body()), "malformed"},
		{"claims with many members", twice(Members(f.Most)), "malformed"},
		{"deep claims, wrong signature", Corrupt(f.Claimed("x:" + strings.Repeat("[", f.MaxLen/5) + strings.Repeat("]", f.MaxLen/5))), "forged"},
	}
	for _, name := range []string{"iss", "aud", "nbf", "iat", "exp"} {
		for _, value := range []string{"null", "{}", "true", "[7]", "[null]"} {
			out = append(out, Bad{name + " " + value, f.Claimed(name + ":" + value), "malformed"})
		}
	}
	for _, name := range []string{"nbf", "iat", "exp"} {
		for _, value := range []string{"-1", "-0", "-1e3", `"1800003600"`, "253402300800", "1e400", "99999999999999999999"} {
			out = append(out, Bad{name + " " + value, f.Claimed(name + ":" + value), "malformed"})
		}
	}
	return out
}

// spellings: valid tokens in another encoding, and long ones.
func (f *Forge) spellings() []Bad {
	good := f.Claimed()
	parts := strings.Split(good, ".")
	text := parts[0] + "." + parts[1]
	out := []Bad{
		{"empty", "", "malformed"},
		{"one dot", ".", "malformed"},
		{"two dots", "..", "malformed"},
		{"header alone", parts[0], "malformed"},
		{"two parts", text, "malformed"},
		{"four parts", good + ".AAAA", "malformed"},
		{"five parts, as a JWE", good + ".AAAA.AAAA", "malformed"},
		{"trailing dot", good + ".", "malformed"},
		{"leading dot", "." + good, "malformed"},
		{"trailing line break", good + "\n", "malformed"},
		{"leading blank", " " + good, "malformed"},
		{"carriage return inside", good[:9] + "\r" + good[9:], "malformed"},
		{"line break in the signature", good[:len(good)-3] + "\n" + good[len(good)-3:], "malformed"},
		{"NUL at the end", good + "\x00", "malformed"},
		{"Bearer before it", "Bearer " + good, "malformed"},
		{"padded header", parts[0] + "=." + parts[1] + "." + parts[2], "malformed"},
		{"padded claims", text + "=." + parts[2], "malformed"},
		{"padded signature", good + "=", "malformed"},
		{"percent-encoded dot", strings.Replace(good, ".", "%2E", 1), "malformed"},
		{"standard alphabet", text + "." + base64.RawStdEncoding.EncodeToString([]byte{0xfb, 0xff}), "malformed"},
		{"JSON serialization", fmt.Sprintf(`{"protected":%q,"payload":%q,"signature":%q}`, parts[0], parts[1], parts[2]), "malformed"},
		{"one bit of the signature", Corrupt(good), "forged"},
		{"signature cut", good[:len(good)-2], "forged"},
		{"signature longer", good + "AAAA", "forged"},
		{"signature of another token", text + "." + strings.Split(f.Claimed(`sub:"player-2"`), ".")[2], "forged"},
		{"one signature character more", good + "B", "malformed"},
		{"not UTF-8", "\xff\xfe" + good, "malformed"},
		{"bytes that are no JSON", "____.____.____", "malformed"},
		{"a megabyte of dots", strings.Repeat(".", 1<<20), "too_long"},
		{"as many dots as fit", strings.Repeat(".", f.MaxLen), "malformed"},
		{"one byte too long", strings.Repeat("A", f.MaxLen+1), "too_long"},
		{"good but too long", f.Claimed(`x:"` + strings.Repeat("x", f.MaxLen) + `"`), "too_long"},
		{"a megabyte of signature", good + strings.Repeat("A", 1<<20), "too_long"},
	}
	for part := range parts {
		if other, ok := Respelled(good, part); ok {
			out = append(out, Bad{fmt.Sprintf("part %d with trailing bits", part), other, "malformed"})
		}
	}
	return out
}
