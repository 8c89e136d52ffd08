//go:build linux

package epoll

import (
	"errors"

	"golang.org/x/sys/unix"
)

// A Conn is a TCP connection served by a Loop.
type Conn struct {
	loop  *Loop
	fd    int
	owner Owner

	open    bool // connected
	closed  bool
	hungry  bool
	watched uint32 // the events that the loop waits for
	pending []byte // output that the socket did not accept yet
}

// register starts watching a socket that was accepted or dialed.
func (c *Conn) register() error {
	unix.SetsockoptInt(c.fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	c.watched = c.wanted()
	return c.loop.add(c.fd, c.watched, c.ready)
}

// wanted returns the events to wait for.
func (c *Conn) wanted() uint32 {
	events := uint32(unix.EPOLLIN)
	if !c.open || c.hungry || len(c.pending) > 0 {
		events |= unix.EPOLLOUT
	}
	return events
}

func (c *Conn) rewatch() {
	w := c.wanted()
	if c.closed || w == c.watched {
		return
	}
	c.watched = w
	if err := c.loop.change(c.fd, w); err != nil {
		c.fail(err)
	}
}

func (c *Conn) ready(events uint32) {
	if !c.open {
		c.connected()
		return
	}
	if events&unix.EPOLLOUT != 0 {
		c.flush()
	}
	if !c.closed && events&^unix.EPOLLOUT != 0 {
		c.read()
	}
}

func (c *Conn) connected() {
	errno, err := unix.GetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	switch {
	case err != nil:
		c.fail(err)
	case errno != 0:
		c.fail(unix.Errno(errno))
	default:
		c.open = true
		c.owner.Connected()
		c.rewatch()
	}
}

// read reads once. If there is more, the loop calls it again.
func (c *Conn) read() {
	n, err := read(c.fd, c.loop.buf)
	switch end := errOf(n, err); {
	case end != nil:
		c.fail(end)
	case n > 0:
		c.owner.Data(c.loop.buf[:n])
	}
}

// Write sends b. What the socket does not accept at once is queued.
func (c *Conn) Write(b []byte) {
	if c.closed {
		return
	}
	if len(c.pending) == 0 {
		b = b[c.take(b):]
	}
	if len(b) > 0 && !c.closed {
		c.pending = append(c.pending, b...)
		c.rewatch()
	}
}

// Offer sends as much of b as the socket accepts at once, queues nothing, and returns
// how much that was. Nothing may be pending.
func (c *Conn) Offer(b []byte) int {
	if c.closed {
		return 0
	}
	return c.take(b)
}

func (c *Conn) take(b []byte) int {
	n, err := write(c.fd, b)
	if err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
		c.fail(err)
	}
	return max(n, 0)
}

func (c *Conn) flush() {
	if len(c.pending) > 0 {
		n := c.take(c.pending)
		c.pending = append(c.pending[:0], c.pending[n:]...)
	}
	if len(c.pending) == 0 && c.hungry && !c.closed {
		c.owner.Room()
	}
	c.rewatch()
}

// Hungry sets whether the owner is called whenever the socket accepts more.
func (c *Conn) Hungry(on bool) {
	c.hungry = on
	c.rewatch()
}

// Close closes the connection; the owner is not called any more.
func (c *Conn) Close() {
	if !c.closed {
		c.closed = true
		c.loop.forget(c.fd)
	}
}

// Reset closes the connection with a reset.
func (c *Conn) Reset() {
	if !c.closed {
		unix.SetsockoptLinger(c.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		c.Close()
	}
}

func (c *Conn) fail(err error) {
	if !c.closed {
		c.Close()
		c.owner.Gone(err)
	}
}
