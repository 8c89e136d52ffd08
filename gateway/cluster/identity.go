package cluster

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"sync/atomic"
	"time"
)

// caPurpose names the keys of the authorities: see tokens.Keys.Derive.
const caPurpose = "reseat node ca v1"

// nodeDomain ends the name of each node in its certificate, behind its id.
const nodeDomain = ".node.reseat"

// anyNode stands for the id of a node that is not known.
const anyNode = "any"

// An Identity is the certificate by which this node is known to the others, and the authorities
// by which it knows them. All methods are safe for concurrent use.
type Identity struct {
	derive func(purpose string, n int) ([][]byte, error)
	now    atomic.Pointer[credentials]
}

type credentials struct {
	leaf tls.Certificate
	pool *x509.CertPool
}

// DerivedIdentity makes certificates of the token keys, so that nodes with the same keys know
// each other. Each private key gives an authority; the first signs this node's certificate.
// derive is tokens.Keys.Derive.
func DerivedIdentity(derive func(purpose string, n int) ([][]byte, error)) *Identity {
	return &Identity{derive: derive}
}

// authority is the same for the same seed, in every process.
func authority(seed []byte) (*x509.Certificate, ed25519.PrivateKey, error) {
	key := ed25519.NewKeyFromSeed(seed)
	sum := sha256.Sum256(key.Public().(ed25519.PublicKey))
	t := &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes(sum[:8]), Subject: pkix.Name{CommonName: "Reseat nodes"}, SubjectKeyId: sum[:20],
		NotBefore: time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(2120, 1, 1, 0, 0, 0, 0, time.UTC),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return nil, nil, fmt.Errorf("node authority: %w", err)
	}
	ca, err := x509.ParseCertificate(der)
	return ca, key, err
}

// leaf makes the certificate of a node. Its key lives in this process alone, and the clocks of
// other nodes may be wrong.
func leaf(id string, ca *x509.Certificate, caKey ed25519.PrivateKey) (tls.Certificate, error) {
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return tls.Certificate{}, err
	}
	now := time.Now()
	t := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: id}, DNSNames: []string{id + nodeDomain},
		NotBefore: now.Add(-24 * time.Hour), NotAfter: now.AddDate(10, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, t, ca, public, caKey)
	return tls.Certificate{Certificate: [][]byte{der, ca.Raw}, PrivateKey: key}, err
}

// Load makes everything again, for the node with this id. Connections that exist stay.
func (i *Identity) Load(id string) error {
	seeds, err := i.derive(caPurpose, ed25519.SeedSize)
	if err != nil {
		return err
	}
	if len(seeds) == 0 {
		return errNoKeys
	}
	c := &credentials{pool: x509.NewCertPool()}
	for n, seed := range seeds {
		ca, key, err := authority(seed)
		if err != nil {
			return err
		}
		c.pool.AddCert(ca)
		if n == 0 {
			if c.leaf, err = leaf(id, ca, key); err != nil {
				return err
			}
		}
	}
	i.now.Store(c)
	return nil
}

// protocol is spoken between nodes; otherNode is offered to those who look for another node, so that their
// handshake fails for a reason that they can tell from others.
const protocol, otherNode = "http/1.1", "reseat-other-node"

// Server is the configuration of the node listener of the node with this id. refused is called
// with the address of a peer with other keys.
func (i *Identity) Server(id func() string, refused func(address string, err error)) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			speaks := protocol
			if want, ok := strings.CutSuffix(h.ServerName, nodeDomain); ok && want != id() && want != anyNode {
				speaks = otherNode
			}
			c := i.now.Load()
			address := h.Conn.RemoteAddr().String()
			return &tls.Config{
				MinVersion: tls.VersionTLS13, NextProtos: []string{speaks}, DynamicRecordSizingDisabled: true,
				Certificates: []tls.Certificate{c.leaf}, ClientAuth: tls.RequireAnyClientCert,
				VerifyConnection: func(st tls.ConnectionState) error {
					err := c.verify(st, x509.ExtKeyUsageClientAuth)
					if err != nil {
						refused(address, err)
					}
					return err
				},
			}, nil
		},
	}
}

// client is the configuration of a connection to a node. With "" for the id, any node will
// do.
func (i *Identity) client(id string) *tls.Config {
	c := i.now.Load()
	name := id
	if name == "" {
		name = anyNode
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{protocol}, Certificates: []tls.Certificate{c.leaf}, ServerName: name + nodeDomain,
		DynamicRecordSizingDisabled: true, // a link carries what many clients wait for
		InsecureSkipVerify:          true, // VerifyConnection does it: first the chain, then the name
		VerifyConnection: func(st tls.ConnectionState) error {
			if err := c.verify(st, x509.ExtKeyUsageServerAuth); err != nil {
				return err
			}
			if id != "" && st.PeerCertificates[0].Subject.CommonName != id {
				return ErrOtherNode
			}
			return nil
		},
	}
}

// verify checks the chain of a peer's certificate.
func (c *credentials) verify(st tls.ConnectionState, usage x509.ExtKeyUsage) error {
	opts := x509.VerifyOptions{Roots: c.pool, Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{usage}}
	for _, more := range st.PeerCertificates[1:] {
		opts.Intermediates.AddCert(more)
	}
	_, err := st.PeerCertificates[0].Verify(opts)
	return err
}

// The texts of TLS alerts, which crypto/tls gives no type. A peer that has other keys says bad
// certificate, one that is another node no application protocol.
const (
	alertOf         = "remote error: tls: "
	alertProtocol   = alertOf + "no application protocol"
	alertOfBadChain = alertOf + "bad certificate"
	alertOfUnknown  = alertOf + "unknown certificate authority"
)

// OtherKeys reports whether a connection to a node failed, or its record cannot be read, since it has other keys.
func OtherKeys(err error) bool {
	if err == nil {
		return false
	}
	var unknown x509.UnknownAuthorityError
	return errors.Is(err, errOtherKey) || errors.As(err, &unknown) || strings.Contains(err.Error(), alertOfBadChain) || strings.Contains(err.Error(), alertOfUnknown)
}

// handshakeError names what another node's listener says.
func handshakeError(err error) error {
	if err != nil && strings.Contains(err.Error(), alertProtocol) {
		return ErrOtherNode
	}
	return err
}
