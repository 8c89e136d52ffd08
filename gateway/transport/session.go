package transport

import (
	"net"
	"sync/atomic"

	"reseat/gateway/session"
	"reseat/gateway/transport/epoll"
	"reseat/gateway/transport/netio"
	"reseat/gateway/transport/rawconn"
	"reseat/gateway/wire"
)

// A Session is a session core run by a driver. Its methods are safe for concurrent use,
// by an Observer too, but must not be called from within Do.
//
// A session on an event loop moves to goroutines for good when a client attaches whose
// connection an event loop can't serve.
type Session struct {
	driver *Driver
	watch  session.Observer
	poll   *epoll.Session                // nil: it never ran on a loop
	net    atomic.Pointer[netio.Session] // nil: it runs on a loop
}

// onLoop returns the epoll session while the session runs on a loop, else nil.
func (s *Session) onLoop() *epoll.Session {
	if s.net.Load() != nil {
		return nil
	}
	return s.poll
}

// Do calls f with exclusive access to the core. f must not block.
func (s *Session) Do(f func(core *session.Session, now session.Time)) {
	if p := s.onLoop(); p != nil && p.Do(f) {
		return
	}
	if n := s.net.Load(); n != nil { // else another has taken it over: see Drop
		n.Do(f)
	}
}

// AttachFirst attaches the session's first client, and owns conn. early holds the bytes that
// the client sent right after its handshake. On an event loop it does not wait: calls that
// follow find the client attached.
func (s *Session) AttachFirst(conn net.Conn, early []byte, p session.Pass) {
	first := func(core *session.Session, now session.Time) (*session.Attachment, *session.Refusal) {
		return core.AttachFirst(now, p), nil
	}
	attach := func() {
		if s.attach(conn, early, first) != nil {
			conn.Close()
		}
	}
	if c, ok := conn.(*epoll.Conn); ok && s.onLoop() != nil {
		s.poll.AttachFirst(c, early, first, attach)
	} else {
		attach()
	}
}

// Attach attaches a resuming client, or returns why it may not; the caller then still
// owns conn.
func (s *Session) Attach(conn net.Conn, early []byte, r session.Resume, p session.Pass) *session.Refusal {
	return s.attach(conn, early, func(core *session.Session, now session.Time) (*session.Attachment, *session.Refusal) {
		return core.Attach(now, r, p)
	})
}

func (s *Session) attach(conn net.Conn, early []byte, f session.AttachFunc) *session.Refusal {
	if p := s.onLoop(); p != nil {
		h, supported := handleOf(conn)
		if !supported {
			s.leaveLoop(p)
		} else if refusal, here := p.Attach(h, early, f); here {
			if refusal == nil && !h.Layered() {
				conn.Close() // the loop has its descriptor, or a duplicate
			}
			return refusal
		}
	}
	n := s.net.Load()
	if n == nil { // another has taken it over: see Drop
		return session.Refuse(wire.CodeInternalError, "")
	}
	return n.Attach(conn, early, f)
}

// Reconnect gives a session that needs an upstream its next one. early holds the bytes
// that the upstream sent right after its handshake response. It returns false if the
// session needs none; the caller then still owns conn.
func (s *Session) Reconnect(conn net.Conn, early []byte, inOutage bool) (taken bool) {
	if p := s.onLoop(); p != nil {
		h, supported := handleOf(conn)
		if !supported {
			s.leaveLoop(p)
		} else if taken, here := p.Reconnect(h, early, inOutage); here {
			if taken && !h.Layered() {
				conn.Close()
			}
			return taken
		}
	}
	n := s.net.Load()
	if n == nil {
		return false
	}
	off := rawconn.OffLoop(conn)
	if taken = n.Reconnect(off, early, inOutage); !taken {
		off.Close()
	}
	return taken
}

// Info returns a snapshot of the session.
func (s *Session) Info() (i session.Info) {
	if p := s.onLoop(); p != nil && p.Do(func(core *session.Session, _ session.Time) { i = core.Info() }) {
		return i
	}
	if n := s.net.Load(); n != nil {
		return n.Info()
	}
	return i
}

// Client returns the attached client's connection. It returns nil if no client is
// attached or a loop owns the connection.
func (s *Session) Client() net.Conn {
	if n := s.net.Load(); n != nil {
		return n.Client()
	}
	return nil
}

// Wait waits until no goroutine of a session that is Closed is left.
func (s *Session) Wait() {
	if n := s.net.Load(); n != nil {
		n.Wait()
	}
}
