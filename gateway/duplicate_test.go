package gateway_test

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/policy"
	"reseat/gateway/registry"
	"reseat/gateway/session"
	"reseat/gateway/wire"
	"reseat/tokens/login"
	"reseat/upstream"
)

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

func TestHandshakeWithInvalidLoginIsRefusedBeforeAnyDial(t *testing.T) {
	inWorld(t, loggedIn(policy.Allow), func(t *testing.T, w *world) {
		for _, path := range []string{"/", "/?player=!", "/?player=-ann"} {
			_, _, resp, err := w.Handshake(path, []string{wire.Subprotocol}, "")
			if err != nil || resp.StatusCode != http.StatusUnauthorized || !strings.HasPrefix(resp.Header.Get("WWW-Authenticate"), "Bearer") {
				t.Errorf("%s: %v %v, want 401 and WWW-Authenticate", path, resp, err)
			}
		}
		w.wantNoDial()
	})
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

func TestLoginRefusedByUpstreamLeavesFirstSessionUntouched(t *testing.T) {
	for _, d := range []policy.Duplicate{policy.Takeover, policy.Reject} {
		inWorld(t, loggedIn(d), func(t *testing.T, w *world) {
			p, game := w.loginAs("ann")
			w.game.Refuse = func(c net.Conn, _ *http.Request) bool {
				c.Write([]byte("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"))
				return true
			}
			if status := w.refused("/?player=ann"); status < 400 {
				t.Errorf("status %d, want a refusal", status)
			}
			game.Pass(p, "still here")
		})
	}
}

// A client with a 101 that is not attached yet is about to be: the second login waits for
// its answer, and does not treat it as disconnected.
func TestSecondLoginWaitsWhileFirstIsBeingAnswered(t *testing.T) {
	inWorld(t, loggedIn(policy.Reject), func(t *testing.T, w *world) {
		p, _ := w.loginAs("ann")
		p.Sync()
		done := w.gw.Answering(p.Hello.Session)
		status := make(chan int, 1)
		go func() { status <- w.refused("/?player=ann") }()
		synctest.Wait()
		wstest.Equal(t, "answers meanwhile", len(status), 0)
		done()
		wstest.Equal(t, "the second login is answered", <-status, http.StatusConflict)
		w.wantState(p, session.Attached)
	})
}

func TestDisconnectedPlayerIsNotLockedOut(t *testing.T) {
	eachInBubble(t, map[string]func(p *wstest.Player){
		"detached":      func(p *wstest.Player) { p.Drop() },
		"half-open":     func(p *wstest.Player) { p.Conn.Silence() },
		"does not ping": func(p *wstest.Player) { p.Mute.Store(true) },
	}, func(t *testing.T, leave func(*wstest.Player)) {
		w := newWorld(t, loggedIn(policy.Reject))
		p, game := w.loginAs("ann")
		p.Sync()
		leave(p)
		synctest.Wait()
		began := time.Now()
		q, _ := w.loginAs("ann")
		if d := time.Since(began); d > 2*time.Second {
			t.Errorf("the second login took %v, want 2s at most", d)
		}
		game.WantClose(wire.CodeGoingAway)
		w.wantState(q, session.Attached)
		w.wantState(p, session.Ended)
	})
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
