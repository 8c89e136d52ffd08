package login

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
)

func TestBadTokensAreRefusedForTheirReason(t *testing.T) {
	f := newForge(t)
	wantPlayer(t, f.v, f.good())
	for _, bad := range f.all() {
		t.Run(bad.name, func(t *testing.T) {
			for what, verify := range map[string]func(context.Context, string) (string, error){"": f.v.Verify, "expired": f.v.VerifyExpired} {
				if what == "expired" && errors.Is(bad.want, ErrExpired) {
					continue
				}
				got, err := verify(context.Background(), bad.token)
				if got != "" || !errors.Is(err, bad.want) || Reason(err) != Reason(bad.want) {
					t.Errorf("%s: player %q, error %v, want none and: %v", what, got, err, bad.want)
				}
			}
		})
	}
	if n := f.fetches.Load(); n != 1 {
		t.Errorf("the JWKS was fetched %d times, though the first fetch was less than the cooldown ago", n)
	}
}

// An attacker controls the claims of a forged token: errors, answers and log lines may
// contain none of it.
func TestErrorsQuoteNothingOfTheToken(t *testing.T) {
	f := newForge(t)
	wantPlayer(t, f.v, f.good())
	for _, bad := range f.all() {
		_, err := f.v.Verify(context.Background(), bad.token)
		if _, ok := err.(*refusal); !ok {
			t.Errorf("%s: error %T, want one whose text is fixed", bad.name, err)
		}
		text := fmt.Sprintf("%v %+v %q %s %s", err, err, err, Reason(err), Challenge(err))
		for _, secret := range fragments(bad.token) {
			if strings.Contains(text, secret) || strings.Contains(f.journal.String(), secret) {
				t.Errorf("%s: the error %q or the log holds %q", bad.name, text, secret)
			}
		}
	}
	if !strings.Contains(f.journal.String(), "login.keys_loaded") {
		t.Error("nothing at all is in the log that was searched")
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
			if s, ok := v.(string); ok && len(s) >= 4 && strings.Trim(s, "k") != "" {
				out = append(out, s)
			}
		}
	}
	return out
}

// A bad token is caught by the header check and by the library. The library is tested alone
// here, so that it does not depend on a check that is later removed.
func TestLibraryRefusesByItself(t *testing.T) {
	v := byFile(t, pkix(ed25519Key()))
	key := func(*jwt.Token) (any, error) { return ed25519Key().Public(), nil }
	for name, tt := range map[string]struct {
		token string
		want  error
	}{
		"good":            {edToken(t, "", ed25519Key()), nil},
		"no iss":          {edToken(t, "", ed25519Key(), "iss:"), jwt.ErrTokenRequiredClaimMissing},
		"no aud":          {edToken(t, "", ed25519Key(), "aud:"), jwt.ErrTokenRequiredClaimMissing},
		"other iss":       {edToken(t, "", ed25519Key(), `iss:"x"`), jwt.ErrTokenInvalidIssuer},
		"other aud":       {edToken(t, "", ed25519Key(), `aud:"x"`), jwt.ErrTokenInvalidAudience},
		"nbf ahead":       {edToken(t, "", ed25519Key(), "nbf:1800000031"), jwt.ErrTokenNotValidYet},
		"iat ahead":       {edToken(t, "", ed25519Key(), "iat:1800000031"), jwt.ErrTokenUsedBeforeIssued},
		"two spelled":     {respelled(t, edToken(t, "", ed25519Key())), jwt.ErrTokenMalformed},
		"another key":     {edToken(t, "", otherEd()), jwt.ErrTokenSignatureInvalid},
		"none":            {sign(t, head("none", "", ""), body(), "none", jwt.UnsafeAllowNoneSignatureType), jwt.ErrTokenSignatureInvalid},
		"of other secret": {sign(t, head("HS256", "", ""), body(), "HS256", secretKey), jwt.ErrTokenSignatureInvalid},
	} {
		if _, err := v.parsers["EdDSA"].ParseWithClaims(tt.token, new(claims), key); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
}

// A token that is longer than MaxLen, or malformed, allocates nothing.
func TestTooLongTokenAllocatesNothing(t *testing.T) {
	v := byFile(t, secretKey)
	for name, token := range map[string]string{
		"megabyte of dots":    strings.Repeat(".", 1<<20),
		"megabyte of base64":  strings.Repeat("A", 1<<20),
		"megabyte of garbage": strings.Repeat("\xff", 1<<20),
		"dots that fit":       strings.Repeat(".", MaxLen),
	} {
		if n := testing.AllocsPerRun(10, func() { v.Verify(context.Background(), token) }); n != 0 {
			t.Errorf("%s: %v allocations, want 0", name, n)
		}
	}
}

// Shorter tokens are bounded too: even the most expensive headers and claims allocate at
// most a small multiple of their length.
func TestWorstTokenAllocatesLittle(t *testing.T) {
	v := byFile(t, secretKey)
	by := func(header, claims string) string { return sign(t, header, claims, "HS256", secretKey) }
	good := head("HS256", "", "")
	for name, token := range map[string]string{
		"lists in the header":    by(strings.Repeat("[", 5900), "{}"),
		"members in the header":  by(head("HS256", "", manyMembers(500)), "{}"),
		"lists in the claims":    by(good, `{"a":`+strings.Repeat("[", 2900)+strings.Repeat("]", 2900)+"}"),
		"members in the claims":  by(good, `{"a":0`+manyMembers(500)+"}"),
		"audiences":              by(good, body(`aud:["arena"`+strings.Repeat(`,""`, 1800)+"]")),
		"escapes in the subject": by(good, body(`sub:"`+strings.Repeat(`\u0001`, 900)+`"`)),
	} {
		if len(token) > MaxLen {
			t.Errorf("%s: the token has %d bytes and is refused without being parsed", name, len(token))
			continue
		}
		if got := allocated(func() { v.Verify(context.Background(), token) }); got > 256<<10 {
			t.Errorf("%s: %d bytes allocated, want at most 256 KiB", name, got)
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
