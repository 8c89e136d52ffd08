//go:build linux

package process

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// The files of Certificate.
const (
	CertFile = "cert.pem"
	KeyFile  = "cert-key.pem"
)

// Certificate writes one for 127.0.0.1 to files in dir, and returns what trusts it.
func Certificate(dir string) (*x509.CertPool, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	if err != nil {
		return nil, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	public, roots := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), x509.NewCertPool()
	roots.AppendCertsFromPEM(public)
	return roots, errors.Join(err,
		os.WriteFile(filepath.Join(dir, CertFile), public, 0o600),
		os.WriteFile(filepath.Join(dir, KeyFile), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
}
