package settings

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"reseat/gateway"
	"reseat/upstream"
)

// What is allowed, and is more often a slip than meant.
const (
	tinySize      = 1 << 10          // bytes: below it a unit was forgotten
	longHeartbeat = 30 * time.Second // half of the time after which proxies cut a silent connection
)

// publicMistakes are about the address that clients connect to, and what else is seen by
// the world.
func (s *Settings) publicMistakes() (list []Warning) {
	warn := func(flag, format string, args ...any) {
		list = append(list, Warning{flag, fmt.Sprintf(format, args...)})
	}
	_, port, _ := net.SplitHostPort(s.Listen)
	switch {
	case port == "443" && !s.TLS.Enabled():
		warn("listen", "port 443 without TLS: browsers get no answer there; see --tls-cert and --acme-domain")
	case port == "80" && s.TLS.Enabled():
		warn("listen", "port 80 with TLS: clients of http:// and ws:// get 400; listen at 443")
	}
	if len(s.TLS.Domains) > 0 && port != "443" {
		warn("acme-domain", "the CA connects to port 443 of each name: listen there, or have it forwarded to --listen %s", s.Listen)
	}
	if isLoopback(s.Listen) && s.Gateway.MaxSessionsPerIP > 0 && len(s.Gateway.TrustedProxies) == 0 {
		warn("max-sessions-per-ip", "--listen %s is reached from this machine alone: all players have the address of the proxy in front; name that with --trusted-proxy", s.Listen)
	}
	if s.Gateway.Driver == gateway.DrivePoll && s.TLS.Enabled() {
		warn("driver", "poll: event loops are for plain TCP, and with TLS here all clients are on the net driver; end TLS in front, or leave it at auto")
	}
	if s.Admin != "" && !isLoopback(s.Admin) {
		warn("admin", "%s is no loopback address, and its tokens travel in plain text: keep it to a network that is yours", s.Admin)
	}
	if u := s.Webhook; u != nil && u.Scheme == "http" && !isLoopback(net.JoinHostPort(u.Hostname(), "0")) {
		warn("webhook", "events and players' names travel in plain text: use https")
	}
	if s.Demo && len(s.Gateway.Default.Origins) > 0 {
		warn("origin", "it replaces the default, the page's own host: the demo's page must be at one of them")
	}
	for _, allowed := range s.Gateway.UpstreamAllow {
		if strings.HasSuffix(allowed, ":*") && !strings.HasPrefix(allowed, "*:") {
			warn("upstream-allow", "%s lets whoever may call the control API have the gateway connect to any port there. Name the port", allowed)
		}
	}
	return list
}

// sizeMistakes are about numbers that do not fit each other.
func (s *Settings) sizeMistakes(r *gateway.Route) (list []Warning) {
	p := &r.Policy
	warn := func(flag, format string, args ...any) {
		list = append(list, Warning{flag, fmt.Sprintf("route %s: ", r.Pattern) + fmt.Sprintf(format, args...)})
	}
	if p.BufferBytes < tinySize {
		warn("buffer-bytes", "%d bytes: a unit may be missing, such as in %dKiB", p.BufferBytes, p.BufferBytes)
	}
	if p.MaxMessage < tinySize {
		warn("max-message", "%d bytes: a unit may be missing, such as in %dKiB", p.MaxMessage, p.MaxMessage)
	}
	if b := p.Rate.Bytes; b > 0 && b < tinySize {
		warn("max-bytes-rate", "%.0f bytes a second: a unit may be missing, such as in %.0fKiB", b, b)
	}
	if p.BufferBytes > s.Gateway.BufferTotal {
		warn("buffer-bytes", "%s is more than --buffer-total %s, which all sessions share", formatSize(p.BufferBytes), formatSize(s.Gateway.BufferTotal))
	}
	if p.MaxMessage > s.Gateway.BufferTotal {
		warn("max-message", "%s is more than --buffer-total %s: such a message never fits", formatSize(p.MaxMessage), formatSize(s.Gateway.BufferTotal))
	}
	if p.Heartbeat > longHeartbeat {
		warn("heartbeat", "%v: many proxies cut a connection that is silent for a minute; keep it at %v or below", p.Heartbeat, longHeartbeat)
	}
	if p.Grace > 0 && p.Grace < time.Second {
		warn("grace", "%v is shorter than it takes a client to come back: give it some seconds", p.Grace)
	}
	return list
}

// routeMistakes are about what a pattern matches, and where it leads.
func (s *Settings) routeMistakes(r *gateway.Route) (list []Warning) {
	warn := func(flag, format string, args ...any) {
		list = append(list, Warning{flag, fmt.Sprintf("route %s: ", r.Pattern) + fmt.Sprintf(format, args...)})
	}
	exact := !strings.ContainsAny(r.Pattern, "*{")
	bare := strings.TrimSuffix(r.Pattern, "/*")
	switch {
	case strings.Contains(r.Pattern, "/:"):
		warn("route", "a colon stands for itself: a parameter is written {id}, as in /room/{id}")
	case strings.HasSuffix(r.Pattern, "*") && !strings.HasSuffix(r.Pattern, "/*"):
		warn("route", "it matches every path that begins so, such as %sx: with a slash, %s/*, it has only what is below it", strings.TrimSuffix(r.Pattern, "*"), strings.TrimSuffix(r.Pattern, "*"))
	case exact && r.Pattern != "/" && s.routeOf(strings.TrimSuffix(r.Pattern, "/")+"/x") == nil:
		warn("route", "it matches this path alone, and nothing below it: for that add %s/*", strings.TrimSuffix(r.Pattern, "/"))
	case bare != r.Pattern && bare != "" && !strings.ContainsAny(bare, "*{"):
		if other := s.routeOf(bare); other != nil && other.Pattern != r.Pattern && laxer(&other.Policy, &r.Policy) {
			warn("route", "%s itself falls to route %s, which asks for less (login or --origin): give it a route of its own", bare, other.Pattern)
		}
	}
	u := r.Upstream.URL
	if ip, err := netip.ParseAddr(u.Hostname()); err == nil && ip.IsUnspecified() {
		warn("upstream", "%s is an address to listen on: name one that leads to the game server, such as 127.0.0.1", u.Host)
	}
	if r.Upstream.RootCAs != nil && (u.Scheme == "ws" || u.Scheme == "http") {
		warn("upstream-ca", "without effect: %s:// has no TLS", u.Scheme)
	}
	if r.Upstream.DialContext == nil && reaches(s.Listen, &r.Upstream) {
		warn("upstream", "%s is this gateway itself, --listen %s: clients would get 508. Name the game server's own port", u.Host, s.Listen)
	}
	return list
}

// laxer reports whether a asks for no login, or for no Origin, where b does.
func laxer(a, b *gateway.Policy) bool {
	return b.Auth != nil && a.Auth == nil || len(b.Origins) > 0 && !slices.Equal(a.Origins, b.Origins)
}

// routeOf is the route of a path, nil for none.
func (s *Settings) routeOf(path string) *gateway.Route {
	r, _, _ := gateway.Locate(&s.Gateway, path)
	return r
}

// reaches reports whether a target leads to a listener of this machine, as far as the
// two texts tell.
func reaches(listen string, t *upstream.Target) bool {
	host, port, err := net.SplitHostPort(listen)
	there, thatPort, _ := net.SplitHostPort(t.Address())
	if err != nil || port != thatPort || strings.Trim(port, "0") == "" {
		return false
	}
	local := isLoopback(t.Address()) || isEvery(there)
	return strings.EqualFold(host, there) || isEvery(host) && local || isLoopback(listen) && local
}

// pageMistakes: whoever names origins replaces the default, the page's own host.
func (s *Settings) pageMistakes(r *gateway.Route) (list []Warning) {
	names := append(slices.Clone(s.Gateway.Hosts), s.TLS.Domains...)
	if len(r.Policy.Origins) == 0 {
		return nil
	}
	for _, name := range names {
		host := strings.ToLower(name)
		if h, _, ok := splitHost(host); ok {
			host = h
		}
		if !slices.ContainsFunc(r.Policy.Origins, func(pattern string) bool { return originHasHost(pattern, host) }) {
			list = append(list, Warning{"origin", fmt.Sprintf("route %s: pages of %s itself are refused: add --origin https://%s", r.Pattern, host, host)})
		}
	}
	if s.TLS.Enabled() {
		for _, pattern := range r.Policy.Origins {
			u, err := url.Parse(pattern)
			if err == nil && u.Scheme == "http" && !isLoopback(net.JoinHostPort(u.Hostname(), "0")) {
				list = append(list, Warning{"origin", fmt.Sprintf("route %s: %s lets pages in that were not served by TLS, which others can change on the way: use https://", r.Pattern, pattern)})
			}
		}
	}
	return list
}

// originHasHost reports whether an --origin pattern may match a page of that host.
func originHasHost(pattern, host string) bool {
	if pattern == "*" {
		return true
	}
	_, rest, _ := strings.Cut(pattern, "://")
	want, _, _ := splitHost(rest)
	ok, err := path.Match(strings.ReplaceAll(want, ".", "/"), strings.ReplaceAll(host, ".", "/"))
	return err == nil && ok
}

// placeholder is what looks like {session} and {player}.
var placeholder = regexp.MustCompile(`\{[A-Za-z_]+\}`)

// textMistakes are about what is sent to the game server, and what is logged.
func textMistakes(r *gateway.Route) (list []Warning) {
	p := &r.Policy
	for _, text := range []struct{ flag, text string }{{"on-detach", p.Words.Detach}, {"on-resume", p.Words.Resume}, {"on-expire", p.Words.Expire}} {
		for _, name := range placeholder.FindAllString(text.text, -1) {
			if name != "{session}" && name != "{player}" {
				list = append(list, Warning{text.flag, fmt.Sprintf("route %s: %s is sent as it is: only {session} and {player} are filled in", r.Pattern, name)})
			}
		}
		if strings.Contains(text.text, "{player}") && p.Auth == nil {
			list = append(list, Warning{text.flag, fmt.Sprintf("route %s: {player} is empty but for sessions of the control API: there is no login; see --auth-jwks", r.Pattern)})
		}
	}
	if p.Tell.Prefix > 0 {
		list = append(list, Warning{"log-messages", fmt.Sprintf("route %s: the log holds what players send, %d bytes of each message: for a search alone", r.Pattern, p.Tell.Prefix)})
	}
	if a := p.Auth; a != nil && a.Audience == "" {
		list = append(list, Warning{"auth-audience", fmt.Sprintf("route %s: none is asked for: a JWT that the issuer made for any other service is a login here", r.Pattern)})
	}
	return list
}
