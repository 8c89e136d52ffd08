// Package secure provides TLS at the client address: the listener that terminates it, and
// its certificates, from files that can be reloaded (--tls-cert) or from an ACME CA
// (--acme-domain).
//
// TLS 1.2 and newer, with the ciphers that crypto/tls chooses; it offers HTTP/2
// and HTTP/1.1. WebSocket handshakes use HTTP/1.1 only: net/http does not
// announce extended CONNECT (RFC 8441), so browsers open a separate connection
// for them.
package secure

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"
)

// Config selects the source of certificates. The zero Config means no TLS.
type Config struct {
	// CertFile and KeyFile hold a certificate with its chain, and its key, in
	// PEM. Both are set or neither.
	CertFile, KeyFile string
	// Domains are the names to order certificates for from an ACME CA. Not together with
	// CertFile.
	Domains []string
	// Directory is the URL of the CA's directory, RFC 8555 section 7.1.1. Empty
	// means Let's Encrypt.
	Directory string
	// Cache is the directory for the account's key and the certificates. Empty
	// means reseat-acme in the user's cache directory.
	Cache string
	// Transport carries the requests to the CA. Nil means one that trusts the
	// system's authorities and reads no proxy environment.
	Transport http.RoundTripper

	// Log gets lines about certificates. Nil means slog.Default.
	Log *slog.Logger
}

// Enabled reports whether the client address has TLS.
func (c Config) Enabled() bool { return c.CertFile != "" || len(c.Domains) > 0 }

// Certificates hold the certificates for the client address. All methods may be called
// from any goroutine.
type Certificates struct {
	source
	config *tls.Config
}

// A source provides certificates.
type source interface {
	// certificate returns the one for a handshake. It never blocks.
	certificate(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Reload reads the files again, as on SIGHUP. On an error the certificate read before
	// stays in use. Established connections are not affected. With ACME it does nothing.
	Reload() error
	// start begins to order and renew certificates, Stop ends that. Those in use stay in use.
	start()
	Stop()
	// Leaf returns a certificate that is in use, nil before the CA has issued one.
	Leaf() *x509.Certificate
	// Host returns the host for the https:// URL of a listener: listening if the
	// certificate is valid for it, else a name that it is valid for.
	Host(listening string) string
}

// Open reads the certificate's files, or checks the cache for ACME. It contacts no CA
// before Listen. The error names the flag.
func Open(c Config) (*Certificates, error) {
	if c.Log == nil {
		c.Log = slog.Default()
	}
	own := &Certificates{config: &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
	}}
	var err error
	if c.CertFile != "" {
		own.source, err = openFiles(c)
	} else {
		own.config.NextProtos = append(own.config.NextProtos, challengeProtocol)
		own.source, err = openAuthority(c)
	}
	if err != nil {
		return nil, err
	}
	own.config.GetCertificate = own.certificate
	return own, nil
}

// Listen terminates TLS on the connections of inner, and starts to order and renew certificates, until
// Stop.
func (c *Certificates) Listen(inner net.Listener) net.Listener {
	c.start()
	return Terminate(inner, c.config)
}

// Describe returns a certificate's names and expiry for logs.
func Describe(leaf *x509.Certificate) string {
	names := append([]string{}, leaf.DNSNames...)
	for _, ip := range leaf.IPAddresses {
		names = append(names, ip.String())
	}
	const maxNames = 5
	if n := len(names) - maxNames; n > 0 {
		names = append(names[:maxNames], fmt.Sprintf("%d more", n))
	}
	if len(names) == 0 {
		names = []string{"no name"}
	}
	return fmt.Sprintf("for %s, until %s", strings.Join(names, ", "), leaf.NotAfter.UTC().Format(time.DateOnly))
}

// Valid returns an error if now is outside a certificate's validity period.
func Valid(leaf *x509.Certificate, now time.Time) error {
	switch {
	case now.Before(leaf.NotBefore):
		return fmt.Errorf("not valid before %s", leaf.NotBefore.UTC().Format(time.RFC3339))
	case now.After(leaf.NotAfter):
		return fmt.Errorf("expired at %s", leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return nil
}
