package gateway_test

import (
	"io"
	"net"
	"net/http"
	"testing"

	"reseat/gateway/frame"
	"reseat/gateway/internal/test/wstest"
)

// A stalled game server has answered the handshake and does not read until the test says so.
type stalled struct{ conn *wstest.Conn }

// closed reports whether the gateway has closed the connection.
func (s *stalled) closed() bool {
	_, err := s.conn.Write([]byte{0x8a, 0})
	return err != nil
}

// read starts reading.
func (s *stalled) read(t *testing.T) *wstest.Peer { return wstest.Accept(t, s.conn) }

func stalledGame(t *testing.T, w *world) (*stalled, *wstest.Player) {
	t.Helper()
	s := make(chan *wstest.Conn, 1)
	w.game.Refuse = func(c net.Conn, r *http.Request) bool {
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
			"Sec-WebSocket-Accept: "+frame.AcceptKey(r.Header.Get("Sec-WebSocket-Key"))+"\r\n\r\n")
		s <- c.(*wstest.Conn)
		return true
	}
	p := w.Player("/stalled")
	conn := <-s
	t.Cleanup(func() { conn.Close() })
	return &stalled{conn}, p
}
