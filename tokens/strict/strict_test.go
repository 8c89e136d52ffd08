package strict

import (
	"slices"
	"testing"
)

func TestCompactIsThreePartsOfBase64URL(t *testing.T) {
	for text, want := range map[string]bool{
		"a.b.c": true, "-_.AZ09.az": true,
		"": false, ".": false, "..": false, "a.b": false, "a.b.": false, ".b.c": false, "a..c": false, "a.b.c.d": false,
		"a.b.c\n": false, "a.b\r.c": false, " a.b.c": false, "a.b.c=": false, "a.b.+": false, "a.b./": false, "a.b.\xff": false,
	} {
		if got := IsCompact(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func TestBase64HasOneSpelling(t *testing.T) {
	for text, want := range map[string]bool{"AA": true, "AB": false, "AA==": false, "+/": false, "-_8": true, "-_9": false} {
		if _, err := Base64.DecodeString(text); (err == nil) != want {
			t.Errorf("%q: error %v, want it decoded: %v", text, err, want)
		}
	}
}

func TestObjectWithTooManyMembersIsRefused(t *testing.T) {
	const text = `{"a":1,"b":2,"c":3}`
	if o, err := ParseObject([]byte(text), 3); err != nil || len(o) != 3 {
		t.Errorf("at the limit: %q, error %v", o, err)
	}
	if _, err := ParseObject([]byte(text), 2); err != Error("too many JSON members") {
		t.Errorf("beyond the limit: error %v", err)
	}
}

// The first error stays, and nothing is read after it.
func TestReaderKeepsItsFirstError(t *testing.T) {
	o, err := ParseObject([]byte(`{"text":"x","texts":["y","z"],"n":7,"empty":"","null":null}`), 8)
	if err != nil {
		t.Fatal(err)
	}
	good := Reader{Object: o}
	var text string
	var texts []string
	good.Text("text", &text)
	good.Texts("texts", &texts)
	if n := good.Integer("n", 7, 7); good.Err != nil || n != 7 || text != "x" || !slices.Equal(texts, []string{"y", "z"}) {
		t.Errorf("%q, %q, %d, error %v", text, texts, n, good.Err)
	}
	for _, tt := range []struct {
		read func(*Reader)
		want string
	}{
		{func(r *Reader) { r.Text("absent", new(string)) }, "no absent"},
		{func(r *Reader) { r.Text("empty", new(string)) }, "empty is no string, or empty"},
		{func(r *Reader) { r.Text("n", new(string)) }, "n is no string, or empty"},
		{func(r *Reader) { r.Texts("null", new([]string)) }, "null is no string or array of strings"},
		{func(r *Reader) { r.Integer("n", 8, 9) }, "n is no integer, or out of range"},
		{func(r *Reader) { r.Integer("text", 0, 9) }, "text is no integer, or out of range"},
	} {
		r := Reader{Object: o}
		tt.read(&r)
		after := "unread"
		r.Text("text", &after)
		if r.Err != Error(tt.want) || after != "unread" {
			t.Errorf("error %v, want %q; then read %q", r.Err, tt.want, after)
		}
	}
}
