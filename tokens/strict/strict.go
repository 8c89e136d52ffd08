// Package strict parses text from others that must have exactly one spelling: JSON objects
// without repeated members, for tokens, control messages and request bodies, and the three
// parts of unpadded base64url of a JWT (RFC 7515, RFC 7519). Two parsers that resolve a
// second spelling differently would take one token for two, or two for one (RFC 8725
// section 2.4).
//
// Its errors are fixed text and the names of members that the caller asked for. They never
// quote the text.
package strict

import "encoding/base64"

// Base64 is base64url without padding that refuses unused bits after the last byte. It
// ignores line breaks; IsCompact refuses them.
var Base64 = base64.RawURLEncoding.Strict()

// IsCompact reports whether token is three non-empty parts of the base64url alphabet (RFC
// 7515 section 7.1). base64 by itself ignores CR and LF.
func IsCompact(token string) bool {
	dots, part := 0, 0 // part is the length of the part so far
	for i := range len(token) {
		switch c := token[i]; {
		case c == '.':
			if part == 0 || dots == 2 {
				return false
			}
			dots, part = dots+1, 0
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_':
			part++
		default:
			return false
		}
	}
	return dots == 2 && part > 0
}
