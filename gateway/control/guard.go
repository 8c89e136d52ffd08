package control

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"unicode/utf8"
)

// ownPagesOnly refuses what a foreign page in a browser on this machine could
// send here: a cross-site request, or one under a name that was made to point
// here (DNS rebinding).
func ownPagesOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !loopbackName(r.Host):
			problem(w, http.StatusForbidden, "Host is no loopback name")
		case !ownOrigin(r):
			problem(w, http.StatusForbidden, "cross-site request")
		default:
			w.Header().Set("X-Content-Type-Options", "nosniff")
			next.ServeHTTP(w, r)
		}
	})
}

// loopbackName reports whether a Host value names this machine to itself.
func loopbackName(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.Trim(host, "[]"), ".")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

// ownOrigin reports whether a request is no browser's, or comes from a page of
// this very address.
func ownOrigin(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
	default:
		return false
	}
	for _, o := range r.Header.Values("Origin") {
		if u, err := url.Parse(o); err != nil || !strings.EqualFold(u.Host, r.Host) {
			return false
		}
	}
	return true
}

func validText(s string) bool { return utf8.ValidString(s) }
