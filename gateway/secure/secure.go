// Package secure is TLS at the client address: the listener that ends it, and the
// certificates it shows, from files that can be read again (--tls-cert) or from
// an ACME CA (--acme-domain).
//
// TLS 1.2 and newer, with the ciphers that crypto/tls chooses; it offers HTTP/2
// and HTTP/1.1. WebSocket handshakes come over HTTP/1.1 only: net/http does not
// announce extended CONNECT (RFC 8441), so that browsers open a connection of
// their own for them.
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

// Config says where certificates come from. The zero Config means no TLS.
type Config struct {
	// CertFile and KeyFile hold a certificate with its chain, and its key, in
	// PEM. Both are set or neither.
	CertFile, KeyFile string
	// Domains are the names for which an ACME CA is asked for certificates, as
	// DNS has them. Not together with CertFile.
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

	// Log is told of certificates and of handshakes that failed. Nil means
	// slog.Default.
	Log *slog.Logger
}

// Enabled reports whether the client address has TLS.
func (c Config) Enabled() bool { return c.CertFile != "" || len(c.Domains) > 0 }

// Certificates are what a Listener shows. All methods may be called at any time
// from any goroutine.
type Certificates struct {
	source source
	config *tls.Config
	log    *slog.Logger
}

// A source is where certificates come from.
type source interface {
	// certificate chooses the one for a handshake. It does not wait.
	certificate(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// reload reads again what can be read; on an error all stays as it was.
	reload() error
	// start begins what goes on beside the Listener, stop ends it.
	start()
	stop()
	// leaf is a certificate that is shown now, nil where there is none yet.
	leaf() *x509.Certificate
	// host is listening, or the name that belongs into its address instead.
	host(listening string) string
}

// Open reads the certificate's files, or makes ready for the CA. It asks nobody
// yet. The error names the flag.
func Open(c Config) (*Certificates, error) {
	if c.Log == nil {
		c.Log = slog.Default()
	}
	own := &Certificates{log: c.Log, config: &tls.Config{
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
	own.config.GetCertificate = own.source.certificate
	return own, nil
}

// Reload reads the files again, as on SIGHUP. Where they are no good those of
// before stay, and the error says so. Connections that stand are not touched.
// From a CA certificates come by themselves.
func (c *Certificates) Reload() error { return c.source.reload() }

// Leaf is a certificate that clients are shown now, nil before the CA has given one.
func (c *Certificates) Leaf() *x509.Certificate { return c.source.leaf() }

// Host is what belongs into the https:// address of a listener: its own host where
// the certificate is for it, else a name that it is for.
func (c *Certificates) Host(listening string) string { return c.source.host(listening) }

// Listen ends TLS on the connections of inner. Closing the Listener closes inner.
func (c *Certificates) Listen(inner net.Listener) *Listener {
	c.source.start()
	return newListener(inner, c.config, c.log, c.source.stop)
}

// Describe says in a few words whose a certificate is and how long it is good.
func Describe(leaf *x509.Certificate) string {
	names := append([]string{}, leaf.DNSNames...)
	for _, ip := range leaf.IPAddresses {
		names = append(names, ip.String())
	}
	const most = 5
	if n := len(names) - most; n > 0 {
		names = append(names[:most], fmt.Sprintf("%d more", n))
	}
	if len(names) == 0 {
		names = []string{"no name"}
	}
	return fmt.Sprintf("for %s, until %s", strings.Join(names, ", "), leaf.NotAfter.UTC().Format(time.DateOnly))
}

// Valid says whether clients take a certificate at that time, as far as its dates go.
func Valid(leaf *x509.Certificate, now time.Time) error {
	switch {
	case now.Before(leaf.NotBefore):
		return fmt.Errorf("not valid before %s", leaf.NotBefore.UTC().Format(time.RFC3339))
	case now.After(leaf.NotAfter):
		return fmt.Errorf("expired at %s", leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return nil
}
