package gateway_test

import (
	"bytes"
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
	"reseat/gateway/wire"
	"reseat/tokens/login"
)

// secret signs the tests' logins.
const secret = "0123456789abcdef0123456789abcdef"

func signed(t *testing.T, claims jwt.MapClaims) string {
	t.Helper()
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// loginOf is the login of a player, for so long.
func loginOf(t *testing.T, player string, life time.Duration) string {
	t.Helper()
	return signed(t, jwt.MapClaims{"sub": player, "aud": "game", "exp": time.Now().Add(life).Unix()})
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

func TestLoginsForOtherServicesAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newLoginWorld(t, "header", false)
		hour := time.Now().Add(time.Hour).Unix()
		p := w.begun(t, jwt.MapClaims{"sub": "ann", "aud": "game", "exp": hour})
		for name, token := range map[string]string{
			"another audience": signed(t, jwt.MapClaims{"sub": "ann", "aud": "shop", "exp": hour}),
			"expired":          signed(t, jwt.MapClaims{"sub": "ann", "aud": "game", "exp": time.Now().Unix()}),
			"nobody":           signed(t, jwt.MapClaims{"aud": "game", "exp": hour}),
			"a resume token":   p.Token,
			"none":             "",
		} {
			header := bearer(token)
			if token == "" {
				header = ""
			}
			_, _, resp, err := w.Handshake("/", []string{wire.Subprotocol}, header)
			if err != nil || resp.StatusCode != http.StatusUnauthorized || resp.Header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s: %v %v, want 401", name, resp, err)
			}
		}
		if n := w.game.Joined(); n != 0 {
			t.Errorf("%d dials", n)
		}
	})
}

// begun begins a session with a login in the header, and returns its hello.
func (w *world) begun(t *testing.T, claims jwt.MapClaims) wire.Hello {
	t.Helper()
	p := w.PlayerWith("/", bearer(signed(t, claims)))
	w.game.Next()
	return p.Hello
}

func TestUnusableKeyFileIsNamed(t *testing.T) {
	cfg := gateway.Config{Routes: []policy.Route{{Policy: policy.Policy{Auth: &policy.Auth{KeyFile: "/no/such/file"}}}}}
	if err := gateway.OpenLogins(t.Context(), &cfg); err == nil || !strings.HasPrefix(err.Error(), "--auth-key-file: ") {
		t.Errorf("%v, want an error that names --auth-key-file", err)
	}
}
