package tokens

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"math/big"
	"strings"
	"testing"

	"reseat/tokens/internal/jwttest"
)

// Examples of RFC 7638 section 3.1 and RFC 8037 appendix A.3.
func TestKidIsTheThumbprintOfTheRFCs(t *testing.T) {
	n := "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn6" +
		"4tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbIS" +
		"D08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw"
	for want, public := range map[string]any{
		"NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs": &rsa.PublicKey{N: new(big.Int).SetBytes(jwttest.Must(base64url.DecodeString(n))), E: 65537},
		"kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k": ed25519.PublicKey(jwttest.Must(base64url.DecodeString("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"))),
	} {
		if got, err := thumbprint(public); got != want || err != nil {
			t.Errorf("thumbprint of %T: %q, error %v, want %q", public, got, err, want)
		}
	}
}

// RFC 7518 section 6.2.1.2: coordinates have the length of the field, even if they begin
// with zeros. The test computes the thumbprint in another way.
func TestKidOfAnECDSAKeyPadsItsCoordinates(t *testing.T) {
	for curve, size := range map[elliptic.Curve]int{elliptic.P256(): 32, elliptic.P384(): 48, elliptic.P521(): 66} {
		k := withLeadingZero(curve, size)
		point := jwttest.Must(k.PublicKey.Bytes())
		text := `{"crv":"` + curve.Params().Name + `","kty":"EC","x":"` + base64.RawURLEncoding.EncodeToString(point[1:1+size]) +
			`","y":"` + base64.RawURLEncoding.EncodeToString(point[1+size:]) + `"}`
		sum := sha256.Sum256([]byte(text))
		if got := jwttest.Must(thumbprint(&k.PublicKey)); got != base64.RawURLEncoding.EncodeToString(sum[:]) || len(point) != 1+2*size {
			t.Errorf("%s: thumbprint %q is not that of %s", curve.Params().Name, got, text)
		}
	}
}

// withLeadingZero makes keys until one has a coordinate that begins with a zero byte.
func withLeadingZero(curve elliptic.Curve, size int) *ecdsa.PrivateKey {
	for {
		k := jwttest.NewECDSA(curve)
		if point := jwttest.Must(k.PublicKey.Bytes()); point[1] == 0 || point[1+size] == 0 {
			return k
		}
	}
}

func TestThumbprintOfAnotherKindOfKeyIsAnError(t *testing.T) {
	if kid, err := thumbprint([]byte("secret")); err == nil {
		t.Errorf("thumbprint of a secret: %q, want an error", kid)
	}
}

// A kid is public. That of a secret must neither be found in a table of hashes, nor be a
// valid signature of a token.
func TestKidOfSecretRevealsNothing(t *testing.T) {
	secret := jwttest.NewSecret()
	kid := secretID(secret)
	plain, jwk := sha256.Sum256(secret), sha256.Sum256([]byte(`{"k":"`+base64url.EncodeToString(secret)+`","kty":"oct"}`))
	raw := jwttest.Must(base64url.DecodeString(kid))
	for _, sum := range [][]byte{plain[:], jwk[:], secret} {
		if bytes.HasPrefix(sum, raw) {
			t.Error("the kid is a plain hash of the secret, or the secret")
		}
	}
	if strings.Contains(secretIDLabel, ".") {
		t.Error("the label could be the signed text of a token")
	}
	if len(raw) != 16 || kid == secretID(jwttest.NewSecret()) {
		t.Errorf("kid %q, want 16 bytes that depend on the secret", kid)
	}
}

// Processes of two versions share key files during a rolling upgrade.
func TestKidOfASecretStaysTheSameOverVersions(t *testing.T) {
	if got, want := secretID([]byte("0123456789abcdefghijklmnopqrstuvwxyz")), "QXx__PSnmjgDrrC5VavECg"; got != want {
		t.Errorf("kid %q, want %q", got, want)
	}
}
