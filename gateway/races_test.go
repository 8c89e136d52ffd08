package gateway_test

import (
	"bufio"
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
		if status := <-older; status != http.StatusConflict {
			t.Errorf("the older login is answered %d, want 409", status)
		}
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
		second := make(chan time.Duration)
		go func() {
			w.Player("/?player=ann")
			second <- time.Since(began)
		}()
		time.Sleep(500 * time.Millisecond)
		w.gw.End(p.Hello.Session, 1000, "over")
		if waited := <-second; waited != 500*time.Millisecond {
			t.Errorf("it waited for %v, want no longer than the first one lived, 500ms", waited)
		}
	})
}

// The end of a session cancels the dial of its new upstream: neither the client nor the game
// server waits for it.
func TestSessionEndCancelsItsDial(t *testing.T) {
	inWorld(t, hard(), func(t *testing.T, w *world) {
		p := w.detachedHard()
		var broken time.Time
		w.game.Refuse = func(c net.Conn, _ *http.Request) bool {
			c.Read(make([]byte, 1)) // until the gateway closes it
			broken = time.Now()
			return true
		}
		c := p.TryResume(p.Hello.Token, "0")
		time.Sleep(time.Second)
		began := time.Now()
		w.gw.End(p.Hello.Session, 1000, "enough")
		c.WantClosing(wire.CodeEnded)
		synctest.Wait()
		if waited := time.Since(began); waited != 0 {
			t.Errorf("the client was closed after %v", waited)
		}
		if broken != began {
			t.Errorf("the dial was cancelled at %v, want %v", broken, began)
		}
	})
}

// What a client may send while it waits for its upstream is limited to the byte.
func TestWaitingClientMaySend64KiBAndNoMore(t *testing.T) {
	for over := range 2 {
		t.Run(fmt.Sprint(over, " bytes over"), func(t *testing.T) {
			inWorld(t, hard(), func(t *testing.T, w *world) {
				p := w.detachedHard()
				w.game.Refuse = afterEightSeconds
				c := p.TryResume(p.Hello.Token, "0")
				const head = 2 + 2 + 4 // a frame with a length of two bytes and the mask
				said := strings.Repeat("x", 64<<10-head+over)
				if len(said) > 0xffff {
					t.Fatal("the frame's head is longer")
				}
				c.Text(said)
				if over > 0 {
					began := time.Now()
					if closing := c.WantClosing(wire.CodeUpstreamLost); !closing.Retry || time.Since(began) != 0 {
						t.Errorf("%+v after %v, want retry at once", closing, time.Since(began))
					}
					w.wantState(p, session.Detached)
					return
				}
				c.WantControl(wire.VerbHello)
				w.game.Next().Want(said)
			})
		})
	}
}

// A gatedAnswer hijacks connections that block when a read deadline in the past is set, by
// which the gateway stops a waiting client's reader, until the gate opens.
type gatedAnswer struct {
	http.ResponseWriter
	gate chan struct{}
}

func (w gatedAnswer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	return &gatedConn{Conn: conn, gate: w.gate}, rw, err
}

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

// The dial is done, and the client that waited for it is about to be attached: a resume that
// arrives then waits for that, and takes over.
func TestResumeArrivingAsDialFinishesTakesOver(t *testing.T) {
	inWorld(t, hard(), func(t *testing.T, w *world) {
		p := w.detachedHard()
		gate := make(chan struct{})
		door := wstest.Open(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			w.gw.ServeHTTP(gatedAnswer{rw, gate}, r)
		}), 64<<10)
		offer := []string{wire.Subprotocol, "reseat.token." + p.Hello.Token, "reseat.received.0"}
		first, err := door.Dial("/", offer)
		if err != nil {
			t.Fatal(err)
		}
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

// The game server chooses no subprotocol at the next dial, unlike before: the client could
// not understand it, so the connection is closed.
func TestHardResumeRefusesAnswerWithoutSubprotocol(t *testing.T) {
	for _, c := range []struct{ before, now string }{{"chat.v1", ""}, {"", "chat.v1"}} {
		t.Run(c.before+" then "+c.now, func(t *testing.T) {
			inWorld(t, hard(), func(t *testing.T, w *world) {
				w.game.Choose = c.before
				p := w.Player("/", "chat.v1")
				game := w.game.Next()
				w.detach(p)
				game.WantClose(wire.CodeGoingAway)
				game.Close(wire.CodeGoingAway, "")
				w.game.Choose = c.now
				p.TryResume(p.Hello.Token, "0").WantRetry(wire.CodeUpstreamLost)
				w.game.Next().WantEnd()
				w.wantState(p, session.Detached)
			})
		})
	}
}

// Once all sessions have ended, in any way, nothing is held for them: no count of an
// address, no queue of dials, no idle connection.
func TestNothingIsHeldAfterTheLastSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTrackedWorld(t, nil)
		var sessions []*wstest.Player
		for range 4 {
			sessions = append(sessions, w.Player("/match/7"))
			sessions[len(sessions)-1].Sync()
		}
		for range 4 {
			w.game.Next()
		}
		plain := w.Plain("/")
		game := w.game.Next()
		sessions[0].Control(`bye {"code":1000,"reason":""}`)
		sessions[1].Drop()
		sessions[2].TryResume("bad", "0").WantClosing(wire.CodeBadToken)
		w.gw.End(sessions[2].Hello.Session, 1000, "")
		sessions[3] = sessions[3].Resume(0)
		sessions[3].Drop()
		plain.Close(1000, "")
		game.Close(1000, "")
		w.game.Refuse = func(c net.Conn, _ *http.Request) bool { c.Close(); return true }
		if _, err := w.Door.Dial("/", []string{wire.Subprotocol}); err == nil {
			t.Error("a refused dial created a session")
		}
		_, polled := w.Request("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		if resp, err := http.ReadResponse(polled, nil); err != nil || resp.StatusCode < 500 {
			t.Errorf("a request to a closed game server: %v, %v", resp, err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if left := gateway.Leftovers(w.gw); len(left) > 0 {
			t.Errorf("still held: %v", left)
		}
	})
}
