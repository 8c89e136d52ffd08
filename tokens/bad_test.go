package tokens

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

func TestBadTokensAreRefusedForTheirReason(t *testing.T) {
	f := newForge(t)
	if _, err := f.keys.Verify(f.good()); err != nil {
		t.Fatalf("the valid token that the bad ones are derived from is refused: %v", err)
	}
	for _, bad := range f.all() {
		t.Run(bad.name, func(t *testing.T) {
			got, err := f.keys.Verify(bad.token)
			if !errors.Is(err, bad.want) || got != (Claims{}) {
				t.Errorf("got %+v, error %v, want no claims and: %v", got, err, bad.want)
			}
			if want := Reason(bad.want); Reason(err) != want {
				t.Errorf("reason %q, want %q", Reason(err), want)
			}
		})
	}
}

// An attacker controls the claims of a forged token: no error may contain any of it, since
// errors are logged.
func TestErrorsContainNothingOfTheToken(t *testing.T) {
	f := newForge(t)
	for _, bad := range f.all() {
		_, err := f.keys.Verify(bad.token)
		if _, ok := err.(*refusal); !ok {
			t.Errorf("%s: error %T, want one whose text is fixed", bad.name, err)
		}
		text := fmt.Sprintf("%v %+v %q %s", err, err, err, Reason(err))
		for _, secret := range fragments(bad.token) {
			if strings.Contains(text, secret) {
				t.Errorf("%s: the error %q holds %q", bad.name, text, secret)
			}
		}
	}
}

// fragments returns stretches of a token and the strings in its header and claims.
func fragments(token string) []string {
	var out []string
	for i, part := range strings.Split(token, ".") {
		if len(part) >= 12 {
			out = append(out, part[:12], part[len(part)-12:])
		}
		var m map[string]any
		raw, _ := base64url.DecodeString(part)
		if i > 1 || json.Unmarshal(raw, &m) != nil {
			continue
		}
		for _, v := range m {
			if s, ok := v.(string); ok && len(s) >= 4 && s != tokenType && s != "reseat" {
				out = append(out, s)
			}
		}
	}
	return out
}

func TestReasonsAreAFixedSet(t *testing.T) {
	for err, want := range map[error]string{
		nil: "", ErrTooLong: "too_long", ErrMalformed: "malformed", ErrForged: "forged", ErrUnknownKey: "unknown_key",
		ErrForeign: "foreign", ErrExpired: "expired", ErrNotYet: "not_yet", errors.New("x"): "other",
	} {
		if got := Reason(err); got != want {
			t.Errorf("reason of %v: %q, want %q", err, got, want)
		}
	}
	if !errors.Is(ErrUnknownKey, ErrForged) {
		t.Error("a token by an unknown key is not counted as forged")
	}
}

// A token that is longer than MaxLen, or malformed, allocates nothing.
func TestTooLongTokenAllocatesNothing(t *testing.T) {
	keys := load(t, Options{}, newSecret())
	for name, token := range map[string]string{
		"megabyte of dots":    strings.Repeat(".", 1<<20),
		"megabyte of base64":  strings.Repeat("A", 1<<20),
		"megabyte in parts":   strings.Repeat("A", 1<<19) + "." + strings.Repeat("A", 1<<19) + ".A",
		"megabyte of garbage": strings.Repeat("\xff", 1<<20),
		"dots that fit":       strings.Repeat(".", MaxLen),
	} {
		if n := testing.AllocsPerRun(10, func() { keys.Verify(token) }); n != 0 {
			t.Errorf("%s: %v allocations, want 0", name, n)
		}
	}
}

// Shorter tokens are bounded too: even the most expensive headers and claims allocate at
// most a small multiple of their length.
func TestWorstTokenAllocatesLittle(t *testing.T) {
	f := newForge(t)
	kid := f.kid()
	room := 2900
	for name, token := range map[string]string{
		"lists in the header":    f.by(strings.Repeat("[", room), "{}"),
		"members in the header":  f.by(header("EdDSA", kid, manyMembers(250)), "{}"),
		"lists in the claims":    f.by(header("EdDSA", kid, ""), `{"a":`+strings.Repeat("[", 1200)+strings.Repeat("]", 1200)+"}"),
		"members in the claims":  f.by(header("EdDSA", kid, ""), `{"a":0`+manyMembers(240)+"}"),
		"audiences":              f.claimed(`aud:["reseat"` + strings.Repeat(`,""`, 700) + "]"),
		"escapes in the subject": f.claimed(`sub:"` + strings.Repeat(`\u0001`, 400) + `"`),
	} {
		if len(token) > MaxLen {
			t.Errorf("%s: the token has %d bytes and is refused without being parsed", name, len(token))
			continue
		}
		if got := allocated(func() { f.keys.Verify(token) }); got > 128<<10 {
			t.Errorf("%s: %d bytes allocated, want at most 128 KiB", name, got)
		}
	}
}

// allocated returns the bytes that f allocates, on average of some calls.
func allocated(f func()) uint64 {
	const calls = 20
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range calls {
		f()
	}
	runtime.ReadMemStats(&after)
	return (after.TotalAlloc - before.TotalAlloc) / calls
}
