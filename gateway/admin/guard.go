package admin

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"reseat/gateway/front"
)

// A denial says why a request is refused before it reaches its handler.
type denial struct {
	status int
	label  string // of the metric
	detail string
}

// loopback is the caller where no token is required.
var loopback = caller{name: "loopback", write: true}

// checkLoopback trusts every caller on this machine, except for what a foreign page in one
// of its browsers could send: cross-site requests, and requests under a name that was made
// to resolve to this machine (DNS rebinding).
func checkLoopback(r *http.Request) (caller, *denial) {
	switch {
	case !loopbackName(r.Host):
		return caller{}, &denial{http.StatusForbidden, "host", "want a loopback name as Host, such as 127.0.0.1, since --admin-token-file is not set"}
	case !ownOrigin(r):
		return caller{}, &denial{http.StatusForbidden, "cross_site", "cross-site request"}
	}
	return loopback, nil
}

// identify returns the caller of a request, or why it is refused. It may set headers of the
// refusal.
func (a *api) identify(w http.ResponseWriter, r *http.Request) (caller, *denial) {
	if a.Credentials == nil {
		return checkLoopback(r)
	}
	return a.Credentials.check(w, r)
}

// authorize passes on the requests of callers that are known, and that may do what they ask.
func (a *api) authorize(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		who, denied := a.identify(w, r)
		if denied == nil && !who.write && !readOnly(r) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="reseat", error="insufficient_scope"`)
			denied = &denial{http.StatusForbidden, "viewer", "a viewer's token may only read"}
		}
		if denied != nil {
			a.noteRefused(r, who, denied)
			problem(w, denied.status, denied.detail)
			return
		}
		next.ServeHTTP(w, withCall(r, who))
	})
}

// readOnly reports whether a viewer may send r. Profiles are excluded: they show the
// command line and slow the process down.
func readOnly(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && !strings.HasPrefix(r.URL.Path, "/debug/")
}

// noteRefused counts a refused request, and logs it.
func (a *api) noteRefused(r *http.Request, who caller, d *denial) {
	a.g.Watch().Metrics.AdminRefused.WithLabelValues(d.label).Inc()
	a.refused.Warn("admin.refused", "why", d.label, "who", who.name, "peer", r.RemoteAddr, "method", front.Clip(r.Method), "path", front.Clip(r.URL.Path))
}

// loopbackName reports whether a Host value names this machine from itself.
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

// ownOrigin reports whether a request was not sent by a browser, or by a page of this very
// address.
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
