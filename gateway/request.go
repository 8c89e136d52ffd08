package gateway

import (
	"cmp"
	"net/http"
	"net/netip"
	"strings"

	"reseat/gateway/frame"
	"reseat/gateway/handshake"
	"reseat/gateway/session"
	"reseat/upstream"
)

// secure reports whether the client speaks TLS, to the gateway or to a trusted proxy.
func (g *Gateway) secure(r *http.Request) bool {
	if proto := g.forwarded(r, "X-Forwarded-Proto"); proto != "" {
		return strings.EqualFold(proto, "https")
	}
	return r.TLS != nil
}

// target is the host that the client asked for.
func (g *Gateway) target(r *http.Request) handshake.Target {
	return handshake.Target{Host: cmp.Or(g.forwarded(r, "X-Forwarded-Host"), r.Host), Secure: g.secure(r)}
}

// forwarded returns the first value of a header that proxies append to (the proxy next
// to the client comes first), "" unless a trusted proxy sent it.
func (g *Gateway) forwarded(r *http.Request, header string) string {
	if !upstream.NewPeer(r, g.cfg.TrustedProxies).Trusted {
		return ""
	}
	first, _, _ := strings.Cut(r.Header.Get(header), ",")
	return strings.TrimSpace(first)
}

// clientAddr is the client's address, taken from a trusted proxy's header if there is one.
func (g *Gateway) clientAddr(r *http.Request) netip.Addr {
	return upstream.ClientAddr(upstream.NewPeer(r, g.cfg.TrustedProxies), r.Header, g.cfg.TrustedProxies)
}

// arrivedAt is when the client's request has arrived, at this node or at the front node.
func (g *Gateway) arrivedAt(r *http.Request) session.Time {
	c, _ := passed(r)
	return g.clock.Now() - session.Time(c.Age)
}

// clip bounds how much of a client's text goes into a log line.
func clip(s string) string { return frame.Clip(s, 200) }

// requestPath is the path of r as lists and logs show it: percent-encoded, without the
// query.
func requestPath(r *http.Request) string { return clip(strings.Clone(r.URL.EscapedPath())) }
