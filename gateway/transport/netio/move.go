package netio

import (
	"reseat/gateway/session"
)

// This file moves sessions to another process, or to another driver, with their
// connections, for an upgrade.

// Freeze stops the session until Thaw or Drop, of which one must follow, and returns the
// descriptors of its upstream and its client, negative where there is none. They stay the
// session's: a receiver must have duplicates. It fails, and stops nothing, with
// session.ErrBusy: while a read or write is under way, for good where the session has
// ended, and always where a connection is no plain TCP, whose state cannot move.
func (s *Session) Freeze(format int) (f session.Frozen, up, down int, err error) {
	s.enter()
	if f, up, down, err = s.freeze(format); err != nil {
		s.openGates()
		s.mu.Unlock()
	}
	return f, up, down, err
}

func (s *Session) freeze(format int) (f session.Frozen, up, down int, err error) {
	down = -1
	if s.moved || s.notifying {
		return f, up, down, session.ErrBusy
	}
	up, ok := s.up.freeze()
	if ok && s.down != nil {
		var fd int
		if fd, ok = s.down.freeze(); s.down.leg == session.Leg(s.core.Attachment()) {
			down = fd
		}
	}
	if !ok {
		return f, up, down, session.ErrBusy
	}
	f, err = s.core.Freeze(format)
	return f, up, down, err
}

// freeze keeps l's reader from its socket, and returns its descriptor, negative where it
// is closed. It reports false where a read is under way, or there is no descriptor.
func (l *leg) freeze() (fd int, ok bool) {
	switch {
	case l.closed:
		return -1, true
	case l.raw == nil || !l.gate.CompareAndSwap(gateOpen, gateFrozen):
		return -1, false
	}
	err := l.raw.Control(func(p uintptr) { fd = int(p) })
	return fd, err == nil
}

// openGates lets the readers of frozen legs go on. Called with mu held.
func (s *Session) openGates() {
	s.up.gate.CompareAndSwap(gateFrozen, gateOpen)
	if s.down != nil {
		s.down.gate.CompareAndSwap(gateFrozen, gateOpen)
	}
}

// Thaw lets a frozen session go on.
func (s *Session) Thaw() {
	s.openGates()
	s.settle()
}

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
