package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/policy"
	"reseat/gateway/registry"
	"reseat/gateway/session"
	"reseat/gateway/wire"
	"reseat/tokens"
)

const ownOrigin = "Origin: http://game.example\r\n"

func keptPlain() policy.Policy {
	return changed(testPolicy(), func(p *policy.Policy) { p.PlainResume = true })
}

// inVisit is inWorld with a plain client that has a cookie.
func inVisit(t *testing.T, f func(t *testing.T, w *world, p *wstest.Peer, game *wstest.Peer, cookie string), change ...func(*gateway.Config)) {
	t.Helper()
	inWorld(t, keptPlain(), func(t *testing.T, w *world) {
		p, cookie := w.visit("")
		f(t, w, p, w.game.Next(), cookie)
	}, change...)
}

// ours returns the gateway's cookie from an answer, as a client sends it back.
func ours(t *testing.T, p *wstest.Peer) string {
	t.Helper()
	for _, c := range p.Answer.Cookies() {
		if !strings.HasPrefix(c.Name, "reseat-") {
			continue
		}
		if !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Path != "/" || c.Secure || c.MaxAge != 0 || !c.Expires.IsZero() {
			t.Errorf("cookie %v, want HttpOnly, Lax, for / and the browser's session", c)
		}
		return c.Name + "=" + c.Value
	}
	t.Fatal("no cookie")
	return ""
}

// visit connects a plain client with a cookie jar.
func (w *world) visit(cookie string) (*wstest.Peer, string) {
	w.t.Helper()
	if cookie == "" {
		p := w.PlainWith("/", ownOrigin)
		return p, ours(w.t, p)
	}
	p := w.PlainWith("/", ownOrigin+"Cookie: a=1; "+cookie+"; b=2\r\n")
	if len(p.Answer.Cookies()) > 0 {
		cookie = ours(w.t, p)
	}
	return p, cookie
}

func (w *world) onlySession() registry.Snapshot {
	w.t.Helper()
	synctest.Wait()
	list, _ := w.gw.Control().Sessions(registry.Filter{Limit: 10})
	if len(list) != 1 {
		w.t.Fatalf("%d sessions, want 1", len(list))
	}
	return list[0]
}

// wantAnswered checks how a handshake is answered.
func (w *world) wantAnswered(status int, path string, protocols []string, header string) {
	w.t.Helper()
	_, _, resp, err := w.Handshake(path, protocols, header)
	if err != nil || resp.StatusCode != status {
		w.t.Errorf("%s %q with %q is answered %v, %v, want %d", path, protocols, header, resp, err, status)
	}
}

func TestPlainClientResumesByCookie(t *testing.T) {
	for name, leave := range map[string]func(p *wstest.Peer){
		"drop":       func(p *wstest.Peer) { p.Drop() },
		"Close 1001": func(p *wstest.Peer) { p.Close(1001, "") },
		"half-open":  func(p *wstest.Peer) { p.Conn.Silence() },
	} {
		t.Run(name, func(t *testing.T) {
			inVisit(t, func(t *testing.T, w *world, p, game *wstest.Peer, cookie string) {
				goesOn(p, game)
				time.Sleep(2 * time.Second) // a Ping has covered it
				leave(p)
				game.Text("two")
				game.Text("three")
				synctest.Wait()
				p, again := w.visit(cookie)
				wstest.Equal(t, "cookie", again, cookie)
				p.Want("two", "three")
				p.Pass(game, "back")
				if s := w.onlySession(); s.Client != "cookie" || !s.Resumable {
					t.Errorf("client %q, resumable %v; want cookie, resumable", s.Client, s.Resumable)
				}
				w.wantNoDial()
			})
		})
	}
}

// A rotation first signs with the new key, and later removes the old one.
func TestCookieIsRenewedAfterKeyRotation(t *testing.T) {
	files, with := keyFiles(t, "new", "old")
	inWorld(t, keptPlain(), func(t *testing.T, w *world) {
		rotate := func(file, seed string) {
			writeKey(t, file, seed)
			if err := w.gw.Reload(); err != nil {
				t.Fatal(err)
			}
		}
		rotate(files[0], "old") // both have it at first
		p, old := w.visit("")
		game := w.game.Next()
		back := func(cookie string) (again string) {
			p.Drop()
			synctest.Wait()
			p, again = w.visit(cookie)
			game.Pass(p, "still here")
			time.Sleep(2 * time.Second) // a Ping has covered it
			return again
		}
		rotate(files[0], "new")
		renewed := back(old)
		if renewed == old {
			t.Fatal("the cookie is still signed by the old key")
		}
		rotate(files[1], "another")
		wstest.Equal(t, "a cookie signed by the present key", back(renewed), renewed)
		w.onlySession()
	}, with)
}

func TestSecondTabGetsItsOwnSession(t *testing.T) {
	inVisit(t, func(t *testing.T, w *world, p, game *wstest.Peer, cookie string) {
		q, other := w.visit(cookie)
		if other == cookie {
			t.Error("the second tab was given the first one's cookie")
		}
		w.game.Next().Pass(q, "second")
		game.Pass(p, "first")
	})
}

// The cookie is valid only for pages of an allowed origin, for one route, and for plain clients.
func TestCookieIsUselessElsewhere(t *testing.T) {
	inVisit(t, func(t *testing.T, w *world, p, game *wstest.Peer, cookie string) {
		if strings.Contains(fmt.Sprint(game.Req.Header), "reseat-") {
			t.Errorf("the upstream sees the cookie: %v", game.Req.Header)
		}
		p.Drop()
		synctest.Wait()
		w.wantAnswered(http.StatusForbidden, "/", nil, "Cookie: "+cookie+"\r\n")
		w.wantAnswered(http.StatusForbidden, "/", nil, "Origin: http://evil.example\r\nCookie: "+cookie+"\r\n")
		_, token, _ := strings.Cut(cookie, "=")
		w.resumeAt(&wstest.Player{Hello: wire.Hello{Token: token}}, "/").WantClosing(wire.CodeBadToken)
		wstest.Equal(t, "state", w.onlySession().State, session.Detached.String())
		if _, other := w.visit("reseat-00000000=" + token); other == cookie {
			t.Error("a cookie of another name was accepted")
		}
		w.game.Next()
	})
}

// A program that keeps cookies sends no Origin. It needs one only if a cookie authenticates
// the handshake.
func TestUnrelatedCookieNeedsNoOrigin(t *testing.T) {
	inVisit(t, func(t *testing.T, w *world, _, _ *wstest.Peer, cookie string) {
		p := w.PlayerWith("/", "Cookie: "+cookie+"\r\n")
		w.game.Next()
		w.detach(p)
		w.resumeAt(p, "/").WantControl(wire.VerbHello)
	})
}

func TestResumeWithLoginCookieNeedsNoOrigin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newLoginWorld(t, "cookie:sid", false)
		login := "Cookie: sid=" + loginOf(t, "ann", time.Hour) + "\r\n"
		p := w.PlayerWith("/", ownOrigin+login)
		w.game.Next()
		p.Drop()
		w.wantAnswered(http.StatusSwitchingProtocols, "/", resumeOffer(p), login)
		w.wantAnswered(http.StatusForbidden, "/", []string{wire.Subprotocol}, login)
	})
}

// A session belongs to the route of its first handshake, whatever the name of the cookie
// with its token.
func TestCookieIsValidForItsRouteOnly(t *testing.T) {
	inVisit(t, func(t *testing.T, w *world, here, _ *wstest.Peer, cookie string) {
		there := w.PlainWith("/other/", ownOrigin)
		w.game.Next()
		here.Drop()
		there.Drop()
		synctest.Wait()
		own, token, _ := strings.Cut(cookie, "=")
		name, _, _ := strings.Cut(ours(t, there), "=")
		if name == own {
			t.Errorf("both routes' cookies are called %s", name)
		}
		w.PlainWith("/other/", ownOrigin+"Cookie: "+name+"="+token+"\r\n")
		list, _ := w.gw.Control().Sessions(registry.Filter{Limit: 10})
		wstest.Equal(t, "sessions, one of them its own", len(list), 3)
	}, func(c *gateway.Config) {
		other := c.Routes[0]
		other.Pattern = "/other/*"
		c.Routes = append(c.Routes, other)
	})
}

// A client that does not offer its session's subprotocol cannot continue it.
func TestCookieNeedsSessionsSubprotocol(t *testing.T) {
	inWorld(t, keptPlain(), func(t *testing.T, w *world) {
		w.game.Choose = "chat.v1"
		offer := ownOrigin + "Sec-WebSocket-Protocol: chat.v1\r\n"
		p := w.PlainWith("/", offer)
		game := w.game.Next()
		cookie := "Cookie: " + ours(t, p) + "\r\n"
		p.Drop()
		synctest.Wait()
		w.game.Choose = ""
		stranger := w.PlainWith("/", ownOrigin+cookie)
		list, _ := w.gw.Control().Sessions(registry.Filter{Limit: 10})
		wstest.Equal(t, "sessions, one of them its own", len(list), 2)
		wstest.Equal(t, "the stranger's subprotocol", stranger.Answer.Header.Get("Sec-WebSocket-Protocol"), "")
		again := w.PlainWith("/", offer+cookie)
		wstest.Equal(t, "the resuming client's subprotocol", again.Answer.Header.Get("Sec-WebSocket-Protocol"), "chat.v1")
		game.Pass(again, "still here")
	})
}

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
				w.gw.Control().End("", ended.Hello.Session, 1000, "the secret reason")
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
			i, _ := w.gw.Control().Session(id)
			wstest.Equal(t, what+": the session", i.State, session.Detached.String())
		}
		w.visit(cookie)
		synctest.Wait()
		i, _ := w.gw.Control().Session(id)
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
