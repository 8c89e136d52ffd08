package transport

import (
	"net"
	"sync"

	"reseat/gateway/session"
	"reseat/gateway/transport/rawconn"
)

// readUpstream reads the upstream straight into the replay buffer, and takes
// no memory of it while there is nothing to read.
func (s *netSession) readUpstream(l *leg) {
	s.readOn(l, s.upstreamOnce)
	if l.err != nil {
		s.do(func(core *session.Session, now session.Time) { core.UpstreamGone(now, l.ups, l.err.Error()) })
	}
	s.discard(l)
}

func (s *netSession) upstreamOnce(l *leg, fd int) (more, calm bool) {
	room := s.room(l)
	if room == nil {
		return false, false // the core wants to be called when there may be some
	}
	n, more := l.receive(fd, room)
	return more, s.filled(l, n)
}

func (s *netSession) room(l *leg) (b []byte) {
	s.mu.Lock()
	s.call(func(core *session.Session, _ session.Time) { b = core.UpstreamRoom(l.ups) })
	s.mu.Unlock()
	return b
}

func (s *netSession) filled(l *leg, n int) (calm bool) {
	s.enter()
	s.call(func(core *session.Session, now session.Time) { core.UpstreamRead(now, l.ups, n) })
	if n == 0 {
		s.mu.Unlock()
		return true
	}
	return s.goOn(l)
}

// readClient reads an attached client, as long as it is attached, and then
// what still comes until its connection ends.
func (s *netSession) readClient(l *leg, early []byte) {
	if len(early) > 0 {
		s.clientRead(l, early)
		s.enter()
		s.settle()
	}
	s.readOn(l, s.clientOnce)
	if l.err != nil {
		s.do(func(core *session.Session, now session.Time) { core.ClientGone(now, l.att, l.err.Error()) })
	}
	s.discard(l)
}

func (s *netSession) clientOnce(l *leg, fd int) (more, calm bool) {
	b, pool := l.borrow()
	if pool != nil {
		defer pool.Put(b)
	}
	n, more := l.receive(fd, *b)
	if n == 0 {
		return false, true
	}
	l.much = n >= smallRead
	return more, s.clientRead(l, (*b)[:n])
}

// clientRead hands what was read to the core. p is free again when it returns.
func (s *netSession) clientRead(l *leg, p []byte) (calm bool) {
	s.enter()
	s.call(func(core *session.Session, now session.Time) { core.ClientRead(now, l.att, p) })
	s.flush(s.up)
	s.call(func(core *session.Session, _ session.Time) { core.Retain() })
	s.flush(l)
	return s.goOn(l)
}

// readOn calls once while l may be read. It reads once, and says whether there
// may be more to read at once, and whether that was calm: nothing is left for
// settle to do.
//
// A descriptor is not let go of between two reads: a reader that lets go of it must
// have it made ready for waiting anew.
func (s *netSession) readOn(l *leg, once func(l *leg, fd int) (more, calm bool)) {
	ready := func(fd uintptr) (enough bool) {
		for {
			more, calm := once(l, int(fd))
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
			_, calm = once(l, -1)
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

// borrow is memory for one read of a client, and where it belongs. Where the read
// waits the memory is the leg's own, and small.
func (l *leg) borrow() (b *[]byte, from *sync.Pool) {
	switch {
	case l.raw != nil && l.much:
		return big.Get().(*[]byte), &big
	case l.raw != nil:
		return small.Get().(*[]byte), &small
	case l.held == nil:
		l.held = make([]byte, slowRead)
	}
	return &l.held, nil
}

// goOn does what of settle can be done while l's reader has its socket, and
// reports whether that was all, and l may be read on. It is called with mu
// held, and releases it.
func (s *netSession) goOn(l *leg) (calm bool) {
	s.onward()
	calm = !s.untold() && s.reads(l)
	s.mu.Unlock()
	return calm
}

// reads reports whether l may be read now. Who makes more happen than the
// Observer can be told of waits for it, as where each message is told of. Called
// with mu held.
func (s *netSession) reads(l *leg) bool {
	switch {
	case l.closed || l.fate() != session.Open:
		return false
	case s.telling && len(s.events) > mostUntold:
		return false
	case l.att == nil:
		return s.core.WantsUpstream(l.ups)
	default:
		return s.core.WantsClient(l.att)
	}
}

// waitToRead waits until the core wants l to be read; false when l is not to
// be read any more.
func (s *netSession) waitToRead(l *leg) bool {
	for {
		s.mu.Lock()
		open := l.fate() == session.Open && !l.closed
		reads := s.reads(l)
		l.parked = open && !reads
		s.mu.Unlock()
		if !open || reads {
			return open
		}
		<-l.wake
	}
}

// discard reads to the connection's end, or the deadline that part has set,
// and closes it.
func (s *netSession) discard(l *leg) {
	s.enter()
	lingers := l.fate() == session.Linger && !l.closed
	s.settle()
	if lingers {
		drain(l.conn)
	}
	s.enter()
	if l.att == nil { // what it has not taken is of no use any more
		s.call(func(core *session.Session, now session.Time) { core.UpstreamGone(now, l.ups, "closed") })
	}
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
