package netio

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway/session"
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
