package config

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
	"reseat/gateway/policy"
	"reseat/upstream"
)

// Limits beyond which a setting is allowed, but more often a mistake than intended.
const (
	tinySize      = 1 << 10          // bytes: below it, the unit was probably forgotten
	longHeartbeat = 30 * time.Second // half of the time after which proxies cut a silent connection
)

// publicMistakes warns about the client address and other settings that are exposed to
// the network.
func (s *Settings) publicMistakes() (list []Warning) {
	warn := func(flag, format string, args ...any) {
		list = append(list, Warning{flag, fmt.Sprintf(format, args...)})
	}
	_, port, _ := net.SplitHostPort(s.Listen)
	switch {
	case port == "443" && !s.TLS.Enabled():
		warn("listen", "port 443 without TLS: https:// and wss:// clients cannot connect; see --tls-cert and --acme-domain")
	case port == "80" && s.TLS.Enabled():
		warn("listen", "port 80 with TLS: http:// and ws:// clients get 400; use port 443")
	}
	if len(s.TLS.Domains) > 0 && port != "443" {
		warn("acme-domain", "the CA connects to port 443 of each name: listen there, or forward it to --listen %s", s.Listen)
	}
	if isLoopback(s.Listen) && s.Gateway.MaxSessionsPerIP > 0 && len(s.Gateway.TrustedProxies) == 0 {
		warn("max-sessions-per-ip", "all clients of --listen %s have the address of a local proxy: set --trusted-proxy to it", s.Listen)
	}
	if s.Admin != "" && !isLoopback(s.Admin) {
		warn("admin", "%s is not a loopback address, and tokens are sent in plain text: use it in a private network only", s.Admin)
	}
	if u := s.Webhook; u != nil && u.Scheme == "http" && !isLoopback(net.JoinHostPort(u.Hostname(), "0")) {
		warn("webhook", "events and player names are sent in plain text: use https")
	}
	if c := &s.Cluster; !c.encrypted() && c.elsewhere() != "" {
		warn("cluster-plaintext", "whoever can read the network to NATS at %s gets its password, and the names, addresses and load of the nodes; whoever can write there can stop the cluster", c.elsewhere())
	}
	if s.Demo && len(s.Gateway.Default.Origins) > 0 {
		warn("origin", "replaces the default, the same host: the demo's page must be at one of the listed origins")
	}
	for _, allowed := range s.Gateway.UpstreamAllow {
		if strings.HasSuffix(allowed, ":*") && !strings.HasPrefix(allowed, "*:") {
			warn("upstream-allow", "%s lets callers of the control API make the gateway connect to any port there. List the ports", allowed)
		}
	}
	return list
}

// sizeMistakes warns about numbers that contradict each other.
func (s *Settings) sizeMistakes(r *policy.Route) (list []Warning) {
	p := &r.Policy
	warn := func(flag, format string, args ...any) {
		list = append(list, Warning{flag, fmt.Sprintf("route %s: ", r.Pattern) + fmt.Sprintf(format, args...)})
	}
	if p.BufferBytes < tinySize {
		warn("buffer-bytes", "%d bytes: unit missing? (%dKiB)", p.BufferBytes, p.BufferBytes)
	}
	if p.MaxMessage < tinySize {
		warn("max-message", "%d bytes: unit missing? (%dKiB)", p.MaxMessage, p.MaxMessage)
	}
	if b := p.Rate.Bytes; b > 0 && b < tinySize {
		warn("max-bytes-rate", "%.0f bytes per second: unit missing? (%.0fKiB)", b, b)
	}
	if p.BufferBytes > s.Gateway.BufferTotal {
		warn("buffer-bytes", "%s is more than --buffer-total %s, which all sessions share", formatSize(p.BufferBytes), formatSize(s.Gateway.BufferTotal))
	}
	if p.MaxMessage > s.Gateway.BufferTotal {
		warn("max-message", "%s is more than --buffer-total %s: the largest messages never fit", formatSize(p.MaxMessage), formatSize(s.Gateway.BufferTotal))
	}
	if p.Heartbeat > longHeartbeat {
		warn("heartbeat", "%v: many proxies close a connection after a minute of silence; use %v or less", p.Heartbeat, longHeartbeat)
	}
	if p.Grace > 0 && p.Grace < time.Second {
		warn("grace", "%v is too short for a client to reconnect: use some seconds", p.Grace)
	}
	return list
}

// routeMistakes warns about what a pattern matches, and about its upstream.
func (s *Settings) routeMistakes(r *policy.Route) (list []Warning) {
	warn := func(flag, format string, args ...any) {
		list = append(list, Warning{flag, fmt.Sprintf("route %s: ", r.Pattern) + fmt.Sprintf(format, args...)})
	}
	exact := !strings.ContainsAny(r.Pattern, "*{")
	bare := strings.TrimSuffix(r.Pattern, "/*")
	switch {
	case strings.Contains(r.Pattern, "/:"):
		warn("route", "a colon is matched literally; write parameters as {id}, as in /room/{id}")
	case strings.HasSuffix(r.Pattern, "*") && !strings.HasSuffix(r.Pattern, "/*"):
		warn("route", "matches every path with that prefix, such as %sx; %s/* matches only the paths below it", strings.TrimSuffix(r.Pattern, "*"), strings.TrimSuffix(r.Pattern, "*"))
	case exact && r.Pattern != "/" && s.routeOf(strings.TrimSuffix(r.Pattern, "/")+"/x") == nil:
		warn("route", "matches this path only; for the paths below it, add %s/*", strings.TrimSuffix(r.Pattern, "/"))
	case bare != r.Pattern && bare != "" && !strings.ContainsAny(bare, "*{"):
		if other := s.routeOf(bare); other != nil && other.Pattern != r.Pattern && laxer(&other.Policy, &r.Policy) {
			warn("route", "does not match %s, which goes to route %s with weaker protection (login or --origin): add a route for it", bare, other.Pattern)
		}
	}
	u := r.Upstream.URL
	if ip, err := netip.ParseAddr(u.Hostname()); err == nil && ip.IsUnspecified() {
		warn("upstream", "%s is an address for listening only: use the game server's, such as 127.0.0.1", u.Host)
	}
	if r.Upstream.RootCAs != nil && (u.Scheme == "ws" || u.Scheme == "http") {
		warn("upstream-ca", "no effect: %s:// has no TLS", u.Scheme)
	}
	if r.Upstream.DialContext == nil && reaches(s.Listen, &r.Upstream) {
		warn("upstream", "%s is this gateway itself (--listen %s): clients get 508. Use the game server's port", u.Host, s.Listen)
	}
	return list
}

// laxer reports whether a has no login, or no Origin check, where b has one.
func laxer(a, b *policy.Policy) bool {
	return b.Auth != nil && a.Auth == nil || len(b.Origins) > 0 && !slices.Equal(a.Origins, b.Origins)
}

// routeOf returns the route of a path, nil if there is none.
func (s *Settings) routeOf(path string) *policy.Route {
	r, _, _ := gateway.Locate(&s.Gateway, path)
	return r
}

// reaches reports whether a target leads to a listener on this machine, as far as the two
// texts tell.
func reaches(listen string, t *upstream.Target) bool {
	host, port, err := net.SplitHostPort(listen)
	there, thatPort, _ := net.SplitHostPort(t.Address())
	if err != nil || port != thatPort || strings.Trim(port, "0") == "" {
		return false
	}
	local := isLoopback(t.Address()) || isEvery(there)
	return strings.EqualFold(host, there) || isEvery(host) && local || isLoopback(listen) && local
}

// pageMistakes warns about origins: naming any replaces the default, the page's own host.
func (s *Settings) pageMistakes(r *policy.Route) (list []Warning) {
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
			list = append(list, Warning{"origin", fmt.Sprintf("route %s: pages from %s itself are refused: add --origin https://%s", r.Pattern, host, host)})
		}
	}
	if s.TLS.Enabled() {
		for _, pattern := range r.Policy.Origins {
			u, err := url.Parse(pattern)
			if err == nil && u.Scheme == "http" && !isLoopback(net.JoinHostPort(u.Hostname(), "0")) {
				list = append(list, Warning{"origin", fmt.Sprintf("route %s: %s allows pages served without TLS, which an attacker on the network can modify: use https://", r.Pattern, pattern)})
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

// placeholder matches what looks like {session} and {player}.
var placeholder = regexp.MustCompile(`\{[A-Za-z_]+\}`)

// textMistakes warns about texts sent to the game server, and about logged messages.
func textMistakes(r *policy.Route) (list []Warning) {
	p := &r.Policy
	for _, text := range []struct{ flag, text string }{{"on-detach", p.Notices.Detach}, {"on-resume", p.Notices.Resume}, {"on-expire", p.Notices.Expire}} {
		for _, name := range placeholder.FindAllString(text.text, -1) {
			if name != "{session}" && name != "{player}" {
				list = append(list, Warning{text.flag, fmt.Sprintf("route %s: %s is sent literally: only {session} and {player} are replaced", r.Pattern, name)})
			}
		}
		if strings.Contains(text.text, "{player}") && p.Auth == nil {
			list = append(list, Warning{text.flag, fmt.Sprintf("route %s: {player} is empty without player logins, except in pre-created sessions; see --auth-jwks", r.Pattern)})
		}
	}
	if p.MessageLog.Prefix > 0 {
		list = append(list, Warning{"log-messages", fmt.Sprintf("route %s: the log contains what players send, %d bytes of each message: use it for debugging only", r.Pattern, p.MessageLog.Prefix)})
	}
	if a := p.Auth; a != nil && a.Audience == "" {
		list = append(list, Warning{"auth-audience", fmt.Sprintf("route %s: not set: a JWT that the issuer made for any other service is accepted", r.Pattern)})
	}
	return list
}
