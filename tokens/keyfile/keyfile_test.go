package keyfile

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"reseat/tokens/internal/jwttest"
)

func signers() []crypto.Signer {
	return []crypto.Signer{jwttest.Ed25519(), jwttest.RSA(), jwttest.P256(), jwttest.P384(), jwttest.P521()}
}

// certificate is self-signed, and expired in 2001.
func certificate(s crypto.Signer) []byte {
	c := x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Unix(1e9, 0)}
	return jwttest.PEM("CERTIFICATE", jwttest.Must(x509.CreateCertificate(rand.Reader, &c, &c, s.Public(), s)))
}

func derOf(text []byte) []byte {
	block, _ := pem.Decode(text)
	return block.Bytes
}

func TestPublicKeysAndCertificatesVerify(t *testing.T) {
	type equal interface{ Equal(crypto.PublicKey) bool }
	for _, s := range signers() {
		for what, data := range map[string][]byte{
			"public key":  jwttest.PKIX(s),
			"certificate": certificate(s),
		} {
			got, err := ParsePublic(data)
			if err != nil || !s.Public().(equal).Equal(got) {
				t.Errorf("%s with %T: %v, error %v", what, s, got, err)
			}
		}
	}
	secret := bytes.Repeat([]byte("0123456789abcdef"), 2)
	if got, err := ParsePublic(secret); err != nil || !bytes.Equal(got.(Secret), secret) {
		t.Errorf("secret: %v, error %v", got, err)
	}
}

// A program that verifies others' signatures must not have their private key.
func TestPrivateKeyIsRefusedForVerification(t *testing.T) {
	for _, s := range signers() {
		data := jwttest.PKCS8(s)
		got, err := ParsePublic(data)
		if err == nil || !strings.Contains(err.Error(), `"PRIVATE KEY": want PUBLIC KEY, RSA PUBLIC KEY or CERTIFICATE`) {
			t.Errorf("%T: %T, error %v", s, got, err)
		}
		if _, err := Parse(data); err != nil {
			t.Errorf("%T, to sign with: %v", s, err)
		}
	}
}

func TestCertificatesWithoutUsableKeyAreRefused(t *testing.T) {
	s := signers()
	p224 := jwttest.Must(ecdsa.GenerateKey(elliptic.P224(), rand.Reader))
	for name, tt := range map[string]struct {
		data []byte
		want string
	}{
		"to sign with": {certificate(s[0]), `"CERTIFICATE": want PRIVATE KEY`},
		"a chain":      {append(certificate(s[0]), certificate(s[1])...), "more than one PEM block (CERTIFICATE, CERTIFICATE)"},
		"in DER":       {derOf(certificate(s[0])), "in DER"},
		"damaged":      {jwttest.PEM("CERTIFICATE", []byte{1, 2, 3}), "CERTIFICATE: "},
		"on P-224":     {certificate(p224), "P-224: want P-256"},
	} {
		parse := ParsePublic
		if name == "to sign with" {
			parse = Parse
		}
		if got, err := parse(tt.data); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %T, error %v, want %q", name, got, err, tt.want)
		}
	}
}

func TestFilesAreReadUpToTheLimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte("12345678"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := Read(path, 8); string(got) != "12345678" {
		t.Errorf("at the limit: %q, error %v", got, err)
	}
	if got, err := Read(path, 7); err == nil || !strings.Contains(err.Error(), "larger than 7 bytes") {
		t.Errorf("beyond the limit: %q, error %v", got, err)
	}
	if _, err := Read(path+".absent", 8); err == nil || strings.Contains(err.Error(), path) {
		t.Errorf("absent: error %v, want one without the path", err)
	}
}
