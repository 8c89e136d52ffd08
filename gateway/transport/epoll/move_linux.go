package epoll

import (
	"slices"

	"golang.org/x/sys/unix"

	"reseat/gateway/session"
	"reseat/gateway/transport/rawconn"
)

// This file moves sessions, with their connections: from one loop to another, and for an upgrade to another process,
// or to the loops of another Driver. Both need a session at rest, and both take it out of its loop by leave.
//
// Between loops: the loop that has the session does it alone, at the end of a turn, by hand. It takes the session
// out; then, with both mailboxes locked, the session's letters go to the other loop, behind a first one that has it
// join there. So calls are made once and in order, even if others post meanwhile.
//
// For an upgrade: the loops pause, sessions are frozen, those that another has taken over are dropped, and the
// loops go on with the rest.

// Pause stops the loops between two turns until resume is called. In between, the caller
// owns their sessions: it may call Freeze and Drop. Do and Attach of others wait.
// Observers are called meanwhile.
func (all *Loops) Pause() (resume func()) {
	all.paused.Add(1)
	for _, l := range all.list {
		l.call(func() {}) // from here on no session leaves l
	}
	var each []func()
	for _, l := range all.list {
		each = append(each, l.pause()) // behind the letters by which sessions join l
	}
	return func() {
		all.paused.Add(-1)
		for _, f := range each {
			f()
		}
	}
}

func (l *Loop) pause() (resume func()) {
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
func (s *Session) Freeze(format int) (f session.Frozen, up, down rawconn.Socket, err error) {
	up, down = rawconn.NoSocket, rawconn.NoSocket
	if err = s.atRest(); err != nil {
		return f, up, down, err
	}
	up = s.up.socket()
	if s.down != nil {
		down = s.down.socket()
	}
	f, err = s.core.Freeze(format)
	return f, up, down, err
}

// atRest returns why the session cannot leave its loop now, nil if it can. Between two calls it holds nothing of the
// loop; what its Observer has not processed is in the loop's notifier.
func (s *Session) atRest() error {
	attached := s.down == nil || s.down.leg == session.Leg(s.core.Attachment())
	switch {
	case s.dropped, len(s.older) > 0, !attached, s.core.State() == session.Ended:
		return session.ErrLater
	case s.pending.Load() > 0, s.up.ends(), s.down != nil && s.down.ends():
		return session.ErrBusy
	}
	return nil
}

// leave takes a session out of its loop: its alarm, and its sockets, which stay open.
func (s *Session) leave() {
	s.release()
	for _, g := range []*leg{s.up, s.down} {
		if g != nil && g.fd >= 0 {
			s.loop.forget(g.fd)
		}
	}
}

// hand hands sessions that are at rest to another loop, at the end of a turn.
func (l *Loop) hand(list []*Session, to *Loop) {
	for _, s := range list {
		s.leave()
		s.away = true
	}
	l.queue = slices.DeleteFunc(l.queue, func(g *leg) bool {
		gone := g.s != nil && g.s.away
		if gone {
			g.queued = false
		}
		return gone
	})
	then := l.now
	unlock := lockBoth(l, to)
	if to.stopped {
		unlock()
		for _, s := range list {
			l.load.Add(1)
			s.join(l, then)
		}
		return
	}
	defer unlock()
	for _, s := range list {
		s.home.Store(to)
		to.load.Add(1)
		to.mail = append(to.mail, letter{s, func() { s.join(to, then) }})
	}
	l.mail = slices.DeleteFunc(l.mail, func(m letter) bool {
		follows := m.s != nil && m.s.home.Load() == to
		if follows {
			to.mail = append(to.mail, m)
		}
		return follows
	})
	to.mailed.Store(true)
	to.signal()
}

// lockBoth locks two mailboxes, always in the same order.
func lockBoth(a, b *Loop) (unlock func()) {
	if a.index > b.index {
		a, b = b, a
	}
	a.mu.Lock()
	b.mu.Lock()
	return func() {
		b.mu.Unlock()
		a.mu.Unlock()
	}
}

// join has l serve a session that has left another loop at the time then. epoll reports again what a socket is
// ready for when it is added.
func (s *Session) join(l *Loop, then session.Time) {
	s.loop, s.away = l, false
	l.sessions++
	l.now = max(l.now, then)
	s.serve(func() {
		for _, g := range []*leg{s.up, s.down} {
			if g == nil || g.fd < 0 {
				continue
			}
			if err := l.adopt(g, false); err != nil {
				s.disconnected(g, err)
			}
		}
	})
}

func (g *leg) socket() rawconn.Socket {
	if g.layer != nil && g.fd >= 0 {
		return rawconn.Socket{FD: -1, Conn: g.layer.conn}
	}
	return rawconn.Socket{FD: g.fd, Forwarded: g.forwarded}
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
	s.leave() // before the close: epoll watches the open file, which lives on
	for _, g := range []*leg{s.up, s.down} {
		if g != nil && g.fd >= 0 {
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
	s := l.newSession(core, watch)
	s.post(func() {
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
