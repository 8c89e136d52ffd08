// Package tokens issues and verifies resume tokens (protocol section 7) and
// loads the keys for them (the --token-* flags, docs/flags.md).
//
// A token is a compact JWS (RFC 7515) with the header members alg, kid and typ,
// and no other, and the claims iss, aud, sub, sid, gen, iat, nbf, exp and jti, and own
// once another node than the first has the session.
//
// Verify accepts only what a loaded key has signed with that key's one algorithm, for this
// issuer and audience, while nbf <= now < exp on the wall clock without leeway, and in one
// spelling: strict unpadded base64url and JSON without repeated members. It refuses
// anything longer than MaxLen before it parses it. It fetches nothing and opens no file.
// The only name in a token that it uses is kid, which selects among the loaded keys. Its
// errors are fixed text, so no part of a token can reach a log through them.
//
// Verify does not check that a token is presented only once: package generation decides,
// for each session, whether a generation is superseded. Do not rely on a token's bytes
// being unique for its claims: with an ECDSA key the holder of a token can compute a
// second signature for the same claims.
//
// # Key files
//
// A file holds one key:
//
//	PEM, Ed25519     PKCS #8                            EdDSA
//	PEM, RSA         PKCS #8 or PKCS #1, 2048-8192 bit  PS256
//	PEM, ECDSA       PKCS #8 or SEC 1, P-256/384/521    ES256/ES384/ES512
//	anything else    32 bytes to 64 KiB, random         HS256
//
// The first file signs and must hold a private key or a secret. The others verify,
// and may hold a public key (PKIX, or PKCS #1) instead. Files may hold the same key: it
// counts once. A rotation relies on that: the old key is copied to the second file before
// the new one replaces it in the first.
//
// A secret in a file of printable ASCII (hexadecimal, base64) is used as written,
// not decoded, and line breaks at its end do not belong to it, so that a secret
// written with and without a newline is the same secret. In any other file every
// byte belongs to it. A file that is recognisably a key of another form (DER, JWK,
// OpenSSH, UTF-16) is refused: it could be a public key, and would make a secret
// that everyone knows.
//
// A kid is made from the key alone, so processes with the same files agree on it.
package tokens
