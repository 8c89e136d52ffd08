package deflate

import (
	"math/bits"
	"net/http"
	"strconv"
	"strings"
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

// parseExtensions parses a header value: the list of RFC 6455 section 9.1,
// whose empty elements are ignored, RFC 9110 section 5.6.1.
func parseExtensions(value string) (list []extension, ok bool) {
	s := scanner{rest: value}
	for {
		s.blanks()
		if s.rest != "" && s.rest[0] != ',' {
			e, ok := s.extension()
			if !ok {
				return nil, false
			}
			list = append(list, e)
		}
		switch {
		case s.rest == "":
			return list, true
		case !s.take(','):
			return nil, false
		}
	}
}

// A scanner consumes a header value from its start.
type scanner struct{ rest string }

func (s *scanner) blanks() { s.rest = strings.TrimLeft(s.rest, " \t") }

// take consumes c, if it is next.
func (s *scanner) take(c byte) bool {
	if s.rest == "" || s.rest[0] != c {
		return false
	}
	s.rest = s.rest[1:]
	return true
}

// extension consumes an extension, its parameters, and the spaces after them.
func (s *scanner) extension() (e extension, ok bool) {
	if e.name, ok = s.token(); !ok {
		return e, false
	}
	for s.blanks(); s.take(';'); s.blanks() {
		s.blanks()
		a, ok := s.param()
		if !ok {
			return e, false
		}
		e.params = append(e.params, a)
	}
	return e, true
}

func (s *scanner) param() (a param, ok bool) {
	if a.name, ok = s.token(); !ok {
		return a, false
	}
	s.blanks()
	if !s.take('=') {
		return a, true
	}
	a.valued = true
	s.blanks()
	if s.take('"') {
		a.value, ok = s.quoted()
	} else {
		a.value, ok = s.token()
	}
	return a, ok
}

// token consumes a token, RFC 9110 section 5.6.2.
func (s *scanner) token() (string, bool) {
	n := 0
	for n < len(s.rest) && isTokenByte(s.rest[n]) {
		n++
	}
	t := s.rest[:n]
	s.rest = s.rest[n:]
	return t, n > 0
}

// quoted consumes the rest of a quoted string, which must contain a token.
func (s *scanner) quoted() (string, bool) {
	var b []byte
	for s.rest != "" && !strings.HasPrefix(s.rest, `"`) {
		if s.take('\\') && s.rest == "" {
			return "", false
		}
		if !isTokenByte(s.rest[0]) {
			return "", false
		}
		b = append(b, s.rest[0])
		s.rest = s.rest[1:]
	}
	return string(b), s.take('"') && len(b) > 0
}

func isTokenByte(c byte) bool {
	switch {
	case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
		return true
	}
	return strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}
