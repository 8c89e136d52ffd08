package login

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"reseat/tokens/internal/jws"
)

// A place is a part of a request that may contain a login.
type place string

const (
	inHeader   place = "header"
	inQuery    place = "query"
	inCookie   place = "cookie"
	inProtocol place = "protocol"
)

// A Source is one place that is searched for a login. The zero Source is not a source.
type Source struct {
	place place
	name  string // of the query parameter or cookie, or the subprotocol's prefix
}

// String returns the source as written in the flag.
func (s Source) String() string {
	if s.place == inHeader {
		return string(s.place)
	}
	return string(s.place) + ":" + s.name
}

// Sources are the places that are searched for a login, in order (--auth-from). They
// also say what must be hidden: a login is removed and redacted by its place,
// whether it is valid or not.
type Sources []Source

// ParseSources parses a comma-separated list, as in --auth-from. The error says which part
// is wrong, and what is accepted.
func ParseSources(list string) (Sources, error) {
	var all Sources
	for part := range strings.SplitSeq(list, ",") {
		s, err := parseSource(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		if slices.Contains(all, s) {
			return nil, fmt.Errorf("%q is listed twice", s)
		}
		all = append(all, s)
	}
	return all, nil
}

// parseSource parses header, query:NAME, cookie:NAME or protocol:PREFIX.
func parseSource(text string) (Source, error) {
	kind, name, named := strings.Cut(text, ":")
	s := Source{place(kind), name}
	switch s.place {
	case inHeader:
		if named {
			return Source{}, fmt.Errorf("want header without a name, got %q", text)
		}
		return s, nil
	case inQuery:
		if name == "" || strings.ContainsFunc(name, notInQueryName) {
			return Source{}, fmt.Errorf("want query:NAME with a NAME that needs no escape, got %q", text)
		}
		return s, nil
	case inCookie: // its name is a token: RFC 6265 section 4.1.1
		if !httpguts.ValidHeaderFieldName(name) {
			return Source{}, fmt.Errorf("want cookie:NAME with a NAME that can be a cookie's, got %q", text)
		}
		return s, nil
	case inProtocol: // a subprotocol is one: RFC 6455 section 4.1
		if !httpguts.ValidHeaderFieldName(name) {
			return Source{}, fmt.Errorf("want protocol:PREFIX with a PREFIX that a subprotocol can have, got %q", text)
		}
		if strings.HasPrefix(name, ownProtocols) || strings.HasPrefix(ownProtocols, name) {
			return Source{}, fmt.Errorf("want protocol:PREFIX with another PREFIX than those of %s*, got %q", ownProtocols, text)
		}
		return s, nil
	}
	return Source{}, fmt.Errorf("want header, query:NAME, cookie:NAME or protocol:PREFIX, got %q", text)
}

// ownProtocols begin the gateway's own subprotocol entries (protocol section 2):
// they contain no login, and must not be removed from an offer as one.
const ownProtocols = "reseat."

func notInQueryName(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune("%&;=+#", r) }

// Find returns the login of a request, valid or not, from the first source that has one. An
// empty login counts as absent. The error is ErrMissing if there is none, and ErrMalformed
// if a source has several different ones, because the upstream might use another one.
func (s Sources) Find(r *http.Request) (token string, err error) {
	for _, source := range s {
		for _, found := range source.candidates(r) {
			switch {
			case found == "" || found == token:
			case token != "":
				return "", jws.Malformed("several different logins in one place")
			default:
				token = found
			}
		}
		if token != "" {
			return token, nil
		}
	}
	return "", &jws.Refusal{Kind: ErrMissing, Detail: "nothing where it is looked for"}
}

// InCookie reports whether the login that Find returns is in a cookie, which a browser
// sends whichever page makes the request.
func (s Sources) InCookie(r *http.Request) bool {
	for _, source := range s {
		for _, found := range source.candidates(r) {
			if found != "" {
				return source.place == inCookie
			}
		}
	}
	return false
}

// HasCookie reports whether a login may be in a cookie.
func (s Sources) HasCookie() bool {
	return slices.ContainsFunc(s, func(source Source) bool { return source.place == inCookie })
}

// candidates returns all values at the place of a source, empty ones included.
func (s Source) candidates(r *http.Request) (found []string) {
	switch s.place {
	case inHeader:
		for _, line := range r.Header["Authorization"] {
			if token, ok := bearer(line); ok {
				found = append(found, token)
			}
		}
	case inQuery:
		for pair := range pairs(r.URL.RawQuery) {
			if value, ok := s.queryValue(pair.text); ok {
				found = append(found, value)
			}
		}
	case inCookie:
		for _, line := range r.Header["Cookie"] {
			for pair := range strings.SplitSeq(line, ";") {
				if value, ok := s.cookieValue(pair); ok {
					found = append(found, value)
				}
			}
		}
	case inProtocol:
		for _, line := range r.Header["Sec-Websocket-Protocol"] {
			for entry := range strings.SplitSeq(line, ",") {
				if token, ok := strings.CutPrefix(strings.Trim(entry, " \t"), s.name); ok {
					found = append(found, token)
				}
			}
		}
	}
	return found
}

// bearer returns the token of an Authorization line with the scheme Bearer: RFC 6750
// section 2.1. The scheme is compared without regard to case (RFC 9110 section 11.1).
func bearer(line string) (token string, ok bool) {
	line = strings.Trim(line, " \t")
	scheme, rest := line, ""
	if i := strings.IndexAny(line, " \t"); i >= 0 {
		scheme, rest = line[:i], strings.TrimLeft(line[i:], " \t")
	}
	return rest, strings.EqualFold(scheme, "Bearer")
}

// queryValue returns the value of a query's pair, decoded, if it has the source's name.
func (s Source) queryValue(pair string) (value string, ok bool) {
	name, value, _ := strings.Cut(pair, "=")
	if name, err := url.QueryUnescape(name); err != nil || s.place != inQuery || name != s.name {
		return "", false
	}
	if decoded, err := url.QueryUnescape(value); err == nil {
		value = decoded
	}
	return value, true
}

// cookieValue returns the value of a cookie's pair, without quotes around it (RFC 6265
// section 4.1.1), if it has the source's name.
func (s Source) cookieValue(pair string) (value string, ok bool) {
	name, value, _ := strings.Cut(pair, "=")
	if s.place != inCookie || strings.Trim(name, " \t") != s.name {
		return "", false
	}
	value = strings.Trim(value, " \t")
	if len(value) >= 2 && value[0] == '"' && value[len(value)-1] == '"' {
		value = value[1 : len(value)-1]
	}
	return value, true
}
