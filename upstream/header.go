package upstream

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// hopByHop are the headers of a single connection: RFC 9110 section
// 7.6.1, and those that RFC 2616 section 13.5.1 added. Names as folded by fold.
var hopByHop = map[string]bool{
	"connection":          true,
	"http2-settings":      true,
	"keep-alive":          true,
	"proxy-authenticate":  true,
	"proxy-authorization": true,
	"proxy-connection":    true,
	"te":                  true,
	"trailer":             true,
	"transfer-encoding":   true,
	"upgrade":             true,
}

// ofStatus is the header that a response of each status must have, and so passes whatever Connection
// and the rules of a hop say: RFC 9110 sections 15.5.2, 15.5.6 and 15.5.8. For 426 see RequireUpgrade.
var ofStatus = map[int]string{
	http.StatusUnauthorized:      "www-authenticate",
	http.StatusMethodNotAllowed:  "allow",
	http.StatusProxyAuthRequired: "proxy-authenticate",
}

// ofRequest are the headers of a request that the gateway writes itself: those
// of the handshake (RFC 6455 section 4.1), Host, and the length of the body.
var ofRequest = map[string]bool{
	"content-length":           true,
	"host":                     true,
	"sec-websocket-accept":     true,
	"sec-websocket-extensions": true,
	"sec-websocket-key":        true,
	"sec-websocket-protocol":   true,
	"sec-websocket-version":    true,
}

// RequestHeader returns the headers for the upstream, made from those of the client:
// docs/sessions.md. Dropped are hop-by-hop headers and those that Connection
// names, those of the handshake, Host, all Reseat-* headers, and those that identify the
// client (isIdentity), because a game server that trusts one of them trusts any sender.
// Those that trusted names pass from a trusted proxy only.
// X-Forwarded-For, -Proto and -Host are replaced by what the gateway saw, or kept and
// completed if the peer is trusted. Own is set last, so that the client can neither add to it nor remove it.
// Names are compared after fold, so that no spelling that a CGI server treats alike
// gets past.
//
// The client's header is not changed, and the result shares nothing with it.
func RequestHeader(client http.Header, p Peer, trusted []string, own http.Header) http.Header {
	listed := connectionListed(client)
	out := make(http.Header, len(client)+len(own)+3)
	all := make([]string, 0, len(client)) // one array for the values of nearly all fields
	for name, values := range client {
		n := nameOf(name)
		same := func(other string) bool { return strings.EqualFold(other, name) }
		alike := func(other string) bool { return fold(other) == n.folded }
		switch {
		case n.identity, slices.ContainsFunc(trusted, alike):
			// Not even a trusted proxy's Connection header removes these: it
			// may be one that the proxy passed on from its client.
			if !p.Trusted || !completed[strings.ToLower(name)] && !slices.ContainsFunc(trusted, same) {
				continue
			}
		case n.hopByHop, n.ofRequest, n.reseat, listed[n.canonical]:
			continue
		}
		if older := out[n.canonical]; older != nil {
			out[n.canonical] = append(older, values...)
			continue
		}
		from := len(all)
		all = append(all, values...)
		out[n.canonical] = all[from:len(all):len(all)]
	}
	setForwarded(out, p)
	for name, values := range own {
		out[nameOf(name).canonical] = values
	}
	return out
}

// setForwarded completes the forwarding headers in h, from which those of an untrusted
// peer have been removed.
func setForwarded(h http.Header, p Peer) {
	if p.Addr.IsValid() {
		chain := append(h["X-Forwarded-For"], p.Addr.Unmap().WithZone("").String())
		h.Set("X-Forwarded-For", strings.Join(chain, ", "))
	}
	if h.Get("X-Forwarded-Proto") == "" {
		proto := "http"
		if p.TLS {
			proto = "https"
		}
		h.Set("X-Forwarded-Proto", proto)
	}
	if h.Get("X-Forwarded-Host") == "" && p.Host != "" {
		h.Set("X-Forwarded-Host", p.Host)
	}
}

// Directives are the upstream's instructions to the gateway in its 101 response,
// unparsed, "" if absent: docs/sessions.md.
type Directives struct {
	Grace    string   // Reseat-Grace
	Overflow string   // Reseat-Overflow
	Group    string   // Reseat-Group
	Newest   []string // Reseat-Newest, one or more; nil if absent
}

// AnswerHeader splits the headers of the upstream's 101 response into those that pass
// to the client and those for the gateway. Hop-by-hop headers,
// Sec-WebSocket-*, Content-Length and Reseat-* do not pass.
func AnswerHeader(h http.Header) (pass http.Header, d Directives) {
	pass = passed(h, http.StatusSwitchingProtocols, func(n *fieldName) bool {
		return strings.HasPrefix(n.folded, "sec-websocket-") || n.folded == "content-length"
	})
	d = Directives{
		Grace:    h.Get("Reseat-Grace"),
		Overflow: h.Get("Reseat-Overflow"),
		Group:    h.Get("Reseat-Group"),
		Newest:   slices.Clone(h.Values("Reseat-Newest")),
	}
	return pass, d
}

// passed returns the headers of a response that may reach a client: all but hop-by-hop
// headers, Reseat-*, and those that hide accepts.
func passed(h http.Header, status int, hide func(*fieldName) bool) http.Header {
	listed := connectionListed(h)
	pass := make(http.Header, len(h))
	for name, values := range h {
		if n := nameOf(name); n.folded != ofStatus[status] && (n.hopByHop || n.reseat || hide(n) || listed[n.canonical]) {
			continue
		}
		pass[name] = append([]string(nil), values...)
	}
	return pass
}

// RequireUpgrade sets what a 426 must have, RFC 9110 sections 7.8 and 15.5.22, and that the
// connection is closed after it. HTTP/2 has no such headers: RFC 9113 section 8.2.2.
func RequireUpgrade(h http.Header) {
	h.Set("Upgrade", "websocket")
	h["Connection"] = []string{"close", "Upgrade"} // in this order: net/http compares the first with close
}

// OwnCookie is the prefix of the names of the gateway's cookies, after an optional
// __Host-; eight hexadecimal digits follow. They are never sent to a game server.
const OwnCookie = "reseat-"

var ownCookie = regexp.MustCompile("^(__Host-)?" + OwnCookie + "[0-9a-f]{8}$")

// DropOwnCookies removes the gateway's cookies from the Cookie headers in h. Others
// with the same prefix belong to the game.
func DropOwnCookies(h http.Header) {
	if h["Cookie"] != nil {
		DropCookies(h, ownCookie.MatchString)
	}
}

// DropCookies removes from the Cookie headers in h the cookies whose name drop
// accepts. The others keep their bytes and their order. Slices that h shares with
// another header are not changed.
func DropCookies(h http.Header, drop func(name string) bool) {
	var kept []string
	for _, line := range h["Cookie"] {
		var pairs []string
		for pair := range strings.SplitSeq(line, ";") {
			pair = strings.TrimSpace(pair)
			if name, _, _ := strings.Cut(pair, "="); pair != "" && !drop(strings.TrimSpace(name)) {
				pairs = append(pairs, pair)
			}
		}
		if len(pairs) > 0 {
			kept = append(kept, strings.Join(pairs, "; "))
		}
	}
	if kept == nil {
		delete(h, "Cookie")
		return
	}
	h["Cookie"] = kept
}

// A fieldName has the properties of a header name that the rules of this package use.
type fieldName struct {
	canonical string // as net/http spells it
	folded    string // by fold
	token     bool   // RFC 9110 section 5.6.2
	hopByHop  bool
	ofRequest bool
	reseat    bool // one of the gateway's own
	identity  bool // it identifies the client or its original request
}

func newFieldName(name string) *fieldName {
	folded := fold(name)
	return &fieldName{
		canonical: http.CanonicalHeaderKey(name), folded: folded, token: isToken(name),
		hopByHop: hopByHop[folded], ofRequest: ofRequest[folded], reseat: strings.HasPrefix(folded, "reseat-"), identity: isIdentity(folded),
	}
}

// nameOf returns the fieldName of name, which is allocated only if it is none of usualNames.
func nameOf(name string) *fieldName {
	if n := usualNames[name]; n != nil {
		return n
	}
	return newFieldName(name)
}

// usualNames caches the names that browsers, game servers and this package use, as net/http
// spells them: without it the headers of a handshake cost 54 allocations and 10 µs more. Names that
// clients make up are never added.
var usualNames = func() map[string]*fieldName {
	m := make(map[string]*fieldName)
	for _, name := range []string{
		"Accept", "Accept-Encoding", "Accept-Language", "Authorization", "Cache-Control", "Connection", "Cookie", "Origin", "Pragma", "Referer",
		"Sec-Fetch-Dest", "Sec-Fetch-Mode", "Sec-Fetch-Site", "Sec-Websocket-Accept", "Sec-Websocket-Extensions", "Sec-Websocket-Key",
		"Sec-Websocket-Protocol", "Sec-Websocket-Version", "Upgrade", "User-Agent", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto",
		"Content-Length", "Content-Type", "Date", "Server", "Set-Cookie", "Vary", "Via",
		"Reseat-Session", "Reseat-Player", "Reseat-Resumed", "X-Reseat-Via",
	} {
		m[name] = newFieldName(name)
	}
	return m
}()

// completed are the forwarding headers that the gateway itself writes.
var completed = map[string]bool{"x-forwarded-for": true, "x-forwarded-proto": true, "x-forwarded-host": true}

// identity are headers by which proxies and content delivery networks identify the
// client or its request: address, user, certificate, original host, path or method. Proxy
// becomes HTTP_PROXY in CGI programs (httpoxy). Names are folded by fold.
var identity = map[string]bool{
	"forwarded": true, "x-forwarded": true, "x-real-ip": true, "x-client-ip": true, "x-cluster-client-ip": true, "client-ip": true,
	"true-client-ip": true, "fastly-client-ip": true, "fly-client-ip": true, "x-envoy-external-address": true,
	"x-azure-clientip": true, "x-azure-socketip": true, "x-appengine-user-ip": true, "x-original-forwarded-for": true, "x-originating-ip": true,
	"x-remote-ip": true, "x-remote-addr": true, "x-proxyuser-ip": true, "proxy-client-ip": true, "wl-proxy-client-ip": true, "forwarded-for": true,
	"remote-user": true, "x-remote-user": true, "x-webauth-user": true, "x-authenticated-user": true,
	"x-client-cert": true, "x-client-dn": true, "x-client-verify": true, "ssl-client-cert": true, "client-cert": true, "client-cert-chain": true,
	"x-original-url": true, "x-original-uri": true, "x-rewrite-url": true, "x-original-host": true, "x-host": true, "x-original-method": true,
	"x-http-method": true, "x-http-method-override": true, "x-method-override": true,
	"x-scheme": true, "front-end-https": true, "x-verified-user": true,
	"proxy": true,
}

// identityPrefixes are the prefixes of whole families of them.
var identityPrefixes = []string{
	"x-forwarded-", "cf-connecting-", "cf-access-", "x-auth-request-", "x-ssl-client-", "ssl-client-", "x-amzn-oidc-", "x-amzn-mtls-",
	"x-consumer-", "x-tailscale-", "x-goog-authenticated-user-", "x-goog-iap-", "x-ms-client-principal", "tailscale-user-", "x-appengine-user-", "x-envoy-peer-", "x-envoy-original-",
}

// isIdentity reports whether a header identifies the client or its original request.
func isIdentity(folded string) bool {
	return identity[folded] || slices.ContainsFunc(identityPrefixes, func(p string) bool { return strings.HasPrefix(folded, p) })
}

// fold returns name in lower case, with everything but letters and digits replaced by a
// hyphen. Servers that pass headers as CGI variables (RFC 3875 section 4.1.18) cannot
// distinguish names that fold to the same.
func fold(name string) string {
	b := []byte(name)
	for i, c := range b {
		switch {
		case 'A' <= c && c <= 'Z':
			b[i] = c + 'a' - 'A'
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
		default:
			b[i] = '-'
		}
	}
	return string(b)
}

// connectionListed returns the names in the Connection headers, in canonical
// spelling: RFC 9110 section 7.6.1. It omits upgrade and keep-alive, which are hop-by-hop headers anyway.
func connectionListed(h http.Header) map[string]bool {
	var listed map[string]bool
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			if name = strings.TrimSpace(name); strings.EqualFold(name, "upgrade") || strings.EqualFold(name, "keep-alive") {
				continue
			}
			if listed == nil {
				listed = make(map[string]bool)
			}
			listed[http.CanonicalHeaderKey(name)] = true
		}
	}
	return listed
}

// hasToken reports whether the comma-separated lists contain token, in any case.
func hasToken(lists []string, token string) bool {
	for _, list := range lists {
		for entry := range strings.SplitSeq(list, ",") {
			if strings.EqualFold(strings.Trim(entry, " \t"), token) {
				return true
			}
		}
	}
	return false
}
