// Package front reads a client's request once, and finds the route that it matches.
package front

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"reseat/gateway/frame"
	"reseat/gateway/gate"
	"reseat/gateway/handshake"
	"reseat/gateway/hop"
	"reseat/gateway/wire"
	"reseat/upstream"
)

// A Request is a client's request, read once. It belongs to the handler that serves it.
type Request struct {
	*http.Request

	Peer   upstream.Peer    // at the other end of the connection: the client or a proxy
	Addr   netip.Addr       // the client's address, a trusted proxy's word if there is one; zero if unknown
	Secure bool             // the client speaks TLS, to the gateway or to a trusted proxy
	Target handshake.Target // the host that the client asked for
	From   *hop.Client      // what the node says that has passed the client on; nil: no node has

	WebSocket bool       // it asks for one
	Offer     wire.Offer // of a client that does

	Route  *Route // that its path matches; nil: none
	Unsafe error  // why its path is ambiguous: then it has no route

	Visit *gate.Visit // nil outside the gate
}

// Read reads r, and finds its route in t. trusted are the proxies whose headers are believed.
func Read(r *http.Request, trusted []netip.Prefix, t *Table) *Request {
	q := &Request{Request: r, Peer: upstream.NewPeer(r, trusted), Secure: r.TLS != nil, WebSocket: handshake.Requested(r)}
	q.Addr = upstream.ClientAddr(q.Peer, r.Header, trusted)
	if proto := q.forwarded("X-Forwarded-Proto"); proto != "" {
		q.Secure = strings.EqualFold(proto, "https")
	}
	q.Target = handshake.Target{Host: cmp.Or(q.forwarded("X-Forwarded-Host"), r.Host), Secure: q.Secure}
	if from, ok := r.Context().Value(passedKey{}).(hop.Client); ok {
		q.From = &from
	}
	if q.WebSocket {
		q.Offer = wire.ParseOffer(r.Header)
	}
	q.locate(t)
	return q
}

// forwarded returns the first value of a header that proxies append to (the proxy next
// to the client comes first), "" unless a trusted proxy sent it.
func (q *Request) forwarded(header string) string {
	if !q.Peer.Trusted {
		return ""
	}
	first, _, _ := strings.Cut(q.Header.Get(header), ",")
	return strings.TrimSpace(first)
}

type passedKey struct{}

// Passed returns r as a request that another node has passed on.
func Passed(r *http.Request, from hop.Client) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), passedKey{}, from))
}

// locate finds the route of q, and gives its path the normal form: the upstream gets the path
// that the route matched. A route is policy (who may connect, with which login), so a path that
// another program could read as another route's has none: see Unsafe.
func (q *Request) locate(t *Table) {
	raw, query, force := upstream.ClientTarget(q.Request)
	rt, path, err := t.Match(raw)
	if q.Route, q.Unsafe = rt, err; err != nil {
		return
	}
	normal := new(http.Request)
	*normal = *q.Request
	normal.URL = &url.URL{Path: path.Decoded, RawPath: path.Escaped, RawQuery: query, ForceQuery: force}
	normal.RequestURI = path.Escaped
	if query != "" || force {
		normal.RequestURI += "?" + query
	}
	q.Request = normal
}

// With returns q with another http.Request of the same client.
func (q *Request) With(r *http.Request) *Request {
	n := *q
	n.Request = r
	return &n
}

// ShownPath is the path of q as lists and logs show it: percent-encoded, without the query.
func (q *Request) ShownPath() string { return Clip(strings.Clone(q.URL.EscapedPath())) }

// Clip bounds how much of a client's text goes into a log line.
func Clip(s string) string { return frame.Clip(s, 200) }

// Head is r as on the wire. A handshake has no body.
func Head(r *http.Request) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", r.Method, r.RequestURI, r.Host)
	r.Header.Write(&b)
	b.WriteString("\r\n")
	return b.Bytes()
}
