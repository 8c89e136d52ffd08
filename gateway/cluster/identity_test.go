package cluster

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway/internal/test/wstest"
	"reseat/tokens"
)

func must[T any](t *testing.T, v T, err error) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func write(t *testing.T, name string, content []byte) string {
	t.Helper()
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// tokenKeys makes the content of a file with a new key, for each kind.
var tokenKeys = map[string]func(t *testing.T) []byte{
	"secret": func(*testing.T) []byte { b := make([]byte, 32); rand.Read(b); return b },
	"Ed25519": func(t *testing.T) []byte {
		_, k, err := ed25519.GenerateKey(rand.Reader)
		must(t, k, err)
		return pkcs8(t, k)
	},
	"ECDSA": func(t *testing.T) []byte {
		k, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
		return pkcs8(t, must(t, k, err))
	},
	"RSA": func(t *testing.T) []byte {
		k, err := rsa.GenerateKey(rand.Reader, 2048)
		return pkcs8(t, must(t, k, err))
	},
}

func pkcs8(t *testing.T, key any) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	return block("PRIVATE KEY", must(t, der, err))
}

// publicOf is the public half of a key file.
func publicOf(t *testing.T, file []byte) []byte {
	t.Helper()
	p, _ := pem.Decode(file)
	key, err := x509.ParsePKCS8PrivateKey(p.Bytes)
	public := must(t, key, err).(crypto.Signer)
	der, err := x509.MarshalPKIXPublicKey(public.Public())
	return block("PUBLIC KEY", must(t, der, err))
}

// load returns the identity of a node with these token keys.
func load(t *testing.T, id string, files ...[]byte) (*Identity, *tokens.Keys, []string) {
	t.Helper()
	var names []string
	dir := t.TempDir()
	for i, content := range files {
		names = append(names, write(t, filepath.Join(dir, string(rune('a'+i))), content))
	}
	k, err := tokens.Load(names, tokens.Options{})
	must(t, k, err)
	i := DerivedIdentity(k.Derive)
	if err := i.Load(id); err != nil {
		t.Fatal(err)
	}
	return i, k, names
}

// meet has a node with one identity connect to a node with another, and returns what the one sees, and
// the error that the other reports of its peer's keys.
func meet(t *testing.T, from, to *Identity, id, want string) (err, refused error) {
	t.Helper()
	at := to.Server(func() string { return id }, func(_ string, err error) { refused = err })
	_, err = meetAt(t, from, at, want)
	return handshakeError(err), refused
}

// meetAt has a node with one identity connect to a listener.
func meetAt(t *testing.T, from *Identity, at *tls.Config, want string) (st tls.ConnectionState, err error) {
	t.Helper()
	near, far := wstest.Pipe(64 << 10)
	defer near.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer far.Close()
		s := tls.Server(far, at)
		if s.Handshake() == nil {
			s.Write([]byte("x"))
		}
	}()
	c := tls.Client(near, from.client(want))
	if err = c.Handshake(); err == nil {
		_, err = c.Read(make([]byte, 1)) // TLS 1.3: the server judges the client's certificate last
	}
	near.Close()
	<-done
	return c.ConnectionState(), err
}

const frontID, ownerID = "0000000a", "0000000b"

// trust checks that a node takes another one for what it is, and is taken for one itself.
func trust(t *testing.T, what string, from, to *Identity, id, want string) {
	t.Helper()
	if err, refused := meet(t, from, to, id, want); err != nil || refused != nil {
		t.Errorf("%s: %v, %v, want success", what, err, refused)
	}
}

// Whoever has the public key alone verifies tokens, and is no node.
func TestPublicKeyGivesNoAuthority(t *testing.T) {
	key, mine := tokenKeys["Ed25519"](t), tokenKeys["secret"](t)
	a, _, _ := load(t, frontID, key)
	b, _, _ := load(t, ownerID, mine, publicOf(t, key))
	if err, _ := meet(t, a, b, ownerID, ownerID); !OtherKeys(err) {
		t.Errorf("to the one with the public key: %v", err)
	}
	if err, refused := meet(t, b, a, frontID, frontID); !OtherKeys(err) && refused == nil {
		t.Errorf("from the one with the public key: %v, %v", err, refused)
	}
}

// The side that is called sees by itself that the caller has other keys.
func TestListenerReportsOtherKeys(t *testing.T) {
	old, young := tokenKeys["secret"](t), tokenKeys["secret"](t)
	a, _, _ := load(t, frontID, young, old) // trusts both, and signs with the new key
	b, _, _ := load(t, ownerID, old)
	err, refused := meet(t, a, b, ownerID, ownerID)
	if !OtherKeys(err) || !OtherKeys(refused) {
		t.Errorf("the caller sees %v, the listener %v", err, refused)
	}
}

// Keys are rotated in three steps at each node: trust the new one, sign with it, drop the old one.
func TestRotationKeepsNodesTogetherAtEachStep(t *testing.T) {
	old, young := tokenKeys["Ed25519"](t), tokenKeys["ECDSA"](t)
	a, keys, names := load(t, frontID, old, young)
	b, _, _ := load(t, ownerID, old, young)
	trust(t, "before", a, b, ownerID, ownerID)
	write(t, names[0], young)
	write(t, names[1], old)
	if err := errors.Join(keys.Reload(), a.Load(frontID)); err != nil {
		t.Fatal(err)
	}
	for _, pair := range [][2]*Identity{{a, b}, {b, a}} {
		if err, refused := meet(t, pair[0], pair[1], "0000000c", ""); err != nil || refused != nil {
			t.Errorf("one signs with the new key: %v, %v", err, refused)
		}
	}
	write(t, names[1], young)
	if err := errors.Join(keys.Reload(), a.Load(frontID)); err != nil {
		t.Fatal(err)
	}
	if err, _ := meet(t, a, b, ownerID, ownerID); !OtherKeys(err) {
		t.Errorf("one has dropped the old key, by which the other signs: %v", err)
	}
}

// An operator has an authority for certificates of nodes.
type operator struct {
	t   *testing.T
	dir string
	ca  *x509.Certificate
	key ed25519.PrivateKey
}

func newOperator(t *testing.T, seed byte) *operator {
	t.Helper()
	o := &operator{t: t, dir: t.TempDir()}
	var err error
	o.ca, o.key, err = authority(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
	must(t, 0, err)
	return o
}

// issue makes a certificate for names and addresses, with a change.
func (o *operator) issue(name string, change func(*x509.Certificate), hosts ...string) (cert, key string) {
	o.t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	must(o.t, public, err)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, h)
		}
	}
	change(c)
	der, err := x509.CreateCertificate(rand.Reader, c, o.ca, public, o.key)
	must(o.t, der, err)
	return write(o.t, filepath.Join(o.dir, name+".crt"), block("CERTIFICATE", der)), write(o.t, filepath.Join(o.dir, name+".key"), pkcs8(o.t, private))
}

// What was found out about a certificate holds as long as that does.
func TestCertificateThatHasExpiredSinceIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperator(t, 0)
		file, _ := o.issue("a", func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} })
		content, err := os.ReadFile(file)
		p, _ := pem.Decode(must(t, content, err))
		leaf, err := x509.ParseCertificate(p.Bytes)
		must(t, leaf, err)
		c := &credentials{pool: x509.NewCertPool()}
		c.pool.AddCert(o.ca)
		st := tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}
		for _, after := range []time.Duration{time.Minute, time.Minute, time.Hour} {
			time.Sleep(after)
			if err := c.verify(st, x509.ExtKeyUsageClientAuth); (err == nil) != (after == time.Minute) {
				t.Errorf("%v later: %v", after, err)
			}
			if err := c.verify(st, x509.ExtKeyUsageServerAuth); err == nil {
				t.Error("a client's certificate is accepted as a server's")
			}
		}
	})
}
