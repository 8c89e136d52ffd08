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

// A wrapped response hijacks connections that wrap changes.
type wrapped struct {
	http.ResponseWriter
	wrap func(net.Conn) net.Conn
}

func (w wrapped) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	return w.wrap(conn), rw, err
}

// through opens a door whose connections are wrapped once they are hijacked.
func (w *world) through(wrap func(net.Conn) net.Conn) *wstest.Door {
	return wstest.Open(w.t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { w.gw.ServeHTTP(wrapped{rw, wrap}, r) }), 64<<10)
}

// A slowConn waits for the gate with each write.
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
		door := w.through(func(c net.Conn) net.Conn { return &slowConn{c, gate} })
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
