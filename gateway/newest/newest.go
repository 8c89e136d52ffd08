// Package newest says which messages of a game server are states, of which only the newest
// counts: --newest. It is pure.
package newest

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

const (
	// MaxRules bounds the work for one message,
	MaxRules = 32
	maxMatch = 1 << 10 // as does the length of a MATCH,
	// and MaxJSON: longer messages match no JSON rule.
	MaxJSON = 64 << 10

	maxName  = 32
	longPart = 64 // longer values are in a key as their hash
)

// Rules are the values NAME=MATCH of --newest, of which the first that matches a message decides. They are
// immutable. Nil has no rules.
type Rules struct {
	values []string
	rules  []rule
	text   int // no prefix of a text message is longer,
	binary int // and none of a binary one
	json   bool
}

type rule struct {
	name   string
	binary bool
	prefix string
	fields []field // of JSON; nil: prefix decides
}

// A field is a value of a JSON text.
type field struct {
	path   []string // RFC 6901
	equals *string  // nil: the value is a part of the key
}

// Want describes what Parse accepts.
const Want = "NAME=PREFIX, NAME=text:PREFIX, NAME=hex:0A1B or NAME=json:/POINTER, with a NAME of 1 to 32 of A-Z a-z 0-9 _ . -"

var errWant = errors.New("want " + Want)

// Parse returns the rules of these values; nil for none.
func Parse(values []string) (*Rules, error) {
	if len(values) == 0 {
		return nil, nil
	}
	if len(values) > MaxRules {
		return nil, fmt.Errorf("more than %d rules", MaxRules)
	}
	r := &Rules{values: values}
	for _, v := range values {
		one, err := parse(v)
		if err != nil {
			return nil, err
		}
		switch {
		case one.fields != nil:
			r.json = true
		case one.binary:
			r.binary = max(r.binary, len(one.prefix))
		default:
			r.text = max(r.text, len(one.prefix))
		}
		r.rules = append(r.rules, one)
	}
	return r, nil
}

func parse(value string) (rule, error) {
	name, match, ok := strings.Cut(value, "=")
	odd := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_.-", r))
	}
	if !ok || name == "" || len(name) > maxName || strings.ContainsFunc(name, odd) || match == "" || len(match) > maxMatch {
		return rule{}, errWant
	}
	r := rule{name: name, prefix: match}
	kind, rest, _ := strings.Cut(match, ":")
	switch kind {
	case "text":
		r.prefix = rest
	case "hex":
		b, err := hex.DecodeString(rest)
		if err != nil {
			return rule{}, errWant
		}
		r.prefix, r.binary = string(b), true
	case "json":
		for part := range strings.SplitSeq(rest, "&") {
			f, ok := parseField(part)
			if !ok {
				return rule{}, errWant
			}
			r.fields = append(r.fields, f)
		}
		return r, nil
	}
	if r.prefix == "" {
		return rule{}, errWant
	}
	return r, nil
}

// parseField reads POINTER or POINTER=VALUE.
func parseField(s string) (f field, ok bool) {
	pointer, value, has := strings.Cut(s, "=")
	if has {
		f.equals = &value
	}
	tokens := strings.Split(pointer, "/")
	if tokens[0] != "" || len(tokens) < 2 {
		return f, false
	}
	for _, t := range tokens[1:] {
		plain := strings.ReplaceAll(strings.ReplaceAll(t, "~1", ""), "~0", "")
		if strings.Contains(plain, "~") {
			return f, false
		}
		f.path = append(f.path, strings.ReplaceAll(strings.ReplaceAll(t, "~1", "/"), "~0", "~"))
	}
	return f, true
}

// Values returns what the rules were parsed from; not nil.
func (r *Rules) Values() []string {
	if r == nil {
		return []string{}
	}
	return r.values
}

// Need returns how many of the first bytes of a message of that size AppendKey must see.
func (r *Rules) Need(text bool, size int64) int {
	n := int64(r.binary)
	if text {
		n = int64(r.text)
		if r.json && size <= MaxJSON {
			n = size
		}
	}
	return int(min(n, size))
}

// AppendKey appends the key of a message to dst, if a rule matches it: a newer message replaces an older one
// of the same key. head is the beginning of the message, at least as much as Need says; whole reports
// whether it is all of it.
func (r *Rules) AppendKey(dst []byte, text bool, head []byte, whole bool) (key []byte, ok bool) {
	doc := node{text: head}
	for i := range r.rules {
		u := &r.rules[i]
		switch {
		case u.binary == text:
		case u.fields == nil && bytes.HasPrefix(head, []byte(u.prefix)):
			return append(dst, u.name...), true
		case u.fields != nil && whole && len(head) <= MaxJSON:
			if key, ok = u.appendValues(append(dst, u.name...), &doc); ok {
				return key, true
			}
		}
	}
	return dst, false
}

// appendValues appends the values that are part of the key. It reports false if the document does not match.
func (u *rule) appendValues(dst []byte, doc *node) (key []byte, ok bool) {
	for _, f := range u.fields {
		v := doc.find(f.path)
		if len(v) == 0 || v[0] == '{' || v[0] == '[' || v[0] == 'n' {
			return dst, false
		}
		s := unquote(v)
		switch {
		case f.equals != nil && string(s) != *f.equals:
			return dst, false
		case f.equals != nil:
			continue
		case len(s) > longPart:
			sum := sha256.Sum256(s)
			s = sum[:]
		}
		kind := byte('v')
		if v[0] == '"' { // "1" is not 1
			kind = 's'
		}
		dst = append(binary.AppendUvarint(append(dst, 0, kind), uint64(len(s))), s...)
	}
	return dst, true
}

// A node is a JSON value, which is read when something in it is looked for.
type node struct {
	text     []byte
	read     bool
	members  map[string]json.RawMessage
	elements []json.RawMessage
}

// find returns the value at a path, as it stands there; nil: there is none.
func (n *node) find(path []string) []byte {
	v := n.child(path[0])
	if v == nil || len(path) == 1 {
		return v
	}
	return (&node{text: v}).find(path[1:])
}

func (n *node) child(name string) []byte {
	if !n.read {
		n.read = true
		if json.Unmarshal(n.text, &n.members) != nil {
			json.Unmarshal(n.text, &n.elements)
		}
	}
	if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(n.elements) && strconv.Itoa(i) == name {
		return n.elements[i]
	}
	return n.members[name]
}

// unquote returns the text of a string, and any other value as it is.
func unquote(v []byte) []byte {
	if v[0] != '"' {
		return v
	}
	var s string
	if bytes.IndexByte(v, '\\') < 0 || json.Unmarshal(v, &s) != nil {
		return v[1 : len(v)-1] // as it stands there, valid UTF-8 or not
	}
	return []byte(s)
}
