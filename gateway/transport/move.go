package transport

import (
	"reseat/gateway/session"
	"reseat/gateway/transport/epoll"
	"reseat/gateway/transport/netio"
)

// This file moves sessions to another process, or to another Driver, with their
// connections, for an upgrade.

// Pause stops all event loops until resume is called. Freeze needs that.
func (d *Driver) Pause() (resume func()) {
	if d.kind != Net {
		d.begin.Do(d.start) // or one could begin meanwhile
	}
	var each []func()
	for _, l := range d.loops {
		each = append(each, l.Pause())
	}
	return func() {
		for _, f := range each {
			f()
		}
	}
}

// A Frozen is a session that stands still, with the connections of its upstream and its
// client. They stay the session's: a receiver must have duplicates of descriptors, and may
// use a Conn after Drop.
type Frozen struct {
	session.Frozen
	Up, Down End
}

// An End is a connection of a frozen session: a descriptor, negative where there is none, or
// a connection that has no usable descriptor, such as one over TLS.
type End = netio.End

// Quiesce interrupts reads that would keep Freeze from succeeding: those of connections that are
// no plain TCP. Freeze and then thaw or Drop, or else Unquiesce, must follow.
func (s *Session) Quiesce() {
	if n := s.net.Load(); n != nil {
		n.Quiesce()
	}
}

// Unquiesce undoes Quiesce for a session that could not be frozen.
func (s *Session) Unquiesce() {
	if n := s.net.Load(); n != nil {
		n.Unquiesce()
	}
}

// Freeze stops a session of a paused Driver until thaw or Drop, of which one must
// follow; thaw before the Driver resumes. It fails, and stops nothing, with
// session.ErrBusy while a read or write is under way (for connections that are no plain TCP,
// until Quiesce has had its effect), and with session.ErrLater: see there.
func (s *Session) Freeze(format int) (f Frozen, thaw func(), err error) {
	if p := s.onLoop(); p != nil {
		frozen, up, down, err := p.Freeze(format)
		return Frozen{Frozen: frozen, Up: End{FD: up.FD, Conn: up.Conn}, Down: End{FD: down.FD, Conn: down.Conn}}, func() {}, err
	}
	n := s.net.Load()
	f.Frozen, f.Up, f.Down, err = n.Freeze(format)
	return f, n.Thaw, err
}

// Drop forgets a frozen session that another has taken over. Its Observer is not called
// again, and what is asked of it has no effect. Nothing is done to its connections that
// their peers could notice.
func (s *Session) Drop() {
	if p := s.onLoop(); p != nil {
		p.Drop()
		return
	}
	s.net.Load().Drop()
}

// Adopt drives a core that session.Restore has made over the descriptors of its upstream
// and its attached client, which are the Session's from here on. up is negative where the
// upstream's is closed, and down where no client is attached. tcp says that both are TCP
// connections, which an event loop can serve.
func (d *Driver) Adopt(core *session.Session, up, down int, tcp bool, watch session.Observer) *Session {
	s := &Session{driver: d, watch: watch}
	if d.kind != Net && tcp {
		if l := d.leastLoaded(); l != nil {
			s.poll = l.Adopt(core, up, down, watch)
			return s
		}
	}
	sockets := netio.Sockets{Up: connOf(epoll.Socket{FD: up, Leg: core.Upstream()})}
	if a := core.Attachment(); a != nil {
		client := connOf(epoll.Socket{FD: down, Leg: a})
		sockets.Down = &client
	}
	n := d.net.Adopt(core, sockets, false, watch)
	s.net.Store(n)
	n.NotifyRest()
	return s
}
