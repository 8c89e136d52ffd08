//go:build linux

package epoll

import (
	"net"
	"syscall"
	"testing"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/session"
	"reseat/gateway/transport/rawconn"
)

// tcpPair is a TCP connection: the loop's end, which holds much, and the test's, which
// takes little.
func tcpPair(t *testing.T) (ours int, theirs net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if theirs, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	conn, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	theirs.(*net.TCPConn).SetReadBuffer(16 << 10)
	conn.(*net.TCPConn).SetWriteBuffer(1 << 20)
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) { ours, err = syscall.Dup(int(fd)) })
	if err != nil {
		t.Fatal(err)
	}
	return ours, theirs
}

// socket is the state of the client's socket.
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

// A client takes bytes only right behind a ping: that they lay before it is known where
// the core was told at once where it ends.
func TestSocketIsLookedAtWhenAPingHasBeenWritten(t *testing.T) {
	ours, client := tcpPair(t)
	r := newRigOf(t, ours, client, func(c *session.Config) { c.Answer = 5 * time.Second })
	msg := frame.Append(nil, frame.Binary, make([]byte, 20<<10))
	for r.socket(t).Queued < 200<<10 {
		if _, err := r.game.Write(msg); err != nil {
			t.Fatal(err)
		}
	}
	r.pass(2600 * time.Millisecond) // to the ping, half of the time after the first message
	before := r.socket(t)
	b := make([]byte, 4<<10)
	for r.socket(t).Acked == before.Acked {
		if _, err := client.Read(b); err != nil {
			t.Fatal(err)
		}
	}
	after := r.socket(t)
	if after.Acked >= before.Acked+uint64(before.Queued) {
		t.Fatalf("%+v, then %+v: the ping was acknowledged, too", before, after)
	}
	r.pass(3 * time.Second)
	if got := r.state(); got != session.Attached {
		t.Errorf("%v, though the client took bytes right behind the ping", got)
	}
	client.Close()
	for r.state() == session.Attached { // before the rig lets its last hour pass
	}
}
