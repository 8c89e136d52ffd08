package gateway_test

import (
	"encoding/json"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/policy"
	"reseat/gateway/session"
	"reseat/gateway/wire"
	"reseat/tokens"
)

// newKeyedWorld is a world whose keys the test can sign with.
func newKeyedWorld(t *testing.T, p policy.Policy, change ...func(*gateway.Config)) (*world, *tokens.Keys) {
	t.Helper()
	var keys *tokens.Keys
	w := newWorld(t, p, append(change, func(c *gateway.Config) { keys = c.Keys })...)
	return w, keys
}

// forged returns a validly signed token of p's session and generation for another subject.
func forged(t *testing.T, keys *tokens.Keys, id, subject string, gen uint64) string {
	t.Helper()
	token, _, err := keys.Issue(tokens.Claims{Session: id, Subject: subject, Gen: gen, Expires: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// A valid signature is not enough: sub must be the session's player, or without one the
// session itself. A key that signs for several gateways signs such tokens.
func TestTokenForAnotherSubjectIsRefused(t *testing.T) {
	for name, p := range map[string]policy.Policy{"a player's": loggedIn(policy.Allow), "nobody's": testPolicy()} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, keys := newKeyedWorld(t, p)
				living, _ := w.loginAs("ann")
				ended, _ := w.loginAs("ann")
				living.Sync()
				ended.Sync()
				w.gw.End(ended.Hello.Session, 1000, "the secret reason")
				synctest.Wait()
				before := w.metrics()
				for _, subject := range []string{"bob", ended.Hello.Session[:8], "x"} {
					for _, q := range []string{living.Hello.Session, ended.Hello.Session} {
						c := living.TryResume(forged(t, keys, q, subject, 1), "0").WantClosing(wire.CodeBadToken)
						if strings.Contains(c.Reason, "secret") {
							t.Errorf("%q learns how the session ended: %q", subject, c.Reason)
						}
					}
				}
				w.wantSince(before, "reseat_tokens_replayed_total", map[string]float64{})
				w.wantState(living, session.Attached)
				living.Sync() // it was not taken over
			})
		})
	}
}

// The Origin check is that of the session's own route, whatever the path of the resume.
func TestResumeViaRouteWithLaxerOriginIsRefused(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, _ *wstest.Peer) {
		w.detach(p)
		evil := "Origin: https://evil.example\r\n"
		w.wantAnswered(http.StatusForbidden, "/", resumeOffer(p), evil)
		w.wantAnswered(http.StatusSwitchingProtocols, "/lax/x", resumeOffer(p), evil) // and then close
		w.wantState(p, session.Detached)
		w.wantAnswered(http.StatusSwitchingProtocols, "/lax/x", resumeOffer(p), ownOrigin)
		w.wantState(p, session.Attached)
	}, func(c *gateway.Config) {
		lax := c.Routes[0]
		lax.Pattern = "/lax/*"
		lax.Policy.Origins = []string{"*"}
		c.Routes = append(c.Routes, lax)
	})
}

// Of the cookies that a plain client may send, only the gateway's own one for that session resumes it.
func TestCookiesThatResumeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, keys := newKeyedWorld(t, keptPlain())
		first, cookie := w.visit("")
		w.game.Next()
		first.Drop()
		id := w.onlySession().ID
		name, _, _ := strings.Cut(cookie, "=")
		p, _ := w.play()
		w.detach(p)
		for what, c := range map[string]string{
			"twice, so that somebody else set one of them":           cookie + "; " + cookie,
			"another one of its name behind it":                      cookie + "; " + name + "=x",
			"another one of its name before it":                      name + "=x; " + cookie,
			"of another subject":                                     name + "=" + forged(t, keys, id, "bob", 1),
			"the token of a resumable session, which pages can read": name + "=" + p.Hello.Token,
		} {
			plain := w.PlainWith("/", ownOrigin+"Cookie: "+c+"\r\n")
			if got := w.game.Next().Req.Header.Get("Reseat-Session"); got == "" || got == id || got == p.Hello.Session {
				t.Errorf("%s: it is given session %q, want a new one", what, got)
			}
			plain.WantNothing(time.Second)
			plain.Drop()
			w.wantState(p, session.Detached)
			i, _ := w.gw.Session(id)
			wstest.Equal(t, what+": the session", i.State, session.Detached.String())
		}
		w.visit(cookie)
		synctest.Wait()
		i, _ := w.gw.Session(id)
		wstest.Equal(t, "with one cookie the session", i.State, session.Attached.String())
	})
}

// A token that was signed just before a rotation, and reaches its client just after it, is
// replaced at once: Reload has already renewed the other sessions.
func TestTokenSignedBeforeRotationIsRenewedAfterAttach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		files, with := keyFiles(t, "new", "old")
		writeKey(t, files[0], "old")
		w, keys := newKeyedWorld(t, testPolicy(), with)
		if err := keys.Reload(); err != nil {
			t.Fatal(err)
		}
		p, _ := w.play()
		w.detach(p)
		id := p.Hello.Session
		before := gateway.Signed(w.gw, id)
		sign := gateway.HoldSigning(w.gw)
		c := p.TryResume(p.Hello.Token, "0")
		synctest.Wait()
		attach := gateway.HoldSession(w.gw, id)
		sign()
		for gateway.Signed(w.gw, id) == before { // no time passes while this runs
			runtime.Gosched()
		}
		writeKey(t, files[0], "new")
		if err := keys.Reload(); err != nil {
			t.Fatal(err)
		}
		attach()
		var hello, renewed struct{ Token string }
		json.Unmarshal([]byte(c.WantControl(wire.VerbHello).Data), &hello)
		began := time.Now()
		json.Unmarshal([]byte(c.WantControl(wire.VerbToken).Data), &renewed)
		if wait := time.Since(began); wait > time.Second {
			t.Errorf("renewed after %v, want a second at most", wait)
		}
		if old, now := kid(t, hello.Token), kid(t, renewed.Token); old == now || now != keys.SigningKeyID() {
			t.Errorf("hello's token is signed by key %s, the renewed one by %s; want the old and the new key", old, now)
		}
	})
}
