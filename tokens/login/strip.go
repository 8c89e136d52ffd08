package login

import (
	"iter"
	"net/http"
	"slices"
	"strings"
)

// StripProtocols returns a subprotocol offer without the entries that carry a login.
// It is for every request, whatever --auth-forward says: the upstream must not choose
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
func (s Sources) StripHeader(h http.Header) {
	if s.has(inHeader) {
		setLines(h, "Authorization", slices.DeleteFunc(slices.Clone(h["Authorization"]), func(line string) bool {
			_, ok := bearer(line)
			return ok
		}))
	}
	if s.has(inCookie) {
		var kept []string
		for _, line := range h["Cookie"] {
			if line = s.stripCookies(line); line != "" {
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

// stripCookies returns a Cookie line without those that carry a login.
func (s Sources) stripCookies(line string) string {
	var kept []string
	all := strings.Split(line, ";")
	for _, pair := range all {
		if !slices.ContainsFunc(s, func(source Source) bool { _, ok := source.cookieValue(pair); return ok }) {
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
func (s Sources) StripQuery(raw string) string {
	var b strings.Builder
	first := true
	for pair := range pairs(raw) {
		if s.carries(pair.text) {
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

func (s Sources) carries(pair string) bool {
	return slices.ContainsFunc(s, func(source Source) bool { _, ok := source.queryValue(pair); return ok })
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
