package admin

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
)

// A guard says who has sent a request, or why it is refused. It may set headers
// of the refusal.
type guard interface {
	check(w http.ResponseWriter, r *http.Request) (caller, *denial)
}

// A denial is why a request is refused at the door.
type denial struct {
	status int
	label  string // of the metric
	detail string
}

// ownPages trusts anyone who reaches this address from this machine, but what a
// foreign page in a browser on it could send: a cross-site request, or one under
// a name that was made to point here (DNS rebinding).
type ownPages struct{}

func (ownPages) check(_ http.ResponseWriter, r *http.Request) (caller, *denial) {
	switch {
	case !loopbackName(r.Host):
		return caller{}, &denial{http.StatusForbidden, "host", "want a loopback name as Host, such as 127.0.0.1, since --admin-token-file is not set"}
	case !ownOrigin(r):
		return caller{}, &denial{http.StatusForbidden, "cross_site", "cross-site request"}
	}
	return caller{ownPages{}.name(), true}, nil
}

func (ownPages) name() string { return "loopback" }

// callerKey finds the caller in a request's context.
type callerKey struct{}

func callerOf(r *http.Request) caller {
	c, _ := r.Context().Value(callerKey{}).(caller)
	return c
}

// admit lets those pass whom the guard knows, with what they may do.
func (a *api) admit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		who, denied := a.guard.check(w, r)
		if denied == nil && !who.write && !readOnly(r) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="reseat", error="insufficient_scope"`)
			denied = &denial{http.StatusForbidden, "viewer", "a viewer's token may only read"}
		}
		if denied != nil {
			a.refused.note(r, who, denied)
			problem(w, denied.status, denied.detail)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, who)))
	})
}

// readOnly reports whether a viewer may send it. Profiles are no viewer's: they
// tell the command line and hold up the process.
func readOnly(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && !strings.HasPrefix(r.URL.Path, "/debug/")
}

// refusals counts those who were refused, and logs as many of them as an
// operator can read.
type refusals struct {
	log      *slog.Logger
	limit    *rate.Limiter
	registry *prometheus.Registry
	count    *prometheus.CounterVec
}

func newRefusals(log *slog.Logger) *refusals {
	n := &refusals{
		log: log, limit: rate.NewLimiter(5, 20), registry: prometheus.NewRegistry(),
		count: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "reseat_admin_refused_total", Help: "Requests refused at the admin address, by reason.",
		}, []string{"reason"}),
	}
	n.registry.MustRegister(n.count)
	for _, reason := range []string{"host", "cross_site", "no_token", "bad_token", "viewer"} {
		n.count.WithLabelValues(reason)
	}
	return n
}

func (n *refusals) note(r *http.Request, who caller, d *denial) {
	n.count.WithLabelValues(d.label).Inc()
	if n.limit.Allow() {
		n.log.Warn("admin.refused", "why", d.label, "who", who.name, "peer", r.RemoteAddr, "method", clip(r.Method), "path", clip(r.URL.Path))
	}
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
