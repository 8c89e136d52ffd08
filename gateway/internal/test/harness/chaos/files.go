//go:build linux

package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
)

// The gateway's certificate, in the run's directory.
const (
	certFile = "cert.pem"
	keyFile  = "cert-key.pem"
)

// newTrust writes a certificate for loopback, and returns the configuration of clients that trust it.
func newTrust(dir string) (*tls.Config, error) {
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	cert := s.TLS.Certificates[0]
	secret, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	return &tls.Config{RootCAs: s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs, ServerName: "127.0.0.1"}, errors.Join(err,
		os.WriteFile(filepath.Join(dir, certFile), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}), 0o600),
		os.WriteFile(filepath.Join(dir, keyFile), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
}

// A keyring is the signing keys' files: the newest signs, the others verify.
type keyring struct {
	dir   string
	turns int
}

// keyFiles is how many keys there are at a time. A cookie is never renewed, so its key
// must exist as long as a plain client gets disconnected.
const keyFiles = 12

func (k *keyring) name(i int) string { return filepath.Join(k.dir, fmt.Sprintf("key%d", i)) }

// turn makes a new signing key; the oldest is removed.
func (k *keyring) turn() error {
	k.turns++
	for i := range keyFiles {
		text := fmt.Sprintf("chaos key %d, of the run in %s, long enough for HS256", k.turns-i, k.dir)
		if err := os.WriteFile(k.name(i), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (k *keyring) flags() (list []string) {
	for i := range keyFiles {
		list = append(list, "--token-key-file="+k.name(i))
	}
	return list
}
