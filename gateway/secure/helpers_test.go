package secure

import (
	"crypto/tls"
	"log/slog"
	"net"
	"strings"
	"testing"

	"reseat/gateway/internal/test/testcert"
	"reseat/gateway/internal/test/wstest"
)

// A logbook collects what is logged.
type logbook struct{ wstest.Log }

func (b *logbook) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// count returns the number of lines that contain all of the words.
func (b *logbook) count(words ...string) (n int) {
	for line := range strings.Lines(b.String()) {
		held := true
		for _, w := range words {
			held = held && strings.Contains(line, w)
		}
		if held {
			n++
		}
	}
	return n
}

// A door is a listener in memory. Only its methods accept.
type door struct {
	net.Listener
	t     *testing.T
	certs *Certificates
	inner *wstest.Listener
	log   *logbook
}

func open(t *testing.T, c Config) *door {
	t.Helper()
	d := &door{t: t, inner: wstest.NewListener(64 << 10), log: new(logbook)}
	c.Log = d.log.logger()
	var err error
	if d.certs, err = Open(c); err != nil {
		t.Fatal(err)
	}
	d.Listener = d.certs.Listen(d.inner)
	t.Cleanup(func() { d.close() })
	return d
}

// openFor serves with a certificate for names, with its files in dir.
func openFor(t *testing.T, names ...string) (d *door, pair *testcert.Pair, dir string) {
	t.Helper()
	pair, dir = testcert.New(t, names...), t.TempDir()
	cert, key := pair.Write(dir)
	return open(t, Config{CertFile: cert, KeyFile: key}), pair, dir
}

func (d *door) dial() *wstest.Conn {
	d.t.Helper()
	c, err := d.inner.Dial()
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { c.Close() })
	return c
}

func (d *door) close() {
	d.Close()
	d.certs.Stop()
}

// shake makes a connection; err is the client's. server is nil if the client's handshake
// fails.
func (d *door) shake(config *tls.Config) (client *tls.Conn, server net.Conn, err error) {
	d.t.Helper()
	accepted := make(chan *tls.Conn, 1)
	go func() {
		c, err := d.Accept()
		if err != nil {
			d.t.Error(err)
		}
		s := c.(*tls.Conn)
		if err := s.Handshake(); err != nil {
			d.log.logger().Debug("handshake", "err", err)
			s.Close()
		}
		accepted <- s
	}()
	client = tls.Client(d.dial(), config)
	if err = client.HandshakeContext(d.t.Context()); err != nil {
		client.Close()
		<-accepted
		return client, nil, err
	}
	return client, <-accepted, nil
}

// must is shake for a handshake that succeeds.
func (d *door) must(config *tls.Config) (client *tls.Conn, server net.Conn) {
	d.t.Helper()
	client, server, err := d.shake(config)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { server.Close() })
	return client, server
}
