package tokens

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"reseat/tokens/internal/jwttest"
)

func TestIssuedTokenHasTheRequestedClaims(t *testing.T) {
	for _, kind := range keyKinds() {
		t.Run(kind.alg, func(t *testing.T) {
			k := load(t, Options{Now: new(clock).now}, kind.file)
			c := claims()
			c.Subject, c.Owner = "pläyer <\"&\\\u2028\n\x00 🎲>", "node-2"
			token, kid, err := k.Issue(c)
			if err != nil {
				t.Fatal(err)
			}
			got, err := k.Verify(token)
			want := c
			want.IssuedAt, want.Expires, want.KeyID = jwttest.Epoch.Truncate(time.Second), time.Unix(jwttest.Epoch.Unix()+3601, 0), kid
			if err != nil || !sameClaims(got, want) {
				t.Errorf("got %+v, error %v, want %+v", got, err, want)
			}
			if kid != k.SigningKeyID() || !k.Has(kid) {
				t.Errorf("signed by %q, want the first key, %q", kid, k.SigningKeyID())
			}
		})
	}
}

func sameClaims(a, b Claims) bool {
	times := a.Expires.Equal(b.Expires) && a.IssuedAt.Equal(b.IssuedAt)
	a.Expires, a.IssuedAt, b.Expires, b.IssuedAt = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	return times && a == b
}

// Other programs parse the token too: protocol section 7 lists its members.
func TestIssuedTokenHasExactlyTheMembersOfTheProtocol(t *testing.T) {
	for _, kind := range keyKinds() {
		k := load(t, Options{Audience: "eu-west", Now: new(clock).now}, kind.file)
		header, body := decoded(t, issue(t, k, claims()))
		want := map[string]any{"alg": kind.alg, "kid": k.SigningKeyID(), "typ": "reseat+jwt"}
		if !maps.Equal(header, want) {
			t.Errorf("%s: header %v, want %v", kind.alg, header, want)
		}
		if id, ok := body["jti"].(string); !ok || len(id) < 22 {
			t.Errorf("%s: jti %v, want 128 random bits or more", kind.alg, body["jti"])
		}
		delete(body, "jti")
		want = map[string]any{
			"iss": "reseat", "aud": "eu-west", "sub": "player-1", "sid": "s-1", "gen": 7.0,
			"iat": 1800000000.0, "nbf": 1799999940.0, "exp": 1800003601.0,
		}
		if !maps.Equal(body, want) {
			t.Errorf("%s: claims %v, want %v", kind.alg, body, want)
		}
	}
}

func decoded(t *testing.T, token string) (header, claims map[string]any) {
	t.Helper()
	for i, dst := range []*map[string]any{&header, &claims} {
		raw, err := base64url.DecodeString(strings.Split(token, ".")[i])
		if err == nil {
			err = json.Unmarshal(raw, dst)
		}
		if err != nil {
			t.Fatalf("part %d of %s: %v", i, token, err)
		}
	}
	return header, claims
}

func TestTokensIssuedAtOnceAreNotMixed(t *testing.T) {
	k := load(t, Options{}, jwttest.NewSecret())
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			c := claims()
			c.Session = fmt.Sprint("session", i)
			for range 200 {
				token, _, err := k.Issue(c)
				if got, bad := k.Verify(token); err != nil || bad != nil || got.Session != c.Session {
					t.Errorf("%v, %v: a token of %q says %q", err, bad, c.Session, got.Session)
					return
				}
			}
		})
	}
	all.Wait()
}

func TestUnusableClaimsAreNotIssued(t *testing.T) {
	k := load(t, Options{Now: new(clock).now}, jwttest.NewSecret())
	for name, spoil := range map[string]func(*Claims){
		"no session":            func(c *Claims) { c.Session = "" },
		"no subject":            func(c *Claims) { c.Subject = "" },
		"session not UTF-8":     func(c *Claims) { c.Session = "s\xff" },
		"subject not UTF-8":     func(c *Claims) { c.Subject = "p\xff" },
		"generation 0":          func(c *Claims) { c.Gen = 0 },
		"generation above 2^53": func(c *Claims) { c.Gen = 1<<53 + 1 },
		"largest generation":    func(c *Claims) { c.Gen = math.MaxUint64 },
		"no expiry":             func(c *Claims) { c.Expires = time.Time{} },
		"expiry now":            func(c *Claims) { c.Expires = jwttest.Epoch },
		"expiry just past":      func(c *Claims) { c.Expires = jwttest.Epoch.Add(-1) },
		"expiry in year 10000":  func(c *Claims) { c.Expires = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) },
	} {
		c := claims()
		spoil(&c)
		if token, kid, err := k.Issue(c); err == nil || token != "" || kid != "" {
			t.Errorf("%s: issued %q, error %v, want an error and no token", name, token, err)
		}
	}
}

func TestLimitsOfClaimsAreIssuedAndVerified(t *testing.T) {
	k := load(t, Options{Now: new(clock).now}, jwttest.NewSecret())
	for name, c := range map[string]Claims{
		"first generation": {Session: "s", Subject: "p", Gen: 1, Expires: jwttest.Epoch.Add(1)},
		"last generation":  {Session: "s", Subject: "p", Gen: 1 << 53, Expires: jwttest.Epoch.Add(1)},
		"end of year 9999": {Session: "s", Subject: "p", Gen: 1, Expires: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)},
	} {
		got, err := k.Verify(issue(t, k, c))
		if err != nil || got.Gen != c.Gen || got.Expires.Before(c.Expires) {
			t.Errorf("%s: got %+v, error %v", name, got, err)
		}
	}
}

// A player's sub is set by another issuer and may be long.
func TestLongSubjectFitsOrIsRefusedAtIssue(t *testing.T) {
	for _, kind := range keyKinds() {
		k := load(t, Options{Now: new(clock).now}, kind.file)
		c := claims()
		c.Subject = strings.Repeat("p", 1024)
		if got, err := k.Verify(issue(t, k, c)); err != nil || got.Subject != c.Subject {
			t.Errorf("%s: subject of 1,024 bytes: %v", kind.alg, err)
		}
		c.Subject = strings.Repeat("p", MaxLen)
		if token, _, err := k.Issue(c); !errors.Is(err, ErrTooLong) || token != "" {
			t.Errorf("%s: subject of %d bytes: error %v, want %v", kind.alg, MaxLen, err, ErrTooLong)
		}
	}
}

// The clock steps over each limit by seconds and by nanoseconds.
func TestTokenIsValidFromIssueToExpiry(t *testing.T) {
	c := new(clock)
	k := load(t, Options{Now: c.now}, jwttest.NewSecret())
	token := issue(t, k, Claims{Session: "s", Subject: "p", Gen: 1, Expires: jwttest.Epoch.Add(10 * time.Second)})
	const (
		begins = -time.Minute - 400*time.Millisecond   // nbf: the epoch rounded down, minus a minute of skew
		ends   = 10*time.Second + 600*time.Millisecond // exp: rounded up
	)
	for now, want := range map[time.Duration]error{
		begins - time.Hour: ErrNotYet, begins - time.Second: ErrNotYet, begins - 1: ErrNotYet,
		begins: nil, 0: nil, time.Second: nil, 10 * time.Second: nil, // valid
		ends - time.Second: nil, ends - 1: nil,
		ends: ErrExpired, ends + 1: ErrExpired, ends + time.Second: ErrExpired, ends + time.Hour: ErrExpired,
	} {
		c.set(now)
		if _, err := k.Verify(token); !errors.Is(err, want) {
			t.Errorf("%v from the issue: %v, want %v", now, err, want)
		}
	}
}

// nbf and iat are checked individually, 1 s around the limit.
func TestNotYetValidIsJudgedByBothDates(t *testing.T) {
	f := newForge(t)
	for name, skew := range map[string]int{"nbf": 0, "iat": 60} {
		token := f.Claimed(fmt.Sprintf("%s:%d", name, 1800000005+skew))
		for now, want := range map[time.Duration]error{
			3600 * time.Millisecond: ErrNotYet, 4600*time.Millisecond - 1: ErrNotYet, 4600 * time.Millisecond: nil, 5600 * time.Millisecond: nil,
		} {
			f.clock.set(now)
			if _, err := f.keys.Verify(token); !errors.Is(err, want) {
				t.Errorf("%s 5 s ahead, at %v: %v, want %v", name, now, err, want)
			}
		}
	}
}

// A lifetime below a second must not round down to nothing.
func TestTokenNeverLivesShorterThanPromised(t *testing.T) {
	c := new(clock)
	k := load(t, Options{Now: c.now}, jwttest.NewSecret())
	for at := time.Duration(0); at < time.Second; at += 50 * time.Millisecond {
		for _, life := range []time.Duration{1, time.Millisecond, 333 * time.Millisecond, time.Second, 1700 * time.Millisecond} {
			c.set(at)
			token := issue(t, k, Claims{Session: "s", Subject: "p", Gen: 1, Expires: c.now().Add(life)})
			for _, now := range []time.Duration{at, at + life - 1} {
				c.set(now)
				if _, err := k.Verify(token); err != nil {
					t.Errorf("issued at %v for %v, refused at %v: %v", at, life, now, err)
				}
			}
			c.set(at + life + time.Second)
			if _, err := k.Verify(token); !errors.Is(err, ErrExpired) {
				t.Errorf("issued at %v for %v, a second too late: %v, want %v", at, life, err, ErrExpired)
			}
		}
	}
}

// An environment is an audience and keys. Its tokens, and a player's JWT signed
// by the same keys, are valid nowhere else.
func TestOnlyMatchingKeyAndAlgorithmPass(t *testing.T) {
	one, two := jwttest.NewSecret(), jwttest.NewSecret()
	var envs []*Keys
	var tokens []string
	for _, o := range []Options{{}, {Audience: "staging"}} {
		for _, file := range [][]byte{one, two, jwttest.PKCS8(jwttest.Ed25519()), jwttest.PKCS8(jwttest.RSA())} {
			o.Now = new(clock).now
			k := load(t, o, file)
			envs, tokens = append(envs, k), append(tokens, issue(t, k, claims()))
		}
	}
	for i, k := range envs {
		for j, token := range tokens {
			_, err := k.Verify(token)
			switch sameKey := k.SigningKeyID() == envs[j].SigningKeyID(); {
			case i == j && err != nil:
				t.Errorf("environment %d refuses its own token: %v", i, err)
			case i != j && sameKey && !errors.Is(err, ErrForeign):
				t.Errorf("environment %d on a token of %d with the same key: %v, want %v", i, j, err, ErrForeign)
			case i != j && !sameKey && !errors.Is(err, ErrUnknownKey):
				t.Errorf("environment %d on a token of %d with another key: %v, want %v", i, j, err, ErrUnknownKey)
			}
		}
	}
}
