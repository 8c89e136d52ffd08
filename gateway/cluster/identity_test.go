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
	"strings"
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
func meet(t *testing.T, from, to *Identity, id, want, host string) (err, refused error) {
	t.Helper()
	at := to.Server(func() string { return id }, func(_ string, err error) { refused = err })
	_, err = meetAt(t, from, at, want, host)
	if errors.Is(err, errNotResumed) { // at is another listener than that of an earlier meeting
		_, err = meetAt(t, from, at, want, host)
	}
	return handshakeError(err), refused
}

// meetAt has a node with one identity connect to a listener.
func meetAt(t *testing.T, from *Identity, at *tls.Config, want, host string) (st tls.ConnectionState, err error) {
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
	c := tls.Client(near, from.client(want, host))
	if err = c.Handshake(); err == nil {
		_, err = c.Read(make([]byte, 1)) // TLS 1.3: the server judges the client's certificate last
	}
	near.Close()
	<-done
	return c.ConnectionState(), err
}

// Only the first of the connections to a node exchanges certificates, and keys by ML-KEM.
func TestFurtherConnectionsGoOnWithTheTLSSession(t *testing.T) {
	from, to := keys("k"), keys("k")
	must(t, 0, errors.Join(from.Load("0000000a"), to.Load("0000000b")))
	at := to.Server(func() string { return "0000000b" }, func(_ string, err error) { t.Error(err) })
	for i := range 3 {
		st, err := meetAt(t, from, at, "0000000b", "")
		if err != nil {
			t.Fatal(err)
		}
		curve := tls.X25519MLKEM768
		if i > 0 {
			curve = tls.CurveP256
		}
		if st.DidResume != (i > 0) || st.CurveID != curve || len(st.PeerCertificates) == 0 {
			t.Errorf("connection %d: resumed %v, %v, %d certificates", i+1, st.DidResume, st.CurveID, len(st.PeerCertificates))
		}
	}
}

// A TLS session is no way around the keys: those of now decide, on either side.
func TestTLSSessionEndsWithTheKeys(t *testing.T) {
	for name, late := range map[string]string{"of the front node": "0000000a", "of the owner": "0000000b"} {
		t.Run(name, func(t *testing.T) {
			text := map[string]string{"0000000a": "k", "0000000b": "k"}
			var refused error
			identity := func(id string) *Identity {
				i := DerivedIdentity(func(_ string, n int) ([][]byte, error) {
					return [][]byte{bytes.Repeat([]byte(text[id]), n)}, nil
				})
				must(t, i, i.Load(id))
				return i
			}
			from, to := identity("0000000a"), identity("0000000b")
			at := to.Server(func() string { return "0000000b" }, func(_ string, err error) { refused = err })
			for range 2 {
				if _, err := meetAt(t, from, at, "0000000b", ""); err != nil || refused != nil {
					t.Fatal(err, refused)
				}
			}
			text[late] = "x"
			must(t, 0, errors.Join(from.Load("0000000a"), to.Load("0000000b")))
			if st, err := meetAt(t, from, at, "0000000b", ""); !otherKeys(err) {
				t.Errorf("%v (resumed %v)", err, st.DidResume)
			}
			text["0000000a"], text["0000000b"] = "y", "y"
			must(t, 0, errors.Join(from.Load("0000000a"), to.Load("0000000b")))
			if st, err := meetAt(t, from, at, "0000000b", ""); err != nil || st.DidResume {
				t.Errorf("%v, resumed %v", err, st.DidResume)
			}
		})
	}
}

// The node still trusts the session that its peer goes on with, but not its peer's certificate any more.
func TestOwnerWithNewKeysRefusesAnOldTLSSession(t *testing.T) {
	text := "k"
	var refused error
	from := keys("k")
	to := DerivedIdentity(func(_ string, n int) ([][]byte, error) { return [][]byte{bytes.Repeat([]byte(text), n)}, nil })
	must(t, 0, errors.Join(from.Load("0000000a"), to.Load("0000000b")))
	at := to.Server(func() string { return "0000000b" }, func(_ string, err error) { refused = err })
	if _, err := meetAt(t, from, at, "0000000b", ""); err != nil {
		t.Fatal(err)
	}
	text = "x"
	must(t, 0, to.Load("0000000b"))
	if st, err := meetAt(t, from, at, "0000000b", ""); err == nil || refused == nil {
		t.Errorf("%v, %v, resumed %v", err, refused, st.DidResume)
	}
}

func TestNodesWithTheSameTokenKeyTrustEachOther(t *testing.T) {
	for kind, make := range tokenKeys {
		t.Run(kind, func(t *testing.T) {
			key := make(t)
			a, _, _ := load(t, "0000000a", key)
			b, _, _ := load(t, "0000000b", key)
			if err, refused := meet(t, a, b, "0000000b", "0000000b", ""); err != nil || refused != nil {
				t.Errorf("same key: %v, %v", err, refused)
			}
			other, _, _ := load(t, "0000000b", make(t))
			if err, _ := meet(t, a, other, "0000000b", "0000000b", ""); !otherKeys(err) {
				t.Errorf("another key: %v", err)
			}
		})
	}
}

// The key in a file makes the same authority in every form of it.
func TestAuthorityDependsOnTheKeyAlone(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, key, err)
	a, _, _ := load(t, "0000000a", pkcs8(t, key))
	b, _, _ := load(t, "0000000b", block("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key)))
	if err, refused := meet(t, a, b, "0000000b", "0000000b", ""); err != nil || refused != nil {
		t.Errorf("%v, %v", err, refused)
	}
}

// Whoever has the public key alone verifies tokens, and is no node.
func TestPublicKeyGivesNoAuthority(t *testing.T) {
	key, mine := tokenKeys["Ed25519"](t), tokenKeys["secret"](t)
	a, _, _ := load(t, "0000000a", key)
	b, _, _ := load(t, "0000000b", mine, publicOf(t, key))
	if err, _ := meet(t, a, b, "0000000b", "0000000b", ""); !otherKeys(err) {
		t.Errorf("to the one with the public key: %v", err)
	}
	if err, refused := meet(t, b, a, "0000000a", "0000000a", ""); !otherKeys(err) && refused == nil {
		t.Errorf("from the one with the public key: %v, %v", err, refused)
	}
}

// The side that is called sees by itself that the caller has other keys.
func TestListenerReportsOtherKeys(t *testing.T) {
	old, young := tokenKeys["secret"](t), tokenKeys["secret"](t)
	a, _, _ := load(t, "0000000a", young, old) // trusts both, and signs with the new key
	b, _, _ := load(t, "0000000b", old)
	err, refused := meet(t, a, b, "0000000b", "0000000b", "")
	if !otherKeys(err) || !otherKeys(refused) {
		t.Errorf("the caller sees %v, the listener %v", err, refused)
	}
}

// Keys are rotated in three steps at each node: trust the new one, sign with it, drop the old one.
func TestRotationKeepsNodesTogetherAtEachStep(t *testing.T) {
	old, young := tokenKeys["Ed25519"](t), tokenKeys["ECDSA"](t)
	a, keys, names := load(t, "0000000a", old, young)
	b, _, _ := load(t, "0000000b", old, young)
	if err, refused := meet(t, a, b, "0000000b", "0000000b", ""); err != nil || refused != nil {
		t.Fatalf("before: %v, %v", err, refused)
	}
	write(t, names[0], young)
	write(t, names[1], old)
	if err := errors.Join(keys.Reload(), a.Load("0000000a")); err != nil {
		t.Fatal(err)
	}
	for _, pair := range [][2]*Identity{{a, b}, {b, a}} {
		if err, refused := meet(t, pair[0], pair[1], "0000000c", "", ""); err != nil || refused != nil {
			t.Errorf("one signs with the new key: %v, %v", err, refused)
		}
	}
	write(t, names[1], young)
	if err := errors.Join(keys.Reload(), a.Load("0000000a")); err != nil {
		t.Fatal(err)
	}
	if err, _ := meet(t, a, b, "0000000b", "0000000b", ""); !otherKeys(err) {
		t.Errorf("one has dropped the old key, by which the other signs: %v", err)
	}
}

func TestAnotherNodeAtTheAddressIsToldFromOtherKeys(t *testing.T) {
	key := tokenKeys["secret"](t)
	a, _, _ := load(t, "0000000a", key)
	b, _, _ := load(t, "0000000b", key)
	if err, refused := meet(t, a, b, "0000000b", "0000000c", ""); !errors.Is(err, ErrOtherNode) || otherKeys(err) || refused != nil {
		t.Errorf("%v, %v", err, refused)
	}
	if err, _ := meet(t, a, b, "0000000b", "", ""); err != nil {
		t.Errorf("any node is asked for: %v", err)
	}
}

// issue makes a certificate of an authority of the test's, for names and addresses.
func issue(t *testing.T, dir, name string, ca *x509.Certificate, caKey ed25519.PrivateKey, hosts ...string) (cert, key string) {
	t.Helper()
	return issueChanged(t, dir, name, ca, caKey, func(*x509.Certificate) {}, hosts...)
}

func issueChanged(t *testing.T, dir, name string, ca *x509.Certificate, caKey ed25519.PrivateKey, change func(*x509.Certificate), hosts ...string) (cert, key string) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	must(t, public, err)
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
	der, err := x509.CreateCertificate(rand.Reader, c, ca, public, caKey)
	must(t, der, err)
	return write(t, filepath.Join(dir, name+".crt"), block("CERTIFICATE", der)), write(t, filepath.Join(dir, name+".key"), pkcs8(t, private))
}

func TestGivenCertificatesAreForTheHostOfTheAddress(t *testing.T) {
	dir := t.TempDir()
	ca, caKey, err := authority(bytes.Repeat([]byte{1}, ed25519.SeedSize))
	must(t, ca, err)
	caFile := write(t, filepath.Join(dir, "ca"), block("CERTIFICATE", ca.Raw))
	given := func(name string, hosts ...string) *Identity {
		cert, key := issue(t, dir, name, ca, caKey, hosts...)
		i := GivenIdentity(cert, key, caFile)
		if err := i.Load("0000000b"); err != nil {
			t.Fatal(err)
		}
		return i
	}
	a, b := given("a", "a.example"), given("b", "b.example", "10.0.0.2")
	for host, good := range map[string]bool{"b.example": true, "10.0.0.2": true, "c.example": false, "10.0.0.3": false} {
		if err, refused := meet(t, a, b, "0000000b", "0000000b", host); (err == nil) != good || refused != nil {
			t.Errorf("%s: %v, %v", host, err, refused)
		}
	}
	if err, _ := meet(t, a, b, "0000000b", "0000000c", "b.example"); !errors.Is(err, ErrOtherNode) {
		t.Errorf("another node: %v", err)
	}
	derived, _, _ := load(t, "0000000b", tokenKeys["secret"](t))
	if err, _ := meet(t, a, derived, "0000000b", "0000000b", "b.example"); !otherKeys(err) {
		t.Errorf("a node without such a certificate: %v", err)
	}
}

func TestGivenCertificatesAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	ca, caKey, err := authority(bytes.Repeat([]byte{1}, ed25519.SeedSize))
	must(t, ca, err)
	caFile := write(t, filepath.Join(dir, "ca"), block("CERTIFICATE", ca.Raw))
	cert, key := issue(t, dir, "a", ca, caKey, "a.example")
	i := GivenIdentity(cert, key, caFile)
	if err := i.Load(""); err != nil {
		t.Fatal(err)
	}
	before := i.now.Load().leaf.Certificate[0]
	issue(t, dir, "a", ca, caKey, "a.example")
	if err := i.Load(""); err != nil || bytes.Equal(i.now.Load().leaf.Certificate[0], before) {
		t.Errorf("%v, or the old certificate", err)
	}
	write(t, cert, []byte("broken"))
	renewed := i.now.Load()
	if err := i.Load(""); err == nil || i.now.Load() != renewed {
		t.Errorf("%v: a broken file must leave the certificate in use", err)
	}
}

// Check says of a given certificate what the other nodes would refuse.
func TestCheckNamesWhatOtherNodesWouldRefuse(t *testing.T) {
	dir := t.TempDir()
	ca, caKey, err := authority(bytes.Repeat([]byte{1}, ed25519.SeedSize))
	must(t, ca, err)
	other, _, err := authority(bytes.Repeat([]byte{2}, ed25519.SeedSize))
	must(t, other, err)
	caFile, otherFile := write(t, filepath.Join(dir, "ca"), block("CERTIFICATE", ca.Raw)), write(t, filepath.Join(dir, "other"), block("CERTIFICATE", other.Raw))
	only := func(usage x509.ExtKeyUsage) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{usage} }
	}
	same := func(*x509.Certificate) {}
	for name, test := range map[string]struct {
		change func(*x509.Certificate)
		ca     string
		host   string
		want   string // "": good
	}{
		"good":        {same, caFile, "a.example", ""},
		"address":     {same, caFile, "10.0.0.1", ""},
		"other host":  {same, caFile, "b.example", "--node-cert: not valid for the host of --node-advertise"},
		"other ca":    {same, otherFile, "a.example", "--node-cert: not accepted by --node-ca as that of a server"},
		"expired":     {func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }, caFile, "a.example", "expired"},
		"not yet":     {func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) }, caFile, "a.example", "not yet valid"},
		"server only": {only(x509.ExtKeyUsageServerAuth), caFile, "a.example", "--node-cert: not accepted by --node-ca as that of a client"},
		"client only": {only(x509.ExtKeyUsageClientAuth), caFile, "a.example", "--node-cert: not accepted by --node-ca as that of a server"},
	} {
		cert, key := issueChanged(t, dir, name, ca, caKey, test.change, "a.example", "10.0.0.1")
		i := GivenIdentity(cert, key, test.ca)
		if err := i.Load("0000000a"); err != nil {
			t.Fatal(err)
		}
		leaf, err := i.Check(test.host)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) || leaf == nil || leaf.Subject.CommonName != name {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
	derived, _, _ := load(t, "0000000a", tokenKeys["secret"](t))
	if leaf, err := derived.Check("anything.example"); leaf != nil || err != nil {
		t.Errorf("derived: %v, %v", leaf, err)
	}
}

// What was found out about a certificate holds as long as that does.
func TestCertificateThatHasExpiredSinceIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, key, err := authority(make([]byte, 32))
		if err != nil {
			t.Fatal(err)
		}
		public, _, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
			SerialNumber: big.NewInt(1), NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}, ca, public, key)
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
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
