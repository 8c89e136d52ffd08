package newest

import (
	"slices"
	"strings"
	"testing"
)

// keyOf returns the key of a message by rules, "" for none, as printable text.
func keyOf(t testing.TB, text bool, msg string, values ...string) string {
	t.Helper()
	r, err := Parse(values)
	if err != nil {
		t.Fatal(err)
	}
	n := r.Need(text, int64(len(msg)))
	key, ok := r.AppendKey(nil, text, []byte(msg[:n]), n == len(msg))
	if !ok {
		return ""
	}
	return strings.ReplaceAll(string(key), "\x00", "|")
}

func TestFirstRuleThatMatchesNamesTheKey(t *testing.T) {
	long := strings.Repeat("x", 100)
	for _, c := range []struct {
		want, msg string
		values    []string
	}{
		{"a", "tick 7", []string{"a=tick "}},
		{"", "tock 7", []string{"a=tick "}},
		{"", "tic", []string{"a=tick "}},
		{"a", "tick", []string{"a=tick", "b=t"}},
		{"b", "tock", []string{"a=tick", "b=t"}},
		{"a", "json:x", []string{"a=text:json:"}},
		{"a", "=", []string{"a=="}},
		{"a", `{"type":"state"}`, []string{"a=json:/type=state"}},
		{"a", ` { "x" : [1,{"type":2},"},"] , "type" : "st\u0061te" } `, []string{"a=json:/type=state"}},
		{"", `{"type":"event"}`, []string{"a=json:/type=state"}},
		{"", `{"x":{"type":"state"}}`, []string{"a=json:/type=state"}},
		{"", `{"type":"state"`, []string{"a=json:/type=state"}},
		{"", `{"type":"state"} x`, []string{"a=json:/type=state"}},
		{"b", `{"type":"event"}`, []string{"a=json:/type=state", "b={"}},
		{"a|v\x017", `{"e":7}`, []string{"a=json:/e"}},
		{"a|s\x017", `{"e":"7"}`, []string{"a=json:/e"}},
		{"a|v\x04true", `{"e":true}`, []string{"a=json:/e"}},
		{"", `{"e":null}`, []string{"a=json:/e"}},
		{"", `{"e":{}}`, []string{"a=json:/e"}},
		{"", `{"e":[1]}`, []string{"a=json:/e"}},
		{"a|s\x00", `{"e":""}`, []string{"a=json:/e"}},
		{"a|v\x011|s\x01b", `{"t":"s","e":1,"f":{"g":["a","b"]}}`, []string{"a=json:/t=s&/e&/f/g/1"}},
		{"", `{"t":"s","f":["a"]}`, []string{"a=json:/f/1"}},
		{"", `{"f":["a"]}`, []string{"a=json:/f/00"}},
		{"", `{"f":["a"]}`, []string{"a=json:/f/-1"}},
		{"a|s\x01z", `{"f":{"0":"z"}}`, []string{"a=json:/f/0"}},
		{"", `{"f":{"g":1}}`, []string{"a=json:/f/g/h"}},
		{"a|s\x01z", `{"a/b~":"z"}`, []string{"a=json:/a~1b~0"}},
		{"a|v\x012", `{"e":1,"e":2}`, []string{"a=json:/e"}},
		{"a", `[1,true]`, []string{"a=json:/1=true"}},
		{"", `"e"`, []string{"a=json:/e"}},
	} {
		if got := keyOf(t, true, c.msg, c.values...); got != strings.ReplaceAll(c.want, "s\x00", "s|") {
			t.Errorf("%q by %q: key %q, want %q", c.msg, c.values, got, c.want)
		}
	}
	if a, b := keyOf(t, true, `{"e":"`+long+`1"}`, "a=json:/e"), keyOf(t, true, `{"e":"`+long+`2"}`, "a=json:/e"); a == b || len(a) > 40 {
		t.Errorf("two long values: keys %q and %q", a, b)
	}
}

func TestBinaryMessagesMatchBinaryPrefixesAlone(t *testing.T) {
	for _, c := range []struct {
		text bool
		msg  string
		want string
	}{{false, "\x01\x02\x03", "a"}, {true, "\x01\x02\x03", ""}, {false, "\x01", ""}, {false, "tick", ""}, {false, `{"e":1}`, ""}, {true, "tick", "b"}} {
		if got := keyOf(t, c.text, c.msg, "a=hex:0102", "b=tick", "c=json:/e=1"); got != c.want {
			t.Errorf("%q, text %v: key %q, want %q", c.msg, c.text, got, c.want)
		}
	}
}

// Otherwise a game server's large messages would cost the gateway more than passing them on.
func TestLongMessagesAreNotReadAsJSON(t *testing.T) {
	r, _ := Parse([]string{"a=json:/e=1", "b={"})
	for _, c := range []struct {
		size int64
		want int
	}{{100, 100}, {MaxJSON, MaxJSON}, {MaxJSON + 1, 1}} {
		if n := r.Need(true, c.size); n != c.want {
			t.Errorf("%d bytes of %d are needed, want %d", n, c.size, c.want)
		}
	}
	msg := `{"e":1` + strings.Repeat(" ", MaxJSON) + "}"
	if got := keyOf(t, true, msg, "a=json:/e=1", "b={"); got != "b" {
		t.Errorf("key %q, want that of the prefix", got)
	}
}

func TestFaultyRulesAreRefused(t *testing.T) {
	many := slices.Repeat([]string{"a=b"}, MaxRules+1)
	for _, values := range [][]string{
		{""}, {"a"}, {"a="}, {"=b"}, {"a b=c"}, {"ä=c"}, {strings.Repeat("a", 33) + "=b"}, {"a=text:"}, {"a=hex:"}, {"a=hex:0"}, {"a=hex:zz"},
		{"a=json:"}, {"a=json:type"}, {"a=json:/a&"}, {"a=json:/a~2"}, {"a=json:/a~"}, {"a=" + strings.Repeat("b", 1025)}, {"a=b", "c"}, many,
	} {
		if r, err := Parse(values); err == nil {
			t.Errorf("%.40q: %+v", values, r)
		}
	}
	if r, err := Parse(nil); r != nil || err != nil || len(r.Values()) > 0 {
		t.Errorf("no rules: %v, %v", r, err)
	}
}

func FuzzKey(f *testing.F) {
	f.Add("a=json:/type=state&/entity", `{"type":"state","entity":[1,{"x":"}"}]}`)
	f.Add("a=json:/a~1b/0", `{"a/b":["\u0061"]}`)
	f.Fuzz(func(t *testing.T, rule, msg string) {
		r, err := Parse([]string{rule})
		if err != nil || r == nil {
			return
		}
		n := r.Need(true, int64(len(msg)))
		for _, is := range []bool{true, false} {
			key, ok := r.AppendKey(nil, is, []byte(msg[:min(n, len(msg))]), n == len(msg))
			if name, _, _ := strings.Cut(rule, "="); ok && !strings.HasPrefix(string(key), name) || len(key) > 8<<10+64*len(rule) {
				t.Errorf("key %q", key)
			}
		}
	})
}
