package strict

import (
	"bytes"
	"encoding/json"
	"io"
	"testing"
	"unicode/utf8"
)

// maxMembers is low enough for the fuzzer to reach.
const maxMembers = 8

func TestObjectKeepsNamesDecodedAndValuesAsWritten(t *testing.T) {
	o, err := ParseObject([]byte("\r\n\t {\"a\" : \"x,}\\\"\\\\\" ,\"\\u0062\":[1,{\"a\":\"]\"}] , \"c\":-1.5e+3,\"d\":{},\"\":null}\n"), maxMembers)
	want := Object{{"a", []byte(`"x,}\"\\"`)}, {"b", []byte(`[1,{"a":"]"}]`)}, {"c", []byte("-1.5e+3")}, {"d", []byte("{}")}, {"", []byte("null")}}
	if err != nil || !equalObjects(o, want) {
		t.Errorf("got %q, error %v, want %q", o, err, want)
	}
}

func equalObjects(a, b Object) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Name != b[i].Name || !bytes.Equal(a[i].Value, b[i].Value) {
			return false
		}
	}
	return true
}

func TestRepeatedMemberInAnySpellingIsMalformed(t *testing.T) {
	for _, text := range []string{`{"a":1,"a":1}`, `{"a":1,"b":2,"\u0061":1}`, `{"":1,"":2}`, `{"\/":1,"/":2}`} {
		if o, err := ParseObject([]byte(text), maxMembers); err != Error("repeated JSON member") {
			t.Errorf("%s: %q, error %v, want it refused as repeated", text, o, err)
		}
	}
}

// referenceObject is ParseObject with the standard library's stream of JSON tokens. It
// returns false for an object that must be refused.
func referenceObject(data []byte) (Object, bool) {
	if !utf8.Valid(data) || !json.Valid(data) {
		return nil, false
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, false
	}
	var o Object
	seen := map[string]bool{}
	for d.More() {
		name, err := d.Token()
		if err != nil || seen[name.(string)] {
			return nil, false
		}
		seen[name.(string)] = true
		var value json.RawMessage
		if d.Decode(&value) != nil {
			return nil, false
		}
		o = append(o, Member{name.(string), value})
	}
	_, err := d.Token()
	return o, (err == nil || err == io.EOF) && len(o) <= maxMembers
}

func FuzzObject(f *testing.F) {
	for _, text := range []string{
		`{}`, `{"a":1}`, ` {"a" : [ {"b":"\"}"} , 2 ] , "\u0063":null } `, `{"a":1,"a":2}`, `[]`, `null`, `{"a":{"b":{}}}`, `{"":-0.1e-9}`, "{\"\xff\":1}",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := ParseObject(data, maxMembers)
		want, ok := referenceObject(data)
		if (err == nil) != ok || (ok && !equalObjects(got, want)) {
			t.Errorf("%q: got %q, error %v, want %q, %v", data, got, err, want, ok)
		}
		if _, fixed := err.(Error); err != nil && !fixed {
			t.Errorf("%q: error %v of type %T, want an Error", data, err, err)
		}
	})
}
