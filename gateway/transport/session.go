package transport

import (
	"net"

	"reseat/gateway/session"
	"reseat/gateway/transport/epoll"
	"reseat/gateway/transport/netio"
	"reseat/gateway/transport/rawconn"
	"reseat/gateway/wire"
)

// A Session is a session core run by a driver. Its methods are safe for concurrent use,
// by an Observer too, but must not be called from within Do.
//
// The driver stays the same for the whole session: see Driver.New.
type Session struct {
	poll *epoll.Session // nil: goroutines run it
	net  *netio.Session // nil: a loop runs it
}

// Do calls f with exclusive access to the core. f must not block.
func (s *Session) Do(f func(core *session.Session, now session.Time)) {
	if s.poll != nil {
		s.poll.Do(f)
	} else {
		s.net.Do(f)
	}
}

// AttachFirst attaches the session's first client, and owns conn. early holds the bytes that
// the client sent right after its handshake. On an event loop it does not wait if conn has no
// layer: calls that follow find the client attached.
func (s *Session) AttachFirst(conn net.Conn, early []byte, p session.Pass) {
	first := func(core *session.Session, now session.Time) (*session.Attachment, *session.Refusal) {
		return core.AttachFirst(now, p), nil
	}
	if c, ok := conn.(*epoll.Conn); ok && s.poll != nil {
		s.poll.AttachFirst(c, early, first)
	} else if s.attach(conn, early, first) != nil {
		conn.Close()
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
	if s.net != nil {
		return s.net.Attach(conn, early, f)
	}
	h, ok := handleOf(conn)
	if !ok {
		return session.Refuse(wire.CodeInternalError, "")
	}
	refusal, here := s.poll.Attach(h, early, f)
	switch {
	case !here: // another has taken the session over: see Drop
		return session.Refuse(wire.CodeInternalError, "")
	case refusal == nil && !h.Layered():
		conn.Close() // the loop has its descriptor, or a duplicate
	}
	return refusal
}

// Reconnect gives a session that needs an upstream its next one. early holds the bytes
// that the upstream sent right after its handshake response. It returns false if the
// session needs none; the caller then still owns conn.
func (s *Session) Reconnect(conn net.Conn, early []byte, outage session.Time) (taken bool) {
	if s.net != nil {
		off := rawconn.OffLoop(conn)
		if taken = s.net.Reconnect(off, early, outage); !taken {
			off.Close()
		}
		return taken
	}
	h, ok := handleOf(conn)
	if !ok {
		return false
	}
	taken, _ = s.poll.Reconnect(h, early, outage)
	if taken && !h.Layered() {
		conn.Close()
	}
	return taken
}

// Info returns a snapshot of the session. It is zero once another has taken the session over: see Drop.
func (s *Session) Info() (i session.Info) {
	if s.net != nil {
		return s.net.Info()
	}
	s.poll.Do(func(core *session.Session, _ session.Time) { i = core.Info() })
	return i
}

// Client returns the attached client's connection. It returns nil if no client is
// attached or a loop owns the connection.
func (s *Session) Client() net.Conn {
	if s.net != nil {
		return s.net.Client()
	}
	return nil
}

// Wait waits until no goroutine of a session that is Closed is left.
func (s *Session) Wait() {
	if s.net != nil {
		s.net.Wait()
	}
}
