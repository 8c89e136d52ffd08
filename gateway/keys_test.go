package gateway_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
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
)

var gatewayAll = registry.Filter{Limit: 1000}

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
		away.Sync()
		away.Drop()
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
	})
}

// The keys of an unreadable file stay in force. A key that is replaced verifies no token any more.
func TestTokenOfRemovedKeyIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		files, with := keyFiles(t, "a")
		w, p, _ := newDetached(t, testPolicy(), with)
		os.WriteFile(files[0], []byte("short"), 0o600)
		if errs := w.gw.Reload(); len(errs) != 1 || !strings.Contains(errs[0].Error(), files[0]) {
			t.Fatalf("errors %v, want one that names the file", errs)
		}
		p = p.Resume(0)
		w.detach(p)
		writeKey(t, files[0], "b")
		w.reload()
		p.TryResume(p.Hello.Token, "0").WantClosing(wire.CodeBadToken)
		w.wantState(p, session.Detached)
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
				var log syncBuffer
				w := newWorld(t, pol, with, func(c *gateway.Config) {
					c.Log = slog.New(slog.NewTextHandler(&log, nil))
					if err := gateway.OpenLogins(t.Context(), c); err != nil {
						t.Fatal(err)
					}
				})
				header := func(key string) string {
					claims := jwt.MapClaims{"sub": "ann", "aud": "game", "exp": time.Now().Add(time.Hour).Unix()}
					token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString([]byte(key))
					if err != nil {
						t.Fatal(err)
					}
					return "Authorization: Bearer " + token + "\r\n"
				}
				old := kid(t, w.PlayerWith("/", header(secret)).Hello.Token)

				writeKey(t, tokenFiles[0], "b")
				loginText := otherSecret
				bad := tokenFiles[0]
				if c.bad == "login" {
					bad, loginText = pol.Auth.KeyFile, "short"
				} else {
					os.WriteFile(bad, []byte("short"), 0o600)
				}
				os.WriteFile(pol.Auth.KeyFile, []byte(loginText), 0o600)

				if errs := w.gw.Reload(); len(errs) != 1 || !strings.Contains(errs[0].Error(), bad) {
					t.Fatalf("errors %v, want one about %s", errs, bad)
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

// The longer of the two grace periods counts at the issue.
func TestTokenLivesTwiceTheLongerGracePeriod(t *testing.T) {
	for _, c := range []struct{ grace, before time.Duration }{
		{time.Minute, time.Second}, {time.Second, time.Minute},
	} {
		inSession(t, changed(testPolicy(), func(p *policy.Policy) { p.Grace, p.GraceBeforeStart = c.grace, &c.before }), func(t *testing.T, w *world, p *wstest.Player, _ *wstest.Peer) {
			if life := time.Until(expiry(t, p.Hello.Token)); life < 2*time.Minute {
				t.Errorf("grace %v, before the start %v: the token's lifetime is %v, want 2m", c.grace, c.before, life)
			}
		}, func(c *gateway.Config) { c.TokenTTL = time.Second })
	}
}

// expiry returns a token's exp.
func expiry(t *testing.T, token string) time.Time {
	t.Helper()
	var claims jwt.RegisteredClaims
	if _, _, err := jwt.NewParser().ParseUnverified(token, &claims); err != nil {
		t.Fatal(err)
	}
	return claims.ExpiresAt.Time
}

func TestExpiredTokenIsRefused(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, _ *wstest.Peer) {
		time.Sleep(61 * time.Second)
		p.TryResume(p.Hello.Token, "0").WantClosing(wire.CodeBadToken)
		w.wantState(p, session.Attached)
	}, func(c *gateway.Config) { c.TokenTTL = time.Minute })
}

// syncBuffer is a log that can be read while it is written.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func TestNoTokenReachesLogsMetricsOrTheUpstream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log syncBuffer
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
		families, err := w.gw.Metrics().Gather()
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
