package gateway_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
	"reseat/gateway/session"
)

// A client that waits for the dial of its game server may send 64 KiB before its hello, and
// then is disconnected.
func TestClientWaitingForDialMaySend64KiB(t *testing.T) {
	for size, stays := range map[int]bool{32 << 10: true, 80 << 10: false} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, hard())
			p := w.detachedHard()
			w.game.Refuse = afterEightSeconds
			c := p.TryResume(p.Hello.Token, "0")
			synctest.Wait()
			go c.Text(strings.Repeat("x", size))
			time.Sleep(time.Second)
			want := session.Connecting
			if !stays {
				want = session.Detached
			}
			if got := w.state(p); got != want.String() {
				t.Errorf("%d bytes: the session is %s, want %s", size, got, want)
			}
			time.Sleep(10 * time.Second)
			c.Drop()
		})
	}
}

// Signing is limited, and waiting for it must not delay other players.
func TestWaitingForSignatureDelaysNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, testPolicy())
		p, game := w.play()
		away, _ := w.play()
		away.Sync()
		away.Drop()
		w.wantState(away, session.Detached)
		release := gateway.HoldSigning(w.gw)
		for range 10 {
			go w.Handshake("/", []string{"reseat.v1"}, "")
		}
		c := away.TryResume(away.Hello.Token, "0")
		synctest.Wait()
		w.wantState(away, session.Detached)
		for range 100 {
			game.Text("down")
			p.Want("down")
			p.Text("up")
			game.Want("up")
		}
		release()
		c.WantControl("hello")
	})
}
