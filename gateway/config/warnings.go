package config

import (
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"reseat/gateway"
	"reseat/gateway/policy"
	"reseat/gateway/session"
	"reseat/upstream"
)

// engineIO is the keepalive preset of that name: ping and pong packets of the
// protocol's revision 4.
var engineIO = session.KeepaliveReply{In: "2", Out: "3"}

// Limits beyond which a setting is allowed, but more often a mistake than intended.
const (
	tinySize        = 1 << 10          // bytes: below it, the unit was probably forgotten
	longHeartbeat   = 30 * time.Second // half of the time after which proxies cut a silent connection
	engineIOTimeout = 20 * time.Second // engine.io's pingTimeout: its server closes a connection that leaves a ping unanswered for so long
	minSafeAnswer   = 5 * time.Second  // a page may freeze for this long while it loads a level
)

// A Warning is about a setting, or a combination of settings, that is allowed but probably
// not what the operator wants.
type Warning struct {
	Flag string // the flag to change
	Text string // what will happen, and what to do
}

// A warner adds the warning about flag if it is due.
type warner func(flag string, due bool, format string, args ...any)

// Warnings returns the warnings about the whole gateway, then those about each route, in
// order.
func (s *Settings) Warnings() (list []Warning) {
	warn := func(flag string, due bool, format string, args ...any) {
		if due {
			list = append(list, Warning{flag, fmt.Sprintf(format, args...)})
		}
	}
	s.warnOfAccess(warn)
	for i := range s.Gateway.Routes {
		r := &s.Gateway.Routes[i]
		ofRoute := func(flag string, due bool, format string, args ...any) {
			warn(flag, due, "route %s: %s", r.Pattern, fmt.Sprintf(format, args...))
		}
		s.warnOfRoute(r, ofRoute)
		s.warnOfOrigins(&r.Policy, ofRoute)
		s.warnOfSizes(&r.Policy, ofRoute)
		warnOfTimes(&r.Policy, ofRoute)
		warnOfTexts(&r.Policy, ofRoute)
		warnOfNoEffect(&r.Policy, ofRoute)
	}
	return list
}

// warnOfAccess warns of what others on the network could do or read.
func (s *Settings) warnOfAccess(warn warner) {
	proxies := s.Gateway.TrustedProxies
	for _, p := range proxies {
		b := p.Addr().AsSlice()
		warn("trusted-proxy", p.Bits() == 0, "%s trusts X-Forwarded-For from any address, so any client can forge its own. List only your proxies", p)
		warn("trusted-proxy", p.IsSingleIP() && b[len(b)-1] == 0 && !p.Addr().IsUnspecified(),
			"%s is a single address but looks like a network: write its prefix length, as in 10.0.0.0/8", p.Addr())
	}
	warn("trusted-header", len(s.Gateway.TrustedHeaders) > 0 && len(proxies) == 0, "no effect without --trusted-proxy: nobody may set these headers")
	for _, allowed := range s.Gateway.UpstreamAllow {
		warn("upstream-allow", strings.HasPrefix(allowed, "*:") || strings.HasSuffix(allowed, ":*"),
			"%s lets callers of the control API make the gateway connect to any host or port. List them", allowed)
	}
	warn("admin-token-file", s.Admin == "" && s.AdminTokenFile+s.ViewerTokenFile != "", "no effect: --admin is off")
	warn("admin", s.Admin != "" && !isLoopback(s.Admin), "%s is not a loopback address, and tokens are sent in plain text: use it in a private network only", s.Admin)
	warn("max-sessions-per-ip", isLoopback(s.Listen) && s.Gateway.MaxSessionsPerIP > 0 && len(proxies) == 0,
		"all clients of --listen %s have the address of a local proxy: set --trusted-proxy to it", s.Listen)
	warn("webhook", s.Webhook != nil && s.Webhook.Scheme == "http" && !isLocal(s.Webhook), "events and player names are sent in plain text: use https")
	warn("cluster", !s.Cluster.encrypted() && s.Cluster.elsewhere() != "",
		"without TLS, anyone who can read the network to NATS at %s gets its password, and the names, addresses and load of the nodes; anyone who can write there can stop the cluster", s.Cluster.elsewhere())
}

func isLocal(u *url.URL) bool { return isLoopback(net.JoinHostPort(u.Hostname(), "0")) }

// warnOfRoute warns of a path beside a pattern that goes to a less protected route, and of wrong upstreams.
func (s *Settings) warnOfRoute(r *policy.Route, warn warner) {
	if bare := strings.TrimSuffix(r.Pattern, "/*"); bare != r.Pattern && bare != "" && !strings.ContainsAny(bare, "*{") {
		other := s.routeOf(bare)
		warn("route", other != nil && other.Pattern != r.Pattern && laxer(&other.Policy, &r.Policy),
			"does not match %s, which goes to another route with weaker protection (login or --origin): add a route for it", bare)
	}
	scheme := r.Upstream.URL.Scheme
	warn("upstream-ca", r.Upstream.RootCAs != nil && (scheme == "ws" || scheme == "http"), "no effect: %s:// has no TLS", scheme)
	warn("upstream", r.Upstream.DialContext == nil && reaches(s.Listen, &r.Upstream),
		"%s is this gateway itself (--listen %s): clients get 508. Use the game server's port", r.Upstream.URL.Host, s.Listen)
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

// warnOfOrigins: a browser sends cookies with requests from any page, so only --origin
// keeps other sites from acting as the player (RFC 6455 section 10.2).
func (s *Settings) warnOfOrigins(p *policy.Policy, warn warner) {
	cookies := ""
	switch {
	case p.Auth != nil && p.Auth.From.HasCookie():
		cookies = "a login in a cookie (--auth-from)"
	case p.PlainResume:
		cookies = "--plain-resume cookie"
	}
	for _, pattern := range p.Origins {
		scheme, rest, _ := strings.Cut(pattern, "://")
		host, _, _ := splitHost(rest)
		warn("origin", (pattern == "*" || host == "*") && cookies != "", "%s with %s lets any website act as its visitor. List the sites", pattern, cookies)
		warn("origin", strings.HasPrefix(host, "*.") && strings.Count(host, ".") == 1, "%s allows every site under that top-level domain. List the sites", pattern)
		warn("origin", scheme == "http" && s.TLS.Enabled() && !isLoopback(net.JoinHostPort(strings.Trim(host, "[]"), "0")),
			"%s allows pages served without TLS, which an attacker on the network can modify: use https://", pattern)
	}
}

// warnOfSizes warns of numbers whose unit is missing, and of buffers larger than the total.
func (s *Settings) warnOfSizes(p *policy.Policy, warn warner) {
	total := s.Gateway.BufferTotal
	for _, f := range []struct {
		flag string
		n    int64
	}{{"buffer-bytes", p.BufferBytes}, {"max-message", p.MaxMessage}, {"max-bytes-rate", int64(p.Rate.Bytes)}} {
		warn(f.flag, f.n > 0 && f.n < tinySize, "%d bytes: unit missing? (%dKiB)", f.n, f.n)
		warn(f.flag, f.flag != "max-bytes-rate" && f.n > total, "%s is more than --buffer-total %s, which all sessions share", formatSize(f.n), formatSize(total))
	}
}

// warnOfTimes warns of timeouts that disconnect clients too early, or too late.
func warnOfTimes(p *policy.Policy, warn warner) {
	warn("heartbeat", p.Heartbeat > longHeartbeat, "%v: many proxies close a connection after a minute of silence; use %v or less", p.Heartbeat, longHeartbeat)
	warn("grace", p.Grace > 0 && p.Grace < time.Second, "%v is too short for a client to reconnect: use some seconds", p.Grace)
	warn("idle-timeout", p.IdleTimeout > 0 && p.IdleTimeout < p.Grace,
		"%v is shorter than --grace %v: a detached session ends after --idle-timeout unless the game server keeps sending", p.IdleTimeout, p.Grace)
	impatient := p.AnswerTimeout > 0 && p.AnswerTimeout < minSafeAnswer
	warn("answer-timeout", impatient && p.Grace == 0, "with --grace 0 a page that freezes for %v loses its session: raise --answer-timeout or --grace", p.AnswerTimeout)
	warn("answer-timeout", impatient && p.Grace > 0 && p.Hard,
		"with --disconnect hard a page that freezes for %v gets a new connection to the game server: raise --answer-timeout", p.AnswerTimeout)
	// The gateway answers the game's own heartbeats only once the client is detached.
	noticed := 2 * p.Heartbeat
	if p.AnswerTimeout > 0 {
		noticed = min(noticed, p.Heartbeat+p.AnswerTimeout)
	}
	warn("keepalive-reply", slices.Contains(p.KeepaliveReplies, engineIO) && noticed > engineIOTimeout,
		"a silent client is detached after %v, but engine.io closes its connection before that (pingTimeout %v): lower --heartbeat or --answer-timeout", noticed, engineIOTimeout)
}

// placeholder matches what looks like {session} and {player}.
var placeholder = regexp.MustCompile(`\{[A-Za-z_]+\}`)

// warnOfTexts warns of unknown placeholders, of messages in the log, and of logins for other services.
func warnOfTexts(p *policy.Policy, warn warner) {
	for _, f := range []struct{ flag, text string }{{"on-detach", p.Notices.Detach}, {"on-resume", p.Notices.Resume}, {"on-expire", p.Notices.Expire}} {
		for _, name := range placeholder.FindAllString(f.text, -1) {
			warn(f.flag, name != "{session}" && name != "{player}", "%s is sent literally: only {session} and {player} are replaced", name)
			warn(f.flag, name == "{player}" && p.Auth == nil, "{player} is empty without player logins, except in pre-created sessions; see --auth-jwks")
		}
	}
	warn("log-messages", p.MessageLog.Prefix > 0, "the log contains what players send, %d bytes of each message: use it for debugging only", p.MessageLog.Prefix)
	warn("auth-audience", p.Auth != nil && p.Auth.Audience == "", "not set: a JWT that the issuer made for any other service is accepted")
}

// warnOfNoEffect warns of settings that have no effect beside the others.
func warnOfNoEffect(p *policy.Policy, warn warner) {
	warn("duplicate", p.Duplicate != policy.Allow && p.Auth == nil, "no effect without player logins; see --auth-jwks")
	warn("flood", p.Rate.End && p.Rate.Messages == 0 && p.Rate.Bytes == 0, "no effect without --max-rate or --max-bytes-rate")
	warn("failover-redeliver", !p.Durable && !p.Redeliver, "no effect without --durable on")
	warn("durable", p.Durable && p.PlainResume, "clients that resume by --plain-resume cookie are not durable: their sessions end with their node")
}
