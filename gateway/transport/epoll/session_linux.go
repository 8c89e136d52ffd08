package epoll

import (
	"runtime/debug"
	"slices"
	"sync/atomic"

	"reseat/gateway/session"
)

// A Session drives one session core from a Loop. Its methods are safe for concurrent
// use, but must not be called by the loop itself.
//
// Methods that return here return false, and do nothing, once another has taken the session over: see Drop.
type Session struct {
	home  atomic.Pointer[Loop] // where its letters go. Changed by its loop, with both mailboxes locked: see hand
	core  *session.Session
	watch session.Observer

	// Owned by the loop that home points to:
	loop  *Loop  // that loop, except while the session is on its way there
	up    *leg   // the current upstream's, or the last one's
	down  *leg   // the current attachment's, or the last one's while it is open
	older []*leg // superseded legs that are not closed yet
	open  int    // legs that are not closed

	due   session.Time // the core's next deadline, while an alarm is set
	alarm session.Time // when the alarm fires
	place int          // index in the loop's alarms; negative: none is set

	over    bool // all sockets are closed
	dropped bool // see Drop
	chosen  bool // it leaves the loop at the end of this turn, if it can
	away    bool // it has left its loop, and has not joined the next

	// What it cost, in units of spend: in the last window of the loop in which it was served, and in the one before.
	window     uint32
	work, last uint32

	pending atomic.Int64 // events that the Observer has not processed
}

// With more than maxPending events that wait for the Observer reading stops.
const maxPending = 64

// New drives core over its upstream's connection, which the loop owns from here on. It
// starts reading at once.
func (l *Loop) New(core *session.Session, upstream Handle, watch session.Observer) *Session {
	s := l.newSession(core, watch)
	s.post(func() {
		l.sessions++
		s.serve(func() { s.connect(upstream, core.Upstream()) })
	})
	return s
}

func (l *Loop) newSession(core *session.Session, watch session.Observer) *Session {
	s := &Session{loop: l, core: core, watch: watch, place: -1}
	s.home.Store(l)
	l.load.Add(1)
	return s
}

// post has the loop call f, after all that was posted before.
func (s *Session) post(f func()) {
	for !s.home.Load().mailTo(letter{s, f}) {
	} // it has moved meanwhile
}

// Do calls f with exclusive access to the core. f must not block.
func (s *Session) Do(f func(core *session.Session, now session.Time)) (here bool) {
	return s.call(func() { f(s.core, s.loop.now) })
}

// Attach attaches a client. It closes a descriptor if the client is refused or the
// session is not here; a Conn stays the caller's then. If the connection is unusable, the
// client is attached and detached again.
func (s *Session) Attach(h Handle, early []byte, f session.AttachFunc) (refusal *session.Refusal, here bool) {
	var a *session.Attachment
	here = s.call(func() {
		if a, refusal = f(s.core, s.loop.now); a != nil {
			s.attach(h, early, a)
		}
	})
	if a == nil {
		h.Release()
	}
	return refusal, here
}

// AttachFirst is Attach for the first client, which is not refused. It does not wait. It owns c.
func (s *Session) AttachFirst(c *Conn, early []byte, f session.AttachFunc) {
	s.post(func() {
		if s.dropped {
			c.Close()
			return
		}
		s.serve(func() {
			a, _ := f(s.core, s.loop.now)
			s.attach(c.Handle(), early, a)
		})
	})
}

func (s *Session) attach(h Handle, early []byte, a *session.Attachment) {
	old, g := s.down, &leg{s: s, leg: a}
	s.down = g
	h.begin(s, g)
	if old != nil && old.fd >= 0 {
		s.older = append(s.older, old)
		s.limitLingering()
		s.flush(old)
	}
	if len(early) > 0 {
		s.received(g, early)
	}
}

// limitLingering closes the oldest of the superseded client connections if there are
// too many.
func (s *Session) limitLingering() {
	isUpstream := func(g *leg) bool { _, ok := g.leg.(*session.Upstream); return ok }
	clients := slices.DeleteFunc(slices.Clone(s.older), isUpstream)
	if len(clients) > session.MaxLingering {
		clients[0].close(session.Shut)
	}
}

// Reconnect gives a session that takes an upstream its next one; early holds the bytes
// that the upstream sent right after its handshake response. It closes a descriptor
// if the session takes none or is not here; a Conn stays the caller's then. An upstream
// whose connection is unusable counts as disconnected.
func (s *Session) Reconnect(h Handle, early []byte, outage session.Time) (taken, here bool) {
	here = s.call(func() {
		if taken = s.core.TakesUpstream(outage); taken {
			s.reconnect(h, s.core.Reconnect(s.loop.now, early))
		}
	})
	if !taken {
		h.Release()
	}
	return taken, here
}

func (s *Session) reconnect(h Handle, u *session.Upstream) {
	old := s.up
	s.connect(h, u)
	if old.fd >= 0 {
		s.older = append(s.older, old)
		s.flush(old)
	}
}

func (s *Session) connect(h Handle, u *session.Upstream) {
	s.up = &leg{s: s, leg: u}
	h.begin(s, s.up)
}

// Infos calls f with a snapshot of each session of the list that is here, and its index. A nil session is
// left out. Messages are relayed in between.
func Infos(list []*Session, f func(i int, info session.Info)) {
	onLoops := make(map[*Loop][]int)
	for i, s := range list {
		if s != nil {
			l := s.home.Load()
			onLoops[l] = append(onLoops[l], i)
		}
	}
	const atOnce = 64
	var moved []int
	for l, places := range onLoops {
		for some := range slices.Chunk(places, atOnce) {
			l.call(func() {
				for _, i := range some {
					if s := list[i]; s.home.Load() != l {
						moved = append(moved, i)
					} else if !s.dropped {
						f(i, s.core.Info())
					}
				}
			})
		}
	}
	for _, i := range moved {
		list[i].Do(func(core *session.Session, _ session.Time) { f(i, core.Info()) })
	}
}

// call runs f and settle on the loop, and waits for both.
func (s *Session) call(f func()) (here bool) {
	done := make(chan struct{})
	s.post(func() {
		defer close(done)
		if here = !s.dropped; here {
			s.serve(f)
		}
	})
	<-done
	return here
}

// serve runs f, and then what the core wants done.
func (s *Session) serve(f func()) {
	defer s.rescue()
	f()
	s.settle()
}

// ready serves a leg after an event of its socket, or because there was more to do than a turn allows.
func (s *Session) ready(g *leg) {
	defer s.rescue()
	if g.fd < 0 {
		return
	}
	before := s.loop.effort
	if g.readable {
		s.readSome(g)
	}
	if g != s.up && g != s.down {
		s.flush(g)
	}
	s.settle()
	s.spend(s.loop.effort - before)
}

// onAlarm handles the session's alarm.
func (s *Session) onAlarm() {
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
		s.reportSocketState(g)
	}
	s.core.Tick(now)
	s.settle()
}

// settle does what the core wants done after a call: writes, closes, resumes paused
// reads, sets the alarm and notifies the Observer.
func (s *Session) settle() {
	limit := s.loop.effort + sessionEffort
	for s.write(s.up) || s.down != nil && s.write(s.down) {
		if s.loop.effort >= limit { // go on in the next turn
			g := s.up
			if g.fd < 0 && s.down != nil {
				g = s.down
			}
			s.loop.enqueue(g)
			break
		}
	}
	s.follow(s.up)
	if s.down != nil {
		s.follow(s.down)
	}
	s.arm()
	s.notify()
}

// arm schedules an alarm for the earliest deadline of the core and the legs. It does
// not postpone an alarm that is set earlier: a call too early is harmless.
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

// notify queues what has happened for the Observer.
func (s *Session) notify() {
	if events := s.core.Events(); events != nil {
		s.pending.Add(int64(len(events)))
		s.loop.report(notice{of: s, events: events})
	}
	if s.open == 0 && !s.over && s.core.State() == session.Ended {
		s.over = true
		s.release()
		s.loop.report(notice{of: s, over: true})
	}
}

// caughtUp records that the Observer has processed n events, and resumes reading if
// reading was paused. Called by the notifier.
func (s *Session) caughtUp(n int) {
	if left := s.pending.Add(-int64(n)); left <= maxPending && left+int64(n) > maxPending {
		s.post(func() {
			if !s.dropped {
				s.serve(func() {})
			}
		})
	}
}

// release removes the session from the loop's counts.
func (s *Session) release() {
	l := s.loop
	l.due.drop(s)
	l.sessions--
	l.load.Add(-1)
}

// rescue, deferred around every call of the core, confines a panic to this session: it
// ends the session.
func (s *Session) rescue() {
	v := recover()
	if v == nil {
		return
	}
	s.loop.report(notice{of: s, fault: &fault{v, debug.Stack()}})
	defer func() {
		if recover() != nil { // the core can't even fail: close both sockets
			s.up.close(session.Shut)
			if s.down != nil {
				s.down.close(session.Shut)
			}
		}
	}()
	s.core.Fail(s.loop.now)
	s.settle()
}
