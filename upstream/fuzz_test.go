package upstream

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// FuzzForwarded lets a client send any forwarding headers. None of them has any effect
// unless the peer is a trusted proxy.
func FuzzForwarded(f *testing.F) {
	for _, v := range []string{"", "1.2.3.4", "1.2.3.4, 10.0.0.7", "10.0.0.7,10.0.0.8", "[::1]:80", "unknown, 1.2.3.4", ",,", "::ffff:9.9.9.9, 10.1.1.1", "fe80::1%eth0", "1.2.3.4:99999"} {
		f.Add("10.0.0.1:1234", v)
		f.Add("192.0.2.1:1234", v)
	}
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	f.Fuzz(func(t *testing.T, remote, forwarded string) {
		r := &http.Request{RemoteAddr: remote, Header: http.Header{"X-Forwarded-For": {forwarded}}}
		p := NewPeer(r, trusted)
		got := ClientAddr(p, r.Header, trusted)
		switch {
		case !p.Trusted && got != p.Addr:
			t.Errorf("from %q, which is not trusted, %q has an effect: %s", remote, forwarded, got)
		case got != p.Addr && !slices.ContainsFunc(strings.Split(forwarded, ","), func(s string) bool {
			a, ok := parseAddr(strings.TrimSpace(s))
			return ok && a == got
		}):
			t.Errorf("from %q, %q: %s appears in no header", remote, forwarded, got)
		case got.Zone() != "" || got.Is4In6():
			t.Errorf("%s has more than one spelling", got)
		}
	})
}
