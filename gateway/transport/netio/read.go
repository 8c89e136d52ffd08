package netio

import (
	"errors"
	"net"
	"os"

	"reseat/gateway/session"
	"reseat/gateway/transport/rawconn"
)

// readAll reads l while its leg is open, and then discards what arrives until its
// connection ends. early holds the bytes that its peer has already sent.
func (s *Session) readAll(l *leg, early []byte) {
	if len(early) > 0 {
		s.received(l, early)
		s.enter()
		s.settle()
	}
	s.readLoop(l)
	if l.err != nil {
		s.Do(func(core *session.Session, now session.Time) { core.Disconnected(now, l.leg, l.err.Error()) })
	}
	s.discard(l)
}

// readOnce reads once, straight into the session's memory or into a buffer. See readLoop.
func (s *Session) readOnce(l *leg, fd int) (more, settled bool) {
	if !l.gate.CompareAndSwap(gateOpen, gateReading) {
		return false, false // frozen: settle waits for the lock
	}
	var room []byte
	if l.leg.Direct() {
		room = s.room(l)
	} else {
		defer l.giveBack()
		room = l.borrow()
	}
	if room == nil {
		l.gate.Store(gateOpen)
		return false, false // the core will wake the reader once it has room
	}
	n, more := l.receive(fd, room)
	l.lastReadBig, l.filled = n >= smallRead, n == len(room)
	return more, s.received(l, room[:n])
}

func (s *Session) room(l *leg) (b []byte) {
	s.mu.Lock()
	s.call(func(core *session.Session, _ session.Time) { b = core.Room(l.leg) })
	s.mu.Unlock()
	return b
}

// received passes the bytes read to the core. The caller may reuse p afterwards.
func (s *Session) received(l *leg, p []byte) (settled bool) {
	s.enter()
	s.call(func(core *session.Session, now session.Time) { core.Read(now, l.leg, p) })
	l.gate.Store(gateOpen)
	if len(p) == 0 {
		s.mu.Unlock()
		return true
	}
	if l != s.up { // a client's message is forwarded from p without a copy
		s.flush(s.up)
		s.call(func(core *session.Session, _ session.Time) { core.Retain() })
	}
	return s.continueReading(l)
}

// readLoop reads while l may be read. A read reports whether there may be more data
// right now, and whether it is settled: settle has nothing left to do.
//
// The descriptor is kept between two reads of this kind, because releasing it would
// mean preparing the runtime's poller again.
func (s *Session) readLoop(l *leg) {
	ready := func(fd uintptr) (enough bool) {
		for {
			more, settled := s.readOnce(l, int(fd))
			if !settled || l.err != nil {
				return true
			}
			if !more {
				return false
			}
		}
	}
	for l.err == nil && s.waitToRead(l) {
		settled := false
		if l.raw == nil {
			_, settled = s.readOnce(l, -1)
		} else if err := l.raw.Read(ready); err != nil {
			l.err = err
		}
		if !settled {
			s.enter()
			s.settle()
		}
	}
}

// receive reads once. From a descriptor it does not block, and returns 0 if there is
// nothing to read now. A read that did not fill b has emptied the socket. HungUp
// reports whether the end follows; for an unwatched socket only another read can.
func (l *leg) receive(fd int, b []byte) (n int, more bool) {
	if l.raw == nil {
		n, l.err = l.conn.Read(b)
		if l.err != nil && errors.Is(l.err, os.ErrDeadlineExceeded) && l.interrupted.Swap(false) {
			l.err = nil // by Quiesce, which may be undone by now
		}
		return n, true
	}
	n, l.err = rawconn.Receive(fd, b)
	return n, n == len(b) || n > 0 && (!l.watched || l.hungUp.Load())
}

// borrow returns memory for one read of a client, until giveBack. If reads block, and nothing
// says that more is there, the memory is the leg's own, and small.
func (l *leg) borrow() []byte {
	switch {
	case l.raw != nil && l.lastReadBig:
		l.pool = &big
	case l.raw != nil || l.filled:
		l.pool = &small
	default:
		if l.held == nil {
			l.held = make([]byte, heldRead)
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

// continueReading does those parts of settle that are possible while l's reader holds
// its socket. It reports whether that was all, and l may be read on. Called with mu
// held, which it releases.
func (s *Session) continueReading(l *leg) (settled bool) {
	s.flushLegs()
	settled = !s.hasWork() && s.reads(l)
	s.mu.Unlock()
	return settled
}

// reads reports whether l may be read now. A session that produces events faster than
// its Observer processes them is not read, for example with message events. Called with
// mu held.
func (s *Session) reads(l *leg) bool {
	switch {
	case l.closed || l.leg.CloseMode() != session.Open:
		return false
	case l.raw == nil && s.quiet.Load():
		return false
	case s.notifying && len(s.events) > maxPending:
		return false
	default:
		return s.core.WantsRead(l.leg)
	}
}

// waitToRead waits until the core wants l to be read. It returns false if l must not be
// read any more.
func (s *Session) waitToRead(l *leg) bool {
	for {
		s.mu.Lock()
		open := l.leg.CloseMode() == session.Open && !l.closed
		reads := s.reads(l)
		l.parked = open && !reads
		if l.parked && l.wake == nil {
			l.wake = make(chan struct{}, 1)
		}
		s.mu.Unlock()
		if !open || reads {
			return open
		}
		<-l.wake
	}
}

// discard reads until the connection ends, or the deadline that finish has set, and
// closes it.
func (s *Session) discard(l *leg) {
	s.enter()
	lingers := l.leg.CloseMode() == session.Linger && !l.closed
	s.settle()
	if lingers {
		drain(l.conn)
	}
	s.enter()
	s.call(func(core *session.Session, now session.Time) { core.Disconnected(now, l.leg, "closed") })
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
