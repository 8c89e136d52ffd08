// Package relay adds TLS to the benchmark's clients, which know none: it accepts their
// connections, and makes each one to a proxy. Runs without TLS use it, too, so that the
// difference is the proxy's alone.
package relay

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
)

// Serve relays every connection accepted at listen to the proxy at target, both HOST:PORT:
// by TLS if file has the proxy's certificate.
func Serve(listen, target, file string) error {
	dial := net.Dial
	if file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(pem)
		config := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13, VerifyConnection: equalTerms}
		dial = func(network, addr string) (net.Conn, error) { return tls.Dial(network, addr, config) }
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	for {
		near, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			far, err := dial("tcp", target)
			if err != nil {
				fmt.Fprintln(os.Stderr, "relay:", err)
				near.Close()
				return
			}
			go carry(near, far)
			carry(far, near)
		}()
	}
}

// carry copies without splice(2), which only plain connections could use.
func carry(to, from net.Conn) {
	io.Copy(struct{ io.Writer }{to}, struct{ io.Reader }{from})
	to.Close()
	from.Close()
}

// equalTerms refuses a proxy that chose the longer key, because that costs more. The
// relay prefers AES-128, or ChaCha20 if the processor has no AES instructions.
func equalTerms(c tls.ConnectionState) error {
	if c.CipherSuite == tls.TLS_AES_256_GCM_SHA384 {
		return errors.New("the proxy chose AES-256, others have AES-128")
	}
	return nil
}
