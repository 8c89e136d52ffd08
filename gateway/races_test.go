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
	"reseat/gateway/control"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/policy"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

// delayFirstDial makes the game server answer its first connection after 5 s.
func (w *world) delayFirstDial() {
	var dials atomic.Int64
	w.game.Refuse = func(net.Conn, *http.Request) bool {
		if dials.Add(1) == 1 {
			time.Sleep(5 * time.Second)
		}
		return false
	}
}

// With takeover the newest login stays, even if the game server accepts it before an older
// one.
func TestNewestLoginStaysIfOlderOneIsAcceptedLast(t *testing.T) {
	inWorld(t, loggedIn(policy.Takeover), func(t *testing.T, w *world) {
		w.delayFirstDial()
		older := make(chan int)
		go func() { older <- w.refused("/?player=ann") }()
		synctest.Wait()
		newest := w.Player("/?player=ann")
		game := w.game.Next()
		wstest.Equal(t, "the older login is answered", <-older, http.StatusConflict)
		w.wantState(newest, session.Attached)
		game.Pass(newest, "still here")
		w.game.Next().WantEnd() // the connection of the older login
	})
}

// A second login waits for an answer of the first one's client, but no longer than that
// session lives.
func TestLoginDoesNotWaitForAHolderThatEnds(t *testing.T) {
	inWorld(t, loggedIn(policy.Reject), func(t *testing.T, w *world) {
		p := w.Player("/?player=ann")
		p.Sync()
		p.Mute.Store(true)
		began := time.Now()
		time.AfterFunc(500*time.Millisecond, func() { w.gw.Control().End("", p.Hello.Session, 1000, "over") })
		w.Player("/?player=ann")
		wstest.Equal(t, "it waited", time.Since(began), 500*time.Millisecond)
	})
}

// A gatedConn blocks when a read deadline in the past is set, by which the gateway stops a waiting client's reader,
// until the gate opens.
type gatedConn struct {
	net.Conn
	gate chan struct{}
}

func (c *gatedConn) SetReadDeadline(t time.Time) error {
	if t.Equal(time.Unix(1, 0)) {
		<-c.gate
	}
	return c.Conn.SetReadDeadline(t)
}

// gatedDoor is a further client address of w, with a gatedConn for each client.
func (w *world) gatedDoor(gate chan struct{}) *wstest.Door {
	return w.through(func(c net.Conn) net.Conn { return &gatedConn{c, gate} })
}

// The dial is done, and the client that waited for it is about to be attached: a resume that
// arrives then waits for that, and takes over.
func TestResumeArrivingAsDialFinishesTakesOver(t *testing.T) {
	inScene(t, hard(), func(s *scene) {
		s.play(leaves)
		w, p := s.world, s.client
		gate := make(chan struct{})
		first := p.At(w.gatedDoor(gate)).TryResume(p.Hello.Token, "0")
		game := w.game.Next()
		synctest.Wait() // the outcome belongs to the first one
		second := p.TryResume(p.Hello.Token, "0")
		synctest.Wait()
		close(gate)
		first.WantControl(wire.VerbHello)
		first.WantClosing(wire.CodeSuperseded)
		second.WantControl(wire.VerbHello)
		game.Pass(second, "to the second")
		w.wantNoDial()
	})
}

// Once all sessions have ended, in any way, nothing is held for them: no count of an
// address, no queue of dials, no idle connection.
func TestNothingIsHeldAfterTheLastSession(t *testing.T) {
	inTracked(t, func(t *testing.T, w *trackedWorld) {
		var players []*wstest.Player
		for range 4 {
			p, _ := w.play()
			p.Sync()
			players = append(players, p)
		}
		plain, game := w.plain()
		players[0].Control(`bye {"code":1000,"reason":""}`)
		players[1].Drop()
		players[2].TryResume("bad", "0").WantClosing(wire.CodeBadToken)
		w.gw.Control().End("", players[2].Hello.Session, 1000, "")
		players[3].Resume(0).Drop()
		plain.Close(1000, "")
		game.Close(1000, "")
		w.game.Refuse = refuseDials
		if _, err := w.Door.Dial("/", []string{wire.Subprotocol}); err == nil {
			t.Error("a refused dial created a session")
		}
		_, polled := w.Request("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		if resp, err := http.ReadResponse(polled, nil); err != nil || resp.StatusCode < 500 {
			t.Errorf("a request to a closed game server: %v, %v, want 5xx", resp, err)
		}
		wantNothingLeft(t, w.world)
	})
}

// Signing is limited, and waiting for it must not delay other players.
func TestWaitingForSignatureDelaysNobodyElse(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		away, _ := w.play()
		w.detach(away)
		release := gateway.HoldSigning(w.gw)
		for range 10 {
			go w.Handshake("/", []string{wire.Subprotocol}, "")
		}
		c := away.TryResume(away.Hello.Token, "0")
		synctest.Wait()
		w.wantState(away, session.Detached)
		goesOn(p, game)
		release()
		c.WantControl(wire.VerbHello)
	})
}

func TestHandshakesAtOnceAreLimited(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, _ *wstest.Peer) {
		p.Sync()
		release := gateway.HoldSigning(w.gw)
		for range gateway.Turns(w.gw) + 5 {
			go p.TryResume(p.Hello.Token, "0")
		}
		synctest.Wait()
		wstest.Equal(t, "handshakes that are worked on", gateway.Inside(w.gw), gateway.Turns(w.gw))
		release()
		synctest.Wait()
		_, visits := w.gw.Upgrade().Left()
		wstest.Equal(t, "handshakes that are still under way", visits, 0)
	})
}

// Handshakes that wait for something else don't keep others from the gateway, however many they
// are.
func TestHandshakesDoNotWaitForThoseThatWaitForTheGame(t *testing.T) {
	inScene(t, testPolicy(), func(s *scene) {
		s.play(`sync; server waits 5s`)
		for i := range 2 * gateway.Turns(s.gw) {
			go s.PlayerWith("/", from(i))
		}
		s.play(`1ms; mark; client drops; resume 0; took 0s; 10s`) // all have begun
		for range 2 * gateway.Turns(s.gw) {
			s.game.Next()
		}
	}, trustProxies)
}

func TestHandshakesDoNotWaitForThoseThatWaitForTheCluster(t *testing.T) {
	inCluster(t, 1, durablePolicy(), func(s *scene) {
		s.play(`sync`)
		synctest.Wait() // no write is under way
		s.durable.links[0].SetBefore(func() { time.Sleep(500 * time.Millisecond) })
		for range 2 * gateway.Turns(s.gw) {
			go s.PlayerWith("/match/7", "Reseat-Settled: 0 0\r\n")
		}
		s.play(`1ms; mark; client drops; resume 0; took 0s; 10s`) // all have begun
	})
}

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
		for _, player := range []string{"ann", "bob", "ann"} { // nor for those that have ended
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
			_, _, err := w.gw.Create(t.Context(), nil, gateway.CreateRequest{Path: "/", Player: "ann"})
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
	inScene(t, hard(), func(s *scene) {
		s.play(leaves)
		gate := make(chan struct{})
		c := s.client.At(s.gatedDoor(gate)).TryResume(s.client.Hello.Token, "0")
		s.play(`next`)
		synctest.Wait()
		s.play(`end enough`)
		close(gate)
		c.WantClosing(wire.CodeEnded)
		s.play(`game< end`)
	})
}

// Ending a session, and Close, cancel its first dial: they do not wait for a game server.
func TestEndCancelsFirstDial(t *testing.T) {
	for name, begin := range map[string]func(w *world){
		"handshake": func(w *world) { w.refused("/") },
		"ahead":     func(w *world) { w.gw.Create(w.t.Context(), nil, gateway.CreateRequest{Path: "/"}) },
	} {
		for how, end := range map[string]func(w *world){
			"End":   func(w *world) { w.gw.Control().End("", w.onlySession().ID, 1000, "enough") },
			"Close": func(w *world) { w.gw.Close() },
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				inWorld(t, testPolicy(), func(t *testing.T, w *world) {
					w.game.Refuse = after(8 * time.Second)
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
		outcome := make(chan control.Outcome)
		go func() { outcome <- w.gw.Control().Disconnect(id) }()
		synctest.Wait()
		close(gate)
		c := <-client
		if o := <-outcome; o != control.Done {
			t.Errorf("outcome %v, want it disconnected", o)
		}
		c.WantEnd()
	})
}
