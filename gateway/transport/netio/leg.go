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
	smallRead = 8 << 10   // buffer of a client read
	bigRead   = 256 << 10 // used after a read that filled a small one
	heldRead  = 512       // of a leg whose reads block: it is held while they wait

	flushRounds = 8  // max rounds of writing other goroutines' output after one's own
	maxPending  = 64 // events that may wait for the Observer before reading stops

	writePiece     = 16 << 10
	fullAfter      = 20 * time.Millisecond  // a write that takes longer has found the socket full
	shortFlushTime = 250 * time.Millisecond // deadline of superseded connections beyond session.MaxLingering
)

// small and big are buffers for client reads, taken when a socket is readable and
// returned when the core has processed the bytes. Many may be in use at once while
// their goroutines wait for a processor, so a big one is used only after a large read. Big ones take a
// message of 64 KiB (workload W5) from 0.74 to 0.29 times nginx's processor time.
// senders are for writes.
var (
	small   = sync.Pool{New: func() any { b := make([]byte, smallRead); return &b }}
	big     = sync.Pool{New: func() any { b := make([]byte, bigRead); return &b }}
	senders = sync.Pool{New: func() any { return new(rawconn.Sender) }}
)

// The states of a leg's gate.
const (
	gateOpen    = iota // no bytes are between the socket and the core
	gateReading        // there may be some
	gateFrozen         // the reader must not read: see Session.Freeze
)

// A leg is one socket of a session. There are two for each session: the order of the fields saves memory.
type leg struct {
	s       *Session
	leg     session.Leg // what the core calls it
	conn    net.Conn
	raw     syscall.RawConn // nil where conn is not a plain TCP connection
	watched bool            // HungUp will be called

	// Owned by the reader.
	lastReadBig bool // the last read returned smallRead or more
	filled      bool // the last read filled its buffer, so that more may be there

	hungUp atomic.Bool // the peer has sent all it will send
	// interrupted: Quiesce has set a deadline in the past. If the reader does not meet it, a
	// later deadline is met twice, which is harmless.
	interrupted atomic.Bool
	gate        atomic.Int32 // its reader takes it for each read; Freeze shuts it
	fd          int          // the descriptor of raw, if watched

	// Owned by the reader.
	held []byte     // the read buffer of a connection that can't use the pools
	lent *[]byte    // the buffer in use
	pool *sync.Pool // the pool that lent belongs to
	err  error      // set when there is nothing more to read

	// Guarded by the session's lock.
	wake      chan struct{} // one slot: sending never blocks; nil until the reader first waits
	writing   bool          // a goroutine is writing, or waiting to write
	closing   bool          // its CloseMode is no longer Open, deadlines are set
	lingering bool          // all output is written, the reader waits for the end
	hurried   bool          // its deadline is shortFlushTime from now, in both phases
	closed    bool
	parked    bool // the reader waits for wake

	// Owned by the goroutine that set writing.
	full     bool // tryWrite's results
	written  int
	writeErr error
	bufs     [][]byte
	attempt  func(fd uintptr) bool // writes bufs once, for RawConn.Write
}

func newLeg(s *Session, conn net.Conn, known session.Leg) *leg {
	raw, err := rawconn.Raw(conn)
	if err != nil {
		raw = nil // read and write block instead
	}
	return &leg{s: s, leg: known, conn: conn, raw: raw}
}

// watch registers l for HungUp, if possible.
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

// HungUp makes the reader see the end of the stream after the remaining data. It
// implements rawconn.Peer.
func (l *leg) HungUp() {
	l.hungUp.Store(true)
	l.raw.Control(func(fd uintptr) { rawconn.WakeReader(int(fd)) })
}

// out returns what must be written now. Called with mu held.
func (l *leg) out() [][]byte {
	defer l.s.rescue()
	if l.raw == nil {
		l.s.core.Retain() // the writer may still use the bytes after the next read
	}
	l.bufs = l.s.core.Out(l.s.now, l.leg, l.bufs[:0])
	if l.raw == nil && len(l.bufs) > 0 {
		l.s.core.WriteBlocks(l.s.now, l.leg)
	}
	return l.bufs
}

// wrote reports to the core how much was written and whether the socket was full.
// Called with mu held.
func (l *leg) wrote(n int, full bool) {
	defer l.s.rescue()
	clear(l.bufs)
	if l.s.core.Wrote(l.s.now, l.leg, n, full) {
		l.reportSocketState()
	}
}

// reportSocketState gives the core the state of l's socket. Called with mu held.
func (l *leg) reportSocketState() {
	if st, err := rawconn.StateOfConn(l.conn); err == nil {
		l.s.core.Socket(l.s.now, l.leg, session.SocketState(st))
	}
}

// writeFailed notifies the core that l's socket accepts nothing more. Called with mu held.
func (l *leg) writeFailed(err error) {
	defer l.s.rescue()
	l.s.core.WriteFailed(l.s.now, l.leg, err.Error())
}

// flush writes the core's output for l until the socket is full, and then closes l if
// the core asks for it. Called with mu held, which is released while writing. Output
// that other goroutines add meanwhile is written too, but only for flushRounds: then a
// new goroutine takes over, because the caller has its own socket to serve.
func (s *Session) flush(l *leg) {
	for round := 1; !l.writing && !l.closed; round++ {
		if l.raw == nil && s.quiet.Load() {
			return
		}
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
			l.writeFailed(err)
		case full || round == flushRounds:
			l.writing = true
			s.running.Go(func() { s.writeWaiting(l) })
		}
	}
	s.finish(l)
}

// tryWrite writes as much of bufs as the socket accepts without blocking, and reports
// whether that was less than all.
func (l *leg) tryWrite() (n int, full bool, err error) {
	if l.attempt == nil {
		l.attempt = func(fd uintptr) bool {
			sender := senders.Get().(*rawconn.Sender)
			l.written, l.full, l.writeErr = sender.Send(int(fd), l.bufs)
			senders.Put(sender)
			return true
		}
	}
	if err := l.raw.Write(l.attempt); err != nil {
		return 0, false, err
	}
	return l.written, l.full, l.writeErr
}

// writeBlocking writes to a connection that only has blocking writes.
func (s *Session) writeBlocking(l *leg, out [][]byte) {
	for len(out) > 0 {
		n, full, err := writeSome(l.conn, out)
		s.enter()
		l.wrote(n, full)
		if err != nil {
			l.writeFailed(err)
		}
		s.flushLegs()
		out = nil
		if !l.closed && !s.quiet.Load() {
			out = l.out()
		}
		if len(out) > 0 {
			s.arm() // this write may block: the core must be able to time it out
			s.mu.Unlock()
		}
	}
	l.writing = false
	s.flush(l) // l may be superseded, and then settle does not flush it
	s.settle()
}

// writeWaiting continues a short write once the socket accepts more.
func (s *Session) writeWaiting(l *leg) {
	err := l.raw.Write(func(fd uintptr) bool { return s.writeReady(l, fd) })
	s.enter()
	l.writing = false
	if err != nil && !l.closed {
		l.writeFailed(err)
	}
	s.flush(l)
	s.settle()
}

// writeReady writes until the socket is full, and reports whether there is nothing left
// to wait for.
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
			l.writeFailed(err)
			return true
		}
		s.flushLegs()
		if n == 0 {
			return s.hasWork()
		}
	}
	return true
}

// hasWork collects the core's events, and reports whether settle has chores or events
// to deal with. Called with mu held.
func (s *Session) hasWork() bool {
	s.events = append(s.events, s.core.Events()...)
	return len(s.chores) > 0 || !s.notifying && s.hasNews()
}

// flushLegs passes on what a read or write has caused, such as an ack, while the caller
// keeps its socket. It does not close sockets: a close waits for the read or write
// in progress, which may be the caller's. Called with mu held, which is released while
// writing.
func (s *Session) flushLegs() {
	s.flush(s.up)
	if s.down != nil {
		s.flush(s.down)
	}
	s.wakeReaders()
	s.arm()
}

// finish closes l as the core asks, once all output is written. Called with mu held.
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

// hurry shortens l's deadline for good, whether or not finish has set one already.
// Called with mu held.
func (l *leg) hurry() {
	l.hurried = true
	l.conn.SetDeadline(time.Now().Add(shortFlushTime))
}

// close schedules closing the socket for after the lock is released: closing waits for a
// read or write in progress, which may need the lock. Called with mu held.
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

// unpark wakes the reader. It never blocks.
func (l *leg) unpark() {
	l.parked = false
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// writeSome writes the first piece of bufs to a connection with blocking writes. full
// reports that the write blocked.
func writeSome(conn net.Conn, bufs [][]byte) (n int, full bool, err error) {
	b := bufs[0]
	began := time.Now()
	n, err = conn.Write(b[:min(len(b), writePiece)])
	return n, time.Since(began) > fullAfter, err
}
