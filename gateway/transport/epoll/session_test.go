//go:build linux

package epoll

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"reseat/gateway/frame"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/session"
	"reseat/gateway/transport/rawconn"
	"reseat/gateway/wire"
)

// Another process has the sockets of a session that was dropped. The loop must forget their descriptors, which
// may be reused soon, and epoll must report nothing about them although they stay open.
func TestLoopForgetsSocketsOfADroppedSession(t *testing.T) {
	r := newRig(t, true)
	resume := r.loop.all.Pause()
	_, up, down, err := r.Freeze(session.Formats[0])
	if err != nil {
		t.Fatal(err)
	}
	kept := []int{wstest.Duplicate(t, up.FD), wstest.Duplicate(t, down.FD)}
	r.Drop()
	for i, fd := range []int{up.FD, down.FD} {
		if r.loop.legs[fd] != nil {
			t.Errorf("descriptor %d: the loop still serves it", fd)
		}
		again, err := unix.FcntlInt(uintptr(kept[i]), unix.F_DUPFD_CLOEXEC, fd)
		if err != nil || again != fd {
			t.Fatalf("the number %d is in use: %d, %v", fd, again, err)
		}
		e := unix.EpollEvent{Events: interest, Fd: int32(fd)}
		if err := unix.EpollCtl(r.loop.ep, unix.EPOLL_CTL_MOD, fd, &e); !errors.Is(err, unix.ENOENT) {
			t.Errorf("descriptor %d: epoll still watches it (%v), want ENOENT", fd, err)
		}
		unix.Close(again)
		unix.Close(kept[i])
	}
	if n := r.loop.load.Load(); n != 0 || r.loop.sessions != 0 || len(r.loop.due) != 0 {
		t.Errorf("the loop counts %d sessions, %d, and %d alarms; want none", n, r.loop.sessions, len(r.loop.due))
	}
	resume()
}

// A client can be on its way to its session when that is frozen, and then dropped.
func TestFirstClientOfADroppedSessionIsClosed(t *testing.T) {
	r := newRig(t, true)
	resume := r.loop.all.Pause()
	r.Drop()
	resume()
	ours, theirs := socketPair(t)
	t.Cleanup(func() { theirs.Close() })
	c, err := r.loop.Accepted(ours, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.AttachFirst(c, nil, func(*session.Session, session.Time) (*session.Attachment, *session.Refusal) {
		t.Error("the loop acts on a session that was dropped")
		return nil, session.Refuse(wire.CodeInternalError, "")
	})
	if _, err := theirs.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the client reads %v, want its end", err)
	}
}

// The loop reads the clock each turn and before each delivery of mail. Neither goes
// back when the clock does.
func TestLoopTimeNeverGoesBack(t *testing.T) {
	r := newRig(t, true)
	var before, after session.Time
	r.Do(func(_ *session.Session, now session.Time) { before = now })
	r.clock.now.Add(int64(-time.Minute))
	for range 3 {
		r.Do(func(_ *session.Session, now session.Time) { after = now })
		if after < before {
			t.Fatalf("it went back by %v", before.Sub(after))
		}
	}
}

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

// A slow Observer pauses reading from the game server, and resumes it when it catches
// up. Otherwise --log-messages could use unbounded memory.
func TestSessionIsNotReadWhileItsObserverIsBehind(t *testing.T) {
	const messages = 200 // a socket holds this many small messages
	ours, client := socketPair(t)
	r := newRigOf(t, ours, client, func(c *session.Config) { c.Resumable, c.MessageLog.On = false, true })
	stuck := make(chan struct{})
	free := sync.OnceFunc(func() { close(stuck) })
	t.Cleanup(free)
	r.onEvents.Store(func([]session.Event) { <-stuck })
	msg := frame.Append(nil, frame.Binary, []byte{1})
	sentCount := func() (n uint64) {
		r.Do(func(core *session.Session, _ session.Time) { n = core.Info().Sent })
		return n
	}
	for range messages {
		if _, err := r.game.Write(msg); err != nil {
			t.Fatal(err)
		}
		sentCount() // so that each is read by itself, or stays in the socket
	}
	n := int(sentCount())
	if n <= maxPending/2 || n > maxPending+2 {
		t.Errorf("%d messages were read while the Observer was behind, want about %d", n, maxPending)
	}
	read := func(messages int) {
		client.SetReadDeadline(time.Now().Add(time.Minute))
		if n, err := io.ReadFull(client, make([]byte, messages*len(msg))); err != nil {
			t.Errorf("%d bytes of %d messages came: %v", n, messages, err)
		}
	}
	read(n)
	for range 2 { // until the loop has seen that the client's socket has room
		sentCount()
	}
	free() // nothing else wakes the loop from here on
	read(messages - n)
}
