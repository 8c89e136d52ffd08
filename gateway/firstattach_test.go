package gateway_test

import (
	"bufio"
	"net"
	"net/http"
	"testing"
	"testing/synctest"

	"reseat/gateway"
	"reseat/gateway/internal/test/wstest"
)

// A slowAnswer hijacks connections whose first write waits for the gate.
type slowAnswer struct {
	http.ResponseWriter
	gate chan struct{}
}

func (w slowAnswer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	return &slowConn{Conn: conn, gate: w.gate}, rw, err
}

type slowConn struct {
	net.Conn
	gate chan struct{}
}

func (c *slowConn) Write(b []byte) (int, error) {
	<-c.gate
	return c.Conn.Write(b)
}

// A client can know its session, from its game, before it is attached. An operator's
// disconnect must find it all the same.
func TestDisconnectFindsClientBeforeItsAttach(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		gate := make(chan struct{})
		door := wstest.Open(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			w.gw.ServeHTTP(slowAnswer{rw, gate}, r)
		}), 64<<10)
		client := make(chan *wstest.Peer)
		go func() { client <- door.Plain("/match/7") }()
		id := w.game.Next().Req.Header.Get("Reseat-Session")
		synctest.Wait()
		outcome := make(chan gateway.Outcome)
		go func() { outcome <- w.gw.Disconnect(id) }()
		synctest.Wait()
		close(gate)
		c := <-client
		if o := <-outcome; o != gateway.Done {
			t.Errorf("outcome %v, want it disconnected", o)
		}
		c.WantEnd()
	})
}
