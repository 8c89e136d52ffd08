package login

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/MicahParks/jwkset"
	"github.com/golang-jwt/jwt/v5"

	"reseat/tokens/internal/jws"
	"reseat/tokens/keyfile"
)

// A key is one key with the algorithms that it verifies.
type key struct {
	kid    string // "" if it has none
	algs   []string
	public jwt.VerificationKey // a pointer for RSA and ECDSA, []byte for a secret
}

var (
	rsaAlgorithms    = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}
	curveAlgorithms  = map[string][]string{"P-256": {"ES256"}, "P-384": {"ES384"}, "P-521": {"ES512"}} // RFC 7518 section 3.4
	edAlgorithms     = []string{"EdDSA"}
	secretAlgorithms = []string{"HS256"}
)

// algorithms returns those that a key can verify, none for an unsupported key.
func algorithms(public any) []string {
	switch k := public.(type) {
	case *rsa.PublicKey:
		return rsaAlgorithms
	case *ecdsa.PublicKey:
		return curveAlgorithms[k.Curve.Params().Name]
	case ed25519.PublicKey:
		return edAlgorithms
	case []byte:
		return secretAlgorithms
	}
	return nil
}

// allAlgorithms are the algorithms of all kinds of keys.
func allAlgorithms() []string {
	return slices.Concat(rsaAlgorithms, slices.Concat(slices.Collect(maps.Values(curveAlgorithms))...), edAlgorithms, secretAlgorithms)
}

// A keySet is the keys of one source, as of one load. It is immutable, and not empty.
type keySet struct {
	keys    []key
	anyKid  bool // the key of a key file verifies whatever the kid
	ignored []ignoredKey
}

// An ignoredKey is one that the operator should know of.
type ignoredKey struct{ kid, reason string }

// errUnknownKid is the refusal that a newer key set may resolve.
var errUnknownKid = &jws.Refusal{Kind: ErrUnknownKey, Detail: "no key has this kid"}

// find returns the keys that a header names, of those that verify its alg. Several may have
// one kid (RFC 7517 section 4.5): each is tried, so that their order does not matter. s is
// nil before the first load.
func (s *keySet) find(h header) (found jwt.VerificationKeySet, err error) {
	if s == nil {
		return found, errNoKeys
	}
	if h.kid == "" && len(s.keys) > 1 {
		return found, &jws.Refusal{Kind: ErrUnknownKey, Detail: "no kid, and not a single key"}
	}
	named := false
	for _, k := range s.keys {
		if !s.anyKid && h.kid != "" && h.kid != k.kid {
			continue
		}
		named = true
		if slices.Contains(k.algs, h.alg) {
			found.Keys = append(found.Keys, k.public)
		}
	}
	switch {
	case !named:
		return found, errUnknownKid
	case found.Keys == nil:
		return found, jws.Forged("alg is not one of the key's")
	}
	return found, nil
}

// newKeySet returns the keys of a JWKS that verify logins. A set without any is an error: it
// would refuse all players, and is more probably a fault than a revocation.
func newKeySet(all []jwkset.JWK) (*keySet, error) {
	set := new(keySet)
	for _, jwk := range all {
		m := jwk.Marshal()
		if !forSignatures(m) {
			continue
		}
		k, err := newKey(m, jwk.Key())
		if err != nil {
			set.ignored = append(set.ignored, ignoredKey{m.KID, err.Error()})
			continue
		}
		set.keys = append(set.keys, k)
	}
	switch {
	case len(set.keys) > 0:
		return set, nil
	case len(set.ignored) > 0:
		return nil, errors.New("holds no key that can be used: the first " + set.ignored[0].reason)
	}
	return nil, errors.New("holds no key that can be used")
}

func forSignatures(m jwkset.JWKMarshal) bool {
	return (m.USE == "" || m.USE == jwkset.UseSig) &&
		(m.KEYOPS == nil || slices.Contains(m.KEYOPS, jwkset.KeyOpsVerify) || slices.Contains(m.KEYOPS, jwkset.KeyOpsSign))
}

func newKey(m jwkset.JWKMarshal, public any) (key, error) {
	switch public.(type) {
	case []byte:
		return key{}, errors.New("is symmetric: anyone who can read the set could sign")
	case crypto.Signer:
		return key{}, errors.New("is a private key: anyone who can read the set could sign")
	}
	if err := keyfile.CheckPublic(public); err != nil {
		return key{}, err
	}
	k := key{kid: m.KID, algs: algorithms(public), public: public}
	if alg := string(m.ALG); alg != "" {
		if !slices.Contains(k.algs, alg) {
			return key{}, fmt.Errorf("has the alg %.16q, which is not one of %v", alg, k.algs)
		}
		k.algs = []string{alg}
	}
	return k, nil
}

// readKeyFile returns a set with the only key of a key file.
func readKeyFile(name string) (*keySet, error) {
	data, err := keyfile.Read(name, keyfile.MaxLen)
	if err != nil {
		return nil, err
	}
	public, err := keyfile.ParsePublic(data)
	if err != nil {
		return nil, err
	}
	if secret, ok := public.(keyfile.Secret); ok {
		public = []byte(secret)
	}
	return &keySet{keys: []key{{algs: algorithms(public), public: public}}, anyKid: true}, nil
}
