package login

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/golang-jwt/jwt/v5"

	"reseat/tokens/internal/jws"
	"reseat/tokens/strict"
)

const (
	maxSubject = 256          // bytes
	maxDate    = 253402300799 // the last second of the year 9999
)

// claims are the claims (RFC 7519 section 4) in use. The library checks issuer, audience and the
// dates with leeway. exp is not among the RegisteredClaims: Verify checks it, and VerifyExpired
// does not.
type claims struct {
	jwt.RegisteredClaims
	expires   time.Time
	noSubject string // why Subject is empty
	read      bool   // UnmarshalJSON has filled it; JSON null never calls that
}

// UnmarshalJSON reads a claims set. Every claim must be of its type; exp is required.
// A fault of sub is reported only once the token is known to be genuine. Errors wrap
// ErrMalformed.
func (c *claims) UnmarshalJSON(data []byte) error {
	o, err := strict.ParseObject(data, maxMembers)
	if err != nil {
		return jws.Malformed(err.Error())
	}
	r := strict.Reader{Object: o}
	if _, ok := o.Get("iss"); ok {
		r.Text("iss", &c.Issuer)
	}
	if _, ok := o.Get("aud"); ok {
		r.Texts("aud", (*[]string)(&c.Audience))
	}
	c.NotBefore = optionalDate(&r, "nbf")
	c.IssuedAt = optionalDate(&r, "iat")
	c.expires = date(&r, "exp")
	if r.Err != nil {
		return jws.Malformed(r.Err.Error())
	}
	c.Subject, c.noSubject = subject(o)
	c.read = true
	return nil
}

// date returns the member name: seconds since 1970, not negative and up to the year
// 9999, optionally with a fraction.
func date(r *strict.Reader, name string) time.Time {
	value := r.Value(name)
	if value == nil {
		return time.Time{}
	}
	seconds, err := strconv.ParseFloat(string(value), 64)
	if err != nil || value[0] == '-' || seconds > maxDate {
		r.Fail(name + " is no date, or out of range")
		return time.Time{}
	}
	whole, fraction := math.Modf(seconds)
	return time.Unix(int64(whole), int64(fraction*1e9))
}

func optionalDate(r *strict.Reader, name string) *jwt.NumericDate {
	if _, ok := r.Get(name); !ok {
		return nil
	}
	return &jwt.NumericDate{Time: date(r, name)}
}

// subject returns sub, or why it names no player. The name becomes the value of a header,
// which loses leading and trailing spaces: two players could become one. The same would
// happen if escapes of lone surrogates became U+FFFD.
func subject(o strict.Object) (sub, fault string) {
	value, ok := o.Get("sub")
	if !ok {
		return "", "no sub"
	}
	if value[0] != '"' || json.Unmarshal(value, &sub) != nil {
		return "", "sub is no string"
	}
	if fault := PlayerFault(sub); fault != "" {
		return "", "sub " + fault
	}
	return sub, ""
}

// PlayerFault returns what is wrong with a player's name, "" if nothing is. The rule is the
// same for a login's sub and for a name set by a backend. Invisible characters are refused,
// because they make different names look equal.
func PlayerFault(name string) string {
	switch {
	case name == "":
		return "is empty"
	case len(name) > maxSubject:
		return "is longer than 256 bytes"
	case strings.ContainsFunc(name, unicode.IsControl):
		return "has control characters"
	case !utf8.ValidString(name), strings.ContainsRune(name, utf8.RuneError):
		return "has a character that is none"
	case strings.TrimSpace(name) != name:
		return "begins or ends with a blank"
	case strings.ContainsFunc(name, func(r rune) bool {
		return !unicode.IsPrint(r) || unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r)
	}):
		return "has invisible characters"
	}
	return ""
}
