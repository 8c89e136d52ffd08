package netio

import (
	"net"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"reseat/gateway/session"
	"reseat/gateway/transport/rawconn"
)

// A Session drives one session core. Its methods may be called by anyone, an Observer
// too, but not by what Do calls.
//
// Anyone who has called the core writes what it hands out, unless somebody else
// already writes to that socket, who then goes on with it. The lock is never
// held over a read, a write or an Observer.
type Session struct {
	driver *Driver
	watch  session.Observer

	mu   sync.Mutex
	now  session.Time // when it was taken by enter; it never goes back
	core *session.Session
	up   *leg // of the present upstream, or the last
	down *leg // of the present attachment

	lingering []*leg // of those before it that are neither closed nor hurried, oldest first

	open    int // legs that are not closed
	timer   *time.Timer
	armed   session.Time // when the timer fires; zero: it does not
	events  []session.Event
	telling bool // somebody is calling the Observer
	panics  []panicked
	chores  []chore // for after the lock is released
	over    bool    // the Observer has been called, or is being called, with Closed

	running sync.WaitGroup
}

// A chore is what is done to a socket without the lock, since it may wait.
type chore struct {
	conn net.Conn
	mode session.CloseMode // Linger: half-close; Shut, Reset: close
}

func (c chore) do() {
	switch c.mode {
	case session.Linger:
		if w, ok := c.conn.(interface{ CloseWrite() error }); ok {
			w.CloseWrite()
		}
		return
	case session.Reset:
		if l, ok := rawconn.Lowest(c.conn).(interface{ SetLinger(int) error }); ok {
			l.SetLinger(0)
		}
	}
	c.conn.Close()
}

type panicked struct {
	value any
	stack []byte
}

// connect makes conn the present upstream's.
func (s *Session) connect(conn net.Conn, u *session.Upstream) {
	s.up = newLeg(s, conn, u)
	s.read(s.up, nil)
}

// read starts the reader of a leg. early is what its client has sent already.
func (s *Session) read(l *leg, early []byte) {
	l.watch()
	s.open++
	s.running.Go(func() { s.readAll(l, early) })
}

// enter takes the lock, and the time for all that is done until it is released.
func (s *Session) enter() {
	now := s.driver.now()
	s.mu.Lock()
	s.now = max(s.now, now)
}

// Reconnect gives a session that needs one its next upstream; early is what that sent
// behind its answer. It reports false, and conn is still the caller's, where the session
// needs none.
func (s *Session) Reconnect(conn net.Conn, early []byte) (taken bool) {
	s.enter()
	old := s.up
	s.call(func(core *session.Session, now session.Time) {
		if core.NeedsUpstream() {
			s.connect(conn, core.Reconnect(now, early))
		}
	})
	if taken = s.up != old; taken {
		s.flush(old)
	}
	s.settle()
	return taken
}

// Do calls f as the core's owner. f must not block.
func (s *Session) Do(f func(core *session.Session, now session.Time)) {
	s.enter()
	s.call(f)
	s.settle()
}

func (s *Session) call(f func(*session.Session, session.Time)) {
	defer s.rescue()
	f(s.core, s.now)
}

// Attach gives the session a client by f. early is what the client has sent behind its
// handshake. Where f refuses, conn is still the caller's.
func (s *Session) Attach(conn net.Conn, early []byte, f session.AttachFunc) (refusal *session.Refusal) {
	s.enter()
	var a *session.Attachment
	s.call(func(core *session.Session, now session.Time) { a, refusal = f(core, now) })
	if a != nil {
		old, l := s.down, newLeg(s, conn, a)
		s.down = l
		s.read(l, early)
		if old != nil {
			s.hurry(old)
			s.flush(old)
		}
	}
	s.settle()
	if a == nil && refusal == nil { // a fault in the core, which has ended the session
		conn.Close()
	}
	return refusal
}

// hurry leaves the oldest of the client connections that are being closed little
// time, where old makes them too many. Called with mu held.
func (s *Session) hurry(old *leg) {
	if old.closed {
		return
	}
	s.lingering = append(s.lingering, old)
	if len(s.lingering) > session.MaxLingering {
		s.lingering[0].hurry()
		s.forget(s.lingering[0])
	}
}

// forget takes l off the list of those that are being closed. Called with mu held.
func (s *Session) forget(l *leg) {
	s.lingering = slices.DeleteFunc(s.lingering, func(other *leg) bool { return other == l })
}

// Info describes the session.
func (s *Session) Info() session.Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.Info()
}

// Client is the connection of the attached client, nil where there is none.
func (s *Session) Client() net.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down == nil || s.down.leg.CloseMode() != session.Open {
		return nil
	}
	return s.down.conn
}

func (s *Session) tick() {
	s.enter()
	s.armed = 0
	s.call(func(core *session.Session, now session.Time) {
		if l := s.down; l != nil && !l.closed && core.WatchesSocket(l.leg) {
			l.look()
		}
		core.Tick(now)
	})
	s.settle()
}

// settle does what the core wants done after a call to it: writes, closes,
// wakes readers, sets the timer and tells the Observer. It is called with mu
// held, and releases it.
func (s *Session) settle() {
	s.flush(s.up)
	if l := s.down; l != nil {
		s.flush(l)
		if l.closed && s.down == l {
			s.down = nil
		}
	}
	s.wakeReaders()
	s.arm()
	s.tell()
}

// wakeReaders wakes readers that waited for the core to want them again.
func (s *Session) wakeReaders() {
	if s.up.parked && s.reads(s.up) {
		s.up.unpark()
	}
	if d := s.down; d != nil && d.parked && s.reads(d) {
		d.unpark()
	}
}

// arm makes the timer fire when the core wants to be called. A timer that is
// set for an earlier moment is left alone: a call too early is harmless.
func (s *Session) arm() {
	next := s.core.Next()
	if next == 0 {
		return
	}
	if s.armed == 0 || next < s.armed {
		s.armed = next
		s.timer.Reset(max(next.Sub(s.now), 0))
	}
}

// tell does the chores and hands events to the Observer, in their order. It is
// called with mu held, and releases it.
func (s *Session) tell() {
	chores := s.chores
	s.chores = nil
	s.events = append(s.events, s.core.Events()...)
	first := !s.telling && s.news()
	s.telling = s.telling || first
	s.mu.Unlock()
	for _, c := range chores {
		c.do()
	}
	for first && s.tellNext() {
	}
}

// news reports whether there is anything to tell.
func (s *Session) news() bool {
	return len(s.events)+len(s.panics) > 0 || s.finished()
}

// finished reports whether it must be told that all is closed.
func (s *Session) finished() bool {
	return !s.over && s.core.State() == session.Ended && s.open == 0
}

// tellNext tells what has gathered, and reports whether there was anything.
func (s *Session) tellNext() bool {
	s.mu.Lock()
	events, panics, finished := s.events, s.panics, s.finished()
	s.telling = s.news()
	s.events, s.panics = nil, nil
	s.over = s.over || finished
	s.wakeReaders()
	if finished {
		s.timer.Stop()
	}
	s.mu.Unlock()
	for _, p := range panics {
		s.watch.Panicked(p.value, p.stack)
	}
	if len(events) > 0 {
		s.watch.Events(events)
	}
	if finished {
		s.watch.Closed()
	}
	return len(events)+len(panics) > 0 || finished
}

// rescue, deferred around every call of the core, ends this session alone when
// its code panics.
func (s *Session) rescue() {
	v := recover()
	if v == nil {
		return
	}
	s.panics = append(s.panics, panicked{v, debug.Stack()})
	defer func() {
		if recover() != nil { // not even that: both sockets are closed
			s.up.close(session.Shut)
			if s.down != nil {
				s.down.close(session.Shut)
			}
		}
	}()
	s.core.Fail(s.now)
}

// Wait waits until nothing runs any more of a session that is Closed.
func (s *Session) Wait() { s.running.Wait() }
