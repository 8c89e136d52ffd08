package gateway_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

func TestDrainServesResumesRefusesNewSessionsAndClosesTheRest(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		plain, plainGame := w.plain()
		w.detach(p)
		done := make(chan bool)
		began := time.Now()
		go func() { w.gw.Drain(context.Background()); close(done) }()
		synctest.Wait()
		if !w.gw.Draining() {
			t.Fatal("not draining at once")
		}
		_, _, resp, err := w.Handshake("/new", nil, "")
		if err != nil || resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" {
			t.Fatalf("a new session was answered %v %v, want 503 with Retry-After", resp, err)
		}
		time.Sleep(5 * time.Second)
		p = p.Resume(0)
		game.Pass(p, "s1")
		p.WantFinal(wire.CodeDraining)
		if d := time.Since(began); d != 10*time.Second {
			t.Fatalf("closed after %v, want 10 s", d)
		}
		game.WantReason(wire.CodeGoingAway, "draining")
		plain.WantClose(wire.CodeServiceRestart)
		plainGame.WantClose(wire.CodeGoingAway)
		<-done
	})
}

func TestDrainEndsWithTheLastSession(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, _ *wstest.Peer) {
		began := time.Now()
		time.AfterFunc(3*time.Second, func() { p.Control("bye") })
		w.gw.Drain(context.Background())
		if d := time.Since(began); d > 4*time.Second {
			t.Fatalf("the drain took %v", d)
		}
	})
}

func TestReceivedMessagesAreDeliveredBeforeDrainCloses(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		stall, p := stalledGame(t, w)
		for range 8 {
			p.Text(string(make([]byte, 16<<10)))
		}
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		go w.gw.Drain(ctx)
		p.WantClosing(wire.CodeDraining)
		game := stall.read(t)
		for range 8 {
			game.Want(string(make([]byte, 16<<10)))
		}
		game.WantClose(wire.CodeGoingAway)
		w.wantState(p, session.Ended)
	})
}

// The log must say what clients or game servers did not receive.
func TestDrainLogsConnectionsThatDidNotClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := new(syncBuffer)
		w := newWorld(t, testPolicy(), func(c *gateway.Config) { c.Log = slog.New(slog.NewTextHandler(said, nil)) })
		for range 2 {
			_, p := stalledGame(t, w)
			for range 8 {
				p.Text(string(make([]byte, 16<<10)))
			}
		}
		w.game.Refuse = nil
		p, game := w.play()
		synctest.Wait() // the gateway has more queued for the two games than their connections accept
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		began := time.Now()
		done := make(chan bool)
		go func() { w.gw.Drain(ctx); close(done) }()
		p.WantClosing(wire.CodeDraining)
		game.WantClose(wire.CodeGoingAway)
		<-done
		if d := time.Since(began); d != 3*time.Second {
			t.Errorf("the drain took %v, want 3s", d)
		}
		synctest.Wait()
		if !strings.Contains(said.String(), "msg=drain.connections_aborted sessions=2") {
			t.Errorf("the log does not say that 2 were aborted: %s", said.String())
		}
	})
}

// The gateway closes before it has answered the client.
func TestCloseEndsSessionsBeingCreated(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		release := gateway.HoldSigning(w.gw)
		go w.Dial("/match/7", []string{wire.Subprotocol})
		game := w.game.Next()
		synctest.Wait()
		closed := make(chan bool)
		go func() { w.gw.Close(); close(closed) }()
		synctest.Wait()
		release()
		game.WantClose(wire.CodeGoingAway)
		<-closed
	})
}

// wantNew checks whether new sessions are accepted.
func (w *world) wantNew(taken bool) {
	w.t.Helper()
	c, _, resp, err := w.Handshake("/new", nil, "")
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	if (resp.StatusCode == 101) != taken || (resp.StatusCode == 503) == taken {
		w.t.Fatalf("a new session is answered %d, want accepted %t", resp.StatusCode, taken)
	}
	if taken {
		w.game.Next()
	}
}

func TestOperatorsDrainClosesTheRestAndStaysInForce(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		p.Sync()
		if i := w.gw.DrainInfo(); i.Draining || i.Until != nil || i.Sessions != 1 {
			t.Errorf("before: %+v", i)
		}
		end := time.Now().Add(10 * time.Second)
		w.gw.BeginDrain()
		if i := w.gw.DrainInfo(); !i.Draining || i.Until == nil || !i.Until.Equal(end) {
			t.Errorf("while it runs: %+v, want until %v", i, end)
		}
		w.wantNew(false)
		time.Sleep(9 * time.Second)
		w.gw.BeginDrain() // a second call changes nothing
		p.Drop()
		p = p.Resume(0)
		time.Sleep(999 * time.Millisecond)
		w.wantState(p, session.Attached)
		time.Sleep(time.Millisecond)
		p.WantClosing(wire.CodeDraining)
		game.WantClose(wire.CodeGoingAway)
		time.Sleep(time.Hour)
		if i := w.gw.DrainInfo(); !i.Draining || i.Until != nil || i.Sessions != 0 {
			t.Errorf("at its end: %+v", i)
		}
		w.wantNew(false)
		if !w.gw.CallOffDrain() {
			t.Error("not cancelled")
		}
		w.wantNew(true)
	})
}

func TestCancelledDrainClosesNothing(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, _ *wstest.Peer) {
		if !w.gw.CallOffDrain() {
			t.Error("cancelling without a drain fails")
		}
		w.gw.BeginDrain()
		time.Sleep(5 * time.Second)
		w.gw.CallOffDrain()
		w.wantNew(true)
		w.gw.BeginDrain()
		time.Sleep(6 * time.Second) // the first one's time has passed
		w.wantState(p, session.Attached)
		w.gw.CallOffDrain()
		time.Sleep(time.Hour)
		w.wantState(p, session.Attached)
		w.wantNew(true)
	})
}

// SIGTERM during an operator's drain: the final drain has its full time, and cannot be
// cancelled.
func TestFinalDrainReplacesOperatorsDrain(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		p.Sync()
		w.gw.BeginDrain()
		time.Sleep(8 * time.Second)
		done := make(chan bool)
		go func() { w.gw.Drain(context.Background()); close(done) }()
		synctest.Wait()
		if w.gw.CallOffDrain() {
			t.Error("the final drain was cancelled")
		}
		w.gw.BeginDrain()
		time.Sleep(9 * time.Second)
		w.wantState(p, session.Attached)
		w.wantNew(false)
		time.Sleep(time.Second)
		p.WantClosing(wire.CodeDraining)
		game.WantClose(wire.CodeGoingAway)
		<-done
	})
}

// A session with a slow upstream is closed as soon as it begins.
func TestDrainClosesSessionsBeingCreated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan bool)
		w := newWorld(t, testPolicy())
		w.game.Refuse = func(net.Conn, *http.Request) bool { <-answer; return false }
		time.AfterFunc(time.Second, w.gw.BeginDrain)
		time.AfterFunc(9*time.Second, func() { close(answer) })
		p, _ := w.play()
		w.wantState(p, session.Attached)
		p.WantClosing(wire.CodeDraining)

		w.gw.CallOffDrain()
		answer = make(chan bool)
		done := make(chan bool)
		go func() {
			defer close(done)
			p, game := w.play()
			p.WantClosing(wire.CodeDraining)
			game.WantClose(wire.CodeGoingAway)
		}()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		go w.gw.Drain(ctx)
		synctest.Wait()
		close(answer)
		<-done
	})
}
