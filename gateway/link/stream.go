package link

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// pieceSize is the size of one write of PipeTo.
const pieceSize = 4 << 10

// A Stream is the connection of one client, at one end of a Link. One goroutine may read and one
// write at a time; the other methods may be called from any goroutine.
type Stream struct {
	link *Link
	id   uint32

	// Guarded by the link's mutex:
	changed sync.Cond
	in      []byte           // has arrived, and is not read
	room    int              // how much more may arrive
	owed    int              // how much was read that the other end has not been told of
	ended   bool             // nothing more arrives
	send    int              // how much the other end has room for
	besides int              // bytes that are on the way to Write: see TryWrite
	done    bool             // no more is written
	err     error            // why it has ended both ways
	sink    func([]byte) int // takes what arrives: see PipeTo
	sinking bool             // PipeTo has bytes that came before
	reads   deadline
	writes  deadline
}

// arrived takes bytes of the stream. The link's mutex is held, but not while sink is called.
func (s *Stream) arrived(p []byte) error {
	if s.room -= len(p); s.room < 0 {
		return errFlood
	}
	if s.sink != nil && len(s.in) == 0 && !s.sinking {
		sink := s.sink
		s.link.mu.Unlock()
		n := sink(p)
		s.link.mu.Lock()
		s.took(n)
		p = p[n:]
	}
	if len(p) > 0 {
		s.in = append(s.in, p...)
		s.changed.Broadcast()
	}
	return nil
}

// took gives the other end credit for n bytes, once that is worth a frame.
func (s *Stream) took(n int) {
	if s.owed += n; s.owed >= window/2 && s.err == nil {
		s.link.frame(credit, s.id, nil, s.owed)
		s.room += s.owed
		s.owed = 0
	}
}

// Read implements net.Conn. What has arrived before an end or an error is read before it.
func (s *Stream) Read(p []byte) (int, error) {
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	n, err := s.readLocked(p)
	s.took(n)
	return n, err
}

func (s *Stream) readLocked(p []byte) (int, error) {
	for {
		switch {
		case s.reads.over():
			return 0, os.ErrDeadlineExceeded
		case s.err == net.ErrClosed:
			return 0, s.err
		case len(s.in) > 0:
			n := copy(p, s.in)
			if s.in = s.in[n:]; len(s.in) == 0 {
				s.in = nil
			}
			return n, nil
		case s.err != nil:
			return 0, s.err
		case s.ended:
			return 0, io.EOF
		}
		s.changed.Wait()
	}
}

// PipeTo writes to conn all that is read, until an error. What the socket of conn takes at once goes there as
// it arrives.
func (s *Stream) PipeTo(conn net.Conn) error {
	buf := make([]byte, pieceSize)
	sink := sinkOf(conn)
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	s.sink = sink
	for {
		n, err := s.readLocked(buf)
		if err != nil {
			return err
		}
		s.sinking = true
		s.link.mu.Unlock()
		_, err = conn.Write(buf[:n])
		s.link.mu.Lock()
		s.sinking = false
		s.took(n)
		if err != nil {
			return err
		}
	}
}

// Write implements net.Conn.
func (s *Stream) Write(p []byte) (n int, err error) {
	l := s.link
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(p) > 0 {
		switch {
		case s.writes.over():
			return n, os.ErrDeadlineExceeded
		case s.err != nil:
			return n, s.err
		case s.done:
			return n, net.ErrClosed
		case s.send <= 0:
			s.changed.Wait()
		case len(l.due) > maxDue:
			l.changed.Wait()
		default:
			piece := p[:min(len(p), s.send, maxFrame)]
			s.writeLocked(piece)
			s.besides = max(0, s.besides-len(piece))
			n, p = n+len(piece), p[len(piece):]
		}
	}
	return n, nil
}

func (s *Stream) writeLocked(p []byte) {
	s.link.frame(data, s.id, p)
	s.send -= len(p)
}

// TryWrite writes p if that is possible without waiting. If it reports false, the caller has p get to Write
// by another way; until it has, TryWrite writes nothing.
func (s *Stream) TryWrite(p []byte) bool {
	l := s.link
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.besides > 0 || s.err != nil || s.done || s.send < len(p) || len(p) > maxFrame || len(l.due) > maxDue {
		s.besides += len(p)
		return false
	}
	s.writeLocked(p)
	return true
}

// CloseWrite ends the direction to the other end.
func (s *Stream) CloseWrite() error {
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	if s.err == nil && !s.done {
		s.done = true
		s.link.frame(end, s.id, nil)
	}
	return nil
}

// Close implements net.Conn.
func (s *Stream) Close() error {
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	if s.err == nil {
		s.link.frame(reset, s.id, nil)
	}
	s.endLocked(net.ErrClosed)
	return nil
}

func (s *Stream) endLocked(err error) {
	if s.err == nil || err == net.ErrClosed {
		s.err = err
	}
	delete(s.link.streams, s.id)
	s.changed.Broadcast()
	s.link.endIdleLocked()
}

// LocalAddr implements net.Conn.
func (s *Stream) LocalAddr() net.Addr { return s.link.conn.LocalAddr() }

// RemoteAddr implements net.Conn.
func (s *Stream) RemoteAddr() net.Addr { return s.link.conn.RemoteAddr() }

// A deadline is that of one direction.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (d *deadline) over() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func (s *Stream) set(d *deadline, t time.Time) {
	d.at = t
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	if !t.IsZero() {
		d.timer = time.AfterFunc(time.Until(t), func() {
			s.link.mu.Lock()
			defer s.link.mu.Unlock()
			s.changed.Broadcast()
		})
	}
	s.changed.Broadcast()
}

// SetDeadline implements net.Conn.
func (s *Stream) SetDeadline(t time.Time) error {
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	s.set(&s.reads, t)
	s.set(&s.writes, t)
	return nil
}

// SetReadDeadline implements net.Conn.
func (s *Stream) SetReadDeadline(t time.Time) error {
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	s.set(&s.reads, t)
	return nil
}

// SetWriteDeadline implements net.Conn.
func (s *Stream) SetWriteDeadline(t time.Time) error {
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	s.set(&s.writes, t)
	return nil
}
