package netio

import (
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"reseat/gateway/session"
	"reseat/gateway/transport/rawconn"
)

const (
	smallRead = 8 << 10   // of a client,
	bigRead   = 256 << 10 // and where the last one brought so much
	slowRead  = 4 << 10   // where the buffer is held while waiting

	flushRounds = 8  // writes that one has to do for others besides its own
	maxUntold   = 64 // events that may wait for the Observer while more is read

	writePiece = 16 << 10
	fullAfter  = 20 * time.Millisecond  // a write that takes longer found the socket full
	hurryTime  = 250 * time.Millisecond // for a write that is about to be made all the same
)

// small and big are for client reads: taken when a socket is readable, given back
// when what was read has been handed on. Many may be out at once where their
// goroutines wait for a processor, so the big ones are for those that have had
// much to say. senders are for writes.
var (
	small   = sync.Pool{New: func() any { b := make([]byte, smallRead); return &b }}
	big     = sync.Pool{New: func() any { b := make([]byte, bigRead); return &b }}
	senders = sync.Pool{New: func() any { return new(rawconn.Sender) }}
)

// A leg is one socket of a session.
type leg struct {
	s       *Session
	leg     session.Leg // what the core knows it by
	conn    net.Conn
	raw     syscall.RawConn // nil where conn is not a plain TCP connection
	watched bool            // HungUp will be called
	fd      int             // raw's, where it will be
	hungUp  atomic.Bool     // it was: what is left to be read ends

	// Anyone who has set writing has these.
	bufs     [][]byte
	attempt  func(fd uintptr) bool // writes bufs once, for RawConn.Write
	took     int                   // the outcome
	short    bool
	writeErr error

	// Guarded by the session's lock.
	writing   bool // somebody is writing, or waiting to
	closing   bool // its CloseMode is not Open any more, deadlines are set
	lingering bool // all is written, its reader waits for the end
	hurried   bool // it has no more than hurryTime for both
	closed    bool
	parked    bool // the reader waits to be woken

	wake chan struct{} // one slot: waking never blocks

	// The reader's own.
	lend func() []byte // borrow, for the core
	held []byte        // the read buffer where it cannot be pooled
	lent *[]byte       // the one that was borrowed,
	pool *sync.Pool    // and where it belongs; nil: nowhere
	much bool          // the last read brought smallRead or more
	err  error         // there is nothing more to read
}

func newLeg(s *Session, conn net.Conn, known session.Leg) *leg {
	raw, err := rawconn.Raw(conn)
	if err != nil {
		raw = nil // it is read and written by waiting
	}
	l := &leg{s: s, leg: known, conn: conn, raw: raw, wake: make(chan struct{}, 1)}
	l.lend = l.borrow
	return l
}

// watch has HungUp called, if that can be.
func (l *leg) watch() {
	if l.raw == nil {
		return
	}
	if h := l.s.driver.hangups(); h != nil {
		l.raw.Control(func(fd uintptr) {
			l.fd = int(fd)
			l.watched = h.Add(l.fd, l) == nil
		})
	}
}

// HungUp has the reader see that nothing comes any more behind what there is. For
// rawconn.Hangups.
func (l *leg) HungUp() {
	l.hungUp.Store(true)
	l.raw.Control(func(fd uintptr) { rawconn.WakeReader(int(fd)) })
}

// out is what must be written now. Called with mu held.
func (l *leg) out() [][]byte {
	defer l.s.rescue()
	if l.raw == nil {
		l.s.core.Retain() // the writer outlives the reader's buffer
	}
	l.bufs = l.s.core.Out(l.s.now, l.leg, l.bufs[:0])
	if l.raw == nil && len(l.bufs) > 0 {
		l.s.core.Waits(l.s.now, l.leg)
	}
	return l.bufs
}

// wrote reports to the core how much was written, and whether the socket was
// found full. Called with mu held.
func (l *leg) wrote(n int, full bool) {
	defer l.s.rescue()
	clear(l.bufs)
	if l.s.core.Wrote(l.s.now, l.leg, n, full) {
		l.look()
	}
}

// look tells the core the state of l's socket. Called with mu held.
func (l *leg) look() {
	if st, err := rawconn.StateOfConn(l.conn); err == nil {
		l.s.core.Socket(l.s.now, l.leg, session.SocketState(st))
	}
}

// failed: the socket takes nothing more. Called with mu held.
func (l *leg) failed(err error) {
	defer l.s.rescue()
	l.s.core.WriteFailed(l.s.now, l.leg, err.Error())
}

// flush writes what the core has for l, as far as the socket takes it without
// waiting, and then closes l if the core says so. Called with mu held, which
// is released while writing. What comes meanwhile is written as well, but the
// caller has more to do: where it does not end, a goroutine goes on with it.
func (s *Session) flush(l *leg) {
	for round := 1; !l.writing && !l.closed; round++ {
		out := l.out()
		if len(out) == 0 {
			break
		}
		l.writing = true
		if l.raw == nil {
			s.running.Go(func() { s.writeBlocking(l, out) })
			break
		}
		s.mu.Unlock()
		n, full, err := l.tryWrite()
		s.mu.Lock()
		l.writing = false
		l.wrote(n, full)
		switch {
		case err != nil:
			l.failed(err)
		case full || round == flushRounds:
			l.writing = true
			s.running.Go(func() { s.writeWaiting(l) })
		}
	}
	s.finish(l)
}

// tryWrite writes what the socket takes of bufs at once, and reports whether that
// was less than all.
func (l *leg) tryWrite() (n int, full bool, err error) {
	if l.attempt == nil {
		l.attempt = func(fd uintptr) bool {
			sender := senders.Get().(*rawconn.Sender)
			l.took, l.short, l.writeErr = sender.Send(int(fd), l.bufs)
			senders.Put(sender)
			return true
		}
	}
	if err := l.raw.Write(l.attempt); err != nil {
		return 0, false, err
	}
	return l.took, l.short, l.writeErr
}

// writeBlocking writes to a socket that can only be written to by waiting.
func (s *Session) writeBlocking(l *leg, out [][]byte) {
	for len(out) > 0 {
		n, full, err := writeSome(l.conn, out)
		s.enter()
		l.wrote(n, full)
		if err != nil {
			l.failed(err)
		}
		s.onward()
		out = nil
		if !l.closed {
			out = l.out()
		}
		if len(out) > 0 {
			s.arm() // this write may wait, and must be looked after
			s.mu.Unlock()
		}
	}
	l.writing = false
	s.flush(l) // it may belong to no attachment any more, so that settle passes it over
	s.settle()
}

// writeWaiting goes on writing to a socket that did not take all it was given.
func (s *Session) writeWaiting(l *leg) {
	err := l.raw.Write(func(fd uintptr) bool { return s.writeReady(l, fd) })
	s.enter()
	l.writing = false
	if err != nil && !l.closed {
		l.failed(err)
	}
	s.flush(l)
	s.settle()
}

// writeReady writes until the socket takes no more, and reports whether there
// is nothing left to wait for.
func (s *Session) writeReady(l *leg, fd uintptr) bool {
	sender := senders.Get().(*rawconn.Sender)
	defer senders.Put(sender)
	s.enter()
	defer s.mu.Unlock()
	for !l.closed {
		out := l.out()
		if len(out) == 0 {
			return true
		}
		s.mu.Unlock()
		n, full, err := sender.Send(int(fd), out)
		s.enter()
		l.wrote(n, full)
		if err != nil {
			l.failed(err)
			return true
		}
		s.onward()
		if n == 0 {
			return s.untold()
		}
	}
	return true
}

// untold collects what has happened, and reports whether settle is to do chores or
// to tell of it. Called with mu held.
func (s *Session) untold() bool {
	s.events = append(s.events, s.core.Events()...)
	return len(s.chores) > 0 || !s.telling && s.news()
}

// onward passes on what a read or write has brought about, such as an ack that is owed
// now, while the caller goes on with its socket. Sockets are closed later: this runs
// where a close would wait for its own caller. Called with mu held, which is released
// while writing.
func (s *Session) onward() {
	s.flush(s.up)
	if s.down != nil {
		s.flush(s.down)
	}
	s.wakeReaders()
	s.arm()
}

// finish closes l as the core says, once all is written. Called with mu held.
func (s *Session) finish(l *leg) {
	mode := l.leg.CloseMode()
	if mode == session.Open || l.closed {
		return
	}
	if mode >= session.Shut {
		l.close(mode)
		return
	}
	if !l.closing {
		l.closing = true
		if !l.hurried {
			l.conn.SetDeadline(time.Now().Add(l.leg.FlushTime()))
		}
		l.unpark()
	}
	if !l.writing && !l.lingering {
		l.lingering = true
		if !l.hurried {
			l.conn.SetReadDeadline(time.Now().Add(session.LingerTime))
		}
		if l.leg.HalfClose() {
			s.chores = append(s.chores, chore{l.conn, session.Linger})
		}
	}
}

// hurry leaves a leg that is being closed little time for all that is left, whether
// finish has begun with it or not. Called with mu held.
func (l *leg) hurry() {
	l.hurried = true
	l.conn.SetDeadline(time.Now().Add(hurryTime))
}

// close has the socket closed once the lock is released: closing waits for a
// read or write under way, which may want the lock. Called with mu held.
func (l *leg) close(f session.CloseMode) {
	if l.closed {
		return
	}
	l.closed = true
	if l.watched {
		l.s.driver.hangups().Remove(l.fd)
	}
	l.s.open--
	l.s.forget(l)
	l.s.chores = append(l.s.chores, chore{l.conn, f})
	l.unpark()
}

// unpark wakes the reader, if only to look again. It never blocks.
func (l *leg) unpark() {
	l.parked = false
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// writeSome writes the first piece of bufs to a connection without a descriptor
// of its own. Full says that it had to wait.
func writeSome(conn net.Conn, bufs [][]byte) (n int, full bool, err error) {
	b := bufs[0]
	began := time.Now()
	n, err = conn.Write(b[:min(len(b), writePiece)])
	return n, time.Since(began) > fullAfter, err
}
