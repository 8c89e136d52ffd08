package rawconn

import (
	"slices"
	"syscall"
)

// A Lent is the socket of a Conn while an event loop has it. Reads and writes of the Conn, by a layer
// above it such as TLS, don't block then: a read that finds nothing returns ErrAgain, and what is written
// is Pending until Flush. All methods, and the Conn, are the loop's.
type Lent struct {
	Pending []byte // written by the layer, and not yet accepted by the socket

	conn    *Conn
	virtual Virtual // not nil: it is below conn, and fd an eventfd
	fd      int     // negative: closed
	empty   bool    // there is nothing to read until Arrived
	ending  bool    // the end follows what is still to be read
}

// ErrAgain means that there is nothing to read now. It is temporary, so that package tls continues after it.
var ErrAgain error = again{}

type again struct{}

func (again) Error() string   { return "nothing to read now" }
func (again) Timeout() bool   { return true }
func (again) Temporary() bool { return true }

// Lend lends c's socket to an event loop, until Return. fd is a duplicate of its descriptor, which
// stays the caller's; c closes its own. Nobody else may use c, or a layer above it, meanwhile. ready is that of
// a Virtual.
func (c *Conn) Lend(fd int, ready func(on any)) *Lent {
	c.lent = &Lent{conn: c, fd: fd}
	if v, ok := c.stream.(Virtual); ok {
		c.lent.virtual = v
		v.Watch(ready)
	} else {
		c.stream.Close()
	}
	return c.lent
}

// Arrived notes an event of the socket that is not for writing. ending says that the peer has sent all
// that it will send.
func (l *Lent) Arrived(ending bool) {
	l.empty = false
	l.ending = l.ending || ending
}

// read reads once. A read that returned less than it had room for has emptied the socket.
func (l *Lent) read(p []byte) (int, error) {
	if l.virtual != nil {
		n, err := l.virtual.Receive(p)
		if n == 0 && err == nil {
			err = ErrAgain
		}
		return n, err
	}
	if l.empty {
		return 0, ErrAgain
	}
	n, err := Receive(l.fd, p)
	switch {
	case n == 0 && err == nil:
		l.empty, l.ending = true, false
		return 0, ErrAgain
	case n < len(p) && !l.ending:
		l.empty = err == nil
	}
	return n, err
}

// Flush writes what is pending, and reports whether that is more than the socket accepts now.
func (l *Lent) Flush() (full bool, err error) {
	if len(l.Pending) == 0 {
		return false, nil
	}
	send := func(p []byte) (int, bool, error) { return Send(l.fd, p) }
	if l.virtual != nil {
		send = l.virtual.Send
	}
	n, full, err := send(l.Pending)
	if l.Pending = l.Pending[n:]; len(l.Pending) == 0 {
		l.Pending = nil
	}
	return full, err
}

// Closed notes that the descriptor is being closed. A Virtual ends with it.
func (l *Lent) Closed() {
	if l.fd = -1; l.virtual != nil {
		l.virtual.Watch(nil)
		l.virtual.Close()
	}
}

// Return ends Lend: the Conn owns the descriptor, and its reads and writes block. What is pending is
// written before anything else.
func (l *Lent) Return() {
	c := l.conn
	c.lent = nil
	if l.virtual != nil {
		l.virtual.Watch(nil)
		Release(l.fd)
	} else {
		conn, err := ConnOf(l.fd)
		if err != nil {
			return // out of descriptors: c is closed
		}
		c.stream = conn.(stream)
		if c.raw, err = conn.(syscall.Conn).SyscallConn(); err != nil {
			conn.Close()
			return
		}
	}
	if len(l.Pending) == 0 {
		return
	}
	pending := slices.Clone(l.Pending)
	c.out.mu.Lock()
	go func() {
		defer c.out.mu.Unlock()
		if _, err := c.writeLocked(pending); err != nil {
			c.stream.Close() // what follows would make no sense without it
		}
	}()
}
