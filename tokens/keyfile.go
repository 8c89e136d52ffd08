package tokens

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"fmt"

	"github.com/golang-jwt/jwt/v5"

	"reseat/tokens/keyfile"
)

// readKey reads the one key in a file. Its errors do not name the file.
func readKey(name string) (key, error) {
	data, err := keyfile.Read(name, keyfile.MaxLen)
	if err != nil {
		return key{}, err
	}
	return parseKey(data)
}

func parseKey(data []byte) (key, error) {
	parsed, err := keyfile.Parse(data)
	if err != nil {
		return key{}, err
	}
	switch parsed := parsed.(type) {
	case keyfile.Secret:
		return secretKey(parsed), nil
	case crypto.Signer:
		return asymmetricKey(parsed, parsed.Public())
	default:
		return asymmetricKey(nil, parsed)
	}
}

// asymmetricKey returns the only algorithm for a key of this type and size.
func asymmetricKey(private, public any) (key, error) {
	k := key{private: private, public: public}
	switch p := public.(type) {
	case ed25519.PublicKey:
		k.method = jwt.SigningMethodEdDSA
	case *rsa.PublicKey:
		k.method = jwt.SigningMethodPS256
	case *ecdsa.PublicKey:
		k.method = curveMethods[p.Curve.Params().Name]
	}
	if k.method == nil {
		return key{}, fmt.Errorf("is a key of type %T, for which there is no algorithm", public)
	}
	var err error
	k.id, err = thumbprint(public)
	return k, err
}

var curveMethods = map[string]jwt.SigningMethod{
	"P-256": jwt.SigningMethodES256,
	"P-384": jwt.SigningMethodES384,
	"P-521": jwt.SigningMethodES512,
}

func secretKey(secret []byte) key {
	return key{id: secretID(secret), method: jwt.SigningMethodHS256, private: secret, public: secret}
}
