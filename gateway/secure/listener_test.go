package secure

import (
	"crypto/tls"
	"testing"
	"testing/synctest"
)

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
