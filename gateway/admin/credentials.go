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
	// safeToken is the length of a token, below which it might be guessed.
	safeToken = 16
	// safeVariety is how many different characters it should have: 16 random ones of
	// 16 (hexadecimal) have 10 on average.
	safeVariety = 6
	maxTokens   = 64 << 10 // bytes of a file of tokens
)

// A caller is who has sent a request.
type caller struct {
	name  string // for the log: never a secret
	write bool   // may do everything, not only read
}

// Credentials are the tokens of --admin-token-file and --viewer-token-file.
// They may be used by several goroutines at once.
type Credentials struct {
	admins, viewers string // files; "" for none
	present         atomic.Pointer[tokenLists]

	reload sync.Mutex // held while the files are read, so that the newest read wins
}

// tokenLists are the tokens of both files.
type tokenLists struct{ admins, viewers []credential }

func (k *tokenLists) all() []credential { return slices.Concat(k.admins, k.viewers) }

// A credential is a token, of which only the hash is kept.
type credential struct {
	hash [sha256.Size]byte
	weak bool // too short, or of too few different characters
	caller
}

// LoadCredentials reads the files of tokens, one token a line, of which either
// name may be "". It gives nil where both are. Its errors name the flag, and
// repeat nothing of a token.
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

// Reload reads the files again, each for itself: the tokens of one that is no good stay as
// they were. The errors, one for each file, name the flag.
func (c *Credentials) Reload() (errs []error) {
	c.reload.Lock()
	defer c.reload.Unlock()
	next := *c.present.Load()
	if list, err := readTokens(c.admins, caller{"admin-token", true}); err != nil {
		errs = append(errs, fmt.Errorf("--admin-token-file: %w", err))
	} else {
		next.admins = list
	}
	viewers, err := readTokens(c.viewers, caller{"viewer-token", false})
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

// readTokens reads a file of tokens; their callers are named by their lines.
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
		as := caller{fmt.Sprintf("%s line %d", who.name, n), who.write}
		list = append(list, credential{sha256.Sum256([]byte(token)), len(token) < safeToken || keyfile.Distinct([]byte(token)) < safeVariety, as})
	}
	if len(list) == 0 {
		return nil, errors.New("want a token, got an empty file")
	}
	return list, nil
}

// checkToken asks for what can stand behind Bearer in a header.
func checkToken(token string) error {
	odd := func(r rune) bool { return r <= ' ' || r > '~' }
	if strings.ContainsFunc(token, odd) {
		return errors.New("want visible ASCII characters without blanks")
	}
	return nil
}

// Warning says, for anyone who runs the gateway, that there are tokens which might be
// guessed; "" where there are none. It repeats nothing of a token.
func (c *Credentials) Warning() string {
	var names []string
	for _, known := range c.present.Load().all() {
		if known.weak {
			names = append(names, known.name)
		}
	}
	if names == nil {
		return ""
	}
	return fmt.Sprintf("of less than %d characters, or of less than %d different ones, which might be guessed: %s", safeToken, safeVariety, strings.Join(names, ", "))
}

// who finds the caller whose token that is. It takes as long whichever of them
// fits, and whether one does.
func (c *Credentials) who(token string) (found caller, ok bool) {
	hash := sha256.Sum256([]byte(token))
	for _, known := range c.present.Load().all() {
		if subtle.ConstantTimeCompare(hash[:], known.hash[:]) == 1 {
			found, ok = known.caller, true
		}
	}
	return found, ok
}

// check asks for a token: RFC 6750 sections 2.1 and 3. The dashboard's page and
// its files are anybody's; the page asks for a token itself.
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
