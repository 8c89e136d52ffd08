// Package jwttest makes keys and JWTs, good and bad, for the tests of resume tokens and of logins.
package jwttest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// Epoch is the start of test clocks: in the middle of a second, so that rounding shows.
var Epoch = time.Unix(1_800_000_000, 400_000_000)

// Private keys are slow to make, so each is made once. Tests must not change them.
var (
	RSA          = sync.OnceValue(newRSA)
	OtherRSA     = sync.OnceValue(newRSA)
	Ed25519      = sync.OnceValue(NewEd25519)
	OtherEd25519 = sync.OnceValue(NewEd25519)
	P256         = sync.OnceValue(func() *ecdsa.PrivateKey { return NewECDSA(elliptic.P256()) })
	P384         = sync.OnceValue(func() *ecdsa.PrivateKey { return NewECDSA(elliptic.P384()) })
	P521         = sync.OnceValue(func() *ecdsa.PrivateKey { return NewECDSA(elliptic.P521()) })
)

// The keys of fuzz targets are fixed, so that tokens in the corpus stay valid.
var (
	Secret       = []byte("0123456789abcdefghijklmnopqrstuvwxyz")
	FixedEd25519 = ed25519.NewKeyFromSeed(Secret[:ed25519.SeedSize])
)

func newRSA() *rsa.PrivateKey { return Must(rsa.GenerateKey(rand.Reader, 2048)) }

// NewEd25519 returns a new key.
func NewEd25519() ed25519.PrivateKey {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	return Must(private, err)
}

// NewECDSA returns a new key.
func NewECDSA(c elliptic.Curve) *ecdsa.PrivateKey { return Must(ecdsa.GenerateKey(c, rand.Reader)) }

// NewSecret returns 32 random bytes.
func NewSecret() []byte {
	secret := make([]byte, 32)
	rand.Read(secret)
	return secret
}

// Must returns v, and panics if there is an error.
func Must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// PEM encodes der.
func PEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// PKCS8 encodes a private key.
func PKCS8(private any) []byte {
	return PEM("PRIVATE KEY", Must(x509.MarshalPKCS8PrivateKey(private)))
}

// PKIX encodes the public key of a private one.
func PKIX(private crypto.Signer) []byte {
	return PEM("PUBLIC KEY", Must(x509.MarshalPKIXPublicKey(private.Public())))
}

// Write writes data to a new file and returns its path.
func Write(t testing.TB, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	Replace(t, path, data)
	return path
}

// Replace swaps the contents of a file at once, as an operator must.
func Replace(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}
