// Package testcert makes certificates for tests.
package testcert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A Pair is a self-signed certificate and its key.
type Pair struct {
	t         testing.TB
	Cert, Key []byte // PEM
	Leaf      *x509.Certificate
}

// New returns a certificate for names and addresses, valid for a day from an hour ago.
func New(t testing.TB, names ...string) *Pair {
	t.Helper()
	return Between(t, time.Now().Add(-time.Hour), time.Now().Add(23*time.Hour), names...)
}

// Between returns a certificate that is valid between two times.
func Between(t testing.TB, from, to time.Time, names ...string) *Pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, NotBefore: from, NotAfter: to, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
			continue
		}
		template.DNSNames = append(template.DNSNames, name)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &Pair{
		t: t, Leaf: leaf,
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}),
	}
}

// Write writes cert.pem and key.pem to a directory, and returns their names.
func (p *Pair) Write(dir string) (cert, key string) {
	p.t.Helper()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for name, text := range map[string][]byte{cert: p.Cert, key: p.Key} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			p.t.Fatal(err)
		}
	}
	return cert, key
}

// Pool returns a pool that trusts the certificate.
func (p *Pair) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(p.Leaf)
	return pool
}

// Client returns a client's TLS configuration that trusts the certificate and asks for
// its first name.
func (p *Pair) Client(protocols ...string) *tls.Config {
	c := &tls.Config{RootCAs: p.Pool(), NextProtos: protocols}
	if len(p.Leaf.DNSNames) > 0 {
		c.ServerName = p.Leaf.DNSNames[0]
	}
	return c
}
