package transport_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"

	"reseat/gateway/frame"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/session"
	"reseat/gateway/transport"
)

// closeFrame returns a Close frame, masked with a zero key if a client sends it, as the
// session's own frames are.
func closeFrame(code int, masked bool) []byte {
	p := frame.ClosePayload(code, "")
	if masked {
		return frame.AppendMasked(nil, frame.Close, [4]byte{}, p)
	}
	return frame.Append(nil, frame.Close, p)
}

// wantGame reads exactly these bytes on the game server's side.
func (p *player) wantGame(want []byte) {
	p.t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(p.game, got); err != nil || !bytes.Equal(got, want) {
		p.t.Fatalf("the game got % x, %v; want % x", got, err, want)
	}
}

// wantNoMore checks that the gateway closes the game server's connection.
func (p *player) wantNoMore() {
	p.t.Helper()
	if rest, err := io.ReadAll(p.game); err != nil || len(rest) > 0 {
		p.t.Errorf("the game got % x and %v behind the Close", rest, err)
	}
}

// plainPlayer starts a session of a plain client.
func plainPlayer(t *testing.T, d *transport.Driver) *player {
	return newPlayer(t, d, func(c *session.Config) { c.Resumable = false })
}

func TestPlainClosingHandshakeIsRelayed(t *testing.T) {
	drivers(t, func(t *testing.T, d *transport.Driver) {
		t.Run("begun by the client", func(t *testing.T) {
			p := plainPlayer(t, d)
			p.wantUp(1)
			p.client.Write(closeFrame(4001, true))
			p.wantGame(closeFrame(4001, true))
			for i := range 3 {
				p.sendDown(i)
				p.wantDown(i)
			}
			p.game.Write(closeFrame(4002, false))
			if code, err := p.client.closed(); code != 4002 || err != nil {
				t.Errorf("the client got Close %d, %v; want 4002", code, err)
			}
			p.wantNoMore()
		})
		t.Run("begun by the game", func(t *testing.T) {
			p := plainPlayer(t, d)
			p.sendDown(1)
			p.game.Write(closeFrame(4002, false))
			p.wantDown(1)
			if op, payload, err := p.client.next(); op != frame.Close || err != nil {
				t.Fatalf("the client got %x %q, %v; want the game's Close", op, payload, err)
			}
			for i := range 3 {
				p.wantUp(i)
			}
			p.client.Write(closeFrame(4003, true))
			p.wantGame(closeFrame(4003, true))
			p.wantNoMore()
		})
		t.Run("the client hangs up behind its Close", func(t *testing.T) {
			p := plainPlayer(t, d)
			p.client.Write(closeFrame(4001, true))
			p.client.Close()
			p.wantGame(closeFrame(4001, true))
			p.wantNoMore()
		})
	})
}

// An above is a layer on top of a connection, as TLS is.
type above struct{ net.Conn }

func (a above) NetConn() net.Conn { return a.Conn }

// Closing with a reset reaches the TCP connection below TLS and compression.
func TestResetReachesTheConnectionBelowALayer(t *testing.T) {
	p := newPlayer(t, newDriver(t, transport.Net), nil)
	ours, theirs := wstest.TCPPair(t, nil)
	p.resume(above{ours}, theirs, 0)
	p.do(func(core *session.Session, now session.Time) { core.Disconnect(now) })
	if _, err := p.client.closed(); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the client's connection ended with %v, want a reset", err)
	}
}
