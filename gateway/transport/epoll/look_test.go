//go:build linux

package epoll

import (
	"net"
	"testing"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/session"
	"reseat/gateway/transport/rawconn"
)

// tcpPair returns a TCP connection: the loop's end with a large send buffer, the test's
// with a small receive buffer.
func tcpPair(t *testing.T) (ours int, theirs net.Conn) {
	t.Helper()
	conn, theirs := wstest.TCPPair(t, nil)
	defer conn.Close()
	theirs.(*net.TCPConn).SetReadBuffer(16 << 10)
	conn.(*net.TCPConn).SetWriteBuffer(1 << 20)
	return dup(t, conn.(*net.TCPConn)), theirs
}

// socket returns the state of the client's socket.
func (r *rig) socket(t *testing.T) (st rawconn.State) {
	t.Helper()
	var err error
	r.Do(func(*session.Session, session.Time) { st, err = rawconn.StateOf(r.down.fd) })
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func (r *rig) state() (state session.State) {
	r.Do(func(core *session.Session, _ session.Time) { state = core.State() })
	return state
}

// The client accepts bytes only right after a ping. The core can tell that those bytes
// preceded the ping only if it got the socket's state when the ping was written.
func TestSocketStateIsReadWhenPingIsWritten(t *testing.T) {
	ours, client := tcpPair(t)
	r := newRigOf(t, ours, client, func(c *session.Config) { c.Answer = 5 * time.Second })
	msg := frame.Append(nil, frame.Binary, make([]byte, 20<<10))
	for r.socket(t).Queued < 200<<10 {
		if _, err := r.game.Write(msg); err != nil {
			t.Fatal(err)
		}
	}
	r.pass(2600 * time.Millisecond) // until the ping, halfway to the timeout after the first message
	before := r.socket(t)
	b := make([]byte, 4<<10)
	for r.socket(t).Acked == before.Acked {
		if _, err := client.Read(b); err != nil {
			t.Fatal(err)
		}
	}
	after := r.socket(t)
	if after.Acked >= before.Acked+uint64(before.Queued) {
		t.Fatalf("%+v, then %+v: the ping was also acknowledged", before, after)
	}
	r.pass(3 * time.Second)
	if got := r.state(); got != session.Attached {
		t.Errorf("%v, though the client accepted bytes right after the ping", got)
	}
	client.Close()
	for r.state() == session.Attached { // before the cleanup advances the clock by an hour
	}
}
