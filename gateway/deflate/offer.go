package deflate

import (
	"math/bits"
	"net/http"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// Params are the negotiated parameters. The zero value is no agreement.
type Params struct {
	bits   int  // of the window that the client inflates with: 8 to 15
	asked  bool // the client asked for that
	upBits int  // of the window that the client compresses with, if it is to limit that; else 0

	down, up int // bytes of earlier messages that messages to and from the client may refer to
}

// Negotiate returns the first offer of permessage-deflate that can be accepted, RFC 7692
// section 7.1, where up to window bytes of earlier messages are kept for each direction: see
// Options. A header that is invalid after RFC 6455 section 9.1 offers nothing.
func Negotiate(h http.Header, window int) (p Params, ok bool) {
	for _, value := range h.Values("Sec-Websocket-Extensions") {
		offers, good := parseExtensions(value)
		if !good {
			return Params{}, false
		}
		for _, o := range offers {
			if q, accepted := o.accept(window); accepted && !ok {
				p, ok = q, true
			}
		}
	}
	return p, ok
}

// String returns the answer for Sec-WebSocket-Extensions. The two parameters without a value
// may be sent without having been offered, RFC 7692 sections 7.1.1.1 and 7.1.1.2; the others
// only if they were.
func (p Params) String() string {
	s := "permessage-deflate"
	if p.down == 0 {
		s += "; server_no_context_takeover"
	}
	if p.up == 0 {
		s += "; client_no_context_takeover"
	}
	if p.asked {
		s += "; server_max_window_bits=" + strconv.Itoa(p.bits)
	}
	if p.upBits > 0 {
		s += "; client_max_window_bits=" + strconv.Itoa(p.upBits)
	}
	return s
}

// reach returns how many bytes, with those that may refer to them, the client must keep. All
// but the limit that it asked for is the compressor's own.
func (p Params) reach() int {
	if p.asked {
		return 1 << p.bits
	}
	return 1 << (maxWindowBits + 1)
}

// An extension is one element of the header.
type extension struct {
	name   string
	params []param
}

type param struct {
	name, value string
	valued      bool
}

// accept reports whether e is an offer that can be accepted, and what is then
// agreed. One with a parameter that is unknown, repeated or invalid is declined, as
// section 7.1 has it.
func (e extension) accept(window int) (Params, bool) {
	p := Params{bits: maxWindowBits, down: window, up: window}
	limits, upBits := false, maxWindowBits // whether the client can limit its window, and its own limit
	if e.name != "permessage-deflate" {
		return p, false
	}
	seen := map[string]bool{}
	for _, a := range e.params {
		if seen[a.name] {
			return p, false
		}
		seen[a.name] = true
		switch a.name {
		case "server_no_context_takeover":
			if a.valued {
				return p, false
			}
			p.down = 0
		case "client_no_context_takeover":
			if a.valued {
				return p, false
			}
			p.up = 0
		case "client_max_window_bits":
			n, ok := windowBits(a.value)
			if a.valued && !ok {
				return p, false
			}
			if limits = true; a.valued {
				upBits = n
			}
		case "server_max_window_bits":
			bits, ok := windowBits(a.value)
			if !ok {
				return p, false
			}
			p.bits, p.asked = bits, true
		default:
			return p, false
		}
	}
	if p.asked { // what is compressed at once must fit too: see reach
		p.down = min(p.down, 1<<p.bits/2)
	}
	switch most := 1 << upBits; {
	case p.up == 0:
	case limits:
		p.up = min(p.up, most)
		p.upBits = bits.Len(uint(p.up)) - 1
	case p.up < most: // it may refer further back than is kept
		p.up = 0
	}
	return p, true
}

const maxWindowBits = 15

// windowBits reads 8 to 15 without leading zeros.
func windowBits(s string) (int, bool) {
	n, err := strconv.Atoi(s)
	return n, err == nil && n >= 8 && n <= maxWindowBits && strconv.Itoa(n) == s
}

// parseExtensions parses a header value: the list of RFC 6455 section 9.1, whose empty
// elements are ignored, RFC 9110 section 5.6.1. A quoted value must be a token, so that no
// comma or semicolon is in one; escapes within quotes are refused.
func parseExtensions(value string) (list []extension, ok bool) {
	for element := range strings.SplitSeq(value, ",") {
		if element = blankless(element); element == "" {
			continue
		}
		parts := strings.Split(element, ";")
		e := extension{name: blankless(parts[0])}
		if !httpguts.ValidHeaderFieldName(e.name) {
			return nil, false
		}
		for _, part := range parts[1:] {
			var a param
			a.name, a.value, a.valued = strings.Cut(part, "=")
			if a.name, a.value = blankless(a.name), blankless(a.value); len(a.value) > 1 && a.value[0] == '"' && a.value[len(a.value)-1] == '"' {
				a.value = a.value[1 : len(a.value)-1]
			}
			if !httpguts.ValidHeaderFieldName(a.name) || a.valued && !httpguts.ValidHeaderFieldName(a.value) {
				return nil, false
			}
			e.params = append(e.params, a)
		}
		list = append(list, e)
	}
	return list, true
}

func blankless(s string) string { return strings.Trim(s, " \t") }
