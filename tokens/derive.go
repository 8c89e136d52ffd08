package tokens

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"fmt"
)

// Derive returns n bytes of each loaded private key or secret, by HKDF-SHA256 (RFC 5869) with this
// purpose, in the order of the files: the first is of the key that signs. They reveal nothing of the key,
// and nothing of what another purpose gives. Public keys give none. Processes with the same files get the
// same.
func (k *Keys) Derive(purpose string, n int) ([][]byte, error) {
	var all [][]byte
	for _, key := range k.set.Load().ordered {
		material, err := privateBytes(key.private)
		if err != nil {
			return nil, err
		}
		if material == nil {
			continue
		}
		derived, err := hkdf.Key(sha256.New, material, nil, purpose, n)
		if err != nil {
			return nil, fmt.Errorf("derive a key: %w", err)
		}
		all = append(all, derived)
	}
	return all, nil
}

// privateBytes are the same for all files that a private key can be in. Nil for none.
func privateBytes(private any) ([]byte, error) {
	switch p := private.(type) {
	case nil:
		return nil, nil
	case []byte:
		return p, nil
	case ed25519.PrivateKey:
		return p.Seed(), nil
	case *ecdsa.PrivateKey:
		return p.Bytes()
	case *rsa.PrivateKey:
		return x509.MarshalPKCS1PrivateKey(p), nil
	default:
		return nil, fmt.Errorf("derive from a key of type %T", private)
	}
}
