package secure

import (
	"crypto/tls"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway/internal/test/testcert"
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
