package secure

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway/internal/test/testcert"
	"reseat/gateway/internal/test/wstest"
)

func serial(c *tls.Conn) string { return c.ConnectionState().PeerCertificates[0].SerialNumber.String() }

func TestReloadAffectsOnlyNewConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, one, dir := openFor(t, "game.example")
		client, server := d.must(one.Client())
		two := testcert.New(t, "game.example")
		two.Write(dir)
		if err := d.certs.Reload(); err != nil {
			t.Fatal(err)
		}
		again, _ := d.must(two.Client())
		if got := serial(again); got != two.Leaf.SerialNumber.String() {
			t.Errorf("a new client sees certificate %s, want %s", got, two.Leaf.SerialNumber)
		}
		go server.Write([]byte("still here"))
		b := make([]byte, 10)
		if _, err := io.ReadFull(client, b); err != nil {
			t.Errorf("the old connection: %v", err)
		}
		if d.log.count("cert.reloaded") != 1 {
			t.Error("the reload is not in the log")
		}
	})
}

func TestBrokenFileKeepsTheOldCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, pair, dir := openFor(t, "game.example")
		other := testcert.New(t, "game.example")
		for _, c := range []struct {
			what, file string
			content    []byte // nil: no file
			says       string
		}{
			{"no certificate", "cert.pem", nil, "--tls-cert: "},
			{"no PEM", "cert.pem", []byte("nonsense"), "--tls-cert "},
			{"half a certificate", "cert.pem", pair.Cert[:100], "--tls-cert "},
			{"too much", "cert.pem", make([]byte, maxPEM+1), "larger than 1048576 bytes"},
			{"no key", "key.pem", nil, "--tls-key: "},
			{"another key", "key.pem", other.Key, "private key does not match"},
			{"the certificate for the key", "key.pem", pair.Cert, "--tls-key "},
		} {
			pair.Write(dir)
			file := filepath.Join(dir, c.file)
			os.Remove(file)
			if c.content != nil {
				if err := os.WriteFile(file, c.content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			err := d.certs.Reload()
			if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), file) {
				t.Errorf("%s: %v, want one line with %q and %s", c.what, err, c.says, file)
			}
			client, _ := d.must(pair.Client())
			if serial(client) != pair.Leaf.SerialNumber.String() {
				t.Errorf("%s: another certificate is shown", c.what)
			}
			if _, err := Open(Config{CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}); err == nil {
				t.Errorf("%s: taken at the start", c.what)
			}
		}
	})
}

func TestTLSSessionsResumeAcrossReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, pair, _ := openFor(t, "game.example")
		config := pair.Client()
		config.ClientSessionCache = tls.NewLRUClientSessionCache(1)
		for i, want := range []bool{false, true, true} {
			client, server := d.must(config)
			go server.Write([]byte("x")) // a TLS 1.3 ticket comes with the first data
			client.Read(make([]byte, 1))
			if got := client.ConnectionState().DidResume; got != want {
				t.Errorf("connection %d: resumed %v, want %v", i, got, want)
			}
			if err := d.certs.Reload(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestCertificateOutsideItsDatesIsLoadedWithWarning(t *testing.T) {
	for what, ago := range map[string][2]time.Duration{
		"expired":          {-48 * time.Hour, -24 * time.Hour},
		"not valid before": {24 * time.Hour, 48 * time.Hour},
	} {
		pair := testcert.Between(t, time.Now().Add(ago[0]), time.Now().Add(ago[1]), "game.example")
		cert, key := pair.Write(t.TempDir())
		log := new(logbook)
		c, err := Open(Config{CertFile: cert, KeyFile: key, Log: log.logger()})
		if err != nil {
			t.Fatal(err)
		}
		if log.count("level=WARN", what) != 1 {
			t.Errorf("%s: no warning: %s", what, log.String())
		}
		if err := Valid(c.Leaf(), time.Now()); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("Valid: %v, want %s", err, what)
		}
	}
	if err := Valid(testcert.New(t, "x").Leaf, time.Now()); err != nil {
		t.Errorf("a good certificate: %v", err)
	}
}

func TestHostIsANameOfTheCertificate(t *testing.T) {
	for _, c := range []struct {
		names           []string
		listening, want string
	}{
		{[]string{"game.example", "www.game.example"}, "localhost", "game.example"},
		{[]string{"*.game.example", "game.example"}, "192.0.2.1", "game.example"},
		{[]string{"*.game.example"}, "localhost", "localhost"},
		{[]string{"*.game.example"}, "eu.game.example", "eu.game.example"},
		{[]string{"game.example", "localhost"}, "localhost", "localhost"},
		{[]string{"localhost"}, "127.0.0.1", "localhost"},
		{[]string{"127.0.0.1"}, "127.0.0.1", "127.0.0.1"},
		{[]string{"::1"}, "::1", "::1"},
	} {
		cert, key := testcert.New(t, c.names...).Write(t.TempDir())
		certs, err := Open(Config{CertFile: cert, KeyFile: key})
		if err != nil {
			t.Fatal(err)
		}
		if got := certs.Host(c.listening); got != c.want {
			t.Errorf("%q, listening on %s: host %q, want %q", c.names, c.listening, got, c.want)
		}
	}
}

func TestDescribeNamesHostsOfCertificate(t *testing.T) {
	to := time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC)
	for want, names := range map[string][]string{
		"for a.example, 127.0.0.1, until 2031-02-03":  {"127.0.0.1", "a.example"},
		"for no name, until 2031-02-03":               {},
		"for a, b, c, d, e, 2 more, until 2031-02-03": {"a", "b", "c", "d", "e", "f", "g"},
	} {
		if got := Describe(testcert.Between(t, to.AddDate(-1, 0, 0), to, names...).Leaf); got != want {
			t.Errorf("%q: %s, want %s", names, got, want)
		}
	}
}

func TestVersionsAndProtocols(t *testing.T) {
	for _, c := range []struct {
		what        string
		least, most uint16
		offer       []string
		version     uint16 // 0: refused
		agreed      string
	}{
		{"TLS 1.0", tls.VersionTLS10, tls.VersionTLS10, nil, 0, ""},
		{"TLS 1.1", tls.VersionTLS10, tls.VersionTLS11, []string{"http/1.1"}, 0, ""},
		{"TLS 1.2", tls.VersionTLS10, tls.VersionTLS12, []string{"http/1.1"}, tls.VersionTLS12, "http/1.1"},
		{"TLS 1.3", tls.VersionTLS12, tls.VersionTLS13, []string{"http/1.1"}, tls.VersionTLS13, "http/1.1"},
		{"both protocols", 0, 0, []string{"http/1.1", "h2"}, tls.VersionTLS13, "h2"},
		{"no ALPN", 0, 0, nil, tls.VersionTLS13, ""},
		{"another protocol", 0, 0, []string{"ftp"}, 0, ""},
		{"a challenge that nobody asked for", 0, 0, []string{"acme-tls/1"}, 0, ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, pair, _ := openFor(t, "game.example")
				config := pair.Client(c.offer...)
				config.MinVersion, config.MaxVersion = c.least, c.most
				client, server, err := d.shake(config)
				if c.version == 0 {
					if err == nil {
						t.Fatalf("accepted: %+v", client.ConnectionState())
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				defer server.Close()
				if s := client.ConnectionState(); s.Version != c.version || s.NegotiatedProtocol != c.agreed {
					t.Errorf("got %s with %q", tls.VersionName(s.Version), s.NegotiatedProtocol)
				}
			})
		})
	}
}

func TestCiphersThatGoCallsInsecureAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, pair, _ := openFor(t, "game.example")
		for _, suite := range tls.InsecureCipherSuites() {
			config := pair.Client()
			config.MaxVersion, config.CipherSuites = tls.VersionTLS12, []uint16{suite.ID}
			if _, server, err := d.shake(config); err == nil {
				server.Close()
				t.Errorf("%s was accepted", suite.Name)
			}
		}
	})
}

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
