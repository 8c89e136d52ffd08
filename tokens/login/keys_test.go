package login

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"reseat/tokens/internal/jwttest"
)

// A site is the server of a JWKS, in memory.
type site struct {
	answer  atomic.Pointer[answer]
	fetches atomic.Int32
}

type answer struct {
	set    string
	err    error // of the connection, in place of an answer
	status int   // 0 for 200
	delay  time.Duration
}

func (s *site) now(a answer) { s.answer.Store(&a) }

func (s *site) RoundTrip(r *http.Request) (*http.Response, error) {
	s.fetches.Add(1)
	a := s.answer.Load()
	select {
	case <-time.After(a.delay):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	if a.err != nil {
		return nil, a.err
	}
	return &http.Response{StatusCode: max(a.status, 200), Body: io.NopCloser(strings.NewReader(a.set)), Request: r}, nil
}

// A fed is a Verifier whose keys come from a site, under the fake clock.
type fed struct {
	*Verifier
	t       *testing.T
	site    *site
	journal *journal
}

// feedTest runs f with the keys of a site, after the first fetch unless that is slow.
func feedTest(t *testing.T, first answer, f func(v *fed)) {
	s := new(site)
	s.now(first)
	jwttest.RSA() // made outside of the bubble: it takes real time
	synctest.Test(t, func(t *testing.T) {
		j := new(journal)
		c := Config{JWKS: "https://user:hunter2@id.example/keys?apikey=hunter2", Now: atEpoch, Log: j.logger()}
		v, err := open(context.Background(), c, s.RoundTrip)
		if err != nil {
			t.Fatal(err)
		}
		defer v.Close()
		synctest.Wait()
		f(&fed{v, t, s, j})
		if strings.Contains(j.String(), "hunter2") || strings.Contains(j.String(), "apikey") {
			t.Errorf("the log shows a secret of the URL:\n%s", j)
		}
	})
}

func (f *fed) want(token string) { f.t.Helper(); wantPlayer(f.t, f.Verifier, token) }
func (f *fed) refuse(token string, because error) {
	f.t.Helper()
	wantRefused(f.t, f.Verifier, token, because)
}

func (f *fed) wantFetches(n int32) {
	f.t.Helper()
	if got := f.site.fetches.Load(); got != n {
		f.t.Errorf("%d fetches at %v, want %d", got, time.Now().UTC().Format(time.TimeOnly), n)
	}
}

// pass advances the clock by d, and waits until all goroutines are idle.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// Two generations of the issuer's keys.
func oldSet() string { return jwks(jwk("old", jwttest.Ed25519(), "")) }
func newSet() string { return jwks(jwk("new", jwttest.OtherEd25519(), "")) }
func bothSets() string {
	return jwks(jwk("old", jwttest.Ed25519(), ""), jwk("new", jwttest.OtherEd25519(), ""))
}

func oldToken(t *testing.T) string { t.Helper(); return edToken(t, "old", jwttest.Ed25519()) }
func newToken(t *testing.T) string { t.Helper(); return edToken(t, "new", jwttest.OtherEd25519()) }

func TestUnknownKidsFetchAtMostOnceInTenSeconds(t *testing.T) {
	feedTest(t, answer{set: oldSet()}, func(v *fed) {
		for range 95 { // 95 seconds
			v.refuse(newToken(t), ErrUnknownKey)
			pass(time.Second)
		}
		v.wantFetches(10) // at the start, and at 10, 20, ... 90 seconds
		v.site.now(answer{set: bothSets()})
		pass(5 * time.Second)
		v.want(newToken(t))
		v.want(oldToken(t))
	})
}

func TestOnlyUnknownKidTriggersFetch(t *testing.T) {
	feedTest(t, answer{set: bothSets()}, func(v *fed) {
		pass(time.Minute)
		for _, token := range []string{
			jwttest.Corrupt(oldToken(t)), edToken(t, "old", jwttest.OtherEd25519()), edToken(t, "", jwttest.Ed25519()), edToken(t, "old", jwttest.Ed25519(), "exp:1"),
			jwttest.Sign(t, head("RS256", "old", ""), body(), "RS256", jwttest.RSA()), jwttest.Sign(t, head("EdDSA", "x", `,"jku":"https://x"`), body(), "EdDSA", jwttest.OtherEd25519()),
			jwttest.Sign(t, head("EdDSA", "x", `,"typ":"reseat+jwt"`), body(), "EdDSA", jwttest.OtherEd25519()), head("EdDSA", "x", ""), "",
		} {
			if _, err := v.Verify(v.t.Context(), token); err == nil {
				t.Errorf("accepted: %s", token)
			}
		}
		v.wantFetches(1)
	})
}

func TestRemovedKeysStopVerifying(t *testing.T) {
	feedTest(t, answer{set: oldSet()}, func(v *fed) {
		v.site.now(answer{set: newSet()})
		pass(5*time.Minute - time.Second)
		v.want(oldToken(t))
		pass(time.Second)
		v.wantFetches(2)
		v.refuse(oldToken(t), ErrUnknownKey)
		v.want(newToken(t))
	})
}

// After a failure the keys are fetched again in 30 seconds.
func TestFailedFetchKeepsTheOldKeys(t *testing.T) {
	for name, failure := range map[string]answer{
		"no connection":  {err: errors.New("connection reset")},
		"status 500":     {status: 500, set: newSet()},
		"status 204":     {status: 204},
		"no JSON":        {set: "<html>hunter2</html>"},
		"no set":         {set: `{"error":"hunter2"}`},
		"no key":         {set: jwks()},
		"a broken key":   {set: jwks(`{"kty":"EC","crv":"P-256","x":"AAAA","y":"AAAA"}`, jwk("new", jwttest.OtherEd25519(), ""))},
		"slower than 5s": {set: newSet(), delay: 6 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			feedTest(t, answer{set: oldSet()}, func(v *fed) {
				v.site.now(failure)
				pass(5*time.Minute + 5*time.Second)
				v.want(oldToken(t))
				if n := v.journal.count("login.keys_failed"); n != 1 {
					t.Errorf("%d lines about the failure, want 1:\n%s", n, v.journal)
				}
				v.site.now(answer{set: oldSet()})
				pass(30 * time.Second)
				if n := v.journal.count("login.keys_loaded"); n != 2 {
					t.Errorf("%d lines about loaded keys, want 2, the second about the recovery:\n%s", n, v.journal)
				}
				v.wantFetches(3)
			})
		})
	}
}

func TestUnreachableURLAtStartIsNoError(t *testing.T) {
	feedTest(t, answer{err: errors.New("connection refused")}, func(v *fed) {
		v.refuse(oldToken(t), ErrNoKeys)
		v.refuse("not a token", ErrMalformed)
		v.site.now(answer{set: oldSet()})
		pass(10 * time.Second)
		v.want(oldToken(t)) // which fetches
		v.wantFetches(2)
	})
}

// A login during the start waits for the keys, as long as its request does.
func TestLoginWaitsForTheFirstFetch(t *testing.T) {
	feedTest(t, answer{set: oldSet(), delay: 4 * time.Second}, func(v *fed) {
		before := time.Now()
		ctx, cancel := context.WithTimeout(v.t.Context(), time.Second)
		defer cancel()
		if _, err := v.Verify(ctx, oldToken(t)); !errors.Is(err, ErrNoKeys) {
			t.Errorf("error %v, want %v", err, ErrNoKeys)
		}
		v.want(oldToken(t))
		if waited := time.Since(before); waited != 4*time.Second {
			t.Errorf("waited %v, want the 4s that the fetch takes", waited)
		}
		v.wantFetches(1)
	})
}

// A hanging fetch delays a login at most until its own timeout, and only if the login's key
// is unknown.
func TestHangingFetchTimesOut(t *testing.T) {
	feedTest(t, answer{set: oldSet()}, func(v *fed) {
		pass(10 * time.Second)
		v.site.now(answer{set: oldSet(), delay: time.Hour})
		before := time.Now()
		v.refuse(newToken(t), ErrUnknownKey)
		if waited := time.Since(before); waited != fetchTimeout {
			t.Errorf("waited %v, want %v", waited, fetchTimeout)
		}
		before = time.Now()
		v.want(oldToken(t))
		v.refuse(newToken(t), ErrUnknownKey)
		if waited := time.Since(before); waited != 0 {
			t.Errorf("waited %v within the cooldown", waited)
		}
		if v.journal.count("no answer within 5s") != 1 {
			t.Errorf("it is not in the log:\n%s", v.journal)
		}
	})
}

func TestConcurrentLoginsShareOneFetch(t *testing.T) {
	feedTest(t, answer{set: oldSet()}, func(v *fed) {
		pass(10 * time.Second)
		v.site.now(answer{set: bothSets(), delay: time.Second})
		token := newToken(t)
		results := make(chan error)
		for range 64 {
			go func() {
				_, err := v.Verify(v.t.Context(), token)
				results <- err
			}()
		}
		for range 64 {
			if err := <-results; err != nil {
				t.Errorf("refused: %v", err)
			}
		}
		v.wantFetches(2)
	})
}

func TestReloadIgnoresTheCooldown(t *testing.T) {
	feedTest(t, answer{set: oldSet()}, func(v *fed) {
		v.site.now(answer{set: newSet()})
		if err := v.Reload(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		v.wantFetches(2)
		v.want(newToken(t))
		v.refuse(oldToken(t), ErrUnknownKey)
	})
}

func TestCloseStopsFetching(t *testing.T) {
	for _, delay := range []time.Duration{0, time.Second} { // the latter: during the fetch
		feedTest(t, answer{set: oldSet(), delay: delay}, func(v *fed) {
			v.Close()
			v.Close()
			want := error(nil)
			if delay > 0 {
				want = ErrNoKeys
			}
			for range 3 {
				if _, err := v.Verify(v.t.Context(), oldToken(t)); !errors.Is(err, want) {
					t.Errorf("error %v, want %v", err, want)
				}
				v.Verify(v.t.Context(), newToken(t))
				v.Reload()
				pass(time.Hour)
			}
			v.wantFetches(1)
			if v.journal.count("login.keys_failed") > 0 {
				t.Errorf("the close is logged as a failure:\n%s", v.journal)
			}
		})
	}
}

// A key's fault is logged once, not with every fetch.
func TestIgnoredKeyIsLoggedOnce(t *testing.T) {
	secret := `{"kty":"oct","kid":"shared","k":"` + jwttest.Encode(jwttest.Secret) + `"}`
	feedTest(t, answer{set: jwks(secret, jwk("old", jwttest.Ed25519(), ""))}, func(v *fed) {
		pass(time.Hour)
		if n := v.journal.count("login.key_ignored"); n != 1 || v.journal.count("kid=shared") != 1 {
			t.Errorf("%d lines about the symmetric key, want 1:\n%s", n, v.journal)
		}
		if n := v.journal.count("login.keys_loaded"); n != 1 {
			t.Errorf("%d lines about keys that are the same, want 1:\n%s", n, v.journal)
		}
		v.refuse(jwttest.Sign(t, head("HS256", "shared", ""), body(), "HS256", jwttest.Secret), ErrUnknownKey)
		v.site.now(answer{set: jwks(jwk("old", jwttest.OtherEd25519(), ""))}) // another key with the old kid
		pass(5 * time.Minute)
		if n := v.journal.count("login.keys_loaded"); n != 2 {
			t.Errorf("%d lines, want 2:\n%s", n, v.journal)
		}
	})
}

func TestPlainHTTPToAnotherHostIsWarnedAbout(t *testing.T) {
	for url, want := range map[string]int{
		"http://id.example/": 1, "HTTP://10.0.0.1/": 1, "https://id.example/": 0, "http://localhost:1/": 0, "http://127.0.0.1:1/": 0, "http://[::1]:1/": 0,
	} {
		j := new(journal)
		if _, err := newKeySource(Config{JWKS: url, Log: j.logger()}, nil); err != nil {
			t.Fatal(err)
		}
		if got := j.count("login.keys_insecure"); got != want {
			t.Errorf("%s: %d warnings, want %d", url, got, want)
		}
	}
}

func TestInvalidURLIsRefusedWithoutQuotingIt(t *testing.T) {
	for text, want := range map[string]string{
		"ftp://user:hunter2@id.example/": `http or https, got one with "ftp"`, "https://?hunter2": "want a file or a URL", "http://": "want a file or a URL",
		"https://user:hunter2@id.example:port/": "want a file or a URL", "https://id.example/%zzhunter2": "want a file or a URL", "://hunter2": "want a file or a URL",
	} {
		v, err := New(t.Context(), Config{JWKS: text})
		if v != nil || err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
}

func TestFilesAreReloadedPeriodically(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := jwttest.Write(t, "jwks.json", []byte(oldSet()))
		v := start(t, Config{JWKS: path})
		wantPlayer(t, v, oldToken(t))
		jwttest.Replace(t, path, []byte(newSet()))
		wantRefused(t, v, newToken(t), ErrUnknownKey) // a token opens no file
		pass(30*time.Second - 1)
		wantPlayer(t, v, oldToken(t))
		pass(1)
		wantPlayer(t, v, newToken(t))
		wantRefused(t, v, oldToken(t), ErrUnknownKey)
		jwttest.Replace(t, path, []byte(`{"keys":`)) // partially written
		pass(time.Minute)
		wantPlayer(t, v, newToken(t))
		jwttest.Replace(t, path, []byte(oldSet()))
		if err := v.Reload(); err != nil {
			t.Fatal(err)
		}
		wantPlayer(t, v, oldToken(t))
	})
}

func TestReloadOfInvalidFileKeepsTheKeys(t *testing.T) {
	keyPath, setPath := jwttest.Write(t, "key", jwttest.PKIX(jwttest.Ed25519())), jwttest.Write(t, "jwks.json", []byte(oldSet()))
	for path, c := range map[string]Config{keyPath: {KeyFile: keyPath}, setPath: {JWKS: setPath}} {
		v := start(t, c)
		jwttest.Replace(t, path, []byte("short"))
		err := v.Reload()
		if err == nil || !strings.HasPrefix(err.Error(), path+": ") || !strings.Contains(err.Error(), "stay in use") {
			t.Errorf("%s: error %v", path, err)
		}
		wantPlayer(t, v, oldToken(t))
	}
}

func TestKeyFileIsReadOnlyOnReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := jwttest.Write(t, "key", jwttest.PKIX(jwttest.Ed25519()))
		v := start(t, Config{KeyFile: path})
		jwttest.Replace(t, path, jwttest.PKIX(jwttest.OtherEd25519()))
		pass(time.Hour)
		wantPlayer(t, v, oldToken(t))
		if err := v.Reload(); err != nil {
			t.Fatal(err)
		}
		wantRefused(t, v, oldToken(t), ErrForged)
		wantPlayer(t, v, newToken(t))
	})
}
