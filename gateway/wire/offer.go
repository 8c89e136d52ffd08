package wire

import (
	"net/http"
	"strings"
)

const (
	prefixOwn      = "reseat."
	prefixToken    = "reseat.token."
	prefixReceived = "reseat.received."
	prefixSettled  = "reseat.settled."

	// PrefixPartial begins the entry in which a client states how many bytes it holds of the first message that
	// it lacks.
	PrefixPartial = "reseat.partial."

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
	Parts      bool     // reseat.parts was offered, or reseat.partial
	Partial    bool     // reseat.partial was offered,
	Held       uint64   // with this number; 0 if it is malformed or ambiguous
	Skips      bool     // reseat.skip was offered
	Token      string   // empty if missing, or if two differ
	Received   uint64
	ReceivedOK bool // Received is present, well formed and unambiguous
	// Settled counts the client's own messages; SettledOK: it is present, well formed and unambiguous.
	// Only then may another node continue the session.
	Settled   Settled
	SettledOK bool
}

// Settled says in each handshake how far the client's own messages have come: protocol section 5.6.
type Settled struct {
	Acked uint64 // the newest one acked, by an ack or by hello.received
	Sent  uint64 // the newest that it gave to any connection
}

// ParseOffer reads the offer from a handshake's header. Entries that begin with
// "reseat." are never in Protocols.
func ParseOffer(h http.Header) Offer {
	var o Offer
	var tokens, received, settled, held []string
	for _, p := range Protocols(h) {
		switch {
		case !strings.HasPrefix(p, prefixOwn):
			o.Protocols = append(o.Protocols, p)
		case p == Subprotocol:
			o.Resumable = true
		case p == Refusals:
			o.Refusals = true
		case p == Parts:
			o.Parts = true
		case p == Skip:
			o.Skips = true
		case strings.HasPrefix(p, PrefixPartial):
			o.Parts, o.Partial = true, true
			held = append(held, p[len(PrefixPartial):])
		case strings.HasPrefix(p, prefixToken):
			tokens = append(tokens, p[len(prefixToken):])
		case strings.HasPrefix(p, prefixReceived):
			received = append(received, p[len(prefixReceived):])
		case strings.HasPrefix(p, prefixSettled):
			settled = append(settled, p[len(prefixSettled):])
		}
	}
	if !o.Resumable {
		o.Refusals, o.Parts, o.Partial, o.Skips = false, false, false, false
		return o
	}
	tokens = append(tokens, h.Values("Reseat-Token")...)
	received = append(received, h.Values("Reseat-Received")...)
	o.Resume = len(tokens)+len(received) > 0
	o.Refusals = o.Refusals && !o.Resume
	o.Token = same(tokens)
	o.Received, o.ReceivedOK = sameNumber(received)
	if n, ok := sameNumber(held); ok {
		o.Held = n
	}
	for _, v := range h.Values("Reseat-Settled") {
		settled = append(settled, strings.Replace(v, " ", ".", 1))
	}
	o.Settled, o.SettledOK = parseSettled(same(settled))
	return o
}

// parseSettled reads A.S, where A cannot exceed S.
func parseSettled(s string) (v Settled, ok bool) {
	acked, sent, _ := strings.Cut(s, ".")
	var first, second bool
	v.Acked, first = ParseNumber(acked)
	v.Sent, second = ParseNumber(sent)
	if !first || !second || v.Acked > v.Sent {
		return Settled{}, false
	}
	return v, true
}

// Protocols returns the entries of all Sec-WebSocket-Protocol lines.
func Protocols(h http.Header) []string {
	var list []string
	for _, line := range h.Values("Sec-Websocket-Protocol") {
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
