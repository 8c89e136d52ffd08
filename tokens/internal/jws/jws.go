// Package jws has what the verification of resume tokens and of logins have in common: the
// header of a compact JWS, and why a token is refused.
package jws

import (
	"errors"
	"fmt"
	"strings"

	"github.com/golang-jwt/jwt/v5"

	"reseat/tokens/strict"
)

// The kinds of refusals. ErrUnknownKey is also an ErrForged.
var (
	ErrTooLong    = errors.New("token too long")
	ErrMalformed  = errors.New("token malformed")
	ErrForged     = errors.New("token forged")
	ErrUnknownKey = fmt.Errorf("%w: unknown key", ErrForged)
	ErrForeign    = errors.New("token for another service")
	ErrExpired    = errors.New("token expired")
	ErrNotYet     = errors.New("token not valid yet")
)

// reasons gives each kind its label, the narrower kind before the wider.
var reasons = []struct {
	kind  error
	label string
}{
	{ErrTooLong, "too_long"},
	{ErrMalformed, "malformed"},
	{ErrUnknownKey, "unknown_key"},
	{ErrForged, "forged"},
	{ErrForeign, "foreign"},
	{ErrExpired, "expired"},
	{ErrNotYet, "not_yet"},
}

// Reason returns the label of an error for metrics and logs: "other" for one that is not a
// refusal, "" for nil. It never contains a part of a token.
func Reason(err error) string {
	if err == nil {
		return ""
	}
	for _, r := range reasons {
		if errors.Is(err, r.kind) {
			return r.label
		}
	}
	return "other"
}

// A Refusal is the error for a token: a kind and a detail, both fixed text.
type Refusal struct {
	Kind   error
	Detail string
}

func (r *Refusal) Error() string { return r.Kind.Error() + ": " + r.Detail }
func (r *Refusal) Unwrap() error { return r.Kind }

// Malformed refuses a token that is not well formed.
func Malformed(detail string) error { return &Refusal{ErrMalformed, detail} }

// Forged refuses a token that the key's holder would not have made.
func Forged(detail string) error { return &Refusal{ErrForged, detail} }

var (
	notThreeParts = &Refusal{ErrMalformed, "not three parts of base64url"}
	noClaims      = &Refusal{ErrMalformed, "claims are no JSON object in base64url"}
)

// Header returns the header of a compact token, of at most maxMembers members. It allocates
// nothing for a token that is not compact.
func Header(token string, maxMembers int) (strict.Object, error) {
	if !strict.IsCompact(token) {
		return nil, notThreeParts
	}
	segment, _, _ := strings.Cut(token, ".")
	data, err := strict.Base64.DecodeString(segment)
	if err != nil {
		return nil, Malformed("header is no strict base64url")
	}
	object, err := strict.ParseObject(data, maxMembers)
	if err != nil {
		return nil, Malformed(err.Error())
	}
	return object, nil
}

// refusals maps the library's errors, most significant first: a token for another service
// is foreign whatever its dates.
var refusals = []struct {
	found  error
	reason Refusal
}{
	{jwt.ErrTokenMalformed, Refusal{ErrMalformed, "signature is no strict base64url"}},
	{jwt.ErrTokenSignatureInvalid, Refusal{ErrForged, "signature is not the key's"}},
	{jwt.ErrTokenUnverifiable, Refusal{ErrForged, "alg is unknown"}},
	{jwt.ErrTokenInvalidIssuer, Refusal{ErrForeign, "iss is another"}},
	{jwt.ErrTokenInvalidAudience, Refusal{ErrForeign, "aud does not name this service"}},
	{jwt.ErrTokenRequiredClaimMissing, Refusal{ErrForeign, "no iss or aud"}},
	{jwt.ErrTokenExpired, Refusal{ErrExpired, "exp has passed"}},
	{jwt.ErrTokenNotValidYet, Refusal{ErrNotYet, "nbf has not come"}},
	{jwt.ErrTokenUsedBeforeIssued, Refusal{ErrNotYet, "iat has not come"}},
}

// Refuse returns the refusal for the result of the library's parser, whose errors may quote
// the token, and nil if it accepted the token. read reports whether there were claims to
// check: the library accepts JSON null as claims with zero values.
func Refuse(err error, read bool) error {
	if own, ok := errors.AsType[*Refusal](err); ok {
		return own
	}
	if !read {
		return noClaims
	}
	if err == nil {
		return nil
	}
	for _, r := range refusals {
		if errors.Is(err, r.found) {
			return &r.reason
		}
	}
	return Malformed("not a token")
}
