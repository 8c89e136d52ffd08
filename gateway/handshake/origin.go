package handshake

import (
	"net/http"
	"regexp"
	"strings"
)

// A Target is what a client asked for, by its own account or a trusted proxy's.
type Target struct {
	Host   string
	Secure bool // by TLS
}

// OriginAllowed decides by --origin whether a handshake's Origin may pass, RFC
// 6455 section 10.2. Without patterns it must be the host that was asked for, and
// https where TLS was: anyone who is on the way can make up a page of http.
// A request without an Origin is no browser's and passes; two never do.
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

// sameOrigin compares host and port, the ports 80 and 443 left out on both. Where a
// proxy ends TLS and nobody says so, the scheme is not known.
func sameOrigin(value string, to Target) bool {
	o, ok := parseOrigin(value)
	return ok && strings.EqualFold(withoutPort(o.authority), withoutPort(to.Host)) && (!to.Secure || o.scheme == "https" || o.scheme == "wss")
}

// matchOrigin compares scheme, host and port each by itself, so that no star
// reaches across one. A pattern without a port means the default one of the
// origin's scheme.
func matchOrigin(pattern, value string) bool {
	o, ok := parseOrigin(value)
	scheme, host, found := strings.Cut(strings.ToLower(pattern), "://")
	if !ok || !found { // an opaque origin is only itself
		return strings.EqualFold(pattern, value)
	}
	port := o.defaultPort()
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		host, port = host[:i], host[i+1:]
	}
	return matchStar(scheme, o.scheme, "") && matchStar(host, o.host, ".") && matchStar(port, o.port, "")
}

// A webOrigin is the serialisation of a tuple origin, RFC 6454 section 6.2, taken
// apart. An opaque one ("null") has no parts and only * allows it.
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

func (o webOrigin) defaultPort() string {
	switch o.scheme {
	case "https", "wss":
		return "443"
	}
	return "80"
}

// withoutPort is an authority less the port 80 or 443.
func withoutPort(authority string) string {
	for _, port := range []string{":80", ":443"} {
		if rest, ok := strings.CutSuffix(authority, port); ok && !strings.HasSuffix(rest, ":") {
			return rest
		}
	}
	return authority
}

// matchStar matches s against a pattern in which a star stands for any run of
// characters, but for those in without.
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
