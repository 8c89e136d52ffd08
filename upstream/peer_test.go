package upstream

import (
	"crypto/tls"
	"net/http"
	"net/netip"
	"testing"
)

var trustedNets = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")}

func TestClientAddrIsTheRightmostUntrustedAddress(t *testing.T) {
	for _, c := range []struct {
		peer string
		xff  []string
		want string
	}{
		{"192.0.2.7", nil, "192.0.2.7"},
		{"192.0.2.7", []string{"6.6.6.6"}, "192.0.2.7"}, // the peer is not trusted
		{"10.0.0.1", nil, "10.0.0.1"},
		{"10.0.0.1", []string{"203.0.113.9"}, "203.0.113.9"},
		{"10.0.0.1", []string{"6.6.6.6, 203.0.113.9"}, "203.0.113.9"}, // the client set the left one
		{"10.0.0.1", []string{"203.0.113.9, 10.0.0.2"}, "203.0.113.9"},
		{"10.0.0.1", []string{"6.6.6.6", "203.0.113.9,10.0.0.2"}, "203.0.113.9"},
		{"10.0.0.1", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		{"10.0.0.1", []string{"203.0.113.9, , 10.0.0.2,"}, "203.0.113.9"},
		{"10.0.0.1", []string{"203.0.113.9, nonsense"}, "10.0.0.1"},
		{"10.0.0.1", []string{"6.6.6.6, unknown, 10.0.0.2"}, "10.0.0.2"},
		{"10.0.0.1", []string{"203.0.113.9:4711"}, "203.0.113.9"},
		{"10.0.0.1", []string{"[2001:db9::5]:4711"}, "2001:db9::5"},
		{"10.0.0.1", []string{"[2001:db9::5]"}, "2001:db9::5"},
		{"10.0.0.1", []string{"203.0.113.9, 2001:db8::2"}, "203.0.113.9"},
		{"10.0.0.1", []string{"203.0.113.9, ::ffff:10.0.0.9"}, "203.0.113.9"},
	} {
		p := Peer{Addr: netip.MustParseAddr(c.peer)}
		got := ClientAddr(p, http.Header{"X-Forwarded-For": c.xff}, trustedNets)
		if got != netip.MustParseAddr(c.want) {
			t.Errorf("peer %s, X-Forwarded-For %q: %v, want %s", c.peer, c.xff, got, c.want)
		}
	}
}

func TestNewPeerDescribesTheConnection(t *testing.T) {
	for _, c := range []struct {
		remote string
		tls    bool
		want   Peer
	}{
		{"192.0.2.7:5000", false, Peer{Addr: netip.MustParseAddr("192.0.2.7"), Host: "h"}},
		{"10.1.2.3:5000", true, Peer{Addr: netip.MustParseAddr("10.1.2.3"), Host: "h", Trusted: true, TLS: true}},
		{"[::ffff:10.1.2.3]:5000", false, Peer{Addr: netip.MustParseAddr("10.1.2.3"), Host: "h", Trusted: true}},
		{"[2001:db8::1%eth0]:5000", false, Peer{Addr: netip.MustParseAddr("2001:db8::1"), Host: "h", Trusted: true}},
		{"@", false, Peer{Host: "h"}},
		{"", false, Peer{Host: "h"}},
	} {
		r := &http.Request{RemoteAddr: c.remote, Host: "h"}
		if c.tls {
			r.TLS = new(tls.ConnectionState)
		}
		if got := NewPeer(r, trustedNets); got != c.want {
			t.Errorf("%q: %+v, want %+v", c.remote, got, c.want)
		}
	}
}
