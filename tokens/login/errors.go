package login

import (
	"errors"
	"fmt"
)

// The kinds of errors that Find, Verify and VerifyExpired wrap. Exactly one holds,
// except that ErrUnknownKey is also an ErrForged.
var (
	// ErrMissing: the request has no login in any of the Sources.
	ErrMissing = errors.New("no login")
	// ErrTooLong: longer than MaxLen.
	ErrTooLong = errors.New("login too long")
	// ErrMalformed: not a strict compact JWS of JSON objects, a claim is missing or not
	// of its type, or a request has several different logins.
	ErrMalformed = errors.New("login malformed")
	// ErrForged: the signature, alg or another header member is not what the holder
	// of the key would have made for a login.
	ErrForged = errors.New("login forged")
	// ErrUnknownKey: no key has this kid.
	ErrUnknownKey = fmt.Errorf("%w: unknown key", ErrForged)
	// ErrNoKeys: the key set has not been fetched yet. This is not the client's
	// fault: it may retry.
	ErrNoKeys = errors.New("no keys to verify logins with")
	// ErrForeign: correctly signed, for another audience or by another issuer.
	ErrForeign = errors.New("login for another service")
	// ErrNoSubject: correctly signed and ours, and sub is missing or cannot
	// name a player.
	ErrNoSubject = errors.New("login names no player")
	// ErrNotYet: correctly signed and ours, and nbf or iat is ahead by more than the leeway.
	ErrNotYet = errors.New("login not valid yet")
	// ErrExpired: correctly signed and ours, and now >= exp.
	ErrExpired = errors.New("login expired")
)

// kinds has the label of each kind and the text for the client, the narrower kind
// before the wider.
var kinds = []struct {
	kind        error
	label       string
	description string
}{
	{ErrMissing, "missing", ""},
	{ErrTooLong, "too_long", "the token is too long"},
	{ErrMalformed, "malformed", "the token is malformed"},
	{ErrUnknownKey, "unknown_key", "the token is signed by an unknown key"},
	{ErrForged, "forged", "the token is not genuine"},
	{ErrNoKeys, "no_keys", "the token cannot be verified yet"},
	{ErrForeign, "foreign", "the token is for another service"},
	{ErrNoSubject, "no_subject", "the token names no player"},
	{ErrNotYet, "not_yet", "the token is not valid yet"},
	{ErrExpired, "expired", "the token has expired"},
}

// Reasons lists the labels that Reason gives an error.
func Reasons() []string {
	list := []string{other}
	for _, k := range kinds {
		list = append(list, k.label)
	}
	return list
}

// other is the label of an error that is not of this package.
const other = "other"

// Reason returns the label of an error for metrics and logs: missing, too_long,
// malformed, unknown_key, forged, no_keys, foreign, no_subject, not_yet or expired;
// "other" for an error that is not of this package, "" for nil. It never contains a
// part of a token.
func Reason(err error) string {
	if err == nil {
		return ""
	}
	for _, k := range kinds {
		if errors.Is(err, k.kind) {
			return k.label
		}
	}
	return other
}

// Challenge returns the WWW-Authenticate value of the 401 that answers err (RFC 6750
// section 3): without an error code if there was no login, with invalid_token
// if it was refused. Every value is fixed text.
func Challenge(err error) string {
	const bare = `Bearer realm="reseat"`
	if err == nil || errors.Is(err, ErrMissing) {
		return bare
	}
	const refused = bare + `, error="invalid_token"`
	for _, k := range kinds {
		if errors.Is(err, k.kind) {
			return refused + `, error_description="` + k.description + `"`
		}
	}
	return refused
}

// A refusal is a kind and a detail, both fixed text.
type refusal struct {
	kind   error
	detail string
}

func (r *refusal) Error() string { return r.kind.Error() + ": " + r.detail }
func (r *refusal) Unwrap() error { return r.kind }

func malformed(detail string) error { return &refusal{ErrMalformed, detail} }
func forged(detail string) error    { return &refusal{ErrForged, detail} }
