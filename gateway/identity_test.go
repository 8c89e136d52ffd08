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
	for name, path := range map[string]string{"a player's": "/?player=ann", "nobody's": "/"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := testPolicy()
				if name == "a player's" {
					p = loggedIn(policy.Allow)
				}
				w, keys := newKeyedWorld(t, p)
				living, ended := w.Player(path), w.Player(path)
				living.Sync()
				ended.Sync()
				w.gw.End(ended.Hello.Session, 1000, "the secret reason")
				synctest.Wait()
				before := w.metrics()
				for _, subject := range []string{"bob", ended.Hello.Session[:8], "x"} {
					for _, q := range []string{living.Hello.Session, ended.Hello.Session} {
						c := living.TryResume(forged(t, keys, q, subject, 1), "0").WantClosing(wire.CodeBadToken)
						if strings.Contains(c.Reason, "words") {
							t.Errorf("%q learns how the session ended: %q", subject, c.Reason)
						}
					}
				}
				if n := w.metrics()["reseat_tokens_replayed_total"] - before["reseat_tokens_replayed_total"]; n != 0 {
					t.Errorf("%v tokens count as replayed: want none", n)
				}
				w.wantState(living, session.Attached)
				living.Sync() // it was not taken over
			})
		})
	}
}

// The Origin check is that of the session's own route, whatever the path of the resume.
func TestResumeViaRouteWithLaxerOriginIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, testPolicy(), func(c *gateway.Config) {
			lax := c.Routes[0]
			lax.Pattern = "/lax/*"
			lax.Policy.Origins = []string{"*"}
			c.Routes = append(c.Routes, lax)
		})
		p, _ := w.play()
		w.detach(p)
		offer := []string{wire.Subprotocol, "reseat.token." + p.Hello.Token, "reseat.received.0"}
		evil := "Origin: https://evil.example\r\n"
		if _, _, resp, err := w.Handshake("/", offer, evil); err != nil || resp.StatusCode != http.StatusForbidden {
			t.Errorf("at its own route: %v %v, want 403", resp, err)
		}
		if _, _, resp, err := w.Handshake("/lax/x", offer, evil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
			t.Errorf("at the other route: %v %v, want 101 and then close", resp, err)
		}
		w.wantState(p, session.Detached)
		if _, _, resp, err := w.Handshake("/lax/x", offer, ownOrigin); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
			t.Errorf("from its own page: %v %v, want 101", resp, err)
		}
		w.wantState(p, session.Attached)
	})
}

// detachedByCookie returns a plain client's detached session, and its cookie.
func (w *world) detachedByCookie() (id, cookie string) {
	w.t.Helper()
	p, cookie := w.visit("")
	w.game.Next()
	p.Drop()
	return w.onlySession().ID, cookie
}

// If two cookies have one name, somebody else set one of them.
func TestTwoCookiesOfOneNameAreIgnored(t *testing.T) {
	inWorld(t, keptPlain(), func(t *testing.T, w *world) {
		id, cookie := w.detachedByCookie()
		name, _, _ := strings.Cut(cookie, "=")
		for _, twice := range []string{cookie + "; " + cookie, cookie + "; " + name + "=x", name + "=x; " + cookie} {
			p := w.PlainWith("/", ownOrigin+"Cookie: "+twice+"\r\n")
			if got := w.game.Next().Req.Header.Get("Reseat-Session"); got == id {
				t.Errorf("%s is accepted", twice)
			}
			p.Drop()
		}
		if i, _ := w.gw.Session(id); i.State != session.Detached.String() {
			t.Errorf("the session is %s", i.State)
		}
		w.visit(cookie)
		synctest.Wait()
		if i, _ := w.gw.Session(id); i.State != session.Attached.String() {
			t.Errorf("with one cookie the session is %s", i.State)
		}
	})
}

// Pages can read the token of a resumable session. As a cookie it must resume nothing: such
// a client could not ack.
func TestTokenOfResumableSessionIsRefusedAsCookie(t *testing.T) {
	inWorld(t, keptPlain(), func(t *testing.T, w *world) {
		_, cookie := w.detachedByCookie()
		name, _, _ := strings.Cut(cookie, "=")
		p := w.Player("/")
		w.game.Next()
		w.detach(p)
		plain := w.PlainWith("/", ownOrigin+"Cookie: "+name+"="+p.Hello.Token+"\r\n")
		if got := w.game.Next().Req.Header.Get("Reseat-Session"); got == "" || got == p.Hello.Session {
			t.Errorf("it is given session %q, want a new one", got)
		}
		w.wantState(p, session.Detached)
		plain.WantNothing(time.Second)
	})
}

// The subject of a cookie's token is checked like that of any other token.
func TestCookieForAnotherSubjectIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, keys := newKeyedWorld(t, keptPlain())
		id, cookie := w.detachedByCookie()
		name, _, _ := strings.Cut(cookie, "=")
		w.PlainWith("/", ownOrigin+"Cookie: "+name+"="+forged(t, keys, id, "bob", 1)+"\r\n")
		if got := w.game.Next().Req.Header.Get("Reseat-Session"); got == "" || got == id {
			t.Errorf("it is given session %q, want a new one", got)
		}
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
			t.Errorf("renewed after %v, want at once", wait)
		}
		if old, now := kid(t, hello.Token), kid(t, renewed.Token); old == now || now != keys.SigningKeyID() {
			t.Errorf("hello's token is signed by key %s, the renewed one by %s; want the old and the new key", old, now)
		}
	})
}
