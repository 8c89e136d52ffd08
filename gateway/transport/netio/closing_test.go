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

// A stuck is a connection whose client reads nothing. It records its deadline.
type stuck struct {
	net.Conn
	until time.Time
}

func (c *stuck) SetDeadline(t time.Time) error {
	c.until = t
	return c.Conn.SetDeadline(t)
}

func (c *stuck) SetReadDeadline(t time.Time) error {
	c.until = t
	return c.Conn.SetReadDeadline(t)
}

// superseded returns a session whose client has been superseded the given number of
// times, always by clients that read nothing, and the session's ends of their
// connections, oldest first.
func superseded(t *testing.T, times int, with ...func(*session.Config)) (s *Session, old []*stuck) {
	t.Helper()
	gameEnd, game := net.Pipe()
	peers := []net.Conn{game}
	resumable := func(c *session.Config) { c.Resumable = true }
	s = newSession(t, gameEnd, &peers, append(with, resumable)...)
	for i := range times + 1 {
		ours, theirs := net.Pipe()
		peers = append(peers, theirs)
		c := &stuck{Conn: ours}
		old = append(old, c)
		if i == 0 {
			s.attachFirst(c)
		} else {
			s.supersede(t, c)
		}
	}
	return s, old
}

// The newest of the superseded connections have the usual time to read their Close,
// older ones much less.
func TestOldestSupersededConnectionsGetAShortDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, old := superseded(t, session.MaxLingering+2)
		for i, c := range old[:session.MaxLingering+2] {
			want := clientFlush
			if i < 2 {
				want = shortFlushTime
			}
			if left := time.Until(c.until); left != want {
				t.Errorf("number %d has %v left, want %v", i, left, want)
			}
		}
	})
}

// The deadline stays short even if finish starts later, because another goroutine was
// writing.
func TestDeadlineShortenedBeforeClosingStaysShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, old := superseded(t, 0)
		s.enter()
		l := s.down
		l.hurry()
		s.mu.Unlock()
		s.supersede(t, &stuck{Conn: closedPipe()})
		if left := time.Until(old[0].until); left != shortFlushTime {
			t.Errorf("it has %v, want %v", left, shortFlushTime)
		}
	})
}

func closedPipe() net.Conn {
	c, _ := net.Pipe()
	c.Close()
	return c
}

// A session holds no memory for a closed connection.
func TestClosedSupersededConnectionsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := superseded(t, 3*session.MaxLingering)
		s.mu.Lock()
		if n := len(s.lingering); n != session.MaxLingering {
			t.Errorf("%d are being closed, want %d", n, session.MaxLingering)
		}
		s.mu.Unlock()
		time.Sleep(clientFlush + session.LingerTime)
		synctest.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		if n := len(s.lingering); n != 0 {
			t.Errorf("%d are kept after their deadline", n)
		}
	})
}

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
			t.Errorf("%v, though the client accepted bytes 2 s after the ping", got)
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
