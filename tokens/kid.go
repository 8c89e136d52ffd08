package tokens

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"math/big"
)

var base64url = base64.RawURLEncoding

// thumbprint returns the kid of a public key: its JWK thumbprint with SHA-256
// (RFC 7638; RFC 8037 section 2 for Ed25519).
func thumbprint(public any) (string, error) {
	jwk, err := requiredMembers(public)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(jwk))
	return base64url.EncodeToString(sum[:]), nil
}

// requiredMembers returns the key as the JSON text that RFC 7638 section 3.2 hashes: only
// the required members, sorted, without white space.
func requiredMembers(public any) (string, error) {
	switch p := public.(type) {
	case ed25519.PublicKey:
		return fmt.Sprintf(`{"crv":"Ed25519","kty":"OKP","x":"%s"}`, base64url.EncodeToString(p)), nil
	case *rsa.PublicKey:
		e := big.NewInt(int64(p.E)).Bytes()
		return fmt.Sprintf(`{"e":"%s","kty":"RSA","n":"%s"}`,
			base64url.EncodeToString(e), base64url.EncodeToString(p.N.Bytes())), nil
	case *ecdsa.PublicKey:
		point, err := p.Bytes() // 4, X, Y, each coordinate padded to the field's size
		if err != nil {
			return "", fmt.Errorf("public key: %w", err)
		}
		x, y := point[1:1+len(point)/2], point[1+len(point)/2:]
		return fmt.Sprintf(`{"crv":"%s","kty":"EC","x":"%s","y":"%s"}`,
			p.Curve.Params().Name, base64url.EncodeToString(x), base64url.EncodeToString(y)), nil
	default:
		return "", fmt.Errorf("no thumbprint for a key of type %T", public)
	}
}

// secretIDLabel has no ".", unlike every signed text, so that a kid is never a valid
// signature.
const secretIDLabel = "reseat resume token key id"

// secretID returns the kid of a secret: half of an HMAC with the secret as key, which
// reveals nothing of it. The thumbprint would be a plain hash of the secret (RFC 7638
// section 7).
func secretID(secret []byte) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(secretIDLabel))
	return base64url.EncodeToString(mac.Sum(nil)[:16])
}
