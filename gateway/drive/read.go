package drive

import (
	"io"
	"net"

	"reseat/gateway/session"
)

// readUpstream reads the upstream straight into the replay buffer, and takes
// no memory of it while there is nothing to read.
func (s *netSession) readUpstream(l *leg) {
	l.ready = func(fd uintptr) bool {
		room := s.room(l)
		if room == nil {
			return true
		}
		again := l.read(fd, room)
		if again || l.err != nil {
			s.filled(l, 0)
		}
		return !again
	}
	for l.err == nil && s.waitToRead(l, func() bool { return s.core.WantsUpstream(l.ups) }) {
		s.readUpstreamOnce(l)
		if l.n > 0 {
			s.filled(l, l.n)
		}
	}
	if l.err != nil {
		s.do(func(core *session.Session, now session.Time) { core.UpstreamGone(now, l.ups, l.err.Error()) })
	}
	s.discard(l)
}

func (s *netSession) readUpstreamOnce(l *leg) {
	l.n = 0
	if l.raw != nil {
		if err := l.raw.Read(l.ready); err != nil {
			l.err = err
		}
		return
	}
	if room := s.room(l); room != nil {
		l.n, l.err = l.conn.Read(room)
		if l.n == 0 {
			s.filled(l, 0)
		}
	}
}

// read reads once from a socket that may be readable, and reports whether it
// was not.
func (l *leg) read(fd uintptr, b []byte) (again bool) {
	l.n, again, l.err = read(fd, b)
	if l.n == 0 && !again && l.err == nil {
		l.err = io.EOF
	}
	return again
}

func (s *netSession) room(l *leg) (b []byte) {
	now := s.clock.Now()
	s.mu.Lock()
	s.call(now, func(core *session.Session, _ session.Time) { b = core.UpstreamRoom(l.ups) })
	if b == nil {
		s.settle(now) // the core wants to be called when there may be room
		return nil
	}
	s.mu.Unlock()
	return b
}

func (s *netSession) filled(l *leg, n int) {
	now := s.clock.Now()
	s.mu.Lock()
	s.call(now, func(core *session.Session, now session.Time) { core.UpstreamRead(now, l.ups, n) })
	if n == 0 {
		s.mu.Unlock()
		return
	}
	s.settle(now)
}

// readClient reads an attached client, as long as it is attached, and then
// what still comes until its connection ends.
func (s *netSession) readClient(l *leg, early []byte) {
	l.ready = func(fd uintptr) bool {
		l.pooled = buffers.Get().(*[]byte)
		again := l.read(fd, *l.pooled)
		if l.n == 0 {
			l.giveBack()
		}
		return !again
	}
	if len(early) > 0 {
		s.clientRead(l, early)
	}
	for l.err == nil && s.waitToRead(l, func() bool { return s.core.WantsClient(l.att) }) {
		s.readClientOnce(l)
	}
	if l.err != nil {
		s.do(func(core *session.Session, now session.Time) { core.ClientGone(now, l.att, l.err.Error()) })
	}
	s.discard(l)
}

func (s *netSession) readClientOnce(l *leg) {
	if l.raw == nil {
		if l.held == nil {
			l.held = make([]byte, slowRead)
		}
		if l.n, l.err = l.conn.Read(l.held); l.n > 0 {
			s.clientRead(l, l.held[:l.n])
		}
		return
	}
	l.n = 0
	if err := l.raw.Read(l.ready); err != nil {
		l.err = err
	}
	if l.n > 0 {
		s.clientRead(l, (*l.pooled)[:l.n])
		l.giveBack()
	}
}

func (l *leg) giveBack() {
	buffers.Put(l.pooled)
	l.pooled = nil
}

// clientRead hands what was read to the core. p is free again when it returns.
func (s *netSession) clientRead(l *leg, p []byte) {
	now := s.clock.Now()
	s.mu.Lock()
	s.call(now, func(core *session.Session, now session.Time) { core.ClientRead(now, l.att, p) })
	s.flush(s.up)
	s.call(now, func(core *session.Session, _ session.Time) { core.Retain() })
	s.flush(l)
	s.settle(now)
}

// waitToRead waits until the core wants l to be read; false when l is not to
// be read any more.
func (s *netSession) waitToRead(l *leg, wants func() bool) bool {
	for {
		s.mu.Lock()
		open := l.fate() == session.Open && !l.closed
		want := wants()
		l.parked = open && !want
		s.mu.Unlock()
		if !open || want {
			return open
		}
		<-l.wake
	}
}

// discard reads to the connection's end, or the deadline that part has set,
// and closes it.
func (s *netSession) discard(l *leg) {
	s.mu.Lock()
	lingers := l.fate() == session.Linger && !l.closed
	s.settle(s.clock.Now())
	if lingers {
		drain(l.conn)
	}
	now := s.clock.Now()
	s.mu.Lock()
	if l.att == nil { // what it has not taken is of no use any more
		s.call(now, func(core *session.Session, now session.Time) { core.UpstreamGone(now, l.ups, "closed") })
	}
	l.close(session.Shut)
	s.settle(now)
}

func drain(conn net.Conn) {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	for {
		if _, err := conn.Read(*buf); err != nil {
			return
		}
	}
}
