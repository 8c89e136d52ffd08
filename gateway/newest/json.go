package newest

import (
	"encoding/json"
	"strconv"
)

// This file finds a value in a JSON text that is known to be valid, without building one in memory.

// find returns the value at a path of a valid JSON text, as it stands there; nil: there is none. Of several members of
// the same name the last one counts, as in JavaScript.
func find(v []byte, path []string) []byte {
	v = v[space(v, 0):]
	for _, name := range path {
		if v = child(v, name); v == nil {
			return nil
		}
	}
	return v[:end(v, 0)]
}

// child returns the rest of the text from a member of the object, or element of the array, that v begins with.
func child(v []byte, name string) (found []byte) {
	object := v[0] == '{'
	if !object && v[0] != '[' {
		return nil
	}
	for i, n := space(v, 1), 0; v[i] != '}' && v[i] != ']'; n++ {
		match := !object && strconv.Itoa(n) == name
		if object {
			to := end(v, i)
			match = string(unquote(v[i:to])) == name
			i = space(v, space(v, to)+1) // behind the colon
		}
		if match {
			found = v[i:]
		}
		if i = space(v, end(v, i)); v[i] == ',' {
			i = space(v, i+1)
		}
	}
	return found
}

// space returns the index of the first byte from i on that is no white space, or len(v).
func space(v []byte, i int) int {
	for i < len(v) && (v[i] == ' ' || v[i] == '\t' || v[i] == '\n' || v[i] == '\r') {
		i++
	}
	return i
}

// end returns the index behind the value that begins at i.
func end(v []byte, i int) int {
	depth := 0
	for ; i < len(v); i++ {
		switch v[i] {
		case '"':
			for i++; v[i] != '"'; i++ {
				if v[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case ',', ':', ' ', '\t', '\n', '\r':
		default: // a number, true, false or null
			for i+1 < len(v) && !isDelimiter(v[i+1]) {
				i++
			}
		}
		if depth == 0 {
			return i + 1
		}
	}
	return i
}

func isDelimiter(c byte) bool {
	switch c {
	case ',', ':', ']', '}', ' ', '\t', '\n', '\r':
		return true
	}
	return false
}

// unquote returns the text of a string, and any other value as it is.
func unquote(v []byte) []byte {
	if v[0] != '"' {
		return v
	}
	for _, c := range v {
		if c == '\\' {
			var s string
			if json.Unmarshal(v, &s) != nil {
				return v
			}
			return []byte(s)
		}
	}
	return v[1 : len(v)-1]
}
