package upstream

import (
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Why a path has no safe normal form: programs would resolve it to different resources.
var (
	errSlash     = errors.New("an encoded slash (%2F)")
	errBackslash = errors.New("a backslash")
	errEmpty     = errors.New("an empty segment (//)")
	errControl   = errors.New("a control character")
	errEscape    = errors.New("a percent sign that begins no escape")
	errTwice     = errors.New("an escape that is escaped itself (%25)")
	errOverlong  = errors.New("an overlong UTF-8 sequence")
	errParams    = errors.New("a dot segment with parameters (..;)")
	errRelative  = errors.New("no slash at its beginning")
)

// A Path is the normal form of a request's path, which routes match and which the
// upstream gets.
type Path struct {
	// Escaped goes into the request line: RFC 3986 section 6.2.2. Escapes of
	// unreserved characters are decoded, the others are in upper case, dot segments
	// are removed.
	Escaped string
	// Decoded is Escaped without escapes, as a game server reads it.
	Decoded string
}

// NormalPath returns the normal form of a client's path, without its query.
//
// It fails if there is no safe normal form because programs disagree
// about what the path names: an encoded slash, a backslash, an empty
// segment, a control character, an escape that is escaped itself, an overlong UTF-8
// sequence, parameters after a dot segment.
//
// The normal form of a normal form is itself.
func NormalPath(raw string) (Path, error) {
	if raw == "" {
		raw = "/"
	}
	if raw[0] != '/' {
		return Path{}, errRelative
	}
	var out []segment
	parts := strings.Split(raw[1:], "/")
	for i, part := range parts {
		last := i == len(parts)-1
		s, err := normalSegment(part)
		switch {
		case err != nil:
			return Path{}, err
		case s.empty() && !last:
			return Path{}, errEmpty
		case s.decoded != "." && s.decoded != "..":
			out = append(out, s)
			continue
		case s.decoded == ".." && len(out) > 0:
			out = out[:len(out)-1]
		}
		if last { // a dot segment at the end names a directory
			out = append(out, segment{})
		}
	}
	var p Path
	for _, s := range out {
		p.Escaped += "/" + s.escaped
		p.Decoded += "/" + s.decoded
	}
	return p, nil
}

// WithoutParams returns the decoded path as read by a server that strips parameters from
// segments ("/a;v=1/b" is "/a/b"), and whether that differs.
func (p Path) WithoutParams() (string, bool) {
	if !strings.Contains(p.Decoded, ";") {
		return p.Decoded, false
	}
	parts := strings.Split(p.Decoded, "/")
	for i, part := range parts {
		parts[i], _, _ = strings.Cut(part, ";")
	}
	return strings.Join(parts, "/"), true
}

// A segment is the text between two slashes.
type segment struct{ escaped, decoded string }

// empty reports whether the segment is empty for a server that strips parameters: it reads
// "/;/a" as "//a", and may merge the slashes.
func (s segment) empty() bool { return s.decoded == "" || s.decoded[0] == ';' }

// normalSegment returns the normal form of one segment.
func normalSegment(part string) (segment, error) {
	if plain(part) {
		return segment{part, part}, nil
	}
	var escaped, decoded []byte
	for i := 0; i < len(part); i++ {
		c, wasEscaped := part[i], part[i] == '%'
		if wasEscaped {
			b, err := hex.DecodeString(part[i+1 : min(i+3, len(part))])
			if err != nil || len(b) == 0 {
				return segment{}, errEscape
			}
			c = b[0]
			i += 2
		}
		if err := unsafe(c); err != nil {
			return segment{}, err
		}
		switch {
		case unreserved(c), isPathChar(c), !wasEscaped && isDelimiter(c):
			escaped = append(escaped, c)
		default:
			escaped = fmt.Appendf(escaped, "%%%02X", c)
		}
		decoded = append(decoded, c)
	}
	s := segment{string(escaped), string(decoded)}
	base, _, found := strings.Cut(s.decoded, ";")
	switch {
	case overlong(s.decoded):
		return segment{}, errOverlong
	case found && (base == "." || base == ".."):
		return segment{}, errParams
	case escape.MatchString(s.decoded):
		return segment{}, errTwice
	}
	return s, nil
}

// escape matches one in text that is already decoded.
var escape = regexp.MustCompile("%[0-9A-Fa-f]{2}")

// overlong reports whether s contains a UTF-8 sequence that is longer than its character
// needs (RFC 3629 section 3). Lenient decoders read one as an ordinary character, such as
// a slash or a dot.
func overlong(s string) bool {
	for i := range len(s) {
		var next byte
		if i+1 < len(s) {
			next = s[i+1]
		}
		switch lead := s[i]; {
		case lead == 0xc0, lead == 0xc1,
			lead == 0xe0 && next&0xe0 == 0x80,
			lead == 0xf0 && next&0xf0 == 0x80,
			lead == 0xf8 && next&0xf8 == 0x80, // five and six bytes, before RFC 3629
			lead == 0xfc && next&0xfc == 0x80:
			return true
		}
	}
	return false
}

// unsafe returns why the character c makes a path unsafe.
func unsafe(c byte) error {
	switch {
	case c < 0x20 || c == 0x7f:
		return errControl
	case c == '/':
		return errSlash
	case c == '\\':
		return errBackslash
	}
	return nil
}

// plain reports whether a segment is its own normal form, the common case.
func plain(part string) bool {
	for _, c := range []byte(part) {
		if !unreserved(c) {
			return false
		}
	}
	return part != "." && part != ".."
}

// unreserved characters mean the same escaped or not: RFC 3986 section 2.3.
func unreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0
}

// isPathChar reports whether c is one of the characters of RFC 3986 section 3.3 (pchar)
// without a special meaning in a path.
func isPathChar(c byte) bool { return strings.IndexByte("!$&'()*+:@", c) >= 0 }

// isDelimiter reports whether c separates a segment's parameters, on servers that have
// them: there it matters whether c is escaped.
func isDelimiter(c byte) bool { return c == ';' || c == '=' || c == ',' }
