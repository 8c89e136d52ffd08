package gateway_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/internal/test/wstest"
)

func (w *world) plain() (*wstest.Peer, *wstest.Peer) {
	w.t.Helper()
	c := w.Plain("/plain")
	return c, w.game.Next()
}

func TestPlainClientBehavesAsOnDirectConnection(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		c, game := w.plain()
		for _, s := range []string{"x", "", "\x10", "\x10\x10x", "\x10hello {}", strings.Repeat("z", 70000)} {
			c.Frame(frame.Text, true, s)
			game.Want(s)
			game.Pass(c, s)
			c.Binary(s)
			game.Want(s)
		}
		c.Text("last")
		c.Close(4123, "enough")
		game.Want("last")
		game.WantReason(4123, "enough")
		c.WantClose(4123)
		c.WantEnd()
	})
}

func TestEndOfEitherSideReachesTheOther(t *testing.T) {
	eachInBubble(t, map[string]func(c, game *wstest.Peer){
		"the client disconnects": func(c, game *wstest.Peer) {
			c.Drop()
			game.WantEnd()
		},
		"the game server closes": func(c, game *wstest.Peer) {
			game.Text("s1")
			game.Close(4007, "the end")
			c.Want("s1")
			c.WantReason(4007, "the end")
			c.Close(4007, "")
			c.WantEnd()
		},
		"the game server disconnects": func(c, game *wstest.Peer) {
			game.Text("s1")
			synctest.Wait()
			game.Drop()
			c.Want("s1")
			c.WantEnd()
		},
	}, func(t *testing.T, end func(c, game *wstest.Peer)) {
		w := newWorld(t, testPolicy())
		end(w.plain())
		synctest.Wait()
		if list, _ := w.gw.Sessions(gatewayAll); len(list) != 0 {
			t.Errorf("%d sessions are left", len(list))
		}
	})
}

func TestPlainClientIsNotReadWhileTheUpstreamStalls(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		game, _ := stalledGame(t, w)
		_ = game
		c := w.Plain("/stalled")
		wrote := make(chan int, 1)
		go func() {
			n := 0
			for range 64 {
				c.Binary(noise(16 << 10))
				n++
			}
			wrote <- n
		}()
		time.Sleep(10 * time.Minute) // the gateway does not read: its silence must not disconnect it
		select {
		case <-wrote:
			t.Fatal("the gateway took a megabyte that the upstream does not take")
		default:
		}
		if list, _ := w.gw.Sessions(gatewayAll); len(list) != 2 {
			t.Fatalf("%d sessions, want 2", len(list))
		}
	})
}

func TestPlainClientThatReadsNothingPausesUpstream(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		conn, _, _, err := w.Handshake("/slow", nil, "")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		game := w.game.Next()
		done := make(chan bool)
		go func() {
			for range 1000 {
				game.Binary(noise(16 << 10))
			}
			close(done)
		}()
		time.Sleep(5 * time.Second)
		select {
		case <-done:
			t.Fatal("16 MB were read for a client that reads nothing")
		default:
		}
		list, _ := w.gw.Sessions(gatewayAll)
		if n := list[0].BufferBytes; n > 1<<20 {
			t.Fatalf("%d bytes are buffered for it", n)
		}
	})
}
