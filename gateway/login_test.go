package gateway_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
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
	"reseat/tokens"
	"reseat/tokens/login"
	"reseat/upstream"
)

// secret signs the tests' logins.
const secret = "0123456789abcdef0123456789abcdef"

// loginOf is the login of a player, for so long, signed by the secret or another key.
func loginOf(t *testing.T, player string, life time.Duration, key ...string) string {
	t.Helper()
	claims := jwt.MapClaims{"sub": player, "aud": "game", "exp": time.Now().Add(life).Unix()}
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString([]byte(append(key, secret)[0]))
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// bearer is the header of a login.
func bearer(token string) string { return "Authorization: Bearer " + token + "\r\n" }

// seen is all that a game server sees of a request.
func seen(r *http.Request) string {
	var all bytes.Buffer
	r.Header.Write(&all)
	return all.String() + r.RequestURI
}

// loginKey is a file that holds the secret.
func loginKey(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// newLoginWorld is a world with logins, and its log.
func newLoginWorld(t *testing.T, from string, conceal bool, change ...func(*policy.Policy)) (*world, *bytes.Buffer) {
	t.Helper()
	sources, err := login.ParseSources(from)
	if err != nil {
		t.Fatal(err)
	}
	pol := testPolicy()
	pol.Auth = &policy.Auth{KeyFile: loginKey(t), Audience: "game", From: sources, Conceal: conceal}
	for _, f := range change {
		f(&pol)
	}
	said := new(bytes.Buffer)
	w := newWorld(t, pol, func(c *gateway.Config) {
		c.Log = slog.New(slog.NewTextHandler(said, &slog.HandlerOptions{Level: slog.LevelDebug}))
		if err := gateway.OpenLogins(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	})
	return w, said
}

// A login is found in every place, and the game server sees only as much of it as configured: in handshakes, and in ordinary
// requests, since pages, scripts and matchmaking carry the same. None of it is logged.
func TestLoginIsFoundAndConcealed(t *testing.T) {
	for name, c := range map[string]struct {
		from, path, header string // $ is the JWT
		offer              []string
		concealed          string // path and query that the upstream gets with --auth-forward off
	}{
		"header":   {"header", "/m?x=1", "Authorization: Bearer $\r\n", nil, "/m?x=1"},
		"query":    {"query:token", "/m?x=1&token=$&y=2", "", nil, "/m?x=1&y=2"},
		"cookie":   {"cookie:sid", "/m?x=1", "Origin: http://game.example\r\nCookie: a=1; sid=$; b=2\r\n", nil, "/m?x=1"},
		"protocol": {"protocol:auth.", "/m?x=1", "", []string{"chat.v2", "auth.$"}, "/m?x=1"},
	} {
		for _, conceal := range []bool{false, true} {
			t.Run(name+map[bool]string{false: "/forwarded", true: "/concealed"}[conceal], func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w, said := newLoginWorld(t, c.from, conceal)
					token := loginOf(t, "ann", time.Hour)
					fill := func(s string) string { return strings.ReplaceAll(s, "$", token) }
					offer := []string{wire.Subprotocol}
					for _, p := range c.offer {
						offer = append(offer, fill(p))
					}
					w.game.Choose = ""
					_, _, resp, err := w.Handshake(fill(c.path), offer, fill(c.header))
					if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
						t.Fatalf("%v %v, want 101", resp, err)
					}
					req := w.game.Next().Req
					if req.Header.Get("Reseat-Player") != "ann" {
						t.Errorf("Reseat-Player %q", req.Header.Get("Reseat-Player"))
					}
					if strings.Contains(strings.Join(req.Header["Sec-Websocket-Protocol"], ","), token) {
						t.Error("the login is among the subprotocols offered to the upstream")
					}
					wantSeen := func(r *http.Request) {
						wstest.Equal(t, "the upstream sees the login", strings.Contains(seen(r), token), !conceal && name != "protocol")
						if conceal {
							wstest.Equal(t, "the upstream was asked for", r.RequestURI, c.concealed)
						}
					}
					wantSeen(req)
					if name != "protocol" {
						w.game.Refuse = func(conn net.Conn, r *http.Request) bool {
							wantSeen(r)
							io.WriteString(conn, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
							conn.Close()
							return true
						}
						wstest.Equal(t, "the status of an ordinary request", w.get(fill(c.path), fill(c.header)).StatusCode, http.StatusNoContent)
						w.game.Refuse = nil
					}
					w.Handshake(fill(c.path)+"x", offer, "Authorization: Bearer "+token+"forged\r\n")
					synctest.Wait()
					if strings.Contains(said.String(), token) {
						t.Errorf("the log holds the login: %s", said)
					}
				})
			})
		}
	}
}

// A game server may look for a login in another place first than the gateway: it must not
// find an unverified one there, T3.
func TestOnlyVerifiedLoginReachesUpstream(t *testing.T) {
	for name, request := range map[string]struct{ path, header string }{ // $ is the JWT, ! a forged one
		"query":        {"/m?x=1&token=!&y=2", "Authorization: Bearer $\r\n"},
		"query, twice": {"/m?token=$&x=1&token=!&y=2", "Authorization: Bearer $\r\n"},
		"cookie":       {"/m?x=1&y=2", "Authorization: Bearer $\r\nCookie: sid=!\r\n"},
		"both":         {"/m?x=1;token=!&y=2", "Authorization: Bearer $\r\nCookie: sid=!; a=1\r\nCookie: sid=\"!\"\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, _ := newLoginWorld(t, "header,query:token,cookie:sid", false)
				good, forged := loginOf(t, "ann", time.Hour), loginOf(t, "bob", time.Hour)+"x"
				fill := strings.NewReplacer("$", good, "!", forged).Replace
				if _, _, resp, err := w.Handshake(fill(request.path), []string{wire.Subprotocol}, fill(request.header)); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
					t.Fatalf("%v %v, want 101", resp, err)
				}
				req := w.game.Next().Req
				if all := seen(req); strings.Contains(all, forged) || !strings.Contains(all, "Authorization: Bearer "+good) {
					t.Errorf("the upstream sees %s", all)
				}
				if !strings.Contains(req.URL.RawQuery, "x=1") || !strings.HasSuffix(req.URL.RawQuery, "y=2") {
					t.Errorf("the query has become %q", req.URL.RawQuery)
				}
			})
		})
	}
}

// A hard resume passes on the headers of the newest handshake, whose login is optional and
// may be invalid.
func TestHardResumeForwardsNoUnverifiedLogin(t *testing.T) {
	for name, c := range map[string]struct {
		sub, tail string
		life      time.Duration
		seen      bool
	}{
		"good":    {"ann", "", time.Hour, true},
		"expired": {"ann", "", -time.Hour, true},
		"forged":  {"bob", "x", time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, _ := newLoginWorld(t, "header", false, func(p *policy.Policy) { p.Hard = true })
				p := w.PlayerWith("/", bearer(loginOf(t, "ann", time.Hour)))
				w.game.Next()
				w.detach(p)
				token := loginOf(t, c.sub, c.life) + c.tail
				offer := []string{wire.Subprotocol, "reseat.token." + p.Hello.Token, "reseat.received.0"}
				if _, _, resp, err := w.Handshake("/", offer, bearer(token)); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
					t.Fatalf("%v %v, want 101", resp, err)
				}
				h := w.game.Next().Req.Header
				if got := h.Get("Authorization") == "Bearer "+token; got != c.seen || h.Get("Reseat-Player") != "ann" {
					t.Errorf("the upstream sees %v", h)
				}
			})
		})
	}
}

func TestUnusableKeyFileIsNamed(t *testing.T) {
	cfg := gateway.Config{Routes: []policy.Route{{Policy: policy.Policy{Auth: &policy.Auth{KeyFile: "/no/such/file"}}}}}
	if err := gateway.OpenLogins(t.Context(), &cfg); err == nil || !strings.HasPrefix(err.Error(), "--auth-key-file: ") {
		t.Errorf("%v, want an error that names --auth-key-file", err)
	}
}

// keyFiles makes secrets, and a Config change that uses them.
func keyFiles(t *testing.T, names ...string) ([]string, func(*gateway.Config)) {
	t.Helper()
	dir := t.TempDir()
	var files []string
	for _, n := range names {
		f := filepath.Join(dir, n)
		writeKey(t, f, n)
		files = append(files, f)
	}
	keys, err := tokens.Load(files, tokens.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return files, func(c *gateway.Config) { c.Keys = keys }
}

func writeKey(t *testing.T, file, seed string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(strings.Repeat(seed+"0123456789abcdef", 4)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// reload reads all keys again.
func (w *world) reload() {
	w.t.Helper()
	if errs := w.gw.Reload(); errs != nil {
		w.t.Fatal(errs)
	}
}

func kid(t *testing.T, token string) string {
	t.Helper()
	head, _, _ := strings.Cut(token, ".")
	b, err := base64.RawURLEncoding.DecodeString(head)
	if err != nil {
		t.Fatal(err)
	}
	var h struct{ Kid string }
	if err := json.Unmarshal(b, &h); err != nil {
		t.Fatal(err)
	}
	return h.Kid
}

func TestSessionsSurviveKeyRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		files, with := keyFiles(t, "new", "old")
		writeKey(t, files[0], "old") // both have the old key at first
		w := newWorld(t, testPolicy(), with)
		w.reload()
		attached, _ := w.play()
		away, _ := w.play()
		first := away.Hello.Token
		w.detach(away)
		writeKey(t, files[0], "new")
		w.reload()
		m := attached.WantControl(wire.VerbToken)
		var renewed struct{ Token string }
		if err := json.Unmarshal([]byte(m.Data), &renewed); err != nil {
			t.Fatal(err)
		}
		if kid(t, renewed.Token) == kid(t, attached.Hello.Token) {
			t.Fatal("the renewed token is by the old key")
		}
		away = away.Resume(0) // the old key still verifies
		attached.Hello.Token = renewed.Token
		writeKey(t, files[1], "another")
		w.reload()
		attached.Resume(0)
		w.wantState(away, session.Attached)
		away.TryResume(first, "0").WantClosing(wire.CodeBadToken) // the old one verifies no token any more
	})
}

// Token keys and login keys are independent: an invalid file does not affect the others, and
// the log says which keys are in force.
func TestBadKeyFileDoesNotAffectOtherKeys(t *testing.T) {
	const otherSecret = "fedcba9876543210fedcba9876543210"
	for _, c := range []struct {
		bad              string
		oldLogin, newKey bool // in force after the reload: the old login key, the new token key
	}{{"login", true, true}, {"token", false, false}} {
		t.Run(c.bad, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tokenFiles, with := keyFiles(t, "a")
				pol := testPolicy()
				pol.Auth = headerLogin(t)
				var log wstest.Log
				w := newWorld(t, pol, with, func(c *gateway.Config) {
					c.Log = slog.New(slog.NewTextHandler(&log, nil))
					if err := gateway.OpenLogins(t.Context(), c); err != nil {
						t.Fatal(err)
					}
				})
				header := func(key string) string { return bearer(loginOf(t, "ann", time.Hour, key)) }
				old := kid(t, w.PlayerWith("/", header(secret)).Hello.Token)

				writeKey(t, tokenFiles[0], "b")
				loginText := otherSecret
				flag, bad := "--token-key-file", tokenFiles[0]
				if c.bad == "login" {
					flag, bad, loginText = "--auth-key-file", pol.Auth.KeyFile, "short"
				} else {
					os.WriteFile(bad, []byte("short"), 0o600)
				}
				os.WriteFile(pol.Auth.KeyFile, []byte(loginText), 0o600)

				if errs := w.gw.Reload(); len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), flag+": ") || !strings.Contains(errs[0].Error(), bad) {
					t.Fatalf("errors %v, want one about %s %s", errs, flag, bad)
				}
				good, refused := otherSecret, secret
				if c.oldLogin {
					good, refused = secret, otherSecret
				}
				if _, _, resp, err := w.Handshake("/", []string{wire.Subprotocol}, header(refused)); err != nil || resp.StatusCode != 401 {
					t.Errorf("a login by a key that should not be in force: %v, %v", resp.Status, err)
				}
				if changed := kid(t, w.PlayerWith("/", header(good)).Hello.Token) != old; changed != c.newKey {
					t.Errorf("tokens are by a new key: %t, want %t", changed, c.newKey)
				}
				if said := strings.Contains(log.String(), "keys.reloaded"); said != c.newKey {
					t.Errorf("the log says that the token keys were read: %t, want %t", said, c.newKey)
				}
			})
		})
	}
}

func TestTokenIsRenewedAtHalfItsLifetime(t *testing.T) {
	inScene(t, testPolicy(), func(s *scene) {
		s.play(`mark; client< ^token; took 4m to 6m; client< ^token; 1h; attached`)
	}, func(c *gateway.Config) { c.TokenTTL = 10 * time.Minute })
}

func TestExpiredTokenIsRefused(t *testing.T) {
	inScene(t, testPolicy(), func(s *scene) { s.play(`61s; refused 4401; attached`) }, func(c *gateway.Config) { c.TokenTTL = time.Minute })
}

type syncBuffer = wstest.Log

func TestNoTokenReachesLogsMetricsOrTheUpstream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log wstest.Log
		w := newWorld(t, testPolicy(), func(c *gateway.Config) {
			c.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		})
		canary := "CANARY" + strings.Repeat("x", 40)
		p, game := w.play()
		w.detach(p)
		p.TryResume(canary+".a.b", "0").WantClosing(wire.CodeBadToken)
		p.TryResume(p.Hello.Token+canary, "0").WantClosing(wire.CodeBadToken)
		first := p.Hello.Token
		p = p.Resume(0)
		p.Sync()
		p.TryResume(first, "0").WantClosing(wire.CodeBadToken) // superseded
		w.Player("/x?login=" + canary)
		families, err := w.gw.Watch().Metrics.Registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		for _, f := range families {
			out.WriteString(f.String())
		}
		head := game.Req.Header
		for _, secret := range []string{canary, first, p.Hello.Token, strings.Split(first, ".")[2]} {
			if strings.Contains(log.String(), secret) {
				t.Errorf("the log contains %.20s", secret)
			}
			if strings.Contains(out.String(), secret) {
				t.Errorf("the metrics contain %.20s", secret)
			}
			for k, v := range head {
				if strings.Contains(strings.Join(v, " "), secret) {
					t.Errorf("the upstream's header %s contains %.20s", k, secret)
				}
			}
		}
		if !strings.Contains(log.String(), "token.replayed") {
			t.Error("a superseded token was not reported")
		}
	})
}

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

// A fakeLogin is a login by the query parameter player: "-NAME" is expired, "~NAME" is for
// another service, "!" is forged.
type fakeLogin struct{}

func (*fakeLogin) Find(r *http.Request) (string, error) {
	if name := r.URL.Query().Get("player"); name != "" {
		return name, nil
	}
	return "", login.ErrMissing
}

func (n *fakeLogin) Verify(ctx context.Context, token string) (string, error) {
	if strings.HasPrefix(token, "-") {
		return "", login.ErrExpired
	}
	return n.VerifyExpired(ctx, token)
}

func (*fakeLogin) VerifyExpired(_ context.Context, token string) (string, error) {
	switch {
	case token == "!":
		return "", login.ErrForged
	case strings.HasPrefix(token, "~"):
		return "", login.ErrForeign
	}
	return strings.TrimPrefix(token, "-"), nil
}

func (*fakeLogin) Conceal(*upstream.Request)                    {}
func (*fakeLogin) InCookie(*http.Request) bool                  { return false }
func (*fakeLogin) Only(r *http.Request, _ string) *http.Request { return r }

func (n *fakeLogin) Realm() any { return n }

func loggedIn(d policy.Duplicate) policy.Policy {
	return changed(testPolicy(), func(p *policy.Policy) { p.Login, p.Duplicate = &fakeLogin{}, d })
}

// refused returns the status of a handshake that is refused by HTTP.
func (w *world) refused(path string) int {
	w.t.Helper()
	_, _, resp, err := w.Handshake(path, []string{wire.Subprotocol}, "")
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.StatusCode
}

// loginAs begins a session of a player.
func (w *world) loginAs(player string) (*wstest.Player, *wstest.Peer) {
	w.t.Helper()
	p := w.Player("/?player=" + player)
	return p, w.game.Next()
}

// resumeAt resumes p with a handshake for path.
func (w *world) resumeAt(p *wstest.Player, path string) *wstest.Peer {
	w.t.Helper()
	c, err := w.Dial(path, resumeOffer(p))
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// The login of a resume must name the same player. The token stands for the login, which may have expired; and a page
// keeps sending its first login, whose key the issuer may have replaced since.
func TestLoginOfResumeMustNameTheSamePlayer(t *testing.T) {
	inWorld(t, loggedIn(policy.Allow), func(t *testing.T, w *world) {
		p, _ := w.loginAs("ann")
		w.detach(p)
		for _, path := range []string{"/?player=bob", "/?player=-bob", "/?player=~ann"} {
			w.resumeAt(p, path).WantClosing(wire.CodeBadToken)
		}
		w.wantState(p, session.Detached)
		for _, path := range []string{"/?player=-ann", "/?player=!"} {
			w.resumeAt(p, path).WantControl(wire.VerbHello)
		}
	})
}

// A client with a 101 that is not attached yet is about to be: the second login waits for
// its answer, and does not treat it as disconnected.
func TestSecondLoginWaitsWhileFirstIsBeingAnswered(t *testing.T) {
	inScene(t, loggedIn(policy.Reject), func(s *scene) {
		s.play(`sync`)
		done := s.gw.Answering(s.client.Hello.Session)
		status := make(chan int, 1)
		go func() { status <- s.refused("/?player=ann") }()
		synctest.Wait()
		wstest.Equal(t, "answers meanwhile", len(status), 0)
		done()
		wstest.Equal(t, "the second login is answered", <-status, http.StatusConflict)
		s.play(`attached`)
	})
}

func TestDisconnectedPlayerIsNotLockedOut(t *testing.T) {
	scripts := map[string]scripted{}
	for _, leaves := range []string{`drops`, `is silent`, `is mute`} { // detached, half-open, or no answer to pings
		scripts[leaves] = scripted{loggedIn(policy.Reject), `sync; client ` + leaves + `; mark; begin /?player=ann; took 0s to 2s; attached; before< Close 1001`}
	}
	playEach(t, scripts)
}

// Of hundreds of concurrent logins of one player one session remains, whatever the order in
// which the upstreams answer.
func TestOneOfManyConcurrentLoginsStays(t *testing.T) {
	const many = 200
	eachInBubble(t, map[string]policy.Duplicate{"takeover": policy.Takeover, "reject": policy.Reject}, func(t *testing.T, d policy.Duplicate) {
		w := newWorld(t, loggedIn(d))
		var dials, accepted, conflicts atomic.Int64
		w.game.Refuse = func(net.Conn, *http.Request) bool {
			time.Sleep(time.Duration(dials.Add(1)*7919%500) * time.Millisecond)
			return false
		}
		for range many {
			go func() {
				_, err := w.Dial("/?player=ann", []string{wire.Subprotocol})
				switch {
				case err == nil:
					accepted.Add(1)
				case strings.Contains(err.Error(), "409"):
					conflicts.Add(1)
				default:
					t.Error(err)
				}
			}()
		}
		time.Sleep(time.Minute)
		wstest.Equal(t, "answers", accepted.Load()+conflicts.Load(), many)
		list, _ := w.gw.Control().Sessions(registry.Filter{Player: "ann", Limit: many})
		if len(list) != 1 || list[0].State != "attached" {
			t.Fatalf("sessions %+v, want one that is attached", list)
		}
		if d == policy.Reject && (accepted.Load() != 1 || dials.Load() != 1) {
			t.Errorf("%d accepted after %d dials, want one", accepted.Load(), dials.Load())
		}
	})
}

// Of the cookies that a plain client may send, only the gateway's own one resumes its session: alone, at the route, with the
// login and with the subprotocol of its first handshake. The others begin sessions of their own.
func TestCookiesThatResumeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pol := loggedIn(policy.Allow)
		pol.PlainResume = true
		w, keys := newKeyedWorld(t, pol, func(c *gateway.Config) {
			other := c.Routes[0]
			other.Pattern = "/other/*"
			c.Routes = append(c.Routes, other)
		})
		const here, there, offer = "/?player=ann", "/other/?player=ann", ownOrigin + "Sec-WebSocket-Protocol: chat.v1\r\n"
		w.game.Choose = "chat.v1"
		first := w.PlainWith(here, offer)
		id := w.game.Next().Req.Header.Get("Reseat-Session")
		stranger := w.PlainWith(there, offer)
		w.game.Next()
		w.game.Choose = ""
		p := w.Player(here)
		w.game.Next()
		first.Drop()
		w.detach(p)
		cookie := ours(t, first)
		name, token, _ := strings.Cut(cookie, "=")
		foreign, _, _ := strings.Cut(ours(t, stranger), "=")
		if foreign == name {
			t.Errorf("both routes' cookies are called %s", name)
		}
		state := func() string {
			synctest.Wait()
			i, _ := w.gw.Control().Session(id)
			return i.State
		}
		for what, c := range map[string]struct{ path, offer, cookie string }{
			"twice, so that somebody else set one of them":           {here, offer, cookie + "; " + cookie},
			"another one of its name behind it":                      {here, offer, cookie + "; " + name + "=x"},
			"another one of its name before it":                      {here, offer, name + "=x; " + cookie},
			"under another name":                                     {here, offer, "reseat-00000000=" + token},
			"of another subject":                                     {here, offer, name + "=" + forged(t, keys, id, "bob", 1)},
			"the token of a resumable session, which pages can read": {here, offer, name + "=" + p.Hello.Token},
			"at another route":                                       {there, offer, foreign + "=" + token},
			"with another player's login":                            {"/?player=bob", offer, cookie},
			"without the subprotocol":                                {here, ownOrigin, cookie},
		} {
			w.game.Choose = map[bool]string{true: "chat.v1"}[c.offer == offer]
			plain := w.PlainWith(c.path, c.offer+"Cookie: "+c.cookie+"\r\n")
			if synctest.Wait(); w.game.Joined() != 1 {
				t.Errorf("%s: it resumes a session", what)
				plain.Drop()
				synctest.Wait()
				continue
			}
			if got := w.game.Next().Req.Header.Get("Reseat-Session"); got == "" || got == id || got == p.Hello.Session {
				t.Errorf("%s: it is given session %q, want a new one", what, got)
			}
			plain.Drop()
			w.wantState(p, session.Detached)
			wstest.Equal(t, what+": the session", state(), session.Detached.String())
		}
		back := w.PlainWith(here, offer+"Cookie: a=1; "+cookie+"; b=2\r\n")
		wstest.Equal(t, "with one cookie the session", state(), session.Attached.String())
		wstest.Equal(t, "its subprotocol", back.Answer.Header.Get("Sec-WebSocket-Protocol"), "chat.v1")
	})
}

// The cookie is valid only for pages of an allowed origin, and for plain clients.
func TestCookieIsUselessElsewhere(t *testing.T) {
	inVisit(t, func(t *testing.T, w *world, p, game *wstest.Peer, cookie string) {
		if strings.Contains(seen(game.Req), "reseat-") {
			t.Errorf("the upstream sees the cookie: %v", game.Req.Header)
		}
		p.Drop()
		synctest.Wait()
		w.wantAnswered(http.StatusForbidden, "/", nil, "Cookie: "+cookie+"\r\n")
		w.wantAnswered(http.StatusForbidden, "/", nil, "Origin: http://evil.example\r\nCookie: "+cookie+"\r\n")
		_, token, _ := strings.Cut(cookie, "=")
		w.resumeAt(&wstest.Player{Hello: wire.Hello{Token: token}}, "/").WantClosing(wire.CodeBadToken)
		wstest.Equal(t, "state", w.onlySession().State, session.Detached.String())
	})
}
