package epoll

import (
	"runtime/debug"
	"slices"
	"sync/atomic"

	"reseat/gateway/session"
	"reseat/gateway/transport/rawconn"
)

// A Session drives one session core from a Loop. Its methods may be called by
// anyone but the loop itself.
//
// Those that report whether the session is here do nothing where it is not: it
// has left the loop by Leave.
type Session struct {
	loop  *Loop
	core  *session.Session
	watch session.Observer

	// The loop's from here on.
	up    *leg   // of the present upstream, or the last
	down  *leg   // of the present attachment, or the last while it is open
	older []*leg // than these, until they are closed
	open  int    // legs that are not closed

	due   session.Time // when the core wants to be called, while there is an alarm
	alarm session.Time // when it will be
	place int          // among the loop's alarms; negative: there is none

	over bool // all is closed
	left bool

	untold atomic.Int64 // events that the Observer has not returned from
}

// maxUntold is how many events may wait for the Observer while more is read.
const maxUntold = 64

// New drives core over its upstream's descriptor, which is the loop's from here
// on. It begins to read at once.
func (l *Loop) New(core *session.Session, upstream int, watch session.Observer) *Session {
	s := &Session{loop: l, core: core, watch: watch, place: -1}
	l.load.Add(1)
	l.post(func() {
		l.sessions++
		s.serve(func() { s.connect(upstream, core.Upstream()) })
	})
	return s
}

// Do calls f as the core's owner. f must not block.
func (s *Session) Do(f func(core *session.Session, now session.Time)) (here bool) {
	return s.call(func() { f(s.core, s.loop.now) })
}

// Attach gives the session a client. Where that is refused, or the session is
// not here, the descriptor is closed. A negative one stands for a client whose
// connection could not be had: it is attached and gone.
func (s *Session) Attach(fd int, early []byte, f session.AttachFunc) (refusal *session.Refusal, here bool) {
	var a *session.Attachment
	here = s.call(func() {
		if a, refusal = f(s.core, s.loop.now); a != nil {
			s.attach(fd, early, a)
		}
	})
	if a == nil {
		rawconn.Release(fd)
	}
	return refusal, here
}

func (s *Session) attach(fd int, early []byte, a *session.Attachment) {
	old, g := s.down, &leg{s: s, leg: a, fd: fd}
	s.down = g
	s.begin(g)
	if old != nil && old.fd >= 0 {
		s.older = append(s.older, old)
		s.hurry()
		s.flush(old)
	}
	if len(early) > 0 {
		s.took(g, early)
	}
}

// hurry closes the oldest of the client connections that are being closed, where
// they are too many.
func (s *Session) hurry() {
	isUpstream := func(g *leg) bool { _, ok := g.leg.(*session.Upstream); return ok }
	clients := slices.DeleteFunc(slices.Clone(s.older), isUpstream)
	if len(clients) > session.MaxLingering {
		clients[0].close(session.Shut)
	}
}

// Reconnect gives a session that needs one its next upstream; early is what that
// sent behind its answer. Where the session needs none, or is not here, the
// descriptor is closed. A negative one stands for an upstream whose connection
// could not be had: it is lost.
func (s *Session) Reconnect(fd int, early []byte) (taken, here bool) {
	here = s.call(func() {
		if taken = s.core.NeedsUpstream(); taken {
			s.reconnect(fd, s.core.Reconnect(s.loop.now, early))
		}
	})
	if !taken {
		rawconn.Release(fd)
	}
	return taken, here
}

func (s *Session) reconnect(fd int, u *session.Upstream) {
	old := s.up
	s.connect(fd, u)
	if old.fd >= 0 {
		s.older = append(s.older, old)
		s.flush(old)
	}
}

func (s *Session) connect(fd int, u *session.Upstream) {
	s.up = &leg{s: s, leg: u, fd: fd}
	s.begin(s.up)
}

// Loop is the loop that the session was made by.
func (s *Session) Loop() *Loop { return s.loop }

// Infos describes sessions of the loop's: f is called with each one's place in
// the list, and absent are the places of those that are not here. It lets
// messages pass in between.
func (l *Loop) Infos(list []*Session, f func(i int, info session.Info)) (absent []int) {
	const atOnce = 64
	for first := 0; first < len(list); first += atOnce {
		l.call(func() {
			for i := first; i < min(first+atOnce, len(list)); i++ {
				if s := list[i]; s.left {
					absent = append(absent, i)
				} else {
					f(i, s.core.Info())
				}
			}
		})
	}
	return absent
}

// Leave gives the session to another driver for good. take gets the core, its sockets,
// and whether the Observer knows already that all is closed. then, which take returns,
// is called once the Observer knows all that happened before.
func (s *Session) Leave(take func(core *session.Session, sockets Sockets, over bool) (then func())) {
	s.loop.call(func() {
		if s.left {
			return
		}
		s.left = true
		if !s.over {
			s.release()
		}
		s.loop.news(news{then: take(s.core, s.surrender(), s.over)})
	})
}

// surrender takes the sockets off the loop.
func (s *Session) surrender() Sockets {
	all := Sockets{Up: s.up.surrender()}
	if s.down != nil {
		down := s.down.surrender()
		all.Down = &down
	}
	for _, g := range s.older {
		all.Older = append(all.Older, g.surrender())
	}
	return all
}

func (g *leg) surrender() Socket {
	k := Socket{FD: g.fd, Leg: g.leg}
	if g.fd >= 0 {
		g.s.loop.forget(g.fd)
		g.fd = -1
	}
	return k
}

// call has f done by the loop, and what the core then wants, and waits for it.
func (s *Session) call(f func()) (here bool) {
	s.loop.call(func() {
		if here = !s.left; here {
			s.serve(f)
		}
	})
	return here
}

// serve does f, and then what the core wants.
func (s *Session) serve(f func()) {
	defer s.rescue()
	f()
	s.settle()
}

// ready handles what the loop heard of a leg.
func (s *Session) ready(g *leg, events uint32) {
	if g.fd < 0 {
		return
	}
	defer s.rescue()
	g.heard(events)
	if g.readable {
		s.read(g)
	}
	if events&mayWrite != 0 && g != s.up && g != s.down {
		s.flush(g)
	}
	s.settle()
}

// rung handles the session's alarm.
func (s *Session) rung() {
	defer s.rescue()
	now := s.loop.now
	for _, g := range slices.Clone(s.older) {
		s.expire(g)
	}
	s.expire(s.up)
	if s.down != nil {
		s.expire(s.down)
	}
	if g := s.down; g != nil && g.fd >= 0 && s.core.WatchesSocket(g.leg) {
		s.look(g)
	}
	s.core.Tick(now)
	s.settle()
}

// settle does what the core wants done after a call to it: writes, closes, reads
// on where it had paused, sets the alarm and has the Observer told.
func (s *Session) settle() {
	for s.write(s.up) || s.down != nil && s.write(s.down) {
	}
	s.follow(s.up)
	if s.down != nil {
		s.follow(s.down)
	}
	s.arm()
	s.tell()
}

// arm makes the loop call when the core wants to be called, or a leg has had its
// time. An alarm for an earlier moment is left alone: a call too early is
// harmless.
func (s *Session) arm() {
	next := s.core.Next()
	if s.open > 0 {
		next = s.deadline(next)
	}
	if next > 0 && (s.place < 0 || next < s.due) {
		s.loop.due.set(s, s.loop.now, next)
	}
}

func (s *Session) deadline(t session.Time) session.Time {
	t = earlier(t, s.up.deadline)
	if s.down != nil {
		t = earlier(t, s.down.deadline)
	}
	for _, g := range s.older {
		t = earlier(t, g.deadline)
	}
	return t
}

func earlier(a, b session.Time) session.Time {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// tell has the Observer told what has happened.
func (s *Session) tell() {
	if events := s.core.Events(); events != nil {
		s.untold.Add(int64(len(events)))
		s.loop.news(news{of: s, events: events})
	}
	if s.open == 0 && !s.over && s.core.State() == session.Ended {
		s.over = true
		s.release()
		s.loop.news(news{of: s, over: true})
	}
}

// caughtUp notes that the Observer has returned from n events. The session is read
// again where it had too many. For the notifier.
func (s *Session) caughtUp(n int) {
	if left := s.untold.Add(-int64(n)); left <= maxUntold && left+int64(n) > maxUntold {
		s.loop.post(func() {
			if !s.left {
				s.serve(func() {})
			}
		})
	}
}

// release takes the session off the loop's accounts.
func (s *Session) release() {
	l := s.loop
	l.due.drop(s)
	l.sessions--
	l.load.Add(-1)
}

// rescue, deferred around every call of the core, ends this session alone when
// its code panics.
func (s *Session) rescue() {
	v := recover()
	if v == nil {
		return
	}
	s.loop.news(news{of: s, fault: &fault{v, debug.Stack()}})
	defer func() {
		if recover() != nil { // not even that: both sockets are closed
			s.up.close(session.Shut)
			if s.down != nil {
				s.down.close(session.Shut)
			}
		}
	}()
	s.core.Fail(s.loop.now)
	s.settle()
}
