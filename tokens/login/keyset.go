package login

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"maps"
	"slices"

	"reseat/tokens/keyfile"
)

// A key is one key with the algorithms that it verifies.
type key struct {
	kid    string // "" if it has none
	algs   []string
	public any // for the library: a pointer for RSA and ECDSA, []byte for a secret
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

// A keySet is the keys of one source, as of one read. It is immutable.
type keySet struct {
	byKid  map[string][]*key // keys with the same kid share no algorithm
	only   *key              // the key of a set with a single key; else nil
	anyKid bool              // kid does not select: only verifies everything
	notes  []note            // which keys were ignored, and why
}

// A note says that a key was ignored.
type note struct{ kid, why string }

// errUnknownKid is the refusal that a newer key set may resolve.
var errUnknownKid = &refusal{ErrUnknownKey, "no key has this kid"}

// find returns the key that a header names, if it verifies by the header's alg.
func (s *keySet) find(h header) (any, error) {
	var named []*key
	switch {
	case !s.anyKid && h.kid != "":
		if named = s.byKid[h.kid]; named == nil {
			return nil, errUnknownKid
		}
	case s.only != nil:
		named = []*key{s.only}
	default:
		return nil, &refusal{ErrUnknownKey, "no kid, and not a single key"}
	}
	for _, k := range named {
		if slices.Contains(k.algs, h.alg) {
			return k.public, nil
		}
	}
	return nil, forged("alg is not one of the key's")
}

// newKeySet indexes keys by kid. A repeated key counts once. Of two different keys that
// a kid could mean neither is used: the choice must not depend on their order (RFC 7517
// section 4.5).
func newKeySet(keys []key, notes []note) *keySet {
	s := &keySet{byKid: make(map[string][]*key), notes: notes}
	ambiguous := make(map[string]bool)
	for i := range keys {
		if !s.add(&keys[i]) {
			ambiguous[keys[i].kid] = true
		}
	}
	for kid := range ambiguous {
		s.drop(kid, "two keys go by this kid: neither is used")
	}
	if all := s.all(); len(all) == 1 {
		s.only = all[0]
	} else if s.byKid[""] != nil {
		s.drop("", "has no kid, and is not the only key")
	}
	return s
}

// add reports whether k is distinguishable from the other keys of its kid.
func (s *keySet) add(k *key) bool {
	for _, other := range s.byKid[k.kid] {
		if samePublic(other.public, k.public) {
			other.algs = slices.Concat(other.algs, k.algs)
			return true
		}
		if slices.Equal(algorithms(other.public), algorithms(k.public)) {
			return false
		}
	}
	s.byKid[k.kid] = append(s.byKid[k.kid], k)
	return true
}

func (s *keySet) drop(kid, why string) {
	delete(s.byKid, kid)
	s.notes = append(s.notes, note{kid, why})
}

// size counts the keys that can be used.
func (s *keySet) size() int { return len(s.all()) }

func (s *keySet) all() []*key {
	if s.anyKid {
		return []*key{s.only}
	}
	var all []*key
	for _, kid := range slices.Sorted(maps.Keys(s.byKid)) {
		all = append(all, s.byKid[kid]...)
	}
	return all
}

// sameKeys reports whether both sets have the same keys in the same order.
func (s *keySet) sameKeys(other *keySet) bool {
	return slices.EqualFunc(s.all(), other.all(), func(a, b *key) bool {
		return a.kid == b.kid && slices.Equal(a.algs, b.algs) && samePublic(a.public, b.public)
	})
}

func samePublic(a, b any) bool {
	if secret, ok := a.([]byte); ok {
		other, ok := b.([]byte)
		return ok && bytes.Equal(secret, other)
	}
	public, ok := a.(interface{ Equal(crypto.PublicKey) bool })
	return ok && public.Equal(b)
}

// parseKeyFile returns a set with the only key of a key file.
func parseKeyFile(data []byte) (*keySet, error) {
	public, err := keyfile.ParsePublic(data)
	if err != nil {
		return nil, err
	}
	if secret, ok := public.(keyfile.Secret); ok {
		public = []byte(secret)
	}
	return &keySet{only: &key{algs: algorithms(public), public: public}, anyKid: true}, nil
}
