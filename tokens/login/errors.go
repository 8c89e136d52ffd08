package login

import (
	"errors"

	"reseat/tokens/internal/jws"
)

// The kinds of errors that Find, Verify and VerifyExpired wrap. Exactly one holds,
// except that ErrUnknownKey is also an ErrForged.
var (
	// ErrMissing: the request has no login in any of the Sources.
	ErrMissing = errors.New("no login")
	// ErrTooLong: longer than MaxLen.
	ErrTooLong = jws.ErrTooLong
	// ErrMalformed: not a strict compact JWS of JSON objects, a claim is missing or not
	// of its type, or a request has several different logins.
	ErrMalformed = jws.ErrMalformed
	// ErrForged: the signature, alg or another header member is not what the holder
	// of the key would have made for a login.
	ErrForged = jws.ErrForged
	// ErrUnknownKey: no key has this kid.
	ErrUnknownKey = jws.ErrUnknownKey
	// ErrNoKeys: the key set has not been fetched yet. This is not the client's
	// fault: it may retry.
	ErrNoKeys = errors.New("no keys to verify logins with")
	// ErrForeign: correctly signed, for another audience or by another issuer.
	ErrForeign = jws.ErrForeign
	// ErrNoSubject: correctly signed and ours, and sub is missing or cannot
	// name a player.
	ErrNoSubject = errors.New("login names no player")
	// ErrNotYet: correctly signed and ours, and nbf or iat is ahead by more than the leeway.
	ErrNotYet = jws.ErrNotYet
	// ErrExpired: correctly signed and ours, and now >= exp.
	ErrExpired = jws.ErrExpired
)

// descriptions has the text for the client of each kind, the narrower kind before the wider.
var descriptions = []struct {
	kind error
	text string
}{
	{ErrTooLong, "the token is too long"},
	{ErrMalformed, "the token is malformed"},
	{ErrUnknownKey, "the token is signed by an unknown key"},
	{ErrForged, "the token is not genuine"},
	{ErrNoKeys, "the token cannot be verified yet"},
	{ErrForeign, "the token is for another service"},
	{ErrNoSubject, "the token names no player"},
	{ErrNotYet, "the token is not valid yet"},
	{ErrExpired, "the token has expired"},
}

// Reasons lists the labels that Reason gives an error.
func Reasons() []string {
	list := []string{Reason(ErrMissing), Reason(errors.New("another"))}
	for _, d := range descriptions {
		list = append(list, Reason(d.kind))
	}
	return list
}

// Reason returns the label of an error for metrics and logs: missing, too_long,
// malformed, unknown_key, forged, no_keys, foreign, no_subject, not_yet or expired;
// "other" for an error that is not of this package, "" for nil. It never contains a
// part of a token.
func Reason(err error) string {
	switch {
	case errors.Is(err, ErrMissing):
		return "missing"
	case errors.Is(err, ErrNoKeys):
		return "no_keys"
	case errors.Is(err, ErrNoSubject):
		return "no_subject"
	}
	return jws.Reason(err)
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
	for _, d := range descriptions {
		if errors.Is(err, d.kind) {
			return refused + `, error_description="` + d.text + `"`
		}
	}
	return refused
}
