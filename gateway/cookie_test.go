package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"reseat/gateway"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/policy"
	"reseat/gateway/registry"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

const ownOrigin = "Origin: http://game.example\r\n"

func keptPlain() policy.Policy {
	p := testPolicy()
	p.PlainResume = true
	return p
}

// visit connects a plain client with a cookie jar.
func (w *world) visit(cookie string) (*wstest.Peer, string) {
	w.t.Helper()
	header := ownOrigin
	if cookie != "" {
		header += "Cookie: a=1; " + cookie + "; b=2\r\n"
	}
	p := w.PlainWith("/", header)
	for _, c := range p.Answer.Cookies() {
		if strings.HasPrefix(c.Name, "reseat-") {
			if !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Path != "/" || c.Secure || c.MaxAge != 0 || !c.Expires.IsZero() {
				w.t.Errorf("cookie %v", c)
			}
			return p, c.Name + "=" + c.Value
		}
	}
	return p, cookie
}

func (w *world) onlySession() registry.Snapshot {
	w.t.Helper()
	synctest.Wait()
	list, _ := w.gw.Sessions(registry.Filter{Limit: 10})
	if len(list) != 1 {
		w.t.Fatalf("%d sessions, want 1", len(list))
	}
	return list[0]
}

func TestPlainClientResumesByCookie(t *testing.T) {
	for name, leave := range map[string]func(p *wstest.Peer){
		"drop":       func(p *wstest.Peer) { p.Drop() },
		"Close 1001": func(p *wstest.Peer) { p.Close(1001, "") },
		"half-open":  func(p *wstest.Peer) { p.Conn.Silence() },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, keptPlain(), func(t *testing.T, w *world) {
				p, cookie := w.visit("")
				game := w.game.Next()
				goesOn(game, p)
				time.Sleep(2 * time.Second) // a Ping has covered it
				leave(p)
				game.Text("two")
				game.Text("three")
				synctest.Wait()
				p, again := w.visit(cookie)
				if again != cookie {
					t.Errorf("the cookie changed")
				}
				p.Want("two", "three")
				p.Pass(game, "back")
				if s := w.onlySession(); s.Client != "cookie" || !s.Resumable {
					t.Errorf("client %q, resumable %v", s.Client, s.Resumable)
				}
				w.wantNoDial()
			})
		})
	}
}

// A rotation first signs with the new key, and later removes the old one.
func TestCookieIsRenewedAfterKeyRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		files, with := keyFiles(t, "new", "old")
		writeKey(t, files[0], "old")
		w := newWorld(t, keptPlain(), with)
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
		if again := back(renewed); again != renewed {
			t.Error("a cookie signed by the present key was replaced")
		}
		w.onlySession()
	})
}

// Messages that no Pong has covered are replayed: at least once.
func TestMessagesNotCoveredByPongAreReplayedToPlainClient(t *testing.T) {
	inWorld(t, keptPlain(), func(t *testing.T, w *world) {
		p, cookie := w.visit("")
		game := w.game.Next()
		for i := range 100 {
			game.Text(fmt.Sprint(i))
		}
		for i := range 100 {
			p.Want(fmt.Sprint(i))
		}
		synctest.Wait()
		acked := w.onlySession().Acked
		if acked == 0 || acked > 100 {
			t.Errorf("%d messages are covered by Pongs, want some", acked)
		}
		p.Mute.Store(true)
		game.Pass(p, "last")
		p.Drop()
		synctest.Wait()
		p, _ = w.visit(cookie)
		for i := int(acked); i < 100; i++ {
			p.Want(fmt.Sprint(i))
		}
		p.Want("last")
		time.Sleep(2 * time.Second)
		if i := w.onlySession(); i.Acked != 101 || i.BufferMessages != 0 {
			t.Errorf("acked %d, %d kept, want all acked", i.Acked, i.BufferMessages)
		}
	})
}

func TestSecondTabGetsItsOwnSession(t *testing.T) {
	inWorld(t, keptPlain(), func(t *testing.T, w *world) {
		p, cookie := w.visit("")
		game := w.game.Next()
		q, other := w.visit(cookie)
		if other == cookie {
			t.Error("the second tab was given the first one's cookie")
		}
		second := w.game.Next()
		game.Text("first")
		second.Text("second")
		p.Want("first")
		q.Want("second")
	})
}

func TestPlainClientThatClosesIsNotKept(t *testing.T) {
	inWorld(t, keptPlain(), func(t *testing.T, w *world) {
		p, cookie := w.visit("")
		game := w.game.Next()
		p.Close(1000, "done")
		game.WantClose(1000)
		synctest.Wait()
		_, other := w.visit(cookie)
		if other == cookie {
			t.Error("an ended session's cookie is still in use")
		}
		w.game.Next()
	})
}

// The cookie is valid only for pages of an allowed origin, for one route, and for plain clients.
func TestCookieIsUselessElsewhere(t *testing.T) {
	inWorld(t, keptPlain(), func(t *testing.T, w *world) {
		p, cookie := w.visit("")
		game := w.game.Next()
		if strings.Contains(fmt.Sprint(game.Req.Header), "reseat-") {
			t.Errorf("the upstream sees the cookie: %v", game.Req.Header)
		}
		p.Drop()
		synctest.Wait()
		_, _, resp, err := w.Handshake("/", nil, "Cookie: "+cookie+"\r\n")
		if err != nil || resp.StatusCode != http.StatusForbidden {
			t.Errorf("without Origin: %v %v, want 403", resp, err)
		}
		_, _, resp, err = w.Handshake("/", nil, "Origin: http://evil.example\r\nCookie: "+cookie+"\r\n")
		if err != nil || resp.StatusCode != http.StatusForbidden {
			t.Errorf("from elsewhere: %v %v, want 403", resp, err)
		}
		_, token, _ := strings.Cut(cookie, "=")
		c, err := w.Dial("/", []string{wire.Subprotocol, "reseat.token." + token, "reseat.received.0"})
		if err != nil {
			t.Fatal(err)
		}
		c.WantClosing(wire.CodeBadToken)
		if i := w.onlySession(); i.State != session.Detached.String() {
			t.Errorf("the session is %s", i.State)
		}
		_, other := w.visit("reseat-00000000=" + token)
		if other == cookie {
			t.Error("a cookie of another name was accepted")
		}
		w.game.Next()
	})
}

// A program that keeps cookies sends no Origin. It needs one only if a cookie authenticates
// the handshake.
func TestUnrelatedCookieNeedsNoOrigin(t *testing.T) {
	inWorld(t, keptPlain(), func(t *testing.T, w *world) {
		_, cookie := w.visit("")
		w.game.Next()
		p := w.PlayerWith("/", "Cookie: "+cookie+"\r\n")
		w.game.Next()
		w.detach(p)
		w.resumeAt(p, "/").WantControl(wire.VerbHello)
	})
}

func TestResumeWithLoginCookieNeedsNoOrigin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newLoginWorld(t, "cookie:sid", false)
		login := signed(t, jwt.MapClaims{"sub": "ann", "aud": "game", "exp": time.Now().Add(time.Hour).Unix()})
		p := w.PlayerWith("/", ownOrigin+"Cookie: sid="+login+"\r\n")
		w.game.Next()
		p.Drop()
		offer := []string{wire.Subprotocol, "reseat.token." + p.Hello.Token, "reseat.received.0"}
		if _, _, resp, err := w.Handshake("/", offer, "Cookie: sid="+login+"\r\n"); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
			t.Errorf("the resume: %v %v, want 101", resp, err)
		}
		if _, _, resp, err := w.Handshake("/", offer[:1], "Cookie: sid="+login+"\r\n"); err != nil || resp.StatusCode != http.StatusForbidden {
			t.Errorf("a new session: %v %v, want 403", resp, err)
		}
	})
}

// ours returns the gateway's cookie from an answer, as a client sends it back.
func ours(t *testing.T, p *wstest.Peer) string {
	t.Helper()
	for _, c := range p.Answer.Cookies() {
		if strings.HasPrefix(c.Name, "reseat-") {
			return c.Name + "=" + c.Value
		}
	}
	t.Fatal("no cookie")
	return ""
}

// A session belongs to the route of its first handshake, whatever the name of the cookie
// with its token.
func TestCookieIsValidForItsRouteOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, keptPlain(), func(c *gateway.Config) {
			other := c.Routes[0]
			other.Pattern = "/other/*"
			c.Routes = append(c.Routes, other)
		})
		here, there := w.PlainWith("/", ownOrigin), w.PlainWith("/other/", ownOrigin)
		w.game.Next()
		w.game.Next()
		here.Drop()
		there.Drop()
		synctest.Wait()
		own, token, _ := strings.Cut(ours(t, here), "=")
		name, _, _ := strings.Cut(ours(t, there), "=")
		if name == own {
			t.Errorf("both routes' cookies are called %s", name)
		}
		w.PlainWith("/other/", ownOrigin+"Cookie: "+name+"="+token+"\r\n")
		if list, _ := w.gw.Sessions(registry.Filter{Limit: 10}); len(list) != 3 {
			t.Errorf("%d sessions, want 3: it gets its own", len(list))
		}
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
		if list, _ := w.gw.Sessions(registry.Filter{Limit: 10}); len(list) != 2 {
			t.Errorf("%d sessions, want 2: it gets its own", len(list))
		}
		if got := stranger.Answer.Header.Get("Sec-WebSocket-Protocol"); got != "" {
			t.Errorf("it is answered %q, which it did not offer", got)
		}
		again := w.PlainWith("/", offer+cookie)
		if got := again.Answer.Header.Get("Sec-WebSocket-Protocol"); got != "chat.v1" {
			t.Errorf("the resuming client is answered %q", got)
		}
		game.Pass(again, "still here")
	})
}
