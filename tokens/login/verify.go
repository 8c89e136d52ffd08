package login

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"reseat/tokens/internal/jws"
)

const (
	// MaxLen is the max length of a token in bytes; a longer one is refused unread.
	MaxLen = 8 << 10
	// leeway bounds how far nbf and iat may be ahead of our clock.
	leeway = 30 * time.Second
)

// Config configures a Verifier.
type Config struct {
	// JWKS locates the keys: an http or https URL, or a file (--auth-jwks).
	// KeyFile is a file with one key (--auth-key-file). One of them must be set, the
	// other empty.
	JWKS, KeyFile string
	// Issuer is the required iss (--auth-issuer). Empty means any, or none.
	Issuer string
	// Audience is the required aud, or one of several (--auth-audience). Empty means any, or
	// none: then a token for any other service of the issuer is accepted as a login.
	Audience string
	// Log gets a line when keys were loaded, could not be loaded, or were ignored. Nil means
	// slog.Default.
	Log *slog.Logger
	// Now is the wall clock. Nil means time.Now.
	Now func() time.Time
}

// A Verifier verifies logins. All methods are safe for concurrent use.
type Verifier struct {
	now     func() time.Time
	parsers map[string]*jwt.Parser // by alg
	source  *keySource
	stop    context.CancelFunc
}

// New reads the key file or the JWKS file, and fails if it cannot be used: the error
// names the file. A JWKS URL is fetched in the background, and need not be reachable
// at first. Reading continues until ctx ends or Close is called.
func New(ctx context.Context, c Config) (*Verifier, error) { return open(ctx, c, overNetwork()) }

// open is New with the network that tests replace.
func open(ctx context.Context, c Config, network transport) (*Verifier, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	s, err := newKeySource(c, network)
	if err != nil {
		return nil, err
	}
	v := &Verifier{now: c.Now, parsers: newParsers(c), source: s}
	if s.remote {
		s.turn <- struct{}{} // for the first fetch: logins wait for it
	} else if err := s.load(ctx); err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	s.ctx, v.stop = context.WithCancel(ctx)
	if s.interval == 0 {
		close(s.done)
	} else {
		go s.run() // Close waits for it
	}
	return v, nil
}

// newKeySource returns the source that c names, without keys.
func newKeySource(c Config, network transport) (*keySource, error) {
	if c.Log == nil {
		c.Log = slog.Default()
	}
	s := &keySource{log: c.Log, wake: make(chan struct{}, 1), done: make(chan struct{}), turn: make(chan struct{}, 1)}
	switch {
	case (c.JWKS == "") == (c.KeyFile == ""):
		return nil, errors.New("want either a JWKS or a key file")
	case c.KeyFile != "":
		s.name = c.KeyFile
		s.read = func(context.Context) (*keySet, error) { return readKeyFile(c.KeyFile) }
	case strings.Contains(c.JWKS, "://"):
		u, err := parseURL(c.JWKS)
		if err != nil {
			return nil, err
		}
		if u.Scheme == "http" && !isLoopback(u.Hostname()) {
			c.Log.Warn("login.keys_insecure", "source", shown(u), "text", "the URL is plain http: anyone on the path can replace the keys")
		}
		s.name, s.interval, s.remote = shown(u), urlInterval, true
		s.read = func(ctx context.Context) (*keySet, error) { return fetch(ctx, u.String(), network) }
	default:
		s.name, s.interval = c.JWKS, fileInterval
		s.read = func(ctx context.Context) (*keySet, error) { return fetch(ctx, "file:///", fromFile(c.JWKS)) }
	}
	return s, nil
}

func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// Reload reads the file again, as on SIGHUP; on an error the keys read before stay in
// use. A URL is fetched again in the background, regardless of the cooldown, and the
// result is logged.
func (v *Verifier) Reload() error {
	s := v.source
	if s.remote {
		select {
		case s.wake <- struct{}{}:
		default: // already requested
		}
		return nil
	}
	if err := s.load(context.Background()); err != nil {
		return fmt.Errorf("%s: %w; the keys read before stay in use", s.name, err)
	}
	return nil
}

// Close stops reading keys and waits for it. The present keys keep verifying.
func (v *Verifier) Close() {
	v.stop()
	<-v.source.done
}

// Verify returns the player that a token names, if the token is genuine and valid now,
// as the package comment defines it. For an unknown kid it may wait for the JWKS, five
// seconds at most and not longer than ctx. Its errors wrap one of the kinds in this
// package and contain nothing of the token.
func (v *Verifier) Verify(ctx context.Context, token string) (subject string, err error) {
	c, err := v.genuine(ctx, token)
	if err != nil {
		return "", err
	}
	if !v.now().Before(c.expires) {
		return "", &jws.Refusal{Kind: ErrExpired, Detail: "exp has passed"}
	}
	return c.Subject, nil
}

// VerifyExpired is Verify, except that exp may have passed: the login of a resume was
// valid when the session began, and only has to name the same player.
func (v *Verifier) VerifyExpired(ctx context.Context, token string) (subject string, err error) {
	c, err := v.genuine(ctx, token)
	if err != nil {
		return "", err
	}
	return c.Subject, nil
}

// genuine checks everything but exp.
func (v *Verifier) genuine(ctx context.Context, token string) (*claims, error) {
	if len(token) > MaxLen {
		return nil, errLength
	}
	h, err := readHeader(token)
	if err != nil {
		return nil, err
	}
	keys, err := v.keys(ctx, h)
	if err != nil {
		return nil, err
	}
	c := new(claims)
	_, err = v.parsers[h.alg].ParseWithClaims(token, c, func(*jwt.Token) (any, error) { return keys, nil })
	if err := jws.Refuse(err, c.read); err != nil {
		return nil, err
	}
	if c.noSubject != "" {
		return nil, &jws.Refusal{Kind: ErrNoSubject, Detail: c.noSubject}
	}
	return c, nil
}

// keys returns the keys for a header, after fetching newer ones if that may help.
func (v *Verifier) keys(ctx context.Context, h header) (jwt.VerificationKeySet, error) {
	set := v.source.keys.Load()
	found, err := set.find(h)
	if (err == errUnknownKid || err == errNoKeys) && v.source.refresh(ctx, set) {
		return v.source.keys.Load().find(h)
	}
	return found, err
}

var (
	errLength = &jws.Refusal{Kind: ErrTooLong, Detail: "more than 8192 bytes"}
	errNoKeys = &jws.Refusal{Kind: ErrNoKeys, Detail: "the key set has not been fetched yet"}
)

// newParsers returns the library's parser for each alg, with every check that it leaves
// optional: RFC 8725 sections 3.1, 3.8 and 3.9. The keys that keySet.find returns are of
// the type that alg takes.
func newParsers(c Config) map[string]*jwt.Parser {
	options := []jwt.ParserOption{jwt.WithStrictDecoding(), jwt.WithIssuedAt(), jwt.WithLeeway(leeway), jwt.WithTimeFunc(c.Now)}
	if c.Issuer != "" {
		options = append(options, jwt.WithIssuer(c.Issuer))
	}
	if c.Audience != "" {
		options = append(options, jwt.WithAudience(c.Audience))
	}
	parsers := make(map[string]*jwt.Parser)
	for _, alg := range allAlgorithms() {
		parsers[alg] = jwt.NewParser(append(options, jwt.WithValidMethods([]string{alg}))...)
	}
	return parsers
}
