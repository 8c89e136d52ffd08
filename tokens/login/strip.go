package login

import (
	"iter"
	"net/http"
	"slices"
	"strings"
)

// StripProtocols returns a subprotocol offer without the entries that carry a login.
// Apply it to every request, whatever --auth-forward says: the upstream must not choose
// such an entry, since the answer would show the login. The offer is not changed.
func (s Sources) StripProtocols(offer []string) []string {
	return slices.DeleteFunc(slices.Clone(offer), func(entry string) bool {
		return slices.ContainsFunc(s, func(source Source) bool {
			return source.place == inProtocol && strings.HasPrefix(strings.Trim(entry, " \t"), source.name)
		})
	})
}

// StripHeader removes from h the Authorization lines and the cookies that carry a
// login (--auth-forward off). Other lines, and other cookies in a line, keep their
// bytes and order. What h shares with another header is not changed.
func (s Sources) StripHeader(h http.Header) { s.stripHeader(h, always) }

func always(string) bool { return true }

// stripHeader removes the logins that drop accepts.
func (s Sources) stripHeader(h http.Header, drop func(token string) bool) {
	if s.has(inHeader) {
		setLines(h, "Authorization", slices.DeleteFunc(slices.Clone(h["Authorization"]), func(line string) bool {
			token, ok := bearer(line)
			return ok && drop(token)
		}))
	}
	if s.has(inCookie) {
		var kept []string
		for _, line := range h["Cookie"] {
			if line = s.stripCookies(line, drop); line != "" {
				kept = append(kept, line)
			}
		}
		setLines(h, "Cookie", kept)
	}
}

func (s Sources) has(p place) bool {
	return slices.ContainsFunc(s, func(source Source) bool { return source.place == p })
}

func setLines(h http.Header, name string, lines []string) {
	if len(lines) == 0 {
		delete(h, name)
		return
	}
	h[name] = lines
}

// stripCookies returns a Cookie line without the logins that drop accepts.
func (s Sources) stripCookies(line string, drop func(token string) bool) string {
	var kept []string
	all := strings.Split(line, ";")
	for _, pair := range all {
		if !slices.ContainsFunc(s, func(source Source) bool { value, ok := source.cookieValue(pair); return ok && drop(value) }) {
			kept = append(kept, pair)
		}
	}
	if len(kept) == len(all) {
		return line
	}
	return strings.TrimLeft(strings.Join(kept, ";"), " \t") // the blank after a semicolon
}

// StripQuery returns a raw query without the parameters that carry a login
// (--auth-forward off). The rest keeps its bytes, less one separator for each.
func (s Sources) StripQuery(raw string) string { return s.stripQuery(raw, always) }

func (s Sources) stripQuery(raw string, drop func(token string) bool) string {
	var b strings.Builder
	first := true
	for pair := range pairs(raw) {
		if s.carries(pair.text, drop) {
			continue
		}
		if !first {
			b.WriteString(pair.separator)
		}
		b.WriteString(pair.text)
		first = false
	}
	return b.String()
}

func (s Sources) carries(pair string, drop func(token string) bool) bool {
	return slices.ContainsFunc(s, func(source Source) bool { value, ok := source.queryValue(pair); return ok && drop(value) })
}

// Only returns r without any login but token ("": without any). The others are unverified,
// and the upstream may look for a login in another place first. It does not change r.
// Subprotocols stay: StripProtocols removes them.
func (s Sources) Only(r *http.Request, token string) *http.Request {
	other := func(found string) bool { return found != "" && found != token }
	if !slices.ContainsFunc(s, func(source Source) bool { return slices.ContainsFunc(source.candidates(r), other) }) {
		return r
	}
	only := new(http.Request)
	*only = *r
	only.Header = r.Header.Clone()
	s.stripHeader(only.Header, other)
	target := *r.URL
	target.RawQuery = s.stripQuery(target.RawQuery, other)
	only.URL = &target
	if path, _, found := strings.Cut(r.RequestURI, "?"); found {
		only.RequestURI = path
		if target.RawQuery != "" || target.ForceQuery {
			only.RequestURI += "?" + target.RawQuery
		}
	}
	return only
}

// A pair is a name with or without a value, as in a raw query, and the separator before it:
// "" for the first one.
type pair struct{ separator, text string }

// pairs splits a query at & and at ;, which some servers use as a separator too: logins
// that they would find must be found and hidden as well.
func pairs(raw string) iter.Seq[pair] {
	return func(yield func(pair) bool) {
		separator := ""
		for {
			i := strings.IndexAny(raw, "&;")
			if i < 0 {
				yield(pair{separator, raw})
				return
			}
			if !yield(pair{separator, raw[:i]}) {
				return
			}
			separator, raw = raw[i:i+1], raw[i+1:]
		}
	}
}
