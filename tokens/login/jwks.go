package login

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/MicahParks/jwkset"

	"reseat/tokens/keyfile"
)

// maxSet is the maximum size of a JWKS in bytes. Identity providers' have up to 20 KiB.
const maxSet = 256 << 10

// errPassedOver: a key for another use, ignored without a warning.
var errPassedOver = errors.New("is not for signatures")

// parseSet parses a JWKS: RFC 7517 section 5. An unusable key does not affect the others. A
// set without keys is valid: all keys were revoked.
func parseSet(data []byte) (*keySet, error) {
	var set struct {
		Keys *[]json.RawMessage `json:"keys"`
	}
	if !json.Valid(data) {
		return nil, errors.New("is no JSON: want a JWK Set")
	}
	if json.Unmarshal(data, &set) != nil || set.Keys == nil {
		return nil, errors.New(`has no list named "keys": want a JWK Set`)
	}
	var keys []key
	var notes []note
	for _, raw := range *set.Keys {
		k, err := parseJWK(raw)
		switch {
		case err == nil:
			keys = append(keys, k)
		case !errors.Is(err, errPassedOver):
			notes = append(notes, note{k.kid, err.Error()})
		}
	}
	return newKeySet(keys, notes), nil
}

// parseJWK parses a public key. With an error the key still has its kid, if that could be
// parsed.
func parseJWK(raw []byte) (key, error) {
	var m jwkset.JWKMarshal
	if json.Unmarshal(raw, &m) != nil {
		return key{kid: m.KID}, errors.New("is no JWK")
	}
	k := key{kid: m.KID}
	if err := checkUse(m); err != nil {
		return k, err
	}
	public, err := publicKey(m)
	if err != nil {
		return k, err
	}
	k.public, k.algs = public, algorithms(public)
	if alg := string(m.ALG); alg != "" {
		if !slices.Contains(k.algs, alg) {
			return k, fmt.Errorf("has the alg %.16q, which is not one of %v", alg, k.algs)
		}
		k.algs = []string{alg}
	}
	return k, nil
}

// checkUse returns an error unless the key is for verifying signatures of others.
func checkUse(m jwkset.JWKMarshal) error {
	switch {
	case m.USE != "" && m.USE != jwkset.UseSig,
		m.KEYOPS != nil && !slices.Contains(m.KEYOPS, jwkset.KeyOpsVerify) && !slices.Contains(m.KEYOPS, jwkset.KeyOpsSign):
		return errPassedOver
	case m.KTY == jwkset.KtyOct || m.K != "":
		return errors.New("is symmetric: anyone who can read the set could sign")
	case m.D != "" || m.P != "" || m.Q != "":
		return errors.New("is a private key: anyone who can read the set could sign")
	}
	return nil
}

// publicKey decodes the key itself. Its certificates are ignored.
func publicKey(m jwkset.JWKMarshal) (any, error) {
	bare := jwkset.JWKMarshal{KTY: m.KTY, CRV: m.CRV, X: m.X, Y: m.Y, N: m.N, E: m.E}
	k, err := jwkset.NewJWKFromMarshal(bare, jwkset.JWKMarshalOptions{}, jwkset.JWKValidateOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	return k.Key(), keyfile.CheckPublic(k.Key())
}
