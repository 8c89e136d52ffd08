package gateway_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/session"
)

// A client that waits for the dial of its game server may send 64 KiB before its hello, and
// then is disconnected.
func TestClientWaitingForDialMaySend64KiB(t *testing.T) {
	for size, stays := range map[int]bool{32 << 10: true, 80 << 10: false} {
		inWorld(t, hard(), func(t *testing.T, w *world) {
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
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		away, _ := w.play()
		w.detach(away)
		release := gateway.HoldSigning(w.gw)
		for range 10 {
			go w.Handshake("/", []string{"reseat.v1"}, "")
		}
		c := away.TryResume(away.Hello.Token, "0")
		synctest.Wait()
		w.wantState(away, session.Detached)
		for range 100 {
			goesOn(game, p)
		}
		release()
		c.WantControl("hello")
	})
}
