package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"reseat/tokens/keyfile"
)

const (
	// minTokenLength is the length in bytes below which a token is called weak.
	minTokenLength = 16
	// minTokenVariety is the same for the number of different characters: 16 random
	// hexadecimal digits have 10 on average.
	minTokenVariety = 6
	maxTokens       = 64 << 10 // max bytes of a token file
)

// A caller is the sender of a request.
type caller struct {
	name  string // for logs: never a secret
	write bool   // may change things, not only read
	node  string // id of the node that has sent the request, "" if the caller did
}

// Credentials are the tokens of --admin-token-file and --viewer-token-file. They are safe
// for concurrent use.
type Credentials struct {
	admins, viewers string // file names; "" for none
	present         atomic.Pointer[tokenLists]

	reload sync.Mutex // held while the files are read, so that the newest content wins
}

// tokenLists holds the tokens of both files.
type tokenLists struct{ admins, viewers []credential }

func (k *tokenLists) all() []credential { return slices.Concat(k.admins, k.viewers) }

// A credential is a token. Only its hash is kept.
type credential struct {
	hash [sha256.Size]byte
	weak bool // too short, or too few different characters
	caller
}

// LoadCredentials reads the token files, one token a line. Either name may be ""; if both
// are, it returns nil. Its errors name the flag and never quote a token.
func LoadCredentials(adminFile, viewerFile string) (*Credentials, error) {
	if adminFile == "" && viewerFile == "" {
		return nil, nil
	}
	c := &Credentials{admins: adminFile, viewers: viewerFile}
	c.present.Store(new(tokenLists))
	if errs := c.Reload(); len(errs) > 0 {
		return nil, errs[0]
	}
	return c, nil
}

// Reload reads the files again, each on its own: a file with an error keeps its old tokens.
// It returns one error for each such file, which names the flag.
func (c *Credentials) Reload() (errs []error) {
	c.reload.Lock()
	defer c.reload.Unlock()
	next := *c.present.Load()
	if list, err := readTokens(c.admins, caller{name: "admin-token", write: true}); err != nil {
		errs = append(errs, fmt.Errorf("--admin-token-file: %w", err))
	} else {
		next.admins = list
	}
	viewers, err := readTokens(c.viewers, caller{name: "viewer-token"})
	for _, v := range viewers {
		if slices.ContainsFunc(next.admins, func(a credential) bool { return a.hash == v.hash }) {
			err = fmt.Errorf("%s is in --admin-token-file too", v.name)
		}
	}
	if err != nil {
		errs = append(errs, fmt.Errorf("--viewer-token-file: %w", err))
	} else {
		next.viewers = viewers
	}
	c.present.Store(&next)
	return errs
}

// readTokens reads a token file. Callers are named by the line of their token.
func readTokens(file string, who caller) (list []credential, err error) {
	if file == "" {
		return nil, nil
	}
	raw, err := keyfile.Read(file, maxTokens)
	if err != nil {
		return nil, fmt.Errorf("want a file of tokens, got %.100q: %w", file, err)
	}
	n := 0
	for line := range strings.Lines(string(raw)) {
		n++
		token := strings.TrimSpace(line)
		if token == "" {
			continue
		}
		if err := checkToken(token); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		as := caller{name: fmt.Sprintf("%s line %d", who.name, n), write: who.write}
		list = append(list, credential{sha256.Sum256([]byte(token)), len(token) < minTokenLength || keyfile.Distinct([]byte(token)) < minTokenVariety, as})
	}
	if len(list) == 0 {
		return nil, errors.New("want a token, got an empty file")
	}
	return list, nil
}

// checkToken checks that a token can follow Bearer in a header.
func checkToken(token string) error {
	odd := func(r rune) bool { return r <= ' ' || r > '~' }
	if strings.ContainsFunc(token, odd) {
		return errors.New("want visible ASCII characters without blanks")
	}
	return nil
}

// Warnings returns a text about the weak tokens of each file, by its flag. It never quotes a
// token.
func (c *Credentials) Warnings() map[string]string {
	lines := make(map[string][]string)
	for _, known := range c.present.Load().all() {
		if known.weak {
			list, line, _ := strings.Cut(known.name, " ")
			lines[list+"-file"] = append(lines[list+"-file"], line)
		}
	}
	texts := make(map[string]string)
	for flag, list := range lines {
		texts[flag] = fmt.Sprintf("tokens of less than %d characters, or of less than %d different ones, might be guessed: %s", minTokenLength, minTokenVariety, strings.Join(list, ", "))
	}
	return texts
}

// who returns the caller that token belongs to. It compares all tokens, in constant time,
// so that the duration reveals nothing.
func (c *Credentials) who(token string) (found caller, ok bool) {
	hash := sha256.Sum256([]byte(token))
	for _, known := range c.present.Load().all() {
		if subtle.ConstantTimeCompare(hash[:], known.hash[:]) == 1 {
			found, ok = known.caller, true
		}
	}
	return found, ok
}

// check requires a bearer token: RFC 6750 sections 2.1 and 3. The dashboard's page and its
// files need none: they hold no data, and the page asks its user for a token.
func (c *Credentials) check(w http.ResponseWriter, r *http.Request) (caller, *denial) {
	if isDashboard(r.URL.Path) {
		return caller{name: "anybody"}, nil
	}
	given := r.Header.Values("Authorization")
	if len(given) == 0 {
		w.Header().Set("WWW-Authenticate", `Bearer realm="reseat"`)
		return caller{}, &denial{http.StatusUnauthorized, "no_token", "want a token: Authorization: Bearer ..."}
	}
	scheme, token, _ := strings.Cut(given[0], " ")
	who, ok := c.who(strings.TrimSpace(token))
	if !ok || len(given) > 1 || !strings.EqualFold(scheme, "Bearer") {
		w.Header().Set("WWW-Authenticate", `Bearer realm="reseat", error="invalid_token"`)
		return caller{}, &denial{http.StatusUnauthorized, "bad_token", "unknown token"}
	}
	return who, nil
}
