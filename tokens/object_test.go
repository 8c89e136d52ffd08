package tokens

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"testing"
	"unicode/utf8"
)

func TestObjectKeepsNamesDecodedAndValuesAsWritten(t *testing.T) {
	o, err := parseObject([]byte("\r\n\t {\"a\" : \"x,}\\\"\\\\\" ,\"\\u0062\":[1,{\"a\":\"]\"}] , \"c\":-1.5e+3,\"d\":{},\"\":null}\n"))
	want := object{{"a", []byte(`"x,}\"\\"`)}, {"b", []byte(`[1,{"a":"]"}]`)}, {"c", []byte("-1.5e+3")}, {"d", []byte("{}")}, {"", []byte("null")}}
	if err != nil || !equalObjects(o, want) {
		t.Errorf("got %q, error %v, want %q", o, err, want)
	}
}

func equalObjects(a, b object) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].name != b[i].name || !bytes.Equal(a[i].value, b[i].value) {
			return false
		}
	}
	return true
}

func TestRepeatedMemberInAnySpellingIsMalformed(t *testing.T) {
	for _, text := range []string{`{"a":1,"a":1}`, `{"a":1,"b":2,"\u0061":1}`, `{"":1,"":2}`, `{"\/":1,"/":2}`} {
		if o, err := parseObject([]byte(text)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %q, error %v, want %v", text, o, err, ErrMalformed)
		}
	}
}

// referenceObject is parseObject by the standard library's stream of JSON tokens.
// It returns false for what must be refused.
func referenceObject(data []byte) (object, bool) {
	if !utf8.Valid(data) || !json.Valid(data) {
		return nil, false
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, false
	}
	var o object
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
		o = append(o, member{name.(string), value})
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
		got, err := parseObject(data)
		want, ok := referenceObject(data)
		if (err == nil) != ok || (ok && !equalObjects(got, want)) {
			t.Errorf("%q: got %q, error %v, want %q, %v", data, got, err, want, ok)
		}
		if err != nil && !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: error %v, want %v", data, err, ErrMalformed)
		}
	})
}
