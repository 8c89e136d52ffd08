package client

import (
	"strings"
	"testing"
)

// Whatever the gateway sends is a control message, an unknown one, or an error.
func FuzzParseControl(f *testing.F) {
	for _, text := range []string{
		"", "ack 7", "ack 99999999999999999", "grace 0", "ping", "ping a b", "pong  ", "token {}", `token {"token":"t"}`, "bye",
		`hello {"session":"s","token":"t","grace_ms":1,"limits":{}}`, `hello {"session":"s","token":"t","received":1e99}`,
		`end {"code":1005}`, `close {"code":4409,"retry":null,"retry_after_ms":9223372036854775807}`, `move {"within_ms":1e18}`, "unknown \xff", "\x10",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		w, err := parseControl(text)
		verb, _, _ := strings.Cut(text, " ")
		switch {
		case err != nil && w.verb != "":
			t.Errorf("%q is both %s and an error: %v", text, w.verb, err)
		case w.verb != "" && w.verb != verb:
			t.Errorf("%q is read as %s", text, w.verb)
		case w.within < 0 || w.verdict.after < 0:
			t.Errorf("%q is a span below zero: %+v", text, w)
		}
	})
}
