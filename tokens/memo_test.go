package tokens

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"reseat/tokens/internal/jwttest"
)

// recalled counts how often a Memo was asked for.
func recalled(m *Memo, asked *string) func(string) *Memo {
	return func(session string) *Memo {
		*asked = session
		return m
	}
}

func TestMemoSkipsTheSignatureCheck(t *testing.T) {
	now := new(clock)
	k := load(t, Options{Now: now.now}, jwttest.PKCS8(jwttest.Ed25519()))
	c := claims()
	token, kid, err := k.Issue(c)
	if err != nil {
		t.Fatal(err)
	}
	m := Remember(token, kid, c)
	var asked string
	got, err := k.VerifyKnown(token, recalled(m, &asked))
	if err != nil || asked != c.Session {
		t.Fatalf("%v, asked for session %q, want %q", err, asked, c.Session)
	}
	want, err := k.Verify(token)
	if err != nil {
		t.Fatal(err)
	}
	want.IssuedAt = time.Time{}
	if got != want {
		t.Errorf("remembered %+v, verified %+v", got, want)
	}
}

// The Memo is looked up by a name that is only searched for, not parsed: where it is not found, or
// stands in another claim, the token is verified.
func TestTokensWithoutAFoundMemoAreVerified(t *testing.T) {
	k := load(t, Options{Now: new(clock).now}, jwttest.PKCS8(jwttest.Ed25519()))
	for _, name := range []string{`a "quoted" session`, `","sid":"other`, `<b>`, "é", strings.Repeat("long", 400)} {
		c := claims()
		c.Session, c.Subject = name, `","sid":"other`
		token, kid, err := k.Issue(c)
		if err != nil {
			t.Fatal(err)
		}
		got, err := k.VerifyKnown(token, func(session string) *Memo {
			switch session {
			case name:
				return Remember(token, kid, c)
			case "other":
				t.Errorf("%q is taken for a session of another claim", name)
			}
			return nil
		})
		if err != nil || got.Session != name {
			t.Errorf("%q: %q, %v", name, got.Session, err)
		}
	}
}

// A Memo covers one token: any other one goes through Verify.
func TestMemoCoversOneTokenOnly(t *testing.T) {
	k := load(t, Options{Now: new(clock).now}, jwttest.PKCS8(jwttest.Ed25519()))
	c := claims()
	token, kid, _ := k.Issue(c)
	other, _, _ := k.Issue(c)
	var asked string
	recall := recalled(Remember(token, kid, c), &asked)
	if _, err := k.VerifyKnown(other, recall); err != nil {
		t.Errorf("another good token: %v", err)
	}
	for name, bad := range map[string]string{"a changed signature": jwttest.Corrupt(token), "a longer one": token + "A", "nothing": "", "dots": ".."} {
		if _, err := k.VerifyKnown(bad, recall); err == nil {
			t.Errorf("%s passes", name)
		}
	}
}

func TestMemoExpiresWithItsToken(t *testing.T) {
	now := new(clock)
	k := load(t, Options{Now: now.now}, jwttest.PKCS8(jwttest.Ed25519()))
	c := claims()
	token, kid, _ := k.Issue(c)
	var asked string
	recall := recalled(Remember(token, kid, c), &asked)
	now.set(c.Expires.Sub(jwttest.Epoch) - time.Second)
	if _, err := k.VerifyKnown(token, recall); err != nil {
		t.Errorf("a second before: %v", err)
	}
	now.set(c.Expires.Sub(jwttest.Epoch) + 600*time.Millisecond) // exp was rounded up
	if _, err := k.VerifyKnown(token, recall); !errors.Is(err, ErrExpired) {
		t.Errorf("at its expiry: %v, want ErrExpired", err)
	}
}

func TestMemoExpiresWithItsKey(t *testing.T) {
	file := jwttest.PKCS8(jwttest.Ed25519())
	k := load(t, Options{Now: new(clock).now}, file)
	c := claims()
	token, kid, _ := k.Issue(c)
	if err := os.WriteFile(k.files[0], jwttest.PKCS8(jwttest.NewEd25519()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := k.Reload(); err != nil {
		t.Fatal(err)
	}
	var asked string
	if _, err := k.VerifyKnown(token, recalled(Remember(token, kid, c), &asked)); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("%v, want ErrUnknownKey", err)
	}
}

func BenchmarkVerifyKnown(b *testing.B) {
	k := load(b, Options{Now: new(clock).now}, jwttest.PKCS8(jwttest.Ed25519()))
	c := claims()
	token, kid, _ := k.Issue(c)
	m := Remember(token, kid, c)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := k.VerifyKnown(token, func(string) *Memo { return m }); err != nil {
			b.Fatal(err)
		}
	}
}
