package upstream

import (
	"crypto/tls"
	"net/http"
	"net/netip"
	"slices"
	"strings"
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

// A client may send any forwarding headers. None has any effect unless the peer is a trusted proxy.
func FuzzForwarded(f *testing.F) {
	for _, v := range []string{"", "1.2.3.4, 10.0.0.7", "10.0.0.7,10.0.0.8", "[::1]:80", "unknown, 1.2.3.4", ",,", "::ffff:9.9.9.9, 10.1.1.1", "fe80::1%eth0", "1.2.3.4:99999"} {
		f.Add("10.0.0.1:1234", v)
		f.Add("192.0.2.1:1234", v)
	}
	f.Fuzz(func(t *testing.T, remote, forwarded string) {
		r := &http.Request{RemoteAddr: remote, Header: http.Header{"X-Forwarded-For": {forwarded}}}
		p := NewPeer(r, trustedNets)
		got := ClientAddr(p, r.Header, trustedNets)
		sent := slices.ContainsFunc(strings.Split(forwarded, ","), func(s string) bool {
			a, ok := parseAddr(strings.TrimSpace(s))
			return ok && a == got
		})
		if got != p.Addr && !(p.Trusted && sent) || got.Zone() != "" || got.Is4In6() {
			t.Errorf("from %q, trusted %t, %q makes it %s", remote, p.Trusted, forwarded, got)
		}
	})
}
