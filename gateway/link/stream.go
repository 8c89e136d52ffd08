package link

import (
	"cmp"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// A Stream is the connection of one client, at one end of a Link. One goroutine may read and one
// write at a time; the other methods may be called from any goroutine.
//
// It is a rawconn.Virtual: an event loop reads and writes it without blocking.
type Stream struct {
	link *Link
	id   uint32

	// Guarded by the link's mutex:
	changed sync.Cond
	in      []byte       // has arrived, and is not read
	room    int          // how much more may arrive
	owed    int          // how much was read that the other end was not notified of
	ended   bool         // nothing more arrives
	send    int          // how much the other end has room for
	waits   bool         // it is in link.waiting
	done    bool         // no more is written
	err     error        // why it has ended both ways
	ready   func(on any) // see Watch
	reads   deadline
	writes  deadline
}

// Host returns the event loop of the stream's link, nil if it has none.
func (s *Stream) Host() any {
	defer s.link.lock()()
	return s.link.host
}

// Watch implements rawconn.Virtual.
func (s *Stream) Watch(ready func(on any)) {
	defer s.link.lock()()
	s.ready = ready
}

// note wakes readers and writers.
func (s *Stream) note(on any) {
	if s.ready != nil {
		s.ready(on)
		return
	}
	s.changed.Broadcast()
	s.link.woken = true
}

// arrived takes bytes of the stream.
func (s *Stream) arrived(p []byte, on any) error {
	if s.room -= len(p); s.room < 0 {
		return errFlood
	}
	s.in = append(s.in, p...)
	s.note(on)
	return nil
}

// took notes that n bytes were read. It gives the other end credit for them once that is worth a frame.
func (s *Stream) took(n int) {
	if s.in = s.in[n:]; len(s.in) == 0 {
		s.in = nil
	}
	if s.owed += n; s.owed >= window/2 && s.err == nil {
		s.link.frame(credit, s.id, nil, s.owed)
		s.room += s.owed
		s.owed = 0
	}
}

// Peek returns what can be read at once, which Took takes. The error is that of Read.
func (s *Stream) Peek() ([]byte, error) {
	defer s.link.lock()()
	return s.peek()
}

// Took notes that n bytes of Peek were used.
func (s *Stream) Took(n int) {
	defer s.link.lock()()
	if n <= len(s.in) {
		s.took(n)
	}
}

func (s *Stream) peek() ([]byte, error) {
	switch {
	case s.err == net.ErrClosed:
		return nil, s.err
	case len(s.in) > 0:
		return s.in, nil
	case s.err == nil && s.ended:
		return nil, io.EOF
	}
	return nil, s.err
}

// Receive reads what is there. It returns 0 and no error if that is nothing now.
func (s *Stream) Receive(p []byte) (int, error) {
	defer s.link.lock()()
	in, err := s.peek()
	n := copy(p, in)
	s.took(n)
	return n, err
}

// Read implements net.Conn. What has arrived before an end or an error is read before it.
func (s *Stream) Read(p []byte) (int, error) {
	defer s.link.lock()()
	for {
		if s.reads.over() {
			return 0, os.ErrDeadlineExceeded
		}
		if in, err := s.peek(); len(in) > 0 || err != nil {
			n := copy(p, in)
			s.took(n)
			return n, err
		}
		s.changed.Wait()
	}
}

// Send writes as much of p as the other end and the link have room for, and reports whether that was less than all.
func (s *Stream) Send(p []byte) (n int, full bool, err error) {
	l := s.link
	defer l.lock()()
	if s.err != nil || s.done {
		return 0, false, cmp.Or(s.err, net.ErrClosed)
	}
	for n < len(p) {
		size := s.roomLocked(len(p) - n)
		if size == 0 {
			return n, true, nil
		}
		l.frame(data, s.id, p[n:n+size])
		s.send -= size
		n += size
	}
	return n, false, nil
}

// roomLocked returns the size of the next frame. The sender is notified when there is room again.
func (s *Stream) roomLocked(n int) int {
	l := s.link
	if len(l.due) > maxDue {
		if !s.waits {
			s.waits = true
			l.waiting = append(l.waiting, s)
		}
		return 0
	}
	return max(0, min(n, s.send, maxFrame))
}

// Write implements net.Conn.
func (s *Stream) Write(p []byte) (n int, err error) {
	for {
		k, full, err := s.Send(p[n:])
		if n += k; !full || err != nil {
			return n, err
		}
		s.link.mu.Lock()
		for s.err == nil && !s.done && !s.writes.over() && s.roomLocked(1) == 0 {
			s.changed.Wait()
		}
		over := s.writes.over()
		s.link.mu.Unlock()
		if over {
			return n, os.ErrDeadlineExceeded
		}
	}
}

// CloseWrite ends the direction to the other end.
func (s *Stream) CloseWrite() error {
	defer s.link.lock()()
	if s.err == nil && !s.done {
		s.done = true
		s.link.frame(end, s.id, nil)
	}
	return nil
}

// Close implements net.Conn.
func (s *Stream) Close() error {
	defer s.link.lock()()
	if s.err == nil {
		s.link.frame(reset, s.id, nil)
	}
	s.endLocked(net.ErrClosed, nil)
	return nil
}

func (s *Stream) endLocked(err error, on any) {
	if s.err == nil || err == net.ErrClosed {
		s.err = err
	}
	delete(s.link.streams, s.id)
	s.note(on)
	s.link.endIdleLocked()
}

// LocalAddr implements net.Conn.
func (s *Stream) LocalAddr() net.Addr { return s.link.addr[0] }

// RemoteAddr implements net.Conn.
func (s *Stream) RemoteAddr() net.Addr { return s.link.addr[1] }

// A deadline is that of one direction.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (d *deadline) over() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

// SetDeadline implements net.Conn.
func (s *Stream) SetDeadline(t time.Time) error { return s.set(t, &s.reads, &s.writes) }

// SetReadDeadline implements net.Conn.
func (s *Stream) SetReadDeadline(t time.Time) error { return s.set(t, &s.reads) }

// SetWriteDeadline implements net.Conn.
func (s *Stream) SetWriteDeadline(t time.Time) error { return s.set(t, &s.writes) }

func (s *Stream) set(t time.Time, of ...*deadline) error {
	defer s.link.lock()()
	for _, d := range of {
		if d.timer != nil {
			d.timer.Stop()
		}
		if d.at, d.timer = t, nil; !t.IsZero() {
			d.timer = time.AfterFunc(time.Until(t), func() {
				defer s.link.lock()()
				s.changed.Broadcast()
			})
		}
	}
	s.changed.Broadcast()
	return nil
}
