package login

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"testing"

	"reseat/tokens/internal/jws"
)

func TestReasonsAreAFixedSet(t *testing.T) {
	for err, want := range map[error]string{
		nil: "", ErrMissing: "missing", ErrTooLong: "too_long", ErrMalformed: "malformed", ErrForged: "forged", ErrUnknownKey: "unknown_key",
		ErrNoKeys: "no_keys", ErrForeign: "foreign", ErrNoSubject: "no_subject", ErrExpired: "expired", ErrNotYet: "not_yet", errors.New("x"): "other",
		fmt.Errorf("login: %w", ErrExpired): "expired",
	} {
		if got := Reason(err); got != want {
			t.Errorf("reason of %v: %q, want %q", err, got, want)
		}
	}
	for err := range map[error]bool{ErrMissing: true, ErrUnknownKey: true, ErrExpired: true, errors.New("x"): true} {
		if !slices.Contains(Reasons(), Reason(err)) {
			t.Errorf("%q is not among %q", Reason(err), Reasons())
		}
	}
	if !errors.Is(ErrUnknownKey, ErrForged) {
		t.Error("a token by an unknown key is not counted as forged")
	}
}

// RFC 6750 section 3: no error code without a login; the characters allowed in
// error_description.
func TestChallenge(t *testing.T) {
	for err, want := range map[error]string{
		nil:               `Bearer realm="reseat"`,
		ErrMissing:        `Bearer realm="reseat"`,
		errNoKeys:         `Bearer realm="reseat", error="invalid_token", error_description="the token cannot be verified yet"`,
		errUnknownKid:     `Bearer realm="reseat", error="invalid_token", error_description="the token is signed by an unknown key"`,
		errors.New(`x"y`): `Bearer realm="reseat", error="invalid_token"`,
		&jws.Refusal{Kind: ErrExpired, Detail: ""}: `Bearer realm="reseat", error="invalid_token", error_description="the token has expired"`,
	} {
		if got := Challenge(err); got != want {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
	}
	allowed := regexp.MustCompile(`^Bearer realm="reseat", error="invalid_token", error_description="[\x20-\x21\x23-\x5B\x5D-\x7E]+"$`)
	for _, d := range descriptions {
		if got := Challenge(d.kind); !allowed.MatchString(got) {
			t.Errorf("%v: %s", d.kind, got)
		}
	}
}
