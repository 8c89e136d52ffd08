package epoll

import (
	"golang.org/x/sys/unix"

	"reseat/gateway/session"
)

// This file moves sessions to another process, or to another loop, with their
// connections, for an upgrade: the loop pauses, sessions are frozen, those that another
// has taken over are dropped, and the loop goes on with the rest.

// Pause stops the loop between two turns until resume is called. In between, the caller
// owns the loop's sessions: it may call Freeze and Drop. Do and Attach of others wait.
// Observers are called meanwhile.
func (l *Loop) Pause() (resume func()) {
	paused, over := make(chan struct{}), make(chan struct{})
	l.post(func() {
		l.notify() // or the notifier would wait for the notification until the loop goes on
		close(paused)
		<-over
	})
	<-paused
	return func() { close(over) }
}

// Freeze describes a session of a paused loop, and returns the sockets of its upstream and its
// client. They stay the session's: a receiver must have duplicates of descriptors, and may use a
// Conn after Drop. It fails with session.ErrBusy or session.ErrLater where the session cannot move
// now.
func (s *Session) Freeze(format int) (f session.Frozen, up, down Socket, err error) {
	up, down = Socket{FD: -1}, Socket{FD: -1}
	attached := s.down == nil || s.down.leg == session.Leg(s.core.Attachment())
	switch {
	case s.dropped, len(s.older) > 0, !attached, s.core.State() == session.Ended:
		return f, up, down, session.ErrLater
	case s.pending.Load() > 0, s.up.ends(), s.down != nil && s.down.ends():
		return f, up, down, session.ErrBusy
	}
	up = s.up.socket()
	if s.down != nil {
		down = s.down.socket()
	}
	f, err = s.core.Freeze(format)
	return f, up, down, err
}

func (g *leg) socket() Socket {
	if g.layer != nil && g.fd >= 0 {
		return Socket{FD: -1, Conn: g.layer.conn}
	}
	return Socket{FD: g.fd, Forwarded: g.forwarded}
}

// ends reports whether g has a layer and is being closed: the layer still has to send its close_notify.
func (g *leg) ends() bool {
	return g.layer != nil && g.fd >= 0 && g.leg.CloseMode() != session.Open
}

// Drop forgets a session that another has taken over, of a loop that is paused. Its
// Observer is not called again. Nothing is done to its connections that their peers could
// notice.
func (s *Session) Drop() {
	if s.dropped {
		return
	}
	s.dropped = true
	s.release()
	for _, g := range []*leg{s.up, s.down} {
		if g != nil && g.fd >= 0 {
			s.loop.forget(g.fd) // before the close: epoll watches the open file, which lives on
			if g.layer != nil {
				g.layer.socket.Return()
			} else {
				unix.Close(g.fd)
			}
			g.fd = -1
			s.open--
		}
	}
	s.core.Discard()
}

// Adopt drives a core that session.Restore has made, over the connections of its upstream
// and its attached client, which are the loop's from here on; down is not looked at where
// none is attached.
func (l *Loop) Adopt(core *session.Session, up, down Handle, watch session.Observer) *Session {
	s := &Session{loop: l, core: core, watch: watch, place: -1}
	l.load.Add(1)
	l.post(func() {
		l.sessions++
		s.serve(func() {
			s.up = &leg{s: s, leg: core.Upstream()}
			if a := core.Attachment(); a != nil {
				s.down = &leg{s: s, leg: a}
				down.begin(s, s.down)
			}
			up.begin(s, s.up)
		})
	})
	return s
}
