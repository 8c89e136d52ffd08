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

// A draining is a connection whose write waits, and whose socket still holds so
// much.
type draining struct {
	net.Conn
	left func() int
}

func (c draining) SocketState() (rawconn.State, error) {
	return rawconn.State{Acked: uint64(10000 - c.left()), Queued: c.left()}, nil
}

// An above stands on a connection, as TLS does and compression.
type above struct{ net.Conn }

func (a above) NetConn() net.Conn { return a.Conn }

// again attaches conn to a session that superseded has made.
func (s *Session) again(t *testing.T, conn net.Conn) {
	t.Helper()
	pass := session.Pass{Gen: 2, Expires: s.driver.now().Add(time.Hour), Renew: time.Hour}
	refusal := s.Attach(conn, nil, func(core *session.Session, now session.Time) (*session.Attachment, *session.Refusal) {
		return core.Attach(now, session.Resume{Gen: 1}, pass)
	})
	if refusal != nil {
		t.Fatal(refusal)
	}
}

// A client takes bytes only right behind a ping: that they lay before it is known where
// the core was told at once where it ends.
func TestSocketIsLookedAtWhenAPingHasBeenWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := superseded(t, 0, func(c *session.Config) { c.Answer = 20 * time.Second })
		ours, theirs := net.Pipe()
		go io.Copy(io.Discard, theirs)
		defer theirs.Close()
		began := time.Now()
		s.again(t, draining{ours, func() int {
			if time.Since(began) < 17*time.Second {
				return 5000
			}
			return 4000
		}})
		time.Sleep(37 * time.Second) // the first ping goes after 15 s, and 20 s later it would be dead
		if got := s.Info().State; got != session.Attached {
			t.Errorf("%v, though the client took bytes 2 s after the ping", got)
		}
	})
}

// A client that takes its bytes slowly is heard, protocol section 5, though what
// is written to it goes through TLS or compression, where nothing says that the
// socket is full before it has taken all; and one that takes none is not.
func TestASlowReaderBehindALayerIsHeard(t *testing.T) {
	for name, c := range map[string]struct {
		drains time.Duration // for how long it takes a byte a second
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
				s.again(t, above{above{draining{ours, left}}})
				time.Sleep(2*time.Minute + 20*time.Second) // twice the heartbeat, and a look
				if got := s.Info().State; got != c.want {
					t.Errorf("%v, want %v", got, c.want)
				}
			})
		})
	}
}
