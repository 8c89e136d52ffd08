package config

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"reseat/gateway/policy"
	"reseat/gateway/session"
)

// engineIO is the keepalive preset of that name: ping and pong packets of the
// protocol's revision 4.
var engineIO = session.KeepaliveReply{In: "2", Out: "3"}

const (
	// engineIOTimeout is engine.io's default pingTimeout: its server closes a
	// connection that does not answer a ping for this long.
	engineIOTimeout = 20 * time.Second
	// minSafeAnswer is an --answer-timeout that a page may exceed while it loads a level
	// or decodes a picture.
	minSafeAnswer = 5 * time.Second
)

// A Warning is about a setting, or a combination of settings, that is allowed but probably
// not what the operator wants.
type Warning struct {
	Flag string // the flag to change
	Text string // what will happen, and what to do
}

// Warnings returns the warnings about the whole gateway, then those about each route, in
// order.
func (s *Settings) Warnings() (list []Warning) {
	list = append(s.globalWarnings(), s.publicMistakes()...)
	for i := range s.Gateway.Routes {
		r := &s.Gateway.Routes[i]
		for _, about := range []func(*policy.Route) []Warning{
			s.routeMistakes, s.pageMistakes, s.sizeMistakes, textMistakes,
			keepaliveWarnings, answerWarnings, originWarnings, idleWarnings,
		} {
			list = append(list, about(r)...)
		}
	}
	return list
}

// globalWarnings is about flags that a route cannot have.
func (s *Settings) globalWarnings() (list []Warning) {
	warn := func(flag, format string, args ...any) {
		list = append(list, Warning{flag, fmt.Sprintf(format, args...)})
	}
	for _, p := range s.Gateway.TrustedProxies {
		switch {
		case p.Bits() == 0:
			warn("trusted-proxy", "%s trusts X-Forwarded-For from any address, so any client can forge its own. List only your proxies", p)
		case p.IsSingleIP() && looksLikeNetwork(p.Addr()):
			warn("trusted-proxy", "%s is a single address but looks like a network: write %s for the network", p.Addr(), likelyNetwork(p.Addr()))
		}
	}
	if len(s.Gateway.TrustedHeaders) > 0 && len(s.Gateway.TrustedProxies) == 0 {
		warn("trusted-header", "no effect without --trusted-proxy: nobody may set these headers")
	}
	for _, allowed := range s.Gateway.UpstreamAllow {
		if strings.HasPrefix(allowed, "*:") {
			warn("upstream-allow", "%s lets callers of the control API make the gateway connect to any host. List the hosts", allowed)
		}
	}
	if s.Admin == "" && s.AdminTokenFile+s.ViewerTokenFile != "" {
		warn("admin-token-file", "no effect: --admin is off")
	}
	return list
}

// looksLikeNetwork reports whether an address ends in zeros, as 10.0.0.0 does.
func looksLikeNetwork(a netip.Addr) bool {
	b := a.AsSlice()
	return b[len(b)-1] == 0 && !a.IsUnspecified()
}

// likelyNetwork returns the network that was probably meant by an address.
func likelyNetwork(a netip.Addr) netip.Prefix {
	b := a.AsSlice()
	bits := 8 * len(b)
	for bits > 8 && b[bits/8-1] == 0 {
		bits -= 8
	}
	return netip.PrefixFrom(a, bits)
}

// originWarnings: a browser sends cookies with requests from any page, so only --origin
// keeps other sites from acting as the player (RFC 6455 section 10.2).
func originWarnings(r *policy.Route) (list []Warning) {
	p := &r.Policy
	cookies := ""
	switch {
	case p.Auth != nil && p.Auth.From.HasCookie():
		cookies = "a login in a cookie (--auth-from)"
	case p.PlainResume:
		cookies = "--plain-resume cookie"
	}
	for _, pattern := range p.Origins {
		_, host, _ := strings.Cut(pattern, "://")
		if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
			host = host[:i]
		}
		switch {
		case (pattern == "*" || host == "*") && cookies != "":
			list = append(list, Warning{"origin", fmt.Sprintf("route %s: %s with %s lets any website act as its visitor. List the sites", r.Pattern, pattern, cookies)})
		case strings.HasPrefix(host, "*.") && strings.Count(host, ".") == 1:
			list = append(list, Warning{"origin", fmt.Sprintf("route %s: %s allows every site under that top-level domain. List the sites", r.Pattern, pattern)})
		}
	}
	return list
}

// idleWarnings is about settings without effect.
func idleWarnings(r *policy.Route) (list []Warning) {
	p := &r.Policy
	warn := func(flag, format string, args ...any) {
		list = append(list, Warning{flag, fmt.Sprintf("route %s: ", r.Pattern) + fmt.Sprintf(format, args...)})
	}
	if p.Duplicate != policy.Allow && p.Auth == nil {
		warn("duplicate", "no effect without player logins; see --auth-jwks")
	}
	if p.Rate.End && p.Rate.Messages == 0 && p.Rate.Bytes == 0 {
		warn("flood", "no effect without --max-rate or --max-bytes-rate")
	}
	if !p.Durable && !p.Redeliver {
		warn("failover-redeliver", "no effect without --durable on")
	}
	if p.Durable && p.PlainResume {
		warn("durable", "clients that resume by --plain-resume cookie are not durable: their sessions end with their node")
	}
	if p.IdleTimeout > 0 && p.IdleTimeout < p.Grace {
		warn("idle-timeout", "%v is shorter than --grace %v: a detached session ends after --idle-timeout unless the game server keeps sending", p.IdleTimeout, p.Grace)
	}
	if p.Hard {
		for _, f := range []struct {
			flag string
			set  bool
		}{
			{"keepalive-reply", len(p.KeepaliveReplies) > 0}, {"keepalive-send", len(p.Keepalives) > 0}, {"keepalive", p.Keepalive == session.KeepaliveAuto},
			{"overflow", p.Overflow != session.Pause}, {"on-expire", p.Notices.Expire != ""},
		} {
			if f.set {
				warn(f.flag, "no effect: --disconnect hard closes the game server's connection while the client is disconnected")
			}
		}
	}
	if kept := p.Grace > 0 || p.GraceBeforeStart != nil && *p.GraceBeforeStart > 0; !kept {
		for _, f := range []struct {
			flag string
			set  bool
		}{
			{"plain-resume", p.PlainResume}, {"durable", p.Durable}, {"on-resume", p.Notices.Resume != ""}, {"disconnect", p.Hard},
			{"keepalive-reply", len(p.KeepaliveReplies) > 0}, {"keepalive-send", len(p.Keepalives) > 0},
			{"keepalive", p.Keepalive == session.KeepaliveAuto}, {"overflow", p.Overflow != session.Pause},
		} {
			if f.set {
				warn(f.flag, "no effect: with --grace 0 a session ends when its client disconnects")
			}
		}
	}
	return list
}

// keepaliveWarnings: the gateway answers the game's own heartbeats only once the
// client is detached.
func keepaliveWarnings(r *policy.Route) (list []Warning) {
	p := &r.Policy
	noticed := p.Heartbeat + p.AnswerTimeout
	sum := fmt.Sprintf("--heartbeat %v + --answer-timeout %v", p.Heartbeat, p.AnswerTimeout)
	if p.AnswerTimeout == 0 || noticed > 2*p.Heartbeat {
		noticed = 2 * p.Heartbeat
		sum = fmt.Sprintf("twice --heartbeat %v", p.Heartbeat)
	}
	for _, reply := range p.KeepaliveReplies {
		if reply == engineIO && noticed > engineIOTimeout {
			list = append(list, Warning{"keepalive-reply", fmt.Sprintf(
				"route %s: a silent client is detached after %v (%s), but engine.io closes its connection before that (pingTimeout %v): lower --heartbeat",
				r.Pattern, noticed, sum, engineIOTimeout)})
		}
	}
	return list
}

// answerWarnings: a page that freezes for a moment does not answer either.
func answerWarnings(r *policy.Route) (list []Warning) {
	p := &r.Policy
	if p.AnswerTimeout == 0 || p.AnswerTimeout >= minSafeAnswer {
		return nil
	}
	switch {
	case p.Grace == 0:
		list = append(list, Warning{"answer-timeout", fmt.Sprintf(
			"route %s: with --grace 0 a page that freezes for %v loses its session: raise --answer-timeout or --grace", r.Pattern, p.AnswerTimeout)})
	case p.Hard:
		list = append(list, Warning{"answer-timeout", fmt.Sprintf(
			"route %s: with --disconnect hard a page that freezes for %v gets a new connection to the game server: raise --answer-timeout", r.Pattern, p.AnswerTimeout)})
	}
	return list
}
