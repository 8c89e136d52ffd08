package netio

import (
	"net"
	"slices"
	"time"

	"reseat/gateway/session"
	"reseat/gateway/transport/rawconn"
)

// This file moves sessions to another process, with their connections, for an upgrade.

// Quiesce keeps the session from starting reads and writes on connections that are not plain
// TCP, and interrupts their reads: only then can Freeze succeed. Thaw or Drop must follow.
func (s *Session) Quiesce() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.moved || !s.blocking() {
		return
	}
	s.quiet.Store(true)
	for _, l := range s.current() {
		if l.interruptible() {
			l.interrupted.Store(true)
			l.conn.SetReadDeadline(time.Unix(1, 0))
		}
	}
}

// blocking reports whether a connection is not plain TCP. Called with mu held.
func (s *Session) blocking() bool {
	return slices.ContainsFunc(s.current(), (*leg).interruptible)
}

// current are the legs of the upstream and the attached client. Called with mu held.
func (s *Session) current() []*leg {
	if s.down == nil {
		return []*leg{s.up}
	}
	return []*leg{s.up, s.down}
}

// interruptible reports whether l's connection blocks in reads, and will be read again.
// Called with mu held.
func (l *leg) interruptible() bool {
	return l.raw == nil && !l.closed && l.leg.CloseMode() == session.Open
}

// Freeze stops the session until Thaw or Drop, of which one must follow, and returns its
// ends. They stay the session's: a receiver must have duplicates of descriptors, and
// may use a Conn after Drop. It fails, and stops nothing, with session.ErrBusy while a
// read or write is in progress, and with session.ErrLater: see there.
func (s *Session) Freeze(format int) (f session.Frozen, up, down rawconn.Socket, err error) {
	s.enter()
	if f, up, down, err = s.freeze(format); err != nil {
		s.openGates()
		s.mu.Unlock()
	}
	return f, up, down, err
}

func (s *Session) freeze(format int) (f session.Frozen, up, down rawconn.Socket, err error) {
	up, down = rawconn.NoSocket, rawconn.NoSocket
	switch {
	case s.moved, s.core.State() == session.Ended, s.closing():
		return f, up, down, session.ErrLater
	case s.notifying:
		return f, up, down, session.ErrBusy
	}
	up, ok := s.up.freeze()
	if ok && s.down != nil {
		down, ok = s.down.freeze()
	}
	if !ok {
		return f, up, down, session.ErrBusy
	}
	f, err = s.core.Freeze(format)
	return f, up, down, err
}

// closing reports whether a connection that is no longer the session's is not closed yet.
// Called with mu held.
func (s *Session) closing() bool {
	return len(s.lingering) > 0 || s.open > s.openCurrent() || s.down != nil && !s.down.closed && s.down.leg != session.Leg(s.core.Attachment())
}

// openCurrent counts the current legs that are open. Called with mu held.
func (s *Session) openCurrent() (n int) {
	for _, l := range s.current() {
		if !l.closed {
			n++
		}
	}
	return n
}

// freeze keeps l's reader from its socket. It reports false while a read is in progress.
func (l *leg) freeze() (end rawconn.Socket, ok bool) {
	switch {
	case l.closed:
		return rawconn.NoSocket, true
	case l.raw == nil && (l.writing || !l.s.quiet.Load() || l.leg.CloseMode() != session.Open), !l.gate.CompareAndSwap(gateOpen, gateFrozen):
		return rawconn.NoSocket, false
	case l.raw == nil:
		_, forwarded := l.conn.(*net.UnixConn)
		return rawconn.Socket{FD: -1, Conn: l.conn, Forwarded: forwarded}, true
	}
	end = rawconn.NoSocket
	err := l.raw.Control(func(p uintptr) { end.FD = int(p) })
	return end, err == nil
}

// openGates lets the readers of frozen legs continue. Called with mu held.
func (s *Session) openGates() {
	s.up.gate.CompareAndSwap(gateFrozen, gateOpen)
	if s.down != nil {
		s.down.gate.CompareAndSwap(gateFrozen, gateOpen)
	}
}

// Thaw lets a frozen session continue.
func (s *Session) Thaw() {
	s.openGates()
	s.unquiesce()
	s.settle()
}

// Unquiesce undoes Quiesce for a session that could not be frozen.
func (s *Session) Unquiesce() {
	s.enter()
	s.unquiesce()
	s.settle()
}

// unquiesce undoes Quiesce. Called with mu held.
func (s *Session) unquiesce() {
	if !s.quiet.Swap(false) {
		return
	}
	for _, l := range s.current() {
		if l.interruptible() {
			l.conn.SetReadDeadline(time.Time{})
		}
	}
}

// Drop forgets a frozen session that another has taken over. Its Observer is not called
// again. Nothing is done to its connections that their peers could notice.
func (s *Session) Drop() {
	s.moved = true
	s.timer.Stop()
	for _, l := range s.current() {
		if l.gate.Load() == gateFrozen && l.raw == nil {
			l.abandon()
		}
		l.close(session.Shut)
	}
	chores := s.chores
	s.chores = nil
	s.core.Discard()
	s.mu.Unlock()
	for _, c := range chores {
		c.do()
	}
}

// abandon leaves l's connection, which is not closed, to the holder of its End. Called with
// mu held.
func (l *leg) abandon() {
	l.conn.SetReadDeadline(time.Time{})
	l.conn = closedConn
}

// closedConn stands for a connection that is another's.
var closedConn = func() net.Conn {
	c, other := net.Pipe()
	c.Close()
	other.Close()
	return c
}()
