package cluster

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway/internal/test/wstest"
)

const frontID, ownerID = "0000000a", "0000000b"

// named loads an identity as that of a node.
func named(t *testing.T, id string, i *Identity) *Identity {
	t.Helper()
	if err := i.Load(id); err != nil {
		t.Fatal(err)
	}
	return i
}

// meet has a node with one identity connect to a node with another, and returns what the one sees, and
// the error that the other reports of its peer's keys.
func meet(from, to *Identity, id, want string) (err, refused error) {
	near, far := wstest.Pipe(64 << 10)
	defer near.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer far.Close()
		s := tls.Server(far, to.Server(func() string { return id }, func(_ string, err error) { refused = err }))
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
	return handshakeError(err), refused
}

// The side that is called sees by itself that the caller has other keys.
func TestListenerReportsOtherKeys(t *testing.T) {
	a := named(t, frontID, keys("young", "old")) // trusts both, and signs with the new key
	err, refused := meet(a, named(t, ownerID, keys("old")), ownerID, ownerID)
	if !OtherKeys(err) || !OtherKeys(refused) {
		t.Errorf("the caller sees %v, the listener %v", err, refused)
	}
}

// Keys are rotated in three steps at each node: trust the new one, sign with it, drop the old one.
func TestRotationKeepsNodesTogetherAtEachStep(t *testing.T) {
	var held []string
	a := DerivedIdentity(func(purpose string, n int) ([][]byte, error) { return derivedOf(held...)(purpose, n) })
	b := named(t, ownerID, keys("old", "young"))
	for _, held = range [][]string{{"old", "young"}, {"young", "old"}} {
		named(t, frontID, a)
		for _, pair := range [][2]*Identity{{a, b}, {b, a}} {
			if err, refused := meet(pair[0], pair[1], "0000000c", ""); err != nil || refused != nil {
				t.Errorf("one has %v, the other signs with the old key: %v, %v", held, err, refused)
			}
		}
	}
	held = []string{"young"}
	if err, _ := meet(named(t, frontID, a), b, ownerID, ownerID); !OtherKeys(err) {
		t.Errorf("one has dropped the old key, by which the other signs: %v", err)
	}
}

// What was found out about a certificate holds as long as that does.
func TestCertificateThatHasExpiredSinceIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, caKey, err := authority(make([]byte, ed25519.SeedSize))
		public, _, bad := ed25519.GenerateKey(rand.Reader)
		if err := errors.Join(err, bad); err != nil {
			t.Fatal(err)
		}
		leaf := &x509.Certificate{
			SerialNumber: big.NewInt(2), NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}
		der, err := x509.CreateCertificate(rand.Reader, leaf, ca, public, caKey)
		if leaf, bad = x509.ParseCertificate(der); errors.Join(err, bad) != nil {
			t.Fatal(err, bad)
		}
		c := &credentials{pool: x509.NewCertPool()}
		c.pool.AddCert(ca)
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
