package gateway_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"reseat/gateway"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/policy"
	"reseat/gateway/session"
	"reseat/gateway/wire"
	"reseat/tokens"
	"reseat/tokens/login"
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
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, _ *wstest.Peer) {
		began := time.Now()
		p.WantControl(wire.VerbToken)
		if d := time.Since(began); d < 4*time.Minute || d > 6*time.Minute {
			t.Fatalf("renewed after %v, want 5 minutes", d)
		}
		p.WantControl(wire.VerbToken)
		time.Sleep(time.Hour)
		w.wantState(p, session.Attached)
	}, func(c *gateway.Config) { c.TokenTTL = 10 * time.Minute })
}

func TestExpiredTokenIsRefused(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, _ *wstest.Peer) {
		time.Sleep(61 * time.Second)
		p.TryResume(p.Hello.Token, "0").WantClosing(wire.CodeBadToken)
		w.wantState(p, session.Attached)
	}, func(c *gateway.Config) { c.TokenTTL = time.Minute })
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
