// Package strict reads text that others have written in the one spelling it can
// have: JSON objects without repeated members, for tokens, control messages and
// request bodies alike, and the three parts of unpadded base64url of a JWT (RFC 7515,
// RFC 7519). Two readers that resolve a second spelling differently would take one
// token for two, or two for one (RFC 8725 section 2.4).
//
// Its errors are fixed text and the names of members that the caller asked for. They
// contain nothing of what was read.
package strict

import "encoding/base64"

// Base64 is base64url without padding that refuses bits behind the last byte. It
// passes over line breaks, which IsCompact refuses.
var Base64 = base64.RawURLEncoding.Strict()

// IsCompact reports whether token is three parts of the base64url alphabet, none
// empty (RFC 7515 section 7.1). base64 by itself passes over CR and LF.
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
