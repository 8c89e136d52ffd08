//go:build linux

package proxy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"
)

// A Leg is what the client connections use besides WebSocket. The zero value means
// nothing.
type Leg struct {
	Cert, Key string // files, for TLS; empty: none
	Deflate   bool   // compression between gateway and clients
}

// Relay starts what the clients connect to in place of the proxy at target.
func (l Leg) Relay(p Place, target netip.AddrPort) (*Proxy, error) {
	addr := freeAddr()
	return start(p.in("relay"), addr, 1, nil, p.Self, AsRelay, addr.String(), target.String(), l.Cert)
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
func WithTLS(dir string) (l Leg, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return l, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return l, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return l, err
	}
	l = Leg{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := os.WriteFile(l.Cert, cert, 0o600); err != nil {
		return l, err
	}
	return l, os.WriteFile(l.Key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600)
}
