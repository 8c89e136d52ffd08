//go:build linux

package proxy

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"

	"reseat/gateway/internal/test/harness/process"
)

// A Leg is what the client connections use besides WebSocket. The zero value means
// nothing.
type Leg struct {
	Cert, Key string // files, for TLS; empty: none
	Deflate   bool   // compression between gateway and clients
}

// flags returns the gateway's flags.
func (l Leg) flags() (args []string) {
	if l.Cert != "" {
		args = append(args, "--tls-cert", l.Cert, "--tls-key", l.Key)
	}
	if l.Deflate {
		args = append(args, "--compression", "on")
	}
	return args
}

// nginx returns the rest of its listen directive. nginx only forwards compression.
func (l Leg) nginx() string {
	if l.Cert == "" {
		return ""
	}
	return " ssl;\n\t\tssl_protocols TLSv1.3;\n\t\tssl_certificate " + l.Cert + ";\n\t\tssl_certificate_key " + l.Key
}

// WithTLS makes a certificate for 127.0.0.1, in files in dir.
func WithTLS(dir string) (Leg, error) {
	_, err := process.Certificate(dir)
	return Leg{Cert: filepath.Join(dir, process.CertFile), Key: filepath.Join(dir, process.KeyFile)}, err
}

// serveRelay adds TLS to the benchmark's clients, which know none: it accepts their connections,
// and makes each one to a proxy, by TLS if file has the proxy's certificate. Workloads without TLS
// that are compared with it use it, too, so that the difference is the proxy's alone.
func serveRelay(listen, target, file string) error {
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
