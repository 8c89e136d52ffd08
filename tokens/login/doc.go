// Package login verifies the player's own JWT, which an identity provider issued (the
// --auth-* flags, docs/flags.md), and finds it in a request.
//
// Verify returns the sub of a JWT that one of the configured keys has signed, with an
// algorithm of that key, for the configured issuer and audience, and that is valid now. It
// refuses tokens longer than MaxLen, encodings that package strict refuses, and headers with
// crit, jku, jwk or x5u. No token makes it fetch a URL or open a file, with one exception:
// an unknown kid triggers a fetch of the configured JWKS URL, at most once in ten seconds.
// Its errors are fixed text, so no part of a token can reach a log through them.
//
// Verify does not check that a JWT was issued for this service if neither issuer nor
// audience is configured, that it has not been revoked, or that it is presented only once.
//
// # Dates
//
// exp is required and holds without leeway: from that instant on the login is expired. nbf
// and iat are optional and may be up to 30 seconds in the future,
// because a login is often used within a second of being issued, by another
// machine's clock. Dates may have a fraction (RFC 7519 section 2).
//
// # Keys
//
// A key file holds one key, as package keyfile reads it for verifying. It verifies
// every token, whatever its kid.
//
// A JWKS (RFC 7517) comes from a URL or a file. kid selects the key; a token without
// kid is verified if the set has a single key. If several keys have the same kid, each is
// tried. Keys for another use than signatures, and of unknown types, are skipped. Ignored
// with a warning are symmetric keys, which are not secret once published, private keys,
// which are no longer private, and keys of an unsupported size. A set with a malformed
// key, or a malformed certificate of a key, is refused, and so is one without any key that
// can be used: the keys read before stay in use.
//
//	RSA, 2048-8192 bit      RS256 RS384 RS512 PS256 PS384 PS512
//	EC P-256, P-384, P-521  ES256, ES384, ES512
//	OKP Ed25519             EdDSA
//	secret, key file only   HS256
//
// The alg of a JWK, if it has one, restricts it to that algorithm.
//
// A URL is fetched at start, every five minutes, and for an unknown kid; after a failure
// again in 30 seconds. Keys that are no longer in the set stop verifying with that fetch.
// Before the first success every login is refused with ErrNoKeys. No redirect is followed,
// and no proxy of the environment is used. A file is read again every 30 seconds and on
// Reload; a key file on Reload only.
package login
