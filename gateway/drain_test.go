package gateway_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway/session"
	"reseat/gateway/wire"
)

func TestDrainServesResumesRefusesTheNewAndClosesTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, policy())
		p, game := w.play()
		plain, plainGame := w.plain()
		p.Sync()
		p.Drop()
		done := make(chan bool)
		began := time.Now()
		go func() { w.gw.Drain(context.Background()); close(done) }()
		synctest.Wait()
		if !w.gw.Draining() {
			t.Fatal("not draining from the first moment")
		}
		_, _, resp, err := w.Handshake("/new", nil, "")
		if err != nil || resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" {
			t.Fatalf("a new session was answered %v %v, want 503 with Retry-After", resp, err)
		}
		time.Sleep(5 * time.Second)
		p = p.Resume(0)
		game.Text("s1")
		p.Want("s1")
		if c := p.WantClosing(wire.CodeDraining); c.Retry {
			t.Fatal("4503 says retry, and there is no successor")
		}
		if d := time.Since(began); d != 10*time.Second {
			t.Fatalf("closed after %v, want 10 s", d)
		}
		if r := game.WantClose(wire.CodeGoingAway); r != "draining" {
			t.Fatalf("reason %q", r)
		}
		plain.WantClose(wire.CodeServiceRestart)
		plainGame.WantClose(wire.CodeGoingAway)
		<-done
	})
}

func TestDrainIsOverWhenNoSessionIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, policy())
		p, _ := w.play()
		began := time.Now()
		time.AfterFunc(3*time.Second, func() { p.Control("bye") })
		w.gw.Drain(context.Background())
		if d := time.Since(began); d > 4*time.Second {
			t.Fatalf("the drain took %v", d)
		}
	})
}

func TestWhatWasReadIsHandedOverBeforeTheDrainCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, policy())
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
