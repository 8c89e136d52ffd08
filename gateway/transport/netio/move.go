package netio

import (
	"reseat/gateway/session"
)

// This file moves sessions to another process, or to another driver, with their
// connections, for an upgrade.

// A Frozen is a session that stands still. The descriptors are still the session's: a
// receiver must have duplicates.
type Frozen struct {
	State    []byte
	Content  [][]byte // of the replay buffer, not copied
	Up, Down int      // the descriptors of its upstream and its client; negative: none
}

// Freeze stops the session until Thaw or Drop, of which one must follow. It fails, and
// stops nothing, with session.ErrBusy: while a read or write is under way, for good where
// the session has ended, and always where a connection is no plain TCP, whose state
// cannot move.
func (s *Session) Freeze(format int) (f Frozen, err error) {
	s.enter()
	defer func() {
		if err != nil {
			s.mu.Unlock()
		}
	}()
	if s.moved || s.notifying || s.up.reading || s.down != nil && s.down.reading {
		return f, session.ErrBusy
	}
	ok := true
	f.Up, ok = s.up.descriptor()
	if f.Down = -1; ok && s.down != nil && s.down.leg == session.Leg(s.core.Attachment()) {
		f.Down, ok = s.down.descriptor()
	}
	if !ok {
		return f, session.ErrBusy
	}
	f.State, f.Content, err = s.core.Freeze(format, nil)
	return f, err
}

// descriptor is that of l's socket, negative where it is closed.
func (l *leg) descriptor() (fd int, ok bool) {
	switch {
	case l.closed:
		return -1, true
	case l.raw == nil:
		return 0, false
	}
	err := l.raw.Control(func(p uintptr) { fd = int(p) })
	return fd, err == nil
}

// Thaw lets a frozen session go on.
func (s *Session) Thaw() { s.settle() }

// Drop forgets a frozen session that another has taken over. Its Observer is not called
// again. Nothing is done to its connections that their peers could notice; older ones
// that were being closed are closed.
func (s *Session) Drop() {
	s.moved = true
	s.timer.Stop()
	legs := append([]*leg{s.up}, s.lingering...)
	if s.down != nil {
		legs = append(legs, s.down)
	}
	for _, l := range legs {
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
