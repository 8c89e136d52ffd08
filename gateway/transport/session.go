package transport

import (
	"net"
	"sync/atomic"

	"reseat/gateway/session"
	"reseat/gateway/transport/epoll"
	"reseat/gateway/transport/netio"
)

// A Session is a session core in the hands of a driver. Its methods may be
// called by anyone, an Observer too, but not by what Do calls.
//
// One that is driven by a loop is given to goroutines for good when a client
// comes whose connection is not for loops.
type Session struct {
	driver *Driver
	watch  session.Observer
	poll   *epoll.Session                // nil: it never had a loop
	net    atomic.Pointer[netio.Session] // nil: it has one
}

// onLoop is the session's loop's view of it, nil where it has none any more.
func (s *Session) onLoop() *epoll.Session {
	if s.net.Load() != nil {
		return nil
	}
	return s.poll
}

// Do calls f as the core's owner. f must not block.
func (s *Session) Do(f func(core *session.Session, now session.Time)) {
	if p := s.onLoop(); p == nil || !p.Do(f) {
		s.net.Load().Do(f)
	}
}

// AttachFirst gives the session its first client. early is what the client has
// sent behind its handshake.
func (s *Session) AttachFirst(conn net.Conn, early []byte, p session.Pass) {
	s.attach(conn, early, func(core *session.Session, now session.Time) (*session.Attachment, *session.Refusal) {
		return core.AttachFirst(now, p), nil
	})
}

// Attach gives the session to a resuming client, or says why not; then conn is
// still the caller's.
func (s *Session) Attach(conn net.Conn, early []byte, r session.Resume, p session.Pass) *session.Refusal {
	return s.attach(conn, early, func(core *session.Session, now session.Time) (*session.Attachment, *session.Refusal) {
		return core.Attach(now, r, p)
	})
}

func (s *Session) attach(conn net.Conn, early []byte, f session.AttachFunc) *session.Refusal {
	if p := s.onLoop(); p != nil {
		fd, plain := take(conn)
		if !plain {
			s.leave(p)
		} else if refusal, here := p.Attach(fd, early, f); here {
			if refusal == nil {
				conn.Close() // the loop has it under another descriptor
			}
			return refusal
		}
	}
	return s.net.Load().Attach(conn, early, f)
}

// Reconnect gives a session that needs one its next upstream; early is what
// that sent behind its answer. It reports false, and conn is still the
// caller's, where the session needs none.
func (s *Session) Reconnect(conn net.Conn, early []byte) (taken bool) {
	if p := s.onLoop(); p != nil {
		fd, plain := take(conn)
		if !plain {
			s.leave(p)
		} else if taken, here := p.Reconnect(fd, early); here {
			if taken {
				conn.Close()
			}
			return taken
		}
	}
	return s.net.Load().Reconnect(conn, early)
}

// Info describes the session.
func (s *Session) Info() (i session.Info) {
	if p := s.onLoop(); p == nil || !p.Do(func(core *session.Session, _ session.Time) { i = core.Info() }) {
		return s.net.Load().Info()
	}
	return i
}

// Client is the connection of the attached client, nil where there is none, or
// where a loop has it.
func (s *Session) Client() net.Conn {
	if n := s.net.Load(); n != nil {
		return n.Client()
	}
	return nil
}

// Wait waits until nothing runs any more of a session that is Closed.
func (s *Session) Wait() {
	if n := s.net.Load(); n != nil {
		n.Wait()
	}
}
