package netio

import (
	"net"

	"reseat/gateway/session"
	"reseat/gateway/transport/rawconn"
)

// readAll reads l as long as its leg is open, and then what still comes until its
// connection ends. early is what its peer has sent already.
func (s *Session) readAll(l *leg, early []byte) {
	if len(early) > 0 {
		s.took(l, early)
		s.enter()
		s.settle()
	}
	s.readOn(l)
	if l.err != nil {
		s.Do(func(core *session.Session, now session.Time) { core.Gone(now, l.leg, l.err.Error()) })
	}
	s.discard(l)
}

// readOnce reads once, into the memory that the core names. See readOn.
func (s *Session) readOnce(l *leg, fd int) (more, calm bool) {
	defer l.giveBack()
	room := s.room(l)
	if room == nil {
		return false, false // the core wants to be called when there may be some
	}
	n, more := l.receive(fd, room)
	l.much = n >= smallRead
	return more, s.took(l, room[:n])
}

func (s *Session) room(l *leg) (b []byte) {
	s.mu.Lock()
	s.call(func(core *session.Session, _ session.Time) { b = core.Room(l.leg, l.lend) })
	s.mu.Unlock()
	return b
}

// took passes to the core what was read. p is free again when it returns.
func (s *Session) took(l *leg, p []byte) (calm bool) {
	s.enter()
	s.call(func(core *session.Session, now session.Time) { core.Read(now, l.leg, p) })
	if len(p) == 0 {
		s.mu.Unlock()
		return true
	}
	if l != s.up { // a client's message goes on from p, without a copy
		s.flush(s.up)
		s.call(func(core *session.Session, _ session.Time) { core.Retain() })
	}
	return s.goOn(l)
}

// readOn reads while l may be read. A read says whether there may be more to read at
// once, and whether it was calm: nothing is left for settle to do.
//
// A descriptor is not let go of between two reads: a reader that lets go of it must
// have it made ready for waiting anew.
func (s *Session) readOn(l *leg) {
	ready := func(fd uintptr) (enough bool) {
		for {
			more, calm := s.readOnce(l, int(fd))
			if !calm || l.err != nil {
				return true
			}
			if !more {
				return false
			}
		}
	}
	for l.err == nil && s.waitToRead(l) {
		calm := false
		if l.raw == nil {
			_, calm = s.readOnce(l, -1)
		} else if err := l.raw.Read(ready); err != nil {
			l.err = err
		}
		if !calm {
			s.enter()
			s.settle()
		}
	}
}

// receive reads once. From a descriptor it does not wait, and returns 0 where there
// is nothing now. A read that did not fill b has taken all there was; whether the
// end came behind it is told by HungUp, and else by a read that finds nothing.
func (l *leg) receive(fd int, b []byte) (n int, more bool) {
	if l.raw == nil {
		n, l.err = l.conn.Read(b)
		return n, true
	}
	n, l.err = rawconn.Receive(fd, b)
	return n, n == len(b) || n > 0 && (!l.watched || l.hungUp.Load())
}

// borrow is memory for one read of a client, until giveBack. Where the read waits the
// memory is the leg's own, and small.
func (l *leg) borrow() []byte {
	switch {
	case l.raw != nil && l.much:
		l.pool = &big
	case l.raw != nil:
		l.pool = &small
	default:
		if l.held == nil {
			l.held = make([]byte, slowRead)
		}
		return l.held
	}
	l.lent = l.pool.Get().(*[]byte)
	return *l.lent
}

func (l *leg) giveBack() {
	if l.lent != nil {
		l.pool.Put(l.lent)
		l.lent = nil
	}
}

// goOn does what of settle can be done while l's reader has its socket, and
// reports whether that was all, and l may be read on. It is called with mu
// held, and releases it.
func (s *Session) goOn(l *leg) (calm bool) {
	s.onward()
	calm = !s.untold() && s.reads(l)
	s.mu.Unlock()
	return calm
}

// reads reports whether l may be read now. Who makes more happen than the
// Observer can be told of waits for it, as where each message is told of. Called
// with mu held.
func (s *Session) reads(l *leg) bool {
	switch {
	case l.closed || l.leg.CloseMode() != session.Open:
		return false
	case s.telling && len(s.events) > maxUntold:
		return false
	default:
		return s.core.Wants(l.leg)
	}
}

// waitToRead waits until the core wants l to be read; false when l is not to
// be read any more.
func (s *Session) waitToRead(l *leg) bool {
	for {
		s.mu.Lock()
		open := l.leg.CloseMode() == session.Open && !l.closed
		reads := s.reads(l)
		l.parked = open && !reads
		s.mu.Unlock()
		if !open || reads {
			return open
		}
		<-l.wake
	}
}

// discard reads to the connection's end, or the deadline that finish has set,
// and closes it.
func (s *Session) discard(l *leg) {
	s.enter()
	lingers := l.leg.CloseMode() == session.Linger && !l.closed
	s.settle()
	if lingers {
		drain(l.conn)
	}
	s.enter()
	s.call(func(core *session.Session, now session.Time) { core.Gone(now, l.leg, "closed") })
	l.close(session.Shut)
	s.settle()
}

func drain(conn net.Conn) {
	buf := small.Get().(*[]byte)
	defer small.Put(buf)
	for {
		if _, err := conn.Read(*buf); err != nil {
			return
		}
	}
}
