package gateway_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/wire"
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
		c.Frame(frame.Text, true, "last")
		c.Close(4123, "enough")
		game.Want("last")
		game.WantReason(4123, "enough")
		c.WantClose(4123)
		c.WantEnd()
	})
}

func TestPlainDisconnectDisconnectsUpstream(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		c, game := w.plain()
		c.Drop()
		game.WantEnd()
		if list, _ := w.gw.Sessions(gatewayAll); len(list) != 0 {
			t.Fatalf("%d sessions are left", len(list))
		}
	})
}

func TestUpstreamCloseReachesAPlainClient(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		c, game := w.plain()
		game.Text("s1")
		game.Close(4007, "the end")
		c.Want("s1")
		c.WantReason(4007, "the end")
		c.Close(4007, "")
		c.WantEnd()
	})
}

func TestUpstreamDisconnectDisconnectsPlainClient(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		c, game := w.plain()
		game.Text("s1")
		synctest.Wait()
		game.Drop()
		c.Want("s1")
		c.WantEnd()
	})
}

func TestBrokenFramesOfPlainClientCloseIt(t *testing.T) {
	for name, c := range map[string]struct {
		raw    []byte
		code   int
		upCode int
	}{
		"unmasked":             {[]byte{0x81, 1, 'x'}, wire.CodeProtocolError, wire.CodePolicyViolation},
		"reserved bit":         {[]byte{0xc1, 0x80, 0, 0, 0, 0}, wire.CodeProtocolError, wire.CodePolicyViolation},
		"reserved opcode":      {[]byte{0x83, 0x80, 0, 0, 0, 0}, wire.CodeProtocolError, wire.CodePolicyViolation},
		"stray continuation":   {[]byte{0x80, 0x80, 0, 0, 0, 0}, wire.CodeProtocolError, wire.CodePolicyViolation},
		"fragmented ping":      {[]byte{0x09, 0x80, 0, 0, 0, 0}, wire.CodeProtocolError, wire.CodePolicyViolation},
		"close of one byte":    {[]byte{0x88, 0x81, 0, 0, 0, 0, 3}, wire.CodeProtocolError, wire.CodePolicyViolation},
		"announced oversize":   {[]byte{0x82, 0xff, 0x7f, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4}, wire.CodeMessageTooBig, wire.CodeMessageTooBig},
		"length above 2^63 -1": {[]byte{0x82, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4}, wire.CodeProtocolError, wire.CodePolicyViolation},
		"length not minimal":   {[]byte{0x82, 0xfe, 0, 5, 1, 2, 3, 4, 0, 0, 0, 0, 0}, wire.CodeProtocolError, wire.CodePolicyViolation},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, testPolicy(), func(t *testing.T, w *world) {
				p, game := w.plain()
				p.Raw(c.raw)
				p.WantClose(c.code)
				game.WantClose(c.upCode)

				q, game := w.play()
				q.Raw(c.raw)
				q.WantClosing(c.code)
				game.WantClose(c.upCode)
			})
		})
	}
}

func TestBrokenFramesOfUpstreamCloseIt(t *testing.T) {
	for name, raw := range map[string][]byte{
		"masked":             {0x81, 0x81, 0, 0, 0, 0, 'x'},
		"reserved bit":       {0xc1, 0},
		"stray continuation": {0x80, 0},
		"text in a message":  {0x01, 1, 'x', 0x81, 1, 'y'},
		"close code 1005":    {0x88, 2, 3, 0xed},
	} {
		t.Run(name, func(t *testing.T) {
			inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
				game.Raw(raw)
				p.WantClosing(wire.CodeUpstreamLost)
				game.WantClose(wire.CodeProtocolError)
			})
		})
	}
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

func TestSilentPlainClientIsDisconnected(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		c, game := w.plain()
		time.Sleep(5 * time.Minute) // it answers Pings
		c.Frame(frame.Text, true, "here")
		game.Want("here")
		c.Mute.Store(true)
		time.Sleep(31 * time.Second)
		game.WantEnd()
	})
}
