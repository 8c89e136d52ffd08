//go:build linux

package proxy

import (
	"crypto/tls"
	"strings"
	"testing"
)

func TestLegIsConfigured(t *testing.T) {
	secure := Leg{Cert: "c.pem", Key: "k.pem"}
	for _, tt := range []struct {
		leg          Leg
		flags, nginx string
	}{
		{Leg{}, "", ""},
		{secure, "--tls-cert c.pem --tls-key k.pem", "ssl; ssl_protocols TLSv1.3; ssl_certificate c.pem; ssl_certificate_key k.pem"},
		{Leg{Deflate: true}, "--compression on", ""},
	} {
		if got := strings.Join(tt.leg.flags(), " "); got != tt.flags {
			t.Errorf("%+v: %q", tt.leg, got)
		}
		if got := strings.Join(strings.Fields(tt.leg.nginx()), " "); got != tt.nginx {
			t.Errorf("%+v: %q", tt.leg, got)
		}
	}
}

func TestCertificateIsThatOfItsKeyAndItsRoots(t *testing.T) {
	leg, err := WithTLS(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(leg.Cert, leg.Key)
	if err != nil {
		t.Fatal(err)
	}
	if err := pair.Leaf.VerifyHostname("127.0.0.1"); err != nil {
		t.Error(err)
	}
}
