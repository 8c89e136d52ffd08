package gateway_test

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

// drain begins the final drain, and closes the channel once it is over. It has no time if at once says so.
func (w *world) drain(atOnce bool) (over chan bool) {
	ctx, cancel := context.WithCancel(context.Background())
	if atOnce {
		cancel()
	}
	over = make(chan bool)
	go func() {
		defer cancel()
		w.gw.Drain(ctx)
		close(over)
	}()
	synctest.Wait()
	return over
}

// wantNew checks whether new sessions are accepted.
func (w *world) wantNew(taken bool) {
	w.t.Helper()
	c, _, resp, err := w.Handshake("/new", nil, "")
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	if taken {
		wstest.Equal(w.t, "a new session is answered", resp.StatusCode, 101)
		w.game.Next()
		return
	}
	if resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" {
		w.t.Errorf("a new session is answered %v, want 503 with Retry-After", resp)
	}
}

func TestDrainServesResumesRefusesNewSessionsAndClosesTheRest(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		plain, plainGame := w.plain()
		w.detach(p)
		began := time.Now()
		over := w.drain(false)
		wstest.Equal(t, "draining at once", w.gw.Draining(), true)
		w.wantNew(false)
		time.Sleep(5 * time.Second)
		p = p.Resume(0)
		game.Pass(p, "s1")
		p.WantFinal(wire.CodeDraining) // this gateway is its only server
		wstest.Equal(t, "closed after", time.Since(began), 10*time.Second)
		game.WantReason(wire.CodeGoingAway, "draining")
		plain.WantClose(wire.CodeServiceRestart)
		plainGame.WantClose(wire.CodeGoingAway)
		<-over
	})
}

func TestReceivedMessagesAreDeliveredBeforeDrainCloses(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		stall, p := stalledGame(t, w)
		chunk := strings.Repeat("x", 16<<10)
		for range 8 {
			p.Text(chunk)
		}
		synctest.Wait()
		w.drain(true)
		p.WantClosing(wire.CodeDraining)
		game := stall.read(t)
		for range 8 {
			game.Want(chunk)
		}
		game.WantClose(wire.CodeGoingAway)
		w.wantState(p, session.Ended)
	})
}

// The log must say what clients or game servers did not receive.
func TestDrainLogsConnectionsThatDidNotClose(t *testing.T) {
	said := new(syncBuffer)
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		for range 2 {
			_, p := stalledGame(t, w)
			for range 8 {
				p.Text(strings.Repeat("x", 16<<10))
			}
		}
		w.game.Refuse = nil
		p, game := w.play()
		synctest.Wait() // the gateway has more queued for the two games than their connections accept
		began := time.Now()
		over := w.drain(true)
		p.WantClosing(wire.CodeDraining)
		game.WantClose(wire.CodeGoingAway)
		<-over
		wstest.Equal(t, "the drain took", time.Since(began), 3*time.Second)
		synctest.Wait()
		if !strings.Contains(said.String(), "msg=drain.connections_aborted sessions=2") {
			t.Errorf("the log does not say that 2 were aborted: %s", said.String())
		}
	}, logTo(said))
}

// wantDrain checks what operators see of a drain: until when it runs, zero if it does not, and of how many sessions.
func (w *world) wantDrain(draining bool, until time.Time, sessions int) {
	w.t.Helper()
	i := w.gw.DrainInfo()
	if i.Draining != draining || i.Sessions != sessions || (i.Until == nil) != until.IsZero() || i.Until != nil && !i.Until.Equal(until) {
		w.t.Errorf("drain %+v, want draining %v until %v with %d sessions", i, draining, until, sessions)
	}
}

func TestOperatorsDrainClosesTheRestAndStaysInForce(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		p.Sync()
		w.wantDrain(false, time.Time{}, 1)
		end := time.Now().Add(10 * time.Second)
		w.gw.BeginDrain()
		w.wantDrain(true, end, 1)
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
		w.wantDrain(true, time.Time{}, 0)
		w.wantNew(false)
		wstest.Equal(t, "cancelled", w.gw.CallOffDrain(), true)
		w.wantNew(true)
	})
}

func TestCancelledDrainClosesNothing(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, _ *wstest.Peer) {
		wstest.Equal(t, "cancelling without a drain", w.gw.CallOffDrain(), true)
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
		over := w.drain(false)
		wstest.Equal(t, "the final drain was cancelled", w.gw.CallOffDrain(), false)
		w.gw.BeginDrain()
		time.Sleep(9 * time.Second)
		w.wantState(p, session.Attached)
		w.wantNew(false)
		time.Sleep(time.Second)
		p.WantClosing(wire.CodeDraining)
		game.WantClose(wire.CodeGoingAway)
		<-over
	})
}

// A session with a slow upstream is closed as soon as it begins.
func TestDrainClosesSessionsBeingCreated(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		answer := make(chan bool)
		w.game.Refuse = func(net.Conn, *http.Request) bool { <-answer; return false }
		time.AfterFunc(time.Second, w.gw.BeginDrain)
		time.AfterFunc(9*time.Second, func() { close(answer) })
		p, _ := w.play()
		w.wantState(p, session.Attached)
		p.WantClosing(wire.CodeDraining)

		w.gw.CallOffDrain()
		answer = make(chan bool)
		closed := make(chan bool)
		go func() {
			defer close(closed)
			p, game := w.play()
			p.WantClosing(wire.CodeDraining)
			game.WantClose(wire.CodeGoingAway)
		}()
		synctest.Wait()
		w.drain(true)
		close(answer)
		<-closed
	})
}
