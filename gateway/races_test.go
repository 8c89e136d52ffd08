package gateway_test

import (
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
		time.AfterFunc(500*time.Millisecond, func() { w.gw.End(p.Hello.Session, 1000, "over") })
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
	inDetachedHard(t, func(t *testing.T, w *world, p *wstest.Player) {
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

// An operator's drain is cancelled, and begun again, just as its time has passed: the timer
// of the first one, which still fires, closes nothing.
func TestTimerOfCancelledDrainClosesNothing(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, _ *wstest.Peer) {
		w.gw.BeginDrain()
		first := gateway.DrainTimer(w.gw)
		time.Sleep(5 * time.Second)
		w.gw.CallOffDrain()
		w.gw.BeginDrain()
		first.Reset(0) // as if it had fired before it was stopped, and waited for the lock
		time.Sleep(10*time.Second - time.Millisecond)
		w.wantState(p, session.Attached)
		if i := w.gw.DrainInfo(); i.Until == nil {
			t.Error("the second drain has no end")
		}
		time.Sleep(time.Millisecond)
		p.WantClosing(wire.CodeDraining)
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
		w.gw.End(players[2].Hello.Session, 1000, "")
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
		_, visits := w.gw.Left()
		wstest.Equal(t, "handshakes that are still under way", visits, 0)
	})
}

// Handshakes that wait for something else don't keep others from the gateway, however many they
// are.
func TestHandshakesDoNotWaitForThoseThatWaitForTheGame(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, _ *wstest.Peer) {
		p.Sync()
		w.game.Refuse = after(5 * time.Second)
		for i := range 2 * gateway.Turns(w.gw) {
			go w.PlayerWith("/", from(i))
		}
		synctest.Wait()
		wantResumedAtOnce(t, p)
		time.Sleep(10 * time.Second) // all have begun
		for range 2 * gateway.Turns(w.gw) {
			w.game.Next()
		}
	}, trustProxies)
}

func TestHandshakesDoNotWaitForThoseThatWaitForTheCluster(t *testing.T) {
	inCluster(t, 1, durablePolicy(), func(t *testing.T, d *durableNodes, p *wstest.Player, _ *wstest.Peer) {
		p.Sync()
		synctest.Wait() // no write is under way
		d.links[0].SetBefore(func() { time.Sleep(500 * time.Millisecond) })
		for range 2 * gateway.Turns(d.of[0].gw) {
			go d.of[0].PlayerWith("/match/7", "Reseat-Settled: 0 0\r\n")
		}
		time.Sleep(time.Millisecond)
		wantResumedAtOnce(t, p)
		time.Sleep(10 * time.Second) // all have begun
	})
}

func wantResumedAtOnce(t *testing.T, p *wstest.Player) {
	t.Helper()
	began := time.Now()
	p.Drop()
	p.Resume(0)
	wstest.Equal(t, "the resume took", time.Since(began), 0)
}
