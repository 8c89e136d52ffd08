package tokens

import (
	"errors"
	"fmt"
)

// The kinds of errors that Verify wraps. Exactly one holds, except that ErrUnknownKey is
// also an ErrForged.
var (
	// ErrTooLong: longer than MaxLen. Issue returns it too.
	ErrTooLong = errors.New("token too long")
	// ErrMalformed: not a strict compact JWS of JSON objects, or a claim is missing
	// or not of its type.
	ErrMalformed = errors.New("token malformed")
	// ErrForged: the signature, alg, typ or another header member is not what
	// the key named by kid would have produced.
	ErrForged = errors.New("token forged")
	// ErrUnknownKey: no loaded key has this kid. It was removed, made by an
	// earlier process without --token-key-file, or never ours.
	ErrUnknownKey = fmt.Errorf("%w: unknown key", ErrForged)
	// ErrForeign: correctly signed, for another issuer or audience.
	ErrForeign = errors.New("token for another gateway")
	// ErrExpired: correctly signed and ours, and now >= exp.
	ErrExpired = errors.New("token expired")
	// ErrNotYet: correctly signed and ours, and now < nbf or now < iat.
	ErrNotYet = errors.New("token not valid yet")
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

// Reason returns the label of an error of Verify for metrics and logs: too_long,
// malformed, unknown_key, forged, foreign, expired or not_yet; "other" for an
// error that is not Verify's, "" for nil. It never contains a part of a token.
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

// A refusal is an error of Verify: a kind and a detail, both fixed text.
type refusal struct {
	kind   error
	detail string
}

func (r *refusal) Error() string { return r.kind.Error() + ": " + r.detail }
func (r *refusal) Unwrap() error { return r.kind }

func malformed(detail string) error { return &refusal{ErrMalformed, detail} }
func forged(detail string) error    { return &refusal{ErrForged, detail} }
