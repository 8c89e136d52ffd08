package tokens

import (
	"github.com/golang-jwt/jwt/v5"

	"reseat/tokens/internal/jws"
	"reseat/tokens/strict"
)

// MaxLen is the max length of a token in bytes; Verify refuses a longer one unread.
const MaxLen = 4096

// tokenType is the typ of every resume token (protocol section 7). A player's
// own JWT has another, so that neither passes for the other (RFC 8725 section 3.11).
const tokenType = "reseat+jwt"

var errLength = &jws.Refusal{Kind: ErrTooLong, Detail: "more than 4096 bytes"}

// Verify returns the claims of a token that is ours and valid now, as the package
// comment defines it. Its errors wrap one of the kinds in this package and contain
// nothing of the token. Whether the session exists, and whether the generation is
// superseded, is for the caller to check.
func (k *Keys) Verify(token string) (Claims, error) {
	return k.verify(token, func(signer *key) *jwt.Parser { return signer.parser })
}

// VerifyForOwner is VerifyKnown for a gateway that may only pass the token on to the one that has
// the session, and judges the dates by its own clock: they may be wrong by a minute here.
func (k *Keys) VerifyForOwner(token string, recall func(session string) *Memo) (Claims, error) {
	if c, ok := k.known(token, recall); ok {
		return c, nil
	}
	return k.verify(token, func(signer *key) *jwt.Parser { return signer.lenient })
}

func (k *Keys) verify(token string, parser func(*key) *jwt.Parser) (Claims, error) {
	if len(token) > MaxLen {
		return Claims{}, errLength
	}
	signer, err := k.set.Load().signer(token)
	if err != nil {
		return Claims{}, err
	}
	var p payload
	_, err = parser(signer).ParseWithClaims(token, &p, signer.forVerifying)
	if err := jws.Refuse(err, p.read); err != nil {
		return Claims{}, err
	}
	return p.claims(signer.id), nil
}

// signer returns the key that the header of token names, provided that the header has
// our typ, an alg, which the key's parser compares with the key's own, and no other
// member. So crit, jwk, jku, x5c, x5u and a second kid are never interpreted (RFC 8725
// section 3.10).
func (s *keySet) signer(token string) (*key, error) {
	header, err := jws.Header(token, maxMembers)
	if err != nil {
		return nil, err
	}
	var alg, kid, typ string
	r := strict.Reader{Object: header}
	r.Text("alg", &alg)
	r.Text("kid", &kid)
	r.Text("typ", &typ)
	if r.Err != nil {
		return nil, jws.Malformed(r.Err.Error())
	}
	if len(header) != 3 {
		return nil, jws.Forged("header member besides alg, kid and typ")
	}
	if typ != tokenType {
		return nil, jws.Forged("typ is another")
	}
	k, ok := s.byID[kid]
	if !ok {
		return nil, &jws.Refusal{Kind: ErrUnknownKey, Detail: "no key with this kid is loaded"}
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
		jwt.WithIssuer(issuer),
		jwt.WithAudience(o.Audience),
		jwt.WithExpirationRequired(),
		jwt.WithNotBeforeRequired(),
		jwt.WithIssuedAt(),
		jwt.WithTimeFunc(o.Now),
	)...)
}
