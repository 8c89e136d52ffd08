package tokens

import (
	"errors"
	"strings"

	"github.com/golang-jwt/jwt/v5"

	"reseat/tokens/strict"
)

// MaxLen is the max length of a token in bytes; Verify refuses a longer one unread.
const MaxLen = 4096

// tokenType is the typ of every resume token (protocol section 7). A player's
// own JWT has another, so that neither passes for the other (RFC 8725 section 3.11).
const tokenType = "reseat+jwt"

// Refusals that allocate nothing.
var (
	errLength   = &refusal{ErrTooLong, "more than 4096 bytes"}
	errAlphabet = &refusal{ErrMalformed, "not three parts of base64url"}
)

// Verify returns the claims of a token that is ours and valid now, as the package
// comment defines it. Its errors wrap one of the kinds in this package and contain
// nothing of the token. Whether the session exists, and whether the generation is
// superseded, is for the caller to check.
func (k *Keys) Verify(token string) (Claims, error) {
	return k.verify(token, func(signer *key) *jwt.Parser { return signer.parser })
}

// VerifyForOwner is Verify for a gateway that only passes the token on to the one that has
// the session, and judges the dates by its own clock: they may be wrong by a minute here.
func (k *Keys) VerifyForOwner(token string) (Claims, error) {
	return k.verify(token, func(signer *key) *jwt.Parser { return signer.lenient })
}

func (k *Keys) verify(token string, parser func(*key) *jwt.Parser) (Claims, error) {
	if len(token) > MaxLen {
		return Claims{}, errLength
	}
	if !strict.IsCompact(token) {
		return Claims{}, errAlphabet
	}
	signer, err := k.set.Load().signer(token)
	if err != nil {
		return Claims{}, err
	}
	var p payload
	_, err = parser(signer).ParseWithClaims(token, &p, signer.forVerifying)
	if err != nil {
		return Claims{}, refusalOf(err, p.read)
	}
	return p.claims(signer.id), nil
}

// signer returns the key that the header of token names, provided that the header is
// the one this key would write: its alg, our typ, and no other member. So crit, jwk,
// jku, x5c, x5u and a second kid are never interpreted (RFC 8725 section 3.10).
func (s *keySet) signer(token string) (*key, error) {
	segment, _, _ := strings.Cut(token, ".")
	data, err := strict.Base64.DecodeString(segment)
	if err != nil {
		return nil, malformed("header is no strict base64url")
	}
	header, err := strict.ParseObject(data, maxMembers)
	if err != nil {
		return nil, malformed(err.Error())
	}
	var alg, kid, typ string
	r := strict.Reader{Object: header}
	r.Text("alg", &alg)
	r.Text("kid", &kid)
	r.Text("typ", &typ)
	if r.Err != nil {
		return nil, malformed(r.Err.Error())
	}
	if len(header) != 3 {
		return nil, forged("header member besides alg, kid and typ")
	}
	if typ != tokenType {
		return nil, forged("typ is another")
	}
	k, ok := s.byID[kid]
	if !ok {
		return nil, &refusal{ErrUnknownKey, "no key with this kid is loaded"}
	}
	if alg != k.method.Alg() {
		return nil, forged("alg is not that of the key")
	}
	return k, nil
}

// forVerifying is the library's key function: it returns the key as the one type
// that its algorithm takes.
func (k *key) forVerifying(*jwt.Token) (any, error) { return k.public, nil }

// newParser returns the library's parser with every check enabled that it
// leaves optional: RFC 8725 sections 3.1, 3.8 and 3.9.
func newParser(alg string, o Options, more ...jwt.ParserOption) *jwt.Parser {
	return jwt.NewParser(append(more,
		jwt.WithValidMethods([]string{alg}),
		jwt.WithStrictDecoding(),
		jwt.WithIssuer(o.Issuer),
		jwt.WithAudience(o.Audience),
		jwt.WithExpirationRequired(),
		jwt.WithNotBeforeRequired(),
		jwt.WithIssuedAt(),
		jwt.WithTimeFunc(o.Now),
	)...)
}

// refusals maps the library's errors, most significant first: a token for another gateway
// is foreign whatever its dates.
var refusals = []struct {
	found  error
	reason refusal
}{
	{jwt.ErrTokenMalformed, refusal{ErrMalformed, "signature is no strict base64url"}},
	{jwt.ErrTokenSignatureInvalid, refusal{ErrForged, "signature is not the key's"}},
	{jwt.ErrTokenUnverifiable, refusal{ErrForged, "alg is unknown"}},
	{jwt.ErrTokenInvalidIssuer, refusal{ErrForeign, "iss is another"}},
	{jwt.ErrTokenInvalidAudience, refusal{ErrForeign, "aud does not name this gateway"}},
	{jwt.ErrTokenRequiredClaimMissing, refusal{ErrForeign, "aud is empty"}},
	{jwt.ErrTokenExpired, refusal{ErrExpired, "exp has passed"}},
	{jwt.ErrTokenNotValidYet, refusal{ErrNotYet, "nbf has not come"}},
	{jwt.ErrTokenUsedBeforeIssued, refusal{ErrNotYet, "iat has not come"}},
}

// refusalOf converts an error of the library, which may quote the token, to one that does
// not. read reports whether there were claims to check: the library accepts JSON null as
// claims with zero values.
func refusalOf(err error, read bool) error {
	if own, ok := errors.AsType[*refusal](err); ok {
		return own
	}
	if !read {
		return malformed("claims are no JSON object in base64url")
	}
	for _, r := range refusals {
		if errors.Is(err, r.found) {
			return &r.reason
		}
	}
	return malformed("not a token")
}
