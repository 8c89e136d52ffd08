package login

import (
	"strings"
	"unicode"

	"reseat/tokens/internal/jws"
	"reseat/tokens/strict"
)

const (
	maxMembers = 128 // of a header or claims set; identity providers use up to 30
	maxKid     = 256 // bytes
)

// A header has the members of a token's header in use.
type header struct {
	alg string
	kid string // "" if absent
}

// refusedMembers name a key that the token chose itself, or require an extension that
// is not supported: RFC 8725 section 3.10 and RFC 7515 section 4.1.11. Other unknown
// members are ignored (RFC 7515 section 4).
var refusedMembers = []string{"crit", "jku", "jwk", "x5u"}

// otherTypes are the types of JWTs that are not logins although the same key may have
// signed them (RFC 8725 section 3.11): our own resume tokens, logout tokens (OpenID
// Connect Back-Channel Logout section 2.4), security events (RFC 8417 section 2.3)
// and proofs of possession (RFC 9449 section 4.2).
var otherTypes = map[string]bool{"reseat+jwt": true, "logout+jwt": true, "secevent+jwt": true, "dpop+jwt": true}

// readHeader returns the header of a compact token that may be a login.
func readHeader(token string) (header, error) {
	object, err := jws.Header(token, maxMembers)
	if err != nil {
		return header{}, err
	}
	for _, name := range refusedMembers {
		if _, ok := object.Get(name); ok {
			return header{}, jws.Forged("header has " + name)
		}
	}
	return readMembers(object)
}

func readMembers(object strict.Object) (h header, err error) {
	var typ string
	r := strict.Reader{Object: object}
	r.Text("alg", &h.alg)
	if _, ok := object.Get("kid"); ok {
		r.Text("kid", &h.kid)
	}
	if _, ok := object.Get("typ"); ok {
		r.Text("typ", &typ)
	}
	switch {
	case r.Err != nil:
		return header{}, jws.Malformed(r.Err.Error())
	case len(h.kid) > maxKid || strings.ContainsFunc(h.kid, unicode.IsControl):
		return header{}, jws.Malformed("kid is too long, or has control characters")
	case otherTypes[mediaType(typ)]:
		return header{}, jws.Forged("typ is that of another kind of token")
	}
	return h, nil
}

// mediaType returns a typ in the form that is compared: RFC 7515 section 4.1.9.
func mediaType(typ string) string {
	return strings.TrimPrefix(strings.ToLower(typ), "application/")
}
