package secure

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"reseat/tokens/keyfile"
)

// maxPEM bounds a certificate or key file, in bytes.
const maxPEM = 1 << 20

// files are a certificate and its key in files.
type files struct {
	cert, key string
	log       *slog.Logger

	reading sync.Mutex // held while the files are read, so that the latest read wins
	pair    atomic.Pointer[tls.Certificate]
}

func openFiles(c Config) (source, error) {
	f := &files{cert: c.CertFile, key: c.KeyFile, log: c.Log}
	return f, f.load()
}

func (f *files) load() error {
	f.reading.Lock()
	defer f.reading.Unlock()
	cert, err := keyfile.Read(f.cert, maxPEM)
	if err != nil {
		return fmt.Errorf("--tls-cert: %s: %w", f.cert, err)
	}
	key, err := keyfile.Read(f.key, maxPEM)
	if err != nil {
		return fmt.Errorf("--tls-key: %s: %w", f.key, err)
	}
	if keyfile.Encrypted(key) {
		return fmt.Errorf("--tls-key: %s: is encrypted: want a key without a passphrase", f.key)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("--tls-cert %s with --tls-key %s: %s", f.cert, f.key, strings.TrimPrefix(err.Error(), "tls: "))
	}
	if err := Valid(pair.Leaf, time.Now()); err != nil {
		f.log.Warn("cert.invalid", "file", f.cert, "err", err, "text", "clients will refuse it")
	}
	f.pair.Store(&pair)
	return nil
}

func (f *files) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return f.pair.Load(), nil
}

func (f *files) Reload() error {
	if err := f.load(); err != nil {
		return fmt.Errorf("%w; the certificate read before stays in use", err)
	}
	f.log.Info("cert.reloaded", "file", f.cert, "certificate", Describe(f.Leaf()))
	return nil
}

func (f *files) Leaf() *x509.Certificate { return f.pair.Load().Leaf }
func (f *files) start()                  {}
func (f *files) Stop()                   {}

func (f *files) Host(listening string) string {
	leaf := f.Leaf()
	if leaf.VerifyHostname(listening) == nil {
		return listening
	}
	for _, name := range leaf.DNSNames {
		if !strings.Contains(name, "*") {
			return name
		}
	}
	return listening
}
