package netio

import (
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway/session"
	"reseat/gateway/transport/rawconn"
)

// A draining is a connection whose socket reports left() unacknowledged bytes.
type draining struct {
	net.Conn
	left func() int
}

func (c draining) SocketState() (rawconn.State, error) {
	return rawconn.State{Acked: uint64(10000 - c.left()), Queued: c.left()}, nil
}

// An above is a layer on top of a connection, as TLS and compression are.
type above struct{ net.Conn }

func (a above) NetConn() net.Conn { return a.Conn }

// The client accepts bytes only right after a ping. The core can tell that those bytes
// preceded the ping only if it got the socket's state when the ping was written.
func TestSocketStateIsReadWhenPingIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := superseded(t, 0, func(c *session.Config) { c.Answer = 20 * time.Second })
		ours, theirs := net.Pipe()
		go io.Copy(io.Discard, theirs)
		defer theirs.Close()
		began := time.Now()
		s.supersede(t, draining{ours, func() int {
			if time.Since(began) < 17*time.Second {
				return 5000
			}
			return 4000
		}})
		time.Sleep(37 * time.Second) // the first ping goes out after 15 s, and the timeout is 20 s
		if got := s.Info().State; got != session.Attached {
			t.Errorf("%v, though the client took bytes 2 s after the ping", got)
		}
	})
}

// A client that reads slowly counts as active (protocol section 5), even behind TLS or
// compression, whose blocking writes don't report a full socket. A client that
// reads nothing does not.
func TestSlowReaderBehindTLSCountsAsActive(t *testing.T) {
	for name, c := range map[string]struct {
		drains time.Duration // for how long it accepts a byte per second
		want   session.State
	}{
		"takes bytes": {drains: time.Hour, want: session.Attached},
		"takes none":  {drains: 0, want: session.Detached},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _ := superseded(t, 0)
				ours, theirs := net.Pipe()
				defer theirs.Close()
				began := time.Now()
				left := func() int { return 10000 - int(min(time.Since(began), c.drains)/time.Second) }
				s.supersede(t, above{above{draining{ours, left}}})
				time.Sleep(2*time.Minute + 20*time.Second) // two heartbeats and a check
				if got := s.Info().State; got != c.want {
					t.Errorf("%v, want %v", got, c.want)
				}
			})
		})
	}
}
