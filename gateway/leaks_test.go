package gateway_test

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/policy"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

func wantNothingLeft(t *testing.T, w *world) {
	t.Helper()
	time.Sleep(time.Minute)
	synctest.Wait()
	if left := gateway.Leftovers(w.gw); len(left) > 0 {
		t.Errorf("still held: %v", left)
	}
}

// The client of a failingConn has disconnected: writes fail.
type failingConn struct{ net.Conn }

func (failingConn) Write([]byte) (int, error) { return 0, errors.New("disconnected") }

// The client has disconnected when its game server accepts. Nobody could resume that
// session, so it ends at once, with its upstream.
func TestNothingIsHeldForClientThatDisconnectsBeforeItsAnswer(t *testing.T) {
	inWorld(t, loggedIn(policy.Takeover), func(t *testing.T, w *world) {
		door := w.through(func(c net.Conn) net.Conn { return failingConn{c} })
		if _, err := door.Dial("/?player=ann", []string{wire.Subprotocol}); err == nil {
			t.Fatal("it was answered")
		}
		w.game.Next().WantEnd()
		wantNothingLeft(t, w)
	})
}

// The same for sessions of players.
func TestNothingIsHeldForPlayersAfterTheirSessionsEnd(t *testing.T) {
	inWorld(t, loggedIn(policy.Takeover), func(t *testing.T, w *world) {
		for _, player := range []string{"ann", "bob", "ann"} {
			w.Player("/?player=" + player).Control(`bye {"code":1000,"reason":""}`)
		}
		wantNothingLeft(t, w)
	})
}

// A pre-created session that is accepted after a newer one of its player leaves no
// connection behind.
func TestPreCreatedSessionAcceptedTooLateIsClosed(t *testing.T) {
	inWorld(t, loggedIn(policy.Takeover), func(t *testing.T, w *world) {
		w.delayFirstDial()
		made := make(chan error)
		go func() {
			_, _, err := w.gw.Create(t.Context(), gateway.CreateRequest{Path: "/", Player: "ann"})
			made <- err
		}()
		synctest.Wait()
		newest := w.Player("/?player=ann")
		w.game.Next()
		if err := <-made; !errors.Is(err, gateway.ErrDuplicate) {
			t.Errorf("%v, want ErrDuplicate", err)
		}
		w.game.Next().WantEnd()
		newest.Sync()
	})
}

// A login that is still being dialled does not end the one that the game server has
// accepted: it may yet be refused.
func TestAcceptedLoginStaysIfNewerOneIsRefused(t *testing.T) {
	inWorld(t, loggedIn(policy.Takeover), func(t *testing.T, w *world) {
		var dials atomic.Int64
		w.game.Refuse = func(c net.Conn, _ *http.Request) bool {
			n := dials.Add(1)
			time.Sleep(time.Duration(n) * time.Second)
			if n == 2 {
				c.Close()
			}
			return n == 2
		}
		older := make(chan *wstest.Player)
		go func() { older <- w.Player("/?player=ann") }()
		synctest.Wait()
		newer := make(chan int)
		go func() { newer <- w.refused("/?player=ann") }()
		p := <-older
		if status := <-newer; status < 500 {
			t.Errorf("the newer login is answered %d, want the game server's failure", status)
		}
		w.wantState(p, session.Attached)
		p.Sync()
	})
}

// The session ends just as its new upstream has answered: that connection is closed, and the
// client learns of the end.
func TestUpstreamDialledForEndedSessionIsClosed(t *testing.T) {
	inWorld(t, hard(), func(t *testing.T, w *world) {
		p := w.detachedHard()
		gate := make(chan struct{})
		c := p.At(w.gatedDoor(gate)).TryResume(p.Hello.Token, "0")
		game := w.game.Next()
		synctest.Wait()
		w.gw.End(p.Hello.Session, 1000, "enough")
		close(gate)
		c.WantClosing(wire.CodeEnded)
		game.WantEnd()
	})
}

// Ending a session, and Close, cancel its first dial: they do not wait for a game server.
func TestEndCancelsFirstDial(t *testing.T) {
	for name, begin := range map[string]func(w *world){
		"handshake": func(w *world) { w.refused("/") },
		"ahead":     func(w *world) { w.gw.Create(w.t.Context(), gateway.CreateRequest{Path: "/"}) },
	} {
		for how, end := range map[string]func(w *world){
			"End":   func(w *world) { w.gw.End(w.onlySession().ID, 1000, "enough") },
			"Close": func(w *world) { w.gw.Close() },
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				inWorld(t, testPolicy(), func(t *testing.T, w *world) {
					w.game.Refuse = afterEightSeconds
					over := make(chan bool)
					go func() { begin(w); close(over) }()
					synctest.Wait()
					began := time.Now()
					end(w)
					<-over
					if took := time.Since(began); took != 0 {
						t.Errorf("it took %v", took)
					}
				})
			})
		}
	}
}

// A cookie with a valid token resumes nothing for another player's login.
func TestCookieOfAnotherPlayerIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pol := loggedIn(policy.Allow)
		pol.PlainResume = true
		w := newWorld(t, pol)
		ann := w.PlainWith("/?player=ann", ownOrigin)
		id := w.game.Next().Req.Header.Get("Reseat-Session")
		cookie := ours(t, ann)
		ann.Drop()
		synctest.Wait()
		for _, c := range []struct {
			player string
			back   bool
		}{{"bob", false}, {"ann", true}} {
			w.PlainWith("/?player="+c.player, ownOrigin+"Cookie: "+cookie+"\r\n")
			synctest.Wait()
			if i, _ := w.gw.Session(id); (i.State == session.Attached.String()) != c.back {
				t.Errorf("with %s's login the session is %s", c.player, i.State)
			}
		}
	})
}

// A wrapped response hijacks connections that wrap changes.
type wrapped struct {
	http.ResponseWriter
	wrap func(net.Conn) net.Conn
}

func (w wrapped) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	return w.wrap(conn), rw, err
}

// through opens a door whose connections are wrapped once they are hijacked.
func (w *world) through(wrap func(net.Conn) net.Conn) *wstest.Door {
	return wstest.Open(w.t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { w.gw.ServeHTTP(wrapped{rw, wrap}, r) }), 64<<10)
}

// A slowConn waits for the gate with each write.
type slowConn struct {
	net.Conn
	gate chan struct{}
}

func (c *slowConn) Write(b []byte) (int, error) {
	<-c.gate
	return c.Conn.Write(b)
}

// A client can know its session, from its game, before it is attached. An operator's
// disconnect must find it all the same.
func TestDisconnectFindsClientBeforeItsAttach(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		gate := make(chan struct{})
		door := w.through(func(c net.Conn) net.Conn { return &slowConn{c, gate} })
		client := make(chan *wstest.Peer)
		go func() { client <- door.Plain("/match/7") }()
		id := w.game.Next().Req.Header.Get("Reseat-Session")
		synctest.Wait()
		outcome := make(chan gateway.Outcome)
		go func() { outcome <- w.gw.Disconnect(id) }()
		synctest.Wait()
		close(gate)
		c := <-client
		if o := <-outcome; o != gateway.Done {
			t.Errorf("outcome %v, want it disconnected", o)
		}
		c.WantEnd()
	})
}
