package config

import (
	"errors"
	"strconv"
	"strings"
	"testing"
)

// game is the shortest complete command line.
const game = "--route=/game/*=ws://game:9000"

func mustParse(t *testing.T, environ []string, args ...string) *Settings {
	t.Helper()
	s, err := Parse(args, environ)
	if err != nil {
		t.Fatalf("Parse(%q, %q): %v", args, environ, err)
	}
	return s
}

// wantRefused parses and checks that the error is one printable line that begins with the
// setting. It returns the rest of the line.
func wantRefused(t *testing.T, setting string, environ []string, args ...string) string {
	t.Helper()
	s, err := Parse(args, environ)
	if err == nil {
		t.Fatalf("Parse(%q, %q) = %+v, want a refusal", args, environ, s)
	}
	var usage *UsageError
	if !errors.As(err, &usage) || s != nil {
		t.Fatalf("Parse(%q, %q) = %v, %T %v; want nil and a *UsageError", args, environ, s, err, err)
	}
	wantLine(t, err.Error())
	text, ok := strings.CutPrefix(err.Error(), setting+": ")
	if !ok {
		t.Errorf("error is %q, want it to begin with %q", err, setting+": ")
	}
	return text
}

// wantLine checks that text is one printable line.
func wantLine(t *testing.T, text string) {
	t.Helper()
	odd := func(r rune) bool { return !strconv.IsPrint(r) }
	if text == "" || strings.ContainsFunc(text, odd) || len(text) > 600 {
		t.Errorf("%q is not one line of printable text", text)
	}
}
