// Package wstest provides in-memory peers for tests: connections that can be reset,
// stalled and filled, a game server, and a client that speaks reseat.v1. A test with
// them needs no port and, under testing/synctest, no time.
package wstest

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// A Conn is one end of an in-memory connection with a buffer for each direction, as a
// socket has: a write blocks only while the buffer is full.
type Conn struct {
	in, out *stream
	name    string
}

// Pipe makes a connection whose buffers hold size bytes in each direction.
func Pipe(size int) (client, server *Conn) {
	a, b := newStream(size), newStream(size)
	return &Conn{in: a, out: b, name: "client"}, &Conn{in: b, out: a, name: "server"}
}

// A stream is one direction.
type stream struct {
	mu     sync.Mutex
	change *sync.Cond
	buf    []byte
	size   int
	err    error // returned once buf is empty
	gone   bool  // the reader has closed
	hole   bool  // what is written is lost
	held   bool  // nothing is delivered, not even the end

	readBy, writeBy deadline
}

type deadline struct {
	timer *time.Timer
	over  bool
}

func newStream(size int) *stream {
	s := &stream{size: size}
	s.change = sync.NewCond(&s.mu)
	return s
}

func (s *stream) read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.gone:
			return 0, net.ErrClosed
		case s.readBy.over:
			return 0, os.ErrDeadlineExceeded
		case s.held:
		case len(s.buf) > 0:
			n := copy(b, s.buf)
			s.buf = s.buf[n:]
			s.change.Broadcast()
			return n, nil
		case s.err != nil:
			return 0, s.err
		}
		s.change.Wait()
	}
}

func (s *stream) write(b []byte) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(b) > 0 {
		switch {
		case s.err != nil:
			return n, net.ErrClosed
		case s.gone:
			return n, syscall.EPIPE
		case s.writeBy.over:
			return n, os.ErrDeadlineExceeded
		case s.hole:
			return n + len(b), nil
		case len(s.buf) < s.size:
			k := min(len(b), s.size-len(s.buf))
			s.buf = append(s.buf, b[:k]...)
			b, n = b[k:], n+k
			s.change.Broadcast()
			continue
		}
		s.change.Wait()
	}
	return n, nil
}

// set changes the stream and wakes its waiters.
func (s *stream) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	s.change.Broadcast()
}

func (s *stream) setDeadline(d *deadline, t time.Time) {
	s.set(func() {
		if d.timer != nil {
			d.timer.Stop()
		}
		d.timer = nil
		wait := time.Until(t)
		d.over = !t.IsZero() && wait <= 0
		if t.IsZero() || d.over {
			return
		}
		var timer *time.Timer
		timer = time.AfterFunc(wait, func() { s.set(func() { d.over = d.over || d.timer == timer }) })
		d.timer = timer
	})
}

// Read implements net.Conn.
func (c *Conn) Read(b []byte) (int, error) { return c.in.read(b) }

// Write writes all of b, and blocks while the buffer is full.
func (c *Conn) Write(b []byte) (int, error) { return c.out.write(b) }

// Close closes both directions: the peer reads what was written, then io.EOF.
func (c *Conn) Close() error { return c.end(io.EOF) }

// CloseWrite closes only the outgoing direction.
func (c *Conn) CloseWrite() error {
	c.out.set(func() { c.out.err = io.EOF })
	return nil
}

// Reset closes both directions: the peer loses what it has not read.
func (c *Conn) Reset() {
	c.out.set(func() { c.out.buf = nil })
	c.end(syscall.ECONNRESET)
}

func (c *Conn) end(err error) error {
	c.out.set(func() {
		if c.out.err == nil {
			c.out.err = err
		}
	})
	c.in.set(func() { c.in.gone = true })
	c.setDeadlines(time.Time{})
	return nil
}

func (c *Conn) setDeadlines(t time.Time) {
	c.in.setDeadline(&c.in.readBy, t)
	c.out.setDeadline(&c.out.writeBy, t)
}

// Silence makes the connection half-open: what either side writes is accepted and lost,
// and neither sees the other close.
func (c *Conn) Silence() {
	for _, s := range []*stream{c.in, c.out} {
		s.set(func() { s.hole, s.held = true, true })
	}
}

// Unread returns how many bytes wait to be read at this end.
func (c *Conn) Unread() int {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	return len(c.in.buf)
}

// SetDeadline bounds reads and writes.
func (c *Conn) SetDeadline(t time.Time) error { c.setDeadlines(t); return nil }

// SetReadDeadline bounds reads.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.in.setDeadline(&c.in.readBy, t)
	return nil
}

// SetWriteDeadline bounds writes.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.out.setDeadline(&c.out.writeBy, t)
	return nil
}

// LocalAddr returns a loopback address.
func (c *Conn) LocalAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080} }

// RemoteAddr returns a loopback address.
func (c *Conn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 50000} }

// A Listener accepts the connections that Dial makes.
type Listener struct {
	size  int
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

// NewListener returns a Listener whose connections hold size bytes in each direction.
func NewListener(size int) *Listener {
	return &Listener{size: size, conns: make(chan net.Conn), done: make(chan struct{})}
}

// Dial connects.
func (l *Listener) Dial() (*Conn, error) {
	client, server := Pipe(l.size)
	select {
	case l.conns <- server:
		return client, nil
	case <-l.done:
		return nil, syscall.ECONNREFUSED
	}
}

// Accept waits for the next connection.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close stops accepting.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

// Addr returns a loopback address.
func (l *Listener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080} }
