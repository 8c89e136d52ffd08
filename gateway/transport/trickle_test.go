//go:build linux

package transport_test

import (
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/session"
	"reseat/gateway/transport"
)

// narrowPair returns a connection whose peer has a small receive buffer and small
// segments, so that each read there makes room for a few bytes.
func narrowPair(t *testing.T) (ours, theirs net.Conn) {
	t.Helper()
	return wstest.TCPPair(t, func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, 536)
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4<<10)
		})
	})
}

// protocol section 5: while a send buffer is full, bytes that the peer's socket still
// accepts count as activity. The socket does not become writable meanwhile.
func TestSlowReaderIsNotSilent(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			staysAttached(t, func(heartbeat time.Duration) bool { return trickled(t, newDriver(t, kind), heartbeat) })
		})
	}
}

// trickled makes a client read a little at a time, and send nothing, for several times
// the silence timeout. It reports whether the client is still attached.
func trickled(t *testing.T, d *transport.Driver, heartbeat time.Duration) bool {
	p := newPlayer(t, d, func(c *session.Config) { c.Heartbeat = heartbeat })
	ours, theirs := narrowPair(t)
	p.resume(ours, theirs, 0)
	go fill(p.game, false)
	for began := d.Clock().Now(); d.Clock().Now().Sub(began) < 4*2*heartbeat; {
		theirs.SetReadDeadline(time.Now().Add(2 * heartbeat))
		if _, err := io.ReadFull(theirs, make([]byte, 1<<10)); err != nil {
			return false
		}
		<-time.After(heartbeat / 16)
	}
	return p.drive.Info().State == session.Attached
}
