package gateway_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
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
	p := testPolicy()
	p.Login, p.Duplicate = &fakeLogin{}, d
	return p
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

func TestUpstreamGetsVerifiedPlayerOnly(t *testing.T) {
	inWorld(t, loggedIn(policy.Allow), func(t *testing.T, w *world) {
		p := w.Player("/?player=ann")
		if got := w.game.Next().Req.Header["Reseat-Player"]; len(got) != 1 || got[0] != "ann" {
			t.Errorf("Reseat-Player %q", got)
		}
		if i, _ := w.gw.Session(p.Hello.Session); i.Player != "ann" {
			t.Errorf("the session's player is %q", i.Player)
		}
	})
}

// The login of a resume must name the same player; it may have expired.
func TestLoginOfResumeMustNameTheSamePlayer(t *testing.T) {
	inWorld(t, loggedIn(policy.Allow), func(t *testing.T, w *world) {
		p := w.Player("/?player=ann")
		w.detach(p)
		for _, path := range []string{"/?player=bob", "/?player=-bob", "/?player=~ann"} {
			w.resumeAt(p, path).WantClosing(wire.CodeBadToken)
		}
		w.wantState(p, session.Detached)
		w.resumeAt(p, "/?player=-ann").WantControl(wire.VerbHello)
	})
}

// The token stands for the login. A page keeps sending its first login, whose key the issuer
// may have replaced since.
func TestLoginWithInvalidSignatureDoesNotRefuseResume(t *testing.T) {
	inWorld(t, loggedIn(policy.Allow), func(t *testing.T, w *world) {
		p := w.Player("/?player=ann")
		w.detach(p)
		w.resumeAt(p, "/?player=!").WantControl(wire.VerbHello)
		if status := w.refused("/?player=!"); status != http.StatusUnauthorized {
			t.Errorf("a new session with it: %d", status)
		}
	})
}

// A session that was created without a player is resumed by anyone with its token, logged in
// or not.
func TestPreCreatedSessionWithoutPlayerAcceptsAnyLogin(t *testing.T) {
	inWorld(t, loggedIn(policy.Allow), func(t *testing.T, w *world) {
		_, token, err := w.gw.Create(t.Context(), gateway.CreateRequest{Path: "/match/7"})
		if err != nil {
			t.Fatal(err)
		}
		c, err := w.Dial("/?player=ann", []string{wire.Subprotocol, "reseat.token." + token, "reseat.received.0"})
		if err != nil {
			t.Fatal(err)
		}
		c.WantControl(wire.VerbHello)
	})
}

// resumeAt resumes p with a handshake for path.
func (w *world) resumeAt(p *wstest.Player, path string) *wstest.Peer {
	w.t.Helper()
	c, err := w.Dial(path, []string{wire.Subprotocol, "reseat.token." + p.Hello.Token, "reseat.received.0"})
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

func TestNewestLoginTakesOver(t *testing.T) {
	inWorld(t, loggedIn(policy.Takeover), func(t *testing.T, w *world) {
		plain := w.Plain("/?player=ann")
		old := w.game.Next()
		p := w.Player("/?player=ann")
		plain.WantClose(1008)
		old.WantReason(wire.CodeGoingAway, "superseded")
		other := w.Player("/?player=bob")
		w.game.Next()
		second := w.game.Next()
		q := w.Player("/?player=ann")
		p.WantClosing(wire.CodeSuperseded)
		_ = second
		q.Sync()
		other.Sync()
		p.TryResume(p.Hello.Token, "0").WantClosing(wire.CodeNoSession)
	})
}

func TestLoginRefusedByUpstreamLeavesFirstSessionUntouched(t *testing.T) {
	for _, d := range []policy.Duplicate{policy.Takeover, policy.Reject} {
		inWorld(t, loggedIn(d), func(t *testing.T, w *world) {
			p := w.Player("/?player=ann")
			game := w.game.Next()
			w.game.Refuse = func(c net.Conn, _ *http.Request) bool {
				c.Write([]byte("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"))
				return true
			}
			if status := w.refused("/?player=ann"); status < 400 {
				t.Errorf("status %d", status)
			}
			game.Pass(p, "still here")
		})
	}
}

func TestSecondLoginIsRejectedWhileTheFirstAnswers(t *testing.T) {
	for name, speaks := range map[string]bool{"resumable": true, "plain": false} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, loggedIn(policy.Reject), func(t *testing.T, w *world) {
				var first *wstest.Peer
				if speaks {
					first = w.Player("/?player=ann").Peer
				} else {
					first = w.Plain("/?player=ann")
				}
				game := w.game.Next()
				if status := w.refused("/?player=ann"); status != http.StatusConflict {
					t.Errorf("status %d, want 409", status)
				}
				game.Pass(first, "untouched")
				w.wantNoDial()
			})
		})
	}
}

// A client with a 101 that is not attached yet is about to be: the second login waits for
// its answer, and does not treat it as disconnected.
func TestSecondLoginWaitsWhileFirstIsBeingAnswered(t *testing.T) {
	inWorld(t, loggedIn(policy.Reject), func(t *testing.T, w *world) {
		p := w.Player("/?player=ann")
		w.game.Next()
		p.Sync()
		done := w.gw.Answering(p.Hello.Session)
		status := make(chan int, 1)
		go func() { status <- w.refused("/?player=ann") }()
		synctest.Wait()
		select {
		case s := <-status:
			t.Errorf("answered %d meanwhile", s)
			done()
			return
		default:
		}
		done()
		if s := <-status; s != http.StatusConflict {
			t.Errorf("status %d, want 409", s)
		}
		w.wantState(p, session.Attached)
	})
}

func TestDisconnectedPlayerIsNotLockedOut(t *testing.T) {
	for name, leave := range map[string]func(p *wstest.Player){
		"detached":      func(p *wstest.Player) { p.Drop() },
		"half-open":     func(p *wstest.Player) { p.Conn.Silence() },
		"does not ping": func(p *wstest.Player) { p.Mute.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, loggedIn(policy.Reject), func(t *testing.T, w *world) {
				p := w.Player("/?player=ann")
				game := w.game.Next()
				p.Sync()
				leave(p)
				synctest.Wait()
				began := time.Now()
				q := w.Player("/?player=ann")
				if d := time.Since(began); d > 2*time.Second {
					t.Errorf("it took %v", d)
				}
				game.WantClose(wire.CodeGoingAway)
				w.wantState(q, session.Attached)
				w.wantState(p, session.Ended)
			})
		})
	}
}

// Of hundreds of concurrent logins of one player one session remains, whatever the order in
// which the upstreams answer.
func TestOneOfManyConcurrentLoginsStays(t *testing.T) {
	const many = 200
	for name, d := range map[string]policy.Duplicate{"takeover": policy.Takeover, "reject": policy.Reject} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, loggedIn(d), func(t *testing.T, w *world) {
				var dials atomic.Int64
				w.game.Refuse = func(net.Conn, *http.Request) bool {
					time.Sleep(time.Duration(dials.Add(1)*7919%500) * time.Millisecond)
					return false
				}
				accepted := make(chan *wstest.Peer, many)
				conflicts := make(chan int, many)
				for range many {
					go func() {
						c, err := w.Dial("/?player=ann", []string{wire.Subprotocol})
						switch {
						case err == nil:
							accepted <- c
						case strings.Contains(err.Error(), "409"):
							conflicts <- 1
						default:
							t.Error(err)
						}
					}()
				}
				time.Sleep(time.Minute)
				if n := len(accepted) + len(conflicts); n != many {
					t.Fatalf("%d answers, want %d", n, many)
				}
				list, _ := w.gw.Sessions(registry.Filter{Player: "ann", Limit: many})
				if len(list) != 1 || list[0].State != "attached" {
					t.Fatalf("%d sessions are left", len(list))
				}
				if d == policy.Reject && (len(accepted) != 1 || dials.Load() != 1) {
					t.Errorf("%d accepted after %d dials, want one", len(accepted), dials.Load())
				}
				live := 0
				for range len(accepted) {
					c := <-accepted
					c.WantControl(wire.VerbHello)
					for m, ok := c.Come(); ok && m.Verb != wire.VerbClose; m, ok = c.Come() {
					}
					if c.Control("ping x"); stillThere(c) {
						live++
					}
				}
				if live != 1 {
					t.Errorf("%d of the clients are attached, want 1", live)
				}
			})
		})
	}
}

// stillThere reports whether the gateway answers a ping on this connection.
func stillThere(c *wstest.Peer) bool {
	time.Sleep(time.Second)
	for m, ok := c.Come(); ok; m, ok = c.Come() {
		if m.Verb == wire.VerbPong {
			return true
		}
	}
	return false
}

func TestDuplicateAllowPermitsManySessionsPerPlayer(t *testing.T) {
	inWorld(t, loggedIn(policy.Allow), func(t *testing.T, w *world) {
		for i := range 5 {
			w.Player(fmt.Sprintf("/%d?player=ann", i)).Sync()
		}
		if list, _ := w.gw.Sessions(registry.Filter{Player: "ann", State: "attached", Limit: 10}); len(list) != 5 {
			t.Errorf("%d sessions", len(list))
		}
	})
}
