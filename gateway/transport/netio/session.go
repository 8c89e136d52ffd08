package netio

import (
	"net"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"reseat/gateway/session"
	"reseat/gateway/transport/rawconn"
)

// A Session drives one session core. Its methods are safe for concurrent use, by an
// Observer too, but must not be called from within Do.
//
// A goroutine that has called the core writes the resulting output, unless another is
// already writing to that socket: then that one continues with it. The lock is never
// held over a read, a write or a call of the Observer.
type Session struct {
	driver *Driver
	watch  session.Observer

	mu   sync.Mutex
	now  session.Time // set by enter; it never goes back
	core *session.Session
	up   *leg // the current upstream's, or the last one's
	down *leg // the current attachment's

	lingering []*leg // superseded client legs that are neither closed nor hurried, oldest first

	open      int // legs that are not closed
	timer     *time.Timer
	armed     session.Time // when the timer fires; zero: never
	events    []session.Event
	panics    []panicked
	chores    []chore     // to be done after the lock is released
	notifying bool        // a goroutine is calling the Observer
	over      bool        // the Observer's Closed has been called, or is being called
	moved     bool        // another has taken the session over: see Drop
	quiet     atomic.Bool // see Quiesce; changed with mu held

	running sync.WaitGroup
}

// A chore is a socket operation that may block, and is done without the lock.
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
		below := rawconn.Lowest(c.conn)
		if l, ok := below.(interface{ SetLinger(int) error }); ok {
			l.SetLinger(0)
			below.Close() // before TLS could send a close_notify
		}
	}
	c.conn.Close()
}

type panicked struct {
	value any
	stack []byte
}

// connect makes conn the current upstream's connection.
func (s *Session) connect(conn net.Conn, u *session.Upstream) {
	s.up = newLeg(s, conn, u)
	s.read(s.up, nil)
}

// read starts the reader of a leg. early holds the bytes that its peer has already
// sent.
func (s *Session) read(l *leg, early []byte) {
	l.watch()
	s.open++
	if len(early) == 0 {
		s.running.Go(func() { l.s.readAll(l, nil) }) // a small closure, since it lives as long as the reader
		return
	}
	l.gate.Store(gateReading)
	s.running.Go(func() { s.readAll(l, early) })
}

// enter locks mu and reads the clock for everything done under the lock.
func (s *Session) enter() {
	now := s.driver.now()
	s.mu.Lock()
	s.now = max(s.now, now)
}

// Reconnect gives a session that takes an upstream its next one; early holds the bytes
// that the upstream sent right after its handshake response. It returns false if the
// session takes none; the caller then still owns conn.
func (s *Session) Reconnect(conn net.Conn, early []byte, outage session.Time) (taken bool) {
	s.enter()
	old := s.up
	s.call(func(core *session.Session, now session.Time) {
		if core.TakesUpstream(outage) {
			s.connect(conn, core.Reconnect(now, early))
		}
	})
	if taken = s.up != old; taken {
		s.flush(old)
	}
	s.settle()
	return taken
}

// Do calls f with exclusive access to the core. f must not block.
func (s *Session) Do(f func(core *session.Session, now session.Time)) {
	s.enter()
	s.call(f)
	s.settle()
}

func (s *Session) call(f func(*session.Session, session.Time)) {
	if s.moved {
		return
	}
	defer s.rescue()
	f(s.core, s.now)
}

// Attach attaches a client with f. early holds the bytes that the client sent right
// after its handshake. If f refuses, the caller still owns conn.
func (s *Session) Attach(conn net.Conn, early []byte, f session.AttachFunc) (refusal *session.Refusal) {
	s.enter()
	var a *session.Attachment
	s.call(func(core *session.Session, now session.Time) { a, refusal = f(core, now) })
	if a != nil {
		old, l := s.down, newLeg(s, conn, a)
		s.down = l
		s.read(l, early)
		if old != nil {
			s.limitLingering(old)
			s.flush(old)
		}
	}
	s.settle()
	if a == nil && refusal == nil { // the core panicked, which has ended the session
		conn.Close()
	}
	return refusal
}

// limitLingering adds old to the superseded client legs, and hurries the oldest if
// there are too many. Called with mu held.
func (s *Session) limitLingering(old *leg) {
	if old.closed {
		return
	}
	s.lingering = append(s.lingering, old)
	if len(s.lingering) > session.MaxLingering {
		s.lingering[0].hurry()
		s.forget(s.lingering[0])
	}
}

// forget removes l from lingering. Called with mu held.
func (s *Session) forget(l *leg) {
	s.lingering = slices.DeleteFunc(s.lingering, func(other *leg) bool { return other == l })
}

// Info returns a snapshot of the session.
func (s *Session) Info() session.Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.Info()
}

// Client returns the attached client's connection, nil if none is attached.
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
			l.reportSocketState()
		}
		core.Tick(now)
	})
	s.settle()
}

// settle does what the core wants done after a call: writes, closes, wakes readers,
// sets the timer and notifies the Observer. Called with mu held, which it releases.
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
	s.notify()
}

// wakeReaders wakes parked readers that the core wants again.
func (s *Session) wakeReaders() {
	if s.up.parked && s.reads(s.up) {
		s.up.unpark()
	}
	if d := s.down; d != nil && d.parked && s.reads(d) {
		d.unpark()
	}
}

// arm sets the timer for the core's next deadline. It does not postpone a timer that is
// set earlier: a call too early is harmless.
func (s *Session) arm() {
	next := s.core.Next()
	if next == 0 || s.moved {
		return
	}
	if s.armed == 0 || next < s.armed {
		s.armed = next
		s.timer.Reset(max(next.Sub(s.now), 0))
	}
}

// notify does the chores and passes events to the Observer, in order. Called with mu
// held, which it releases.
func (s *Session) notify() {
	chores := s.chores
	s.chores = nil
	s.events = append(s.events, s.core.Events()...)
	first := !s.notifying && s.hasNews()
	s.notifying = s.notifying || first
	s.mu.Unlock()
	for _, c := range chores {
		c.do()
	}
	for first && s.notifyNext() {
	}
}

// hasNews reports whether the Observer must be called.
func (s *Session) hasNews() bool {
	return len(s.events)+len(s.panics) > 0 || s.finished()
}

// finished reports whether the Observer's Closed must be called.
func (s *Session) finished() bool {
	return !s.over && s.core.State() == session.Ended && s.open == 0
}

// notifyNext passes the collected events to the Observer, and reports whether there
// were any.
func (s *Session) notifyNext() bool {
	s.mu.Lock()
	events, panics, finished := s.events, s.panics, s.finished()
	s.notifying = s.hasNews()
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

// rescue, deferred around every call of the core, confines a panic to this session: it
// ends the session.
func (s *Session) rescue() {
	v := recover()
	if v == nil {
		return
	}
	s.panics = append(s.panics, panicked{v, debug.Stack()})
	defer func() {
		if recover() != nil { // the core can't even fail: close both sockets
			s.up.close(session.Shut)
			if s.down != nil {
				s.down.close(session.Shut)
			}
		}
	}()
	s.core.Fail(s.now)
}

// Wait waits until no goroutine of a session that is Closed is left.
func (s *Session) Wait() { s.running.Wait() }
