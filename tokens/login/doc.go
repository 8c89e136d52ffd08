// Package login verifies the player's own JWT, which somebody else has issued (the
// --auth-* flags, docs/flags.md), and finds it in a request.
//
// What Verify promises: it returns the sub of a JWT that one of the configured keys
// has signed, with an algorithm of that very key, for the configured issuer and
// audience, and that is good now. Before that it refuses what is longer than MaxLen,
// what is not in the one spelling of package strict, and a header with crit, jku,
// jwk or x5u. Nothing is fetched and no file is opened for what a token says, but
// for one thing: a kid that is not known has the configured JWKS URL fetched again,
// at most once in ten seconds. What it says about a refused token is fixed text, so
// a token cannot reach a log through its error.
//
// What it does not promise: that a JWT was meant to be a login here, where neither
// issuer nor audience is configured; that it has not been revoked; that it is
// presented once.
//
// # Dates
//
// exp must be there and holds without leeway: at that instant the login is over. nbf
// and iat need not be there; where they are, they may lie up to 30 seconds ahead,
// since a login is often used in the second in which it was made, by another
// machine's clock. Dates may have a fraction (RFC 7519 section 2).
//
// # Keys
//
// A key file holds one key, as package keyfile reads it for verifying. It verifies
// every token, whatever its kid.
//
// A JWKS (RFC 7517) comes from a URL or a file. kid selects the key; a token without
// kid is verified where the set has a single key. Keys for another use than
// signatures are passed over. Ignored with a warning are symmetric keys, which are
// no secret where they are published, private keys, which are none any more, keys
// of a kind or size that is not used, and two different keys that go by one kid.
//
//	RSA, 2048-8192 bit      RS256 RS384 RS512 PS256 PS384 PS512
//	EC P-256, P-384, P-521  ES256, ES384, ES512
//	OKP Ed25519             EdDSA
//	secret, key file only   HS256
//
// The alg of a JWK, where it has one, leaves exactly that one.
//
// A URL is fetched at the start, every five minutes, and for an unknown kid. Keys
// that are no longer in the set stop verifying with that fetch. A fetch that fails
// changes nothing; it is repeated after a second, and after twice as long each time,
// up to a minute. Before the first that was good every login is refused with
// ErrNoKeys. No redirect is followed, and no proxy of the environment is used. A
// file is read again every half a minute and on Reload; a key file on Reload alone.
package login
