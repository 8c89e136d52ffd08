package handshake

import (
	"net/http"
	"regexp"
	"strings"
)

// A Target is what a client asked for, as seen by the gateway or by a trusted proxy.
type Target struct {
	Host   string
	Secure bool // over TLS
}

// OriginAllowed reports whether a handshake's Origin may pass --origin, RFC 6455 section
// 10.2. Without patterns it must be the requested host, and https if the request came over
// TLS: anyone on the path can forge an http page. A request without an Origin is not from
// a browser and passes; two Origins never do.
func OriginAllowed(patterns []string, h http.Header, to Target) bool {
	origins := h.Values("Origin")
	switch len(origins) {
	case 0:
		return true
	case 1:
	default:
		return false
	}
	if len(patterns) == 0 {
		return sameOrigin(origins[0], to)
	}
	for _, p := range patterns {
		if p == "*" || matchOrigin(p, origins[0]) {
			return true
		}
	}
	return false
}

// sameOrigin compares host and port, ignoring the ports 80 and 443 on both sides: behind a
// proxy that terminates TLS without saying so, the scheme is unknown.
func sameOrigin(value string, to Target) bool {
	o, ok := parseOrigin(value)
	return ok && strings.EqualFold(withoutPort(o.authority), withoutPort(to.Host)) && (!to.Secure || o.scheme == "https" || o.scheme == "wss")
}

// matchOrigin compares scheme, host and port individually, so that no star matches across
// their bounds. A pattern without a port means the default port of the origin's scheme.
func matchOrigin(pattern, value string) bool {
	o, ok := parseOrigin(value)
	scheme, host, found := strings.Cut(strings.ToLower(pattern), "://")
	if !ok || !found { // an opaque origin matches only itself
		return strings.EqualFold(pattern, value)
	}
	port := o.defaultPort()
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		host, port = host[:i], host[i+1:]
	}
	return matchStar(scheme, o.scheme, "") && matchStar(host, o.host, ".") && matchStar(port, o.port, "")
}

// A webOrigin is a parsed tuple origin, RFC 6454 section 6.2. An opaque one ("null") has
// no parts, and only * allows it.
type webOrigin struct{ scheme, authority, host, port string }

var originForm = regexp.MustCompile(`^([a-z][a-z0-9+.-]*)://(([a-z0-9._-]+|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?)$`)

func parseOrigin(s string) (webOrigin, bool) {
	m := originForm.FindStringSubmatch(strings.ToLower(s))
	if m == nil {
		return webOrigin{}, false
	}
	o := webOrigin{scheme: m[1], authority: m[2], host: m[3], port: m[4]}
	if o.port == "" {
		o.port = o.defaultPort()
	}
	return o, true
}

// OriginPattern returns the pattern that allows the one origin o, "" if there is none: o is
// opaque, malformed or missing. It consists of letters, digits and the characters -._:/[] alone.
func OriginPattern(o string) string {
	p, ok := parseOrigin(o)
	if !ok {
		return ""
	}
	return p.scheme + "://" + p.authority
}

func (o webOrigin) defaultPort() string {
	switch o.scheme {
	case "https", "wss":
		return "443"
	}
	return "80"
}

// withoutPort removes the port 80 or 443 from an authority.
func withoutPort(authority string) string {
	for _, port := range []string{":80", ":443"} {
		if rest, ok := strings.CutSuffix(authority, port); ok && !strings.HasSuffix(rest, ":") {
			return rest
		}
	}
	return authority
}

// matchStar matches s against a pattern in which a star matches any run of characters that
// are not in without.
func matchStar(pattern, s, without string) bool {
	star := strings.IndexByte(pattern, '*')
	if star < 0 {
		return pattern == s
	}
	if !strings.HasPrefix(s, pattern[:star]) {
		return false
	}
	s, pattern = s[star:], pattern[star+1:]
	for i := 0; ; i++ {
		if matchStar(pattern, s[i:], without) {
			return true
		}
		if i == len(s) || without != "" && strings.IndexByte(without, s[i]) >= 0 {
			return false
		}
	}
}
