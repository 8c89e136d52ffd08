package wire

import (
	"net/http"
	"strings"
)

const (
	prefixOwn      = "reseat."
	prefixToken    = "reseat.token."
	prefixReceived = "reseat.received."

	// PrefixRoute begins the entry by which a client that resumes repeats the route of its
	// hello, for a load balancer. The gateway ignores it.
	PrefixRoute = "reseat.route."
	maxRoute    = 32
)

// ValidRoute reports whether a route can be a part of a subprotocol: protocol section 5.1.
func ValidRoute(s string) bool {
	odd := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", r))
	}
	return s != "" && len(s) <= maxRoute && !strings.ContainsFunc(s, odd)
}

// An Offer is what a client's handshake offers of this protocol, protocol section 2.
type Offer struct {
	Protocols  []string // the application's, in the client's order
	Resumable  bool     // reseat.v1 was offered
	Resume     bool     // with a token or a received count, so it is a resume
	Refusals   bool     // reseat.refusals was offered with a first handshake
	Token      string   // empty if missing, or if two differ
	Received   uint64
	ReceivedOK bool // Received is present, well formed and unambiguous
}

// ParseOffer reads the offer from a handshake's header. Entries that begin with
// "reseat." are never in Protocols.
func ParseOffer(h http.Header) Offer {
	var o Offer
	var tokens, received []string
	for _, p := range Protocols(h) {
		switch {
		case !strings.HasPrefix(p, prefixOwn):
			o.Protocols = append(o.Protocols, p)
		case p == Subprotocol:
			o.Resumable = true
		case p == Refusals:
			o.Refusals = true
		case strings.HasPrefix(p, prefixToken):
			tokens = append(tokens, p[len(prefixToken):])
		case strings.HasPrefix(p, prefixReceived):
			received = append(received, p[len(prefixReceived):])
		}
	}
	if !o.Resumable {
		o.Refusals = false
		return o
	}
	tokens = append(tokens, h.Values("Reseat-Token")...)
	received = append(received, h.Values("Reseat-Received")...)
	o.Resume = len(tokens)+len(received) > 0
	o.Refusals = o.Refusals && !o.Resume
	o.Token = same(tokens)
	o.Received, o.ReceivedOK = sameNumber(received)
	return o
}

// Protocols returns the entries of all Sec-WebSocket-Protocol lines.
func Protocols(h http.Header) []string {
	var list []string
	for _, line := range h.Values("Sec-WebSocket-Protocol") {
		for p := range strings.SplitSeq(line, ",") {
			if p = strings.Trim(p, " \t"); p != "" {
				list = append(list, p)
			}
		}
	}
	return list
}

func same(list []string) string {
	for _, s := range list {
		if s != list[0] {
			return ""
		}
	}
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

func sameNumber(list []string) (uint64, bool) {
	var first uint64
	for i, s := range list {
		n, ok := ParseNumber(s)
		if !ok || i > 0 && n != first {
			return 0, false
		}
		first = n
	}
	return first, len(list) > 0
}
