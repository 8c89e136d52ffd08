package jwttest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"
)

// CheckRefused checks that verify refuses each token for its reason. An attacker controls the claims of a
// forged token, and errors are logged: no error may contain anything of it. It must be of type E, whose texts
// are fixed.
func CheckRefused[E error](t *testing.T, bad []Bad, verify func(token string) error, reason func(error) string) {
	t.Helper()
	for _, b := range bad {
		err := verify(b.Token)
		if got := reason(err); got != b.Reason {
			t.Errorf("%.60s: refused as %q, want %q; error %v", b.Name, got, b.Reason, err)
		}
		if _, fixed := err.(E); !fixed {
			t.Errorf("%.60s: error %T, want one whose text is fixed", b.Name, err)
		}
		CheckQuotesNothing(t, b, fmt.Sprintf("%v %+v %q %s", err, err, err, reason(err)))
	}
}

// CheckQuotesNothing checks that a text contains nothing of a token: no stretch of it, and no string of its
// header and claims.
func CheckQuotesNothing(t *testing.T, b Bad, text string) {
	t.Helper()
	for i, part := range strings.Split(b.Token, ".") {
		var secrets []string
		if len(part) >= 12 {
			secrets = []string{part[:12], part[len(part)-12:]}
		}
		var m map[string]any
		if raw, _ := base64url.DecodeString(part); i < 2 && json.Unmarshal(raw, &m) == nil {
			for _, v := range m {
				if s, ok := v.(string); ok && len(s) >= 4 && s != "reseat" && s != "reseat+jwt" {
					secrets = append(secrets, s)
				}
			}
		}
		for _, secret := range secrets {
			if strings.Contains(text, secret) {
				t.Errorf("%.60s: %q holds %q", b.Name, text, secret)
			}
		}
	}
}

// CheckCheap checks that a token which is too long, or malformed, allocates nothing, and that even the most expensive
// headers and claims allocate at most a small multiple of their length.
func (f *Forge) CheckCheap(verify func(token string)) {
	f.T.Helper()
	for name, token := range map[string]string{
		"megabyte of dots":    strings.Repeat(".", 1<<20),
		"megabyte of base64":  strings.Repeat("A", 1<<20),
		"megabyte in parts":   strings.Repeat("A", 1<<19) + "." + strings.Repeat("A", 1<<19) + ".A",
		"megabyte of garbage": strings.Repeat("\xff", 1<<20),
		"dots that fit":       strings.Repeat(".", f.MaxLen),
	} {
		if n := testing.AllocsPerRun(10, func() { verify(token) }); n != 0 {
			f.T.Errorf("%s: %v allocations, want 0", name, n)
		}
	}
	room := f.MaxLen * 5 / 8 // for contents; base64 adds a third
	for name, token := range map[string]string{
		"lists in the header":    f.By(strings.Repeat("[", room), "{}"),
		"members in the header":  f.By(strings.TrimSuffix(f.Head(), "}")+Members(room/12)+"}", "{}"),
		"lists in the claims":    f.By(f.Head(), `{"a":`+strings.Repeat("[", room*2/5)+strings.Repeat("]", room*2/5)+"}"),
		"members in the claims":  f.By(f.Head(), `{"a":0`+Members(room/12)+"}"),
		"audiences":              f.Claimed("aud:[" + f.Claims["aud"] + strings.Repeat(`,""`, room/4) + "]"),
		"escapes in the subject": f.Claimed(`sub:"` + strings.Repeat(`\u0001`, room/8) + `"`),
	} {
		if len(token) > f.MaxLen {
			f.T.Errorf("%s: the token has %d bytes and is refused without being parsed", name, len(token))
		} else if got := allocated(func() { verify(token) }); got > 32*f.MaxLen {
			f.T.Errorf("%s: %d bytes allocated, want at most %d", name, got, 32*f.MaxLen)
		}
	}
}

// allocated returns the bytes that f allocates, on average of some calls.
func allocated(f func()) int {
	const calls = 20
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range calls {
		f()
	}
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc-before.TotalAlloc) / calls
}

// CheckSpelling checks that an accepted token is the one that its signer would have made, in its only spelling.
func CheckSpelling(t *testing.T, token string, sign func(text string) ([]byte, error)) {
	t.Helper()
	text := token[:strings.LastIndexByte(token, '.')]
	if again := text + "." + Encode(Must(sign(text))); token != again {
		t.Errorf("accepted, though its signer would have made %q: %q", again, token)
	}
	for part := range strings.SplitSeq(text, ".") {
		if Encode(Decode(part)) != part {
			t.Errorf("accepted in a second spelling: %q", token)
		}
	}
}

// Reference reads a JSON object with the standard library's stream of JSON tokens. It returns false for one that
// must be refused: no UTF-8, a repeated name, or too many members.
func Reference(data []byte, most int) (map[string]json.RawMessage, bool) {
	d := json.NewDecoder(bytes.NewReader(data))
	if open, err := d.Token(); err != nil || open != json.Delim('{') || !utf8.Valid(data) || !json.Valid(data) {
		return nil, false
	}
	o := map[string]json.RawMessage{}
	for d.More() {
		name, err := d.Token()
		if err != nil || o[name.(string)] != nil {
			return nil, false
		}
		var value json.RawMessage
		if d.Decode(&value) != nil {
			return nil, false
		}
		o[name.(string)] = value
	}
	return o, len(o) <= most
}

// Text returns a member that is a string, "" if it is not.
func Text(o map[string]json.RawMessage, name string) string {
	var v any
	if json.Unmarshal(o[name], &v) != nil {
		return ""
	}
	s, _ := v.(string)
	return s
}

// Names reports whether the member is that string, or a list of strings with it.
func Names(o map[string]json.RawMessage, name, want string) bool {
	var v any
	if json.Unmarshal(o[name], &v) != nil {
		return false
	}
	list, isList := v.([]any)
	if !isList {
		return v == want
	}
	found := false
	for _, e := range list {
		s, ok := e.(string)
		if !ok {
			return false
		}
		found = found || s == want
	}
	return found
}
