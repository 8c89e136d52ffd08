package transport

import (
	"net"

	"reseat/gateway/session"
	"reseat/gateway/transport/epoll"
	"reseat/gateway/transport/rawconn"
)

// This file moves sessions to another process, or to another Driver, with their
// connections, for an upgrade.

// Pause stops all event loops until resume is called. Freeze needs that.
func (d *Driver) Pause() (resume func()) {
	d.begin.Do(d.start) // or one could begin meanwhile
	if all := d.loops.Load(); all != nil {
		return all.Pause()
	}
	return func() {}
}

// A Frozen is a session that stands still, with the connections of its upstream and its
// client. They stay the session's: a receiver must have duplicates of descriptors, and may
// use a Conn after Drop.
type Frozen struct {
	session.Frozen
	Up, Down End
}

// An End is a connection of a frozen session.
type End = rawconn.Socket

// Quiesce interrupts reads that would keep Freeze from succeeding: those of connections that are
// no plain TCP. Freeze and then thaw or Drop, or else Unquiesce, must follow.
func (s *Session) Quiesce() {
	if s.net != nil {
		s.net.Quiesce()
	}
}

// Unquiesce undoes Quiesce for a session that could not be frozen.
func (s *Session) Unquiesce() {
	if s.net != nil {
		s.net.Unquiesce()
	}
}

// Freeze stops a session of a paused Driver until thaw or Drop, of which one must
// follow; thaw before the Driver resumes. It fails, and stops nothing, with
// session.ErrBusy while a read or write is in progress (for connections that are no plain TCP,
// until Quiesce has had its effect), and with session.ErrLater: see there.
func (s *Session) Freeze(format int) (f Frozen, thaw func(), err error) {
	if s.poll != nil {
		f.Frozen, f.Up, f.Down, err = s.poll.Freeze(format)
		return f, func() {}, err
	}
	f.Frozen, f.Up, f.Down, err = s.net.Freeze(format)
	return f, s.net.Thaw, err
}

// Drop forgets a frozen session that another has taken over. Its Observer is not called
// again, and what is asked of it has no effect. Nothing is done to its connections that
// their peers could notice.
func (s *Session) Drop() {
	if s.poll != nil {
		s.poll.Drop()
	} else {
		s.net.Drop()
	}
}

// Adopt drives a core that session.Restore has made over the descriptors of its upstream
// and its attached client, which are the Session's from here on. That of up is negative where the
// upstream's is closed, and that of down where no client is attached.
func (d *Driver) Adopt(core *session.Session, up, down End, watch session.Observer) *Session {
	if l := d.place(); l != nil {
		return &Session{poll: l.Adopt(core, handleOfEnd(up), handleOfEnd(down), watch)}
	}
	return &Session{net: d.net.Adopt(core, connOf(up.FD), connOf(down.FD), watch)}
}

func handleOfEnd(e End) epoll.Handle {
	if e.Forwarded {
		return epoll.Forwarded(e.FD)
	}
	return epoll.Descriptor(e.FD)
}

// connOf turns a descriptor into a connection, and closes the descriptor in any case. It returns nil for a
// negative one.
func connOf(fd int) net.Conn {
	if fd < 0 {
		return nil
	}
	conn, err := rawconn.ConnOf(fd)
	if err != nil { // out of descriptors: treat the connection as broken
		conn, _ = net.Pipe()
		conn.Close()
	}
	return conn
}
