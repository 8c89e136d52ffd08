package tokens

import (
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/golang-jwt/jwt/v5"

	"reseat/tokens/keyfile"
)

// Options configure the claims of all tokens. The zero value is usable.
type Options struct {
	// Audience is the aud of tokens (--token-audience). It separates environments that
	// share keys. Empty means "reseat".
	Audience string
	// Now is the wall clock. Nil means time.Now.
	Now func() time.Time
}

// issuer is the iss of all tokens.
const issuer = "reseat"

// maxAudience bounds Audience in bytes: every token contains it.
const maxAudience = 255

// withDefaults sets zero fields and checks the others.
func (o Options) withDefaults() (Options, error) {
	if o.Audience == "" {
		o.Audience = "reseat"
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if len(o.Audience) > maxAudience || !utf8.ValidString(o.Audience) {
		return o, fmt.Errorf("token audience: want at most %d bytes of UTF-8, got %d bytes", maxAudience, len(o.Audience))
	}
	return o, nil
}

// Keys are the loaded keys. All methods are safe for concurrent use. Reload replaces the
// keys as a whole: a call of Issue or Verify uses either the old keys or the new ones.
type Keys struct {
	// Static after Load.
	files []string
	opts  Options

	reload    sync.Mutex // held while files are read, so that the latest read wins
	inherited []byte     // the key of a predecessor that had no files; guarded by reload
	set       atomic.Pointer[keySet]
}

// A keySet is immutable.
type keySet struct {
	signing *key
	ordered []*key          // each once, in the order of the files; includes signing
	byID    map[string]*key // includes signing
}

// A key is one key with its only algorithm.
type key struct {
	id      string
	header  string // of the tokens that it signs, encoded, with the dot behind it
	method  jwt.SigningMethod
	private any // for method.Sign; nil for a key that only verifies
	public  any // for method.Verify
	parser  *jwt.Parser
	lenient *jwt.Parser // allows for the clocks of other nodes
}

// Load reads the files. The first signs, all verify. Without files it makes a random HS256
// key that exists only in this process; HS256, since verifying it costs a tenth of Ed25519
// when every client resumes at once. An error names the file and says what is wrong with
// it.
func Load(files []string, o Options) (*Keys, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	k := &Keys{files: slices.Clone(files), opts: o}
	var set *keySet
	if k.Ephemeral() {
		set = ephemeralSet(o)
	} else if set, err = readSet(k.files, o); err != nil {
		return nil, err
	}
	k.set.Store(set)
	return k, nil
}

// Reload reads the files again, as on SIGHUP. If any of them is invalid, all old keys stay
// in use. A key made by Load always stays.
func (k *Keys) Reload() error {
	k.reload.Lock()
	defer k.reload.Unlock()
	if k.Ephemeral() {
		return nil
	}
	set, err := readSet(k.files, k.opts)
	if err != nil {
		return fmt.Errorf("%w; the keys loaded before stay in use", err)
	}
	set.verifyToo(k.inherited, k.opts)
	k.set.Store(set)
	return nil
}

// Secret returns the key that Load has made, for Inherit in a successor;
// nil if keys come from files.
func (k *Keys) Secret() []byte {
	if !k.Ephemeral() {
		return nil
	}
	return k.set.Load().signing.private.([]byte)
}

// Inherit has tokens verified by the Secret of the predecessor. If
// there are no key files, it signs too.
func (k *Keys) Inherit(secret []byte) {
	k.reload.Lock()
	defer k.reload.Unlock()
	if k.Ephemeral() {
		k.set.Store(newSet([]key{secretKey(secret)}, k.opts))
		return
	}
	k.inherited = secret
	old := k.set.Load()
	set := &keySet{signing: old.signing, ordered: old.ordered, byID: maps.Clone(old.byID)}
	set.verifyToo(secret, k.opts)
	k.set.Store(set)
}

// verifyToo adds a key that only verifies. A nil secret adds none.
func (s *keySet) verifyToo(secret []byte, o Options) {
	if secret == nil {
		return
	}
	k := secretKey(secret)
	if k.private = nil; s.byID[k.id] == nil {
		k.parser, k.lenient = newParser(k.method.Alg(), o), newParser(k.method.Alg(), o, jwt.WithLeeway(clockSkew*time.Second))
		s.byID[k.id] = &k
	}
}

// Ephemeral reports whether the key was made by Load, so that tokens do not survive a
// restart.
func (k *Keys) Ephemeral() bool { return len(k.files) == 0 }

// SigningKeyID returns the kid of the tokens issued now.
func (k *Keys) SigningKeyID() string { return k.set.Load().signing.id }

// Has reports whether the key with this kid is loaded. A memo of a token is invalid
// once its key has been removed.
func (k *Keys) Has(kid string) bool {
	_, ok := k.set.Load().byID[kid]
	return ok
}

func readSet(files []string, o Options) (*keySet, error) {
	all := make([]key, 0, len(files))
	for i, name := range files {
		k, err := readKey(name)
		if err == nil && i == 0 && k.private == nil {
			err = errors.New("is a public key: the first file signs, want a private key or a secret")
		}
		if err != nil {
			return nil, fmt.Errorf("token key file %s: %w", name, err)
		}
		all = append(all, k)
	}
	return newSet(all, o), nil
}

func ephemeralSet(o Options) *keySet {
	secret := make([]byte, keyfile.MinSecret)
	rand.Read(secret) // never fails: crypto/rand ends the process instead
	return newSet([]key{secretKey(secret)}, o)
}

// newSet uses the first of several keys with the same kid: they are the same key.
func newSet(keys []key, o Options) *keySet {
	s := &keySet{signing: &keys[0], byID: make(map[string]*key, len(keys))}
	for i := range keys {
		k := &keys[i]
		if s.byID[k.id] == nil {
			k.parser, k.lenient = newParser(k.method.Alg(), o), newParser(k.method.Alg(), o, jwt.WithLeeway(clockSkew*time.Second))
			k.header = k.encodedHeader()
			s.byID[k.id] = k
			s.ordered = append(s.ordered, k)
		}
	}
	return s
}
