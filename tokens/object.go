package tokens

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxMembers bounds a header or claims set; the protocol has 3 and 9.
const maxMembers = 32

// An object is a JSON object one level deep: its members in order, their names
// decoded and all different, their values as written.
type object []member

type member struct {
	name  string
	value []byte
}

// parseObject reads an object that is strict where encoding/json is not: it must
// be UTF-8, no name may come twice in whatever spelling, and null is no object
// (RFC 8725 section 2.4 and RFC 7515 section 4 on why). Errors wrap ErrMalformed.
func parseObject(data []byte) (object, error) {
	if !utf8.Valid(data) {
		return nil, malformed("not UTF-8")
	}
	if !json.Valid(data) {
		return nil, malformed("not JSON")
	}
	// From here on the syntax is known to be good, so that every index exists.
	i := skipSpace(data, 0)
	if data[i] != '{' {
		return nil, malformed("not a JSON object")
	}
	o := make(object, 0, 9)
	for i = skipSpace(data, i+1); data[i] != '}'; {
		end := valueEnd(data, i)
		name := unquote(data[i:end])
		start := skipSpace(data, skipSpace(data, end)+1) // past the colon
		end = valueEnd(data, start)
		if _, ok := o.get(name); ok {
			return nil, malformed("repeated JSON member")
		}
		if len(o) == maxMembers {
			return nil, malformed("too many JSON members")
		}
		o = append(o, member{name, data[start:end]})
		if i = skipSpace(data, end); data[i] == ',' {
			i = skipSpace(data, i+1)
		}
	}
	return o, nil
}

func skipSpace(data []byte, i int) int {
	for i < len(data) && strings.IndexByte(" \t\r\n", data[i]) >= 0 {
		i++
	}
	return i
}

// valueEnd returns where the value that begins at i ends. data is good JSON.
func valueEnd(data []byte, i int) int {
	depth := 0
	for {
		switch data[i] {
		case '"':
			i = stringEnd(data, i)
		case '{', '[':
			depth++
			i++
		case '}', ']':
			depth--
			i++
		case ',', ':', ' ', '\t', '\r', '\n': // between the parts of a composite value
			i++
		default:
			i = wordEnd(data, i)
		}
		if depth == 0 {
			return i
		}
	}
}

// stringEnd returns the index behind the string that begins at i.
func stringEnd(data []byte, i int) int {
	for i++; data[i] != '"'; i++ {
		if data[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// wordEnd returns the index behind the number, true, false or null at i.
func wordEnd(data []byte, i int) int {
	if n := bytes.IndexAny(data[i:], ",]} \t\r\n"); n >= 0 {
		return i + n
	}
	return len(data)
}

// unquote decodes a JSON string. quoted is good JSON.
func unquote(quoted []byte) string {
	inner := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner)
	}
	var s string
	if json.Unmarshal(quoted, &s) != nil {
		return "" // not reached: quoted is good JSON
	}
	return s
}

func (o object) get(name string) ([]byte, bool) {
	for _, m := range o {
		if m.name == name {
			return m.value, true
		}
	}
	return nil, false
}

// A reader takes required members out of an object. The first one that is missing
// or not of its type is its err, which wraps ErrMalformed; after that it reads
// nothing more.
type reader struct {
	object
	err error
}

// value returns the member name as written, nil when the reader has failed.
func (r *reader) value(name string) []byte {
	if r.err != nil {
		return nil
	}
	value, ok := r.get(name)
	if !ok {
		r.fail("no " + name)
	}
	return value
}

func (r *reader) fail(detail string) { r.err = malformed(detail) }

// text sets *dst to the member name, a string that is not empty.
func (r *reader) text(name string, dst *string) {
	value := r.value(name)
	switch {
	case value == nil:
	case value[0] != '"' || len(value) == len(`""`):
		r.fail(name + " is no string, or empty")
	default:
		*dst = unquote(value)
	}
}

// texts sets *dst to the member name, a string or an array of strings, as aud may
// be (RFC 7519 section 4.1.3).
func (r *reader) texts(name string, dst *[]string) {
	value := r.value(name)
	if value == nil {
		return
	}
	if value[0] == '"' {
		*dst = []string{unquote(value)}
		return
	}
	var elements []*string // nil for an element that is null
	if json.Unmarshal(value, &elements) != nil || elements == nil || slices.Contains(elements, nil) {
		r.fail(name + " is no string or array of strings")
		return
	}
	for _, e := range elements {
		*dst = append(*dst, *e)
	}
}

// integer returns the member name, an integer from low to high written with
// digits alone: no sign, fraction or exponent.
func (r *reader) integer(name string, low, high uint64) uint64 {
	value := r.value(name)
	if value == nil {
		return 0
	}
	n, err := strconv.ParseUint(string(value), 10, 64)
	if err != nil || n < low || n > high {
		r.fail(name + " is no integer, or out of range")
		return 0
	}
	return n
}
