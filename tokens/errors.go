package tokens

import "reseat/tokens/internal/jws"

// The kinds of errors that Verify wraps. Exactly one holds, except that ErrUnknownKey is
// also an ErrForged.
var (
	// ErrTooLong: longer than MaxLen. Issue returns it too.
	ErrTooLong = jws.ErrTooLong
	// ErrMalformed: not a strict compact JWS of JSON objects, or a claim is missing
	// or not of its type.
	ErrMalformed = jws.ErrMalformed
	// ErrForged: the signature, alg, typ or another header member is not what
	// the key named by kid would have produced.
	ErrForged = jws.ErrForged
	// ErrUnknownKey: no loaded key has this kid. It was removed, made by an
	// earlier process without --token-key-file, or never ours.
	ErrUnknownKey = jws.ErrUnknownKey
	// ErrForeign: correctly signed, for another issuer or audience.
	ErrForeign = jws.ErrForeign
	// ErrExpired: correctly signed and ours, and now >= exp.
	ErrExpired = jws.ErrExpired
	// ErrNotYet: correctly signed and ours, and now < nbf, or iat is ahead by more than a minute.
	ErrNotYet = jws.ErrNotYet
)

// Reason returns the label of an error of Verify for metrics and logs: too_long,
// malformed, unknown_key, forged, foreign, expired or not_yet; "other" for an
// error that is not Verify's, "" for nil. It never contains a part of a token.
func Reason(err error) string { return jws.Reason(err) }
