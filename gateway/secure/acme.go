package secure

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/acme"
	"golang.org/x/crypto/acme/autocert"

	"reseat/tokens/keyfile"
)

// challengeProtocol is the ALPN protocol by which a CA validates a name: tls-alpn-01,
// RFC 8737.
const challengeProtocol = acme.ALPNProto

// Backoff between orders at a CA. Let's Encrypt allows five failures an hour for a
// name; autocert itself caches a failure for a minute.
const (
	minRetry = 2 * time.Minute
	maxRetry = time.Hour
)

// An authority has certificates from an ACME CA, ordered before clients need them and
// renewed in time by autocert.
//
// It orders only ECDSA certificates, which every client of the last ten years
// accepts. Ordering others on demand would block that client, and a socket of ours,
// for as long as the CA takes.
type authority struct {
	log     *slog.Logger
	manager *autocert.Manager
	domains map[string]*domain
	first   *domain

	ctx    context.Context // until stop
	cancel context.CancelFunc
}

// A domain is one name that certificates are for.
type domain struct {
	name  string
	ready atomic.Bool // the manager has a certificate
}

func openAuthority(c Config) (source, error) {
	dir, err := c.cacheDir()
	if err != nil {
		return nil, fmt.Errorf("--acme-cache: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("--acme-cache: %s: %w", dir, keyfile.WithoutPath(err))
	}
	if err := writable(dir); err != nil {
		return nil, fmt.Errorf("--acme-cache: %s: %w", dir, err)
	}
	a := &authority{log: c.Log, domains: make(map[string]*domain)}
	for _, name := range c.Domains {
		a.domains[name] = &domain{name: name}
	}
	a.first = a.domains[c.Domains[0]]
	a.ctx, a.cancel = context.WithCancel(context.Background())
	a.manager = &autocert.Manager{
		Prompt:     autocert.AcceptTOS, // said so in the help of --acme-domain
		Cache:      cache{autocert.DirCache(dir), c.Log},
		HostPolicy: autocert.HostWhitelist(c.Domains...),
		Client:     c.client(a.ctx),
	}
	return a, nil
}

// A cache never fails to write: autocert uses a certificate from its own memory then, where it
// would otherwise order it again and again.
type cache struct {
	autocert.DirCache
	log *slog.Logger
}

// Put implements autocert.Cache.
func (c cache) Put(ctx context.Context, name string, data []byte) error {
	if err := c.DirCache.Put(ctx, name, data); err != nil {
		c.log.Error("acme.cache_failed", "name", name, "err", err, "text", "kept in memory until this process ends")
	}
	return nil
}

// cacheDir is the directory for accounts and certificates.
func (c Config) cacheDir() (string, error) {
	if c.Cache != "" {
		return c.Cache, nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("want a directory, since there is none by default: %w", err)
	}
	return filepath.Join(dir, "reseat-acme"), nil
}

// writable creates a file to find out, because permissions alone do not tell.
func writable(dir string) error {
	f, err := os.CreateTemp(dir, ".reseat-")
	if err != nil {
		return keyfile.WithoutPath(err)
	}
	f.Close()
	return keyfile.WithoutPath(os.Remove(f.Name()))
}

// client makes requests to the CA until ctx ends.
func (c Config) client(ctx context.Context) *acme.Client {
	t := c.Transport
	if t == nil {
		t = &http.Transport{
			DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
			TLSHandshakeTimeout: 10 * time.Second,
			TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12},
			ForceAttemptHTTP2:   true,
			IdleConnTimeout:     time.Minute,
		}
	}
	directory := c.Directory
	if directory == "" {
		directory = autocert.DefaultACMEDirectory
	}
	return &acme.Client{
		DirectoryURL: directory, UserAgent: "reseat",
		HTTPClient: &http.Client{Transport: &cancellable{t, ctx}, Timeout: 30 * time.Second},
	}
}

// A cancellable transport starts no request once its context has ended, because
// autocert has no Close.
type cancellable struct {
	http.RoundTripper
	ctx context.Context
}

func (m *cancellable) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := m.ctx.Err(); err != nil {
		return nil, err
	}
	return m.RoundTripper.RoundTrip(r)
}

// CheckCache returns an error if the cache cannot be written. It creates no directory:
// that would belong to the user who runs the check.
func CheckCache(c Config) error {
	dir, err := c.cacheDir()
	if err != nil {
		return fmt.Errorf("--acme-cache: %w", err)
	}
	if err := writable(nearest(dir)); err != nil {
		return fmt.Errorf("--acme-cache: %s: %w", dir, err)
	}
	return nil
}

// CacheExposure returns a warning if others may write the cache directory, where they
// could place keys of their own, else "".
func CacheExposure(c Config) string {
	if len(c.Domains) == 0 {
		return ""
	}
	dir, err := c.cacheDir()
	if err != nil {
		return ""
	}
	info, err := os.Stat(dir)
	switch {
	case err != nil || runtime.GOOS == "windows":
	case info.Mode().Perm()&0o002 != 0:
		return fmt.Sprintf("%.100q may be written by everybody on this machine, who could put keys of their own there: chmod 700 it", dir)
	case info.Mode().Perm()&0o020 != 0:
		return fmt.Sprintf("%.100q may be written by its group: chmod 700 it", dir)
	}
	return ""
}

// nearest returns dir, or if it does not exist the nearest directory above it.
func nearest(dir string) string {
	for {
		up := filepath.Dir(dir)
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) || up == dir {
			return dir
		}
		dir = up
	}
}

// CheckDirectory returns an error unless the CA serves its directory. It orders nothing.
func CheckDirectory(ctx context.Context, c Config) error {
	if _, err := c.client(ctx).Discover(ctx); err != nil {
		return fmt.Errorf("--acme-directory: %w", err)
	}
	return nil
}

// certificate returns what is in the cache. It orders nothing, so that no client waits
// for the CA. A client without SNI, such as a health check, gets the first domain's.
func (a *authority) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	d := a.first
	if name := strings.TrimSuffix(strings.ToLower(hello.ServerName), "."); name != "" {
		if d = a.domains[name]; d == nil {
			return nil, fmt.Errorf("no certificate for %q, which is not among --acme-domain", name)
		}
	}
	if len(hello.SupportedProtos) == 1 && hello.SupportedProtos[0] == challengeProtocol {
		return a.manager.GetCertificate(hello)
	}
	if !d.ready.Load() {
		return nil, fmt.Errorf("no certificate for %q yet", d.name)
	}
	return a.manager.GetCertificate(d.hello())
}

// hello is a ClientHello for which autocert returns an ECDSA certificate.
func (d *domain) hello() *tls.ClientHelloInfo {
	return &tls.ClientHelloInfo{
		ServerName:       d.name,
		SignatureSchemes: []tls.SignatureScheme{tls.ECDSAWithP256AndSHA256},
		SupportedCurves:  []tls.CurveID{tls.CurveP256},
		CipherSuites:     []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256},
	}
}

// start orders what is not in the cache. Nothing waits for these goroutines: an order
// takes up to five minutes, and after stop its next request fails.
func (a *authority) start() {
	for _, d := range a.domains {
		go a.renew(d)
	}
}

func (a *authority) Stop() { a.cancel() }

// renew orders a certificate, retrying with backoff, and then watches its renewal,
// because autocert does not report when that fails.
func (a *authority) renew(d *domain) {
	wait := minRetry
	for a.ctx.Err() == nil {
		cert, err := a.manager.GetCertificate(d.hello())
		var pause time.Duration
		switch {
		case a.ctx.Err() != nil:
			return
		case err != nil:
			a.log.Error("acme.failed", "domain", d.name, "err", err, "retry", wait, "text", "the CA must reach --listen at port 443 of the domain")
			pause, wait = wait, min(2*wait, maxRetry)
		default:
			a.inspect(d, cert.Leaf)
			pause = min(cert.Leaf.NotAfter.Sub(cert.Leaf.NotBefore)/12, 12*time.Hour)
		}
		select {
		case <-time.After(pause):
		case <-a.ctx.Done():
		}
	}
}

func (a *authority) inspect(d *domain, leaf *x509.Certificate) {
	switch {
	case !d.ready.Swap(true):
		a.log.Info("acme.obtained", "domain", d.name, "certificate", Describe(leaf))
	case late(leaf, time.Now()):
		a.log.Error("acme.renewal_late", "domain", d.name, "certificate", Describe(leaf), "text", "the CA is asked again every hour")
	}
}

// late reports whether a certificate's renewal is overdue: autocert renews when a
// third of its lifetime is left, or 30 days.
func late(leaf *x509.Certificate, now time.Time) bool {
	begins := min(leaf.NotAfter.Sub(leaf.NotBefore)/3, 30*24*time.Hour)
	return leaf.NotAfter.Sub(now) < begins*3/4
}

func (a *authority) Reload() error      { return nil }
func (a *authority) Host(string) string { return a.first.name }

func (a *authority) Leaf() *x509.Certificate {
	if !a.first.ready.Load() {
		return nil
	}
	cert, err := a.manager.GetCertificate(a.first.hello())
	if err != nil {
		return nil
	}
	return cert.Leaf
}
