package upstream

import (
	"net/http"
	"net/url"
	"strings"
)

// ClientTarget returns the path and the query of a client's request as the client wrote them,
// still escaped, and whether an empty query had its question mark. For a request line in
// absolute form the path and query of that URL are returned; its host is ignored. A target in
// another form (RFC 9112 section 3.2), such as "http:x", is returned whole: NormalPath refuses
// it.
func ClientTarget(r *http.Request) (path, rawQuery string, forceQuery bool) {
	switch {
	case strings.HasPrefix(r.RequestURI, "/"):
		path, rawQuery, forceQuery = strings.Cut(r.RequestURI, "?")
		return path, rawQuery, forceQuery && rawQuery == ""
	case r.RequestURI != "" && r.URL.Host == "":
		return r.RequestURI, "", false
	}
	return r.URL.EscapedPath(), r.URL.RawQuery, r.URL.ForceQuery
}

// joinPath joins the client's escaped path to the escaped path of the target by
// exactly one slash. The client's bytes are kept, except that those
// not allowed in a request line are percent-encoded.
func joinPath(prefix, path string) string {
	path = escapeBytes(strings.TrimPrefix(path, "/"), "?#")
	return strings.TrimRight(prefix, "/") + "/" + path
}

// requestTarget returns the origin-form for the request line to the
// upstream: RFC 9112 section 3.2.1.
func (t *Target) requestTarget(r *Request) string {
	target := joinPath(t.URL.EscapedPath(), r.Path)
	if r.RawQuery != "" || r.ForceQuery {
		target += "?" + escapeBytes(r.RawQuery, "#")
	}
	return target
}

// requestURL is requestTarget for the reverse proxy: a URL that net/http writes as the
// bytes of requestTarget.
func (t *Target) requestURL(r *Request) *url.URL {
	u := &url.URL{Scheme: "http", Host: t.URL.Host}
	if t.secure() {
		u.Scheme = "https"
	}
	u.RawQuery, u.ForceQuery = escapeBytes(r.RawQuery, "#"), r.ForceQuery
	// Opaque is written as it is, but url.URL reads one with two slashes as host and path. None begins
	// with two: NormalPath refuses empty segments, ParseTarget such a URL.
	u.Opaque = "/" + strings.TrimLeft(joinPath(t.URL.EscapedPath(), r.Path), "/")
	return u
}

// escapeBytes percent-encodes control characters, spaces, DEL, and the bytes
// in also.
func escapeBytes(s, also string) string {
	const hex = "0123456789ABCDEF"
	bad := func(c byte) bool {
		return c <= ' ' || c == 0x7f || strings.IndexByte(also, c) >= 0
	}
	var b []byte
	for i := range len(s) {
		c := s[i]
		switch {
		case bad(c) && b == nil:
			b = append(make([]byte, 0, len(s)+8), s[:i]...)
			fallthrough
		case bad(c):
			b = append(b, '%', hex[c>>4], hex[c&15])
		case b != nil:
			b = append(b, c)
		}
	}
	if b == nil {
		return s
	}
	return string(b)
}
