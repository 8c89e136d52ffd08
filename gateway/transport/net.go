package transport

import (
	"net"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"reseat/gateway/session"
	"reseat/gateway/transport/epoll"
	"reseat/gateway/transport/rawconn"
)

// A netSession drives one session core with goroutines: one reads the upstream,
// one the attached client, and one more exists for each socket that does not
// take what it is given, for as long as it does not.
//
// Anyone who has called the core writes what it hands out, unless somebody else
// already writes to that socket, who then goes on with it. The lock is never
// held over a read, a write or an Observer.
type netSession struct {
	driver *Driver
	watch  session.Observer

	mu   sync.Mutex
	now  session.Time // when it was taken by enter; it never goes back
	core *session.Session
	up   *leg // of the present upstream, or the last
	down *leg // of the present attachment

	parting []*leg // of those before it that are neither closed nor hurried, oldest first

	upstreams int // whose sockets are not closed
	timer     *time.Timer
	armed     session.Time // when the timer fires; zero: it does not
	events    []session.Event
	telling   bool // somebody is calling the Observer
	panics    []panicked
	chores    []chore // for after the lock is released
	over      bool    // the Observer has been told, or is being told, that all is closed

	running sync.WaitGroup
}

// A chore is what is done to a socket without the lock, since it may wait.
type chore struct {
	conn net.Conn
	fate session.CloseMode // Linger: shut down writing; Shut, Reset: close
}

func (c chore) do() {
	switch c.fate {
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

// newNet drives core over its upstream's connection. It begins to read at once.
func newNet(d *Driver, core *session.Session, upstream net.Conn, watch session.Observer) *netSession {
	s := idle(d, core, watch)
	s.connect(upstream, core.Upstream())
	return s
}

// idle is a session without legs.
func idle(d *Driver, core *session.Session, watch session.Observer) *netSession {
	s := &netSession{driver: d, watch: watch, core: core}
	s.timer = time.AfterFunc(time.Hour, s.tick)
	s.timer.Stop()
	return s
}

// connect makes conn the present upstream's.
func (s *netSession) connect(conn net.Conn, u *session.Upstream) {
	l := newLeg(s, conn)
	l.ups = u
	s.up = l
	s.read(l, nil)
}

// read starts the reader of a leg. early is what its client has sent already.
func (s *netSession) read(l *leg, early []byte) {
	l.watch()
	if l.att == nil {
		s.upstreams++
		s.running.Go(func() { s.readUpstream(l) })
	} else {
		s.running.Go(func() { s.readClient(l, early) })
	}
}

// enter takes the lock, and the time for all that is done until it is released.
func (s *netSession) enter() {
	now := s.driver.clock.Now()
	s.mu.Lock()
	s.now = max(s.now, now)
}

func (s *netSession) reconnect(conn net.Conn, early []byte) (taken bool) {
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

func (s *netSession) do(f func(core *session.Session, now session.Time)) {
	s.enter()
	s.call(f)
	s.settle()
}

func (s *netSession) call(f func(*session.Session, session.Time)) {
	defer s.rescue()
	f(s.core, s.now)
}

func (s *netSession) attach(conn net.Conn, early []byte, f epoll.AttachFunc) (refusal *session.Refusal) {
	s.enter()
	var a *session.Attachment
	s.call(func(core *session.Session, now session.Time) { a, refusal = f(core, now) })
	if a != nil {
		old, l := s.down, newLeg(s, conn)
		l.att = a
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
func (s *netSession) hurry(old *leg) {
	if old.closed {
		return
	}
	s.parting = append(s.parting, old)
	if len(s.parting) > session.MostParting {
		s.parting[0].hurry()
		s.forget(s.parting[0])
	}
}

// forget takes l off the list of those that are being closed. Called with mu held.
func (s *netSession) forget(l *leg) {
	s.parting = slices.DeleteFunc(s.parting, func(other *leg) bool { return other == l })
}

func (s *netSession) info() session.Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.Info()
}

func (s *netSession) client() net.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down == nil || s.down.fate() != session.Open {
		return nil
	}
	return s.down.conn
}

func (s *netSession) tick() {
	s.enter()
	s.armed = 0
	s.call(func(core *session.Session, now session.Time) {
		if l := s.down; l != nil && !l.closed && core.WatchesSocket(l.att) {
			l.look()
		}
		core.Tick(now)
	})
	s.settle()
}

// settle does what the core wants done after a call to it: writes, closes,
// wakes readers, sets the timer and tells the Observer. It is called with mu
// held, and releases it.
func (s *netSession) settle() {
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
func (s *netSession) wakeReaders() {
	if s.up.parked && s.reads(s.up) {
		s.up.unpark()
	}
	if d := s.down; d != nil && d.parked && s.reads(d) {
		d.unpark()
	}
}

// arm makes the timer fire when the core wants to be called. A timer that is
// set for an earlier moment is left alone: a call too early is harmless.
func (s *netSession) arm() {
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
func (s *netSession) tell() {
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
func (s *netSession) news() bool {
	return len(s.events)+len(s.panics) > 0 || s.finished()
}

// finished reports whether it must be told that all is closed.
func (s *netSession) finished() bool {
	return !s.over && s.core.State() == session.Ended && s.upstreams == 0 && (s.down == nil || s.down.closed)
}

// tellNext tells what has gathered, and reports whether there was anything.
func (s *netSession) tellNext() bool {
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
func (s *netSession) rescue() {
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

// Farewell sends b to a connection that belongs to no session, waits for its
// end, a second at most, and closes it.
func Farewell(conn net.Conn, b []byte) {
	conn.SetDeadline(time.Now().Add(session.ClientFlush))
	if _, err := conn.Write(b); err == nil {
		conn.SetReadDeadline(time.Now().Add(session.LingerTime))
		chore{conn, session.Linger}.do()
		drain(conn)
	}
	conn.Close()
}
