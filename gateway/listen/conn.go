package listen

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"

	"reseat/gateway/transport/rawconn"
)

// A Conn is an accepted TCP connection whose request may still be incomplete. It remembers
// the bytes of that request, so that another process can continue with it: Freeze.
// All methods are those of the TCP connection, but reading, writing and closing wait while
// it is frozen, and reading and writing fail once it was handed over.
type Conn struct {
	rawconn.TCP
	raw syscall.RawConn

	mu         sync.Mutex
	first      []byte // to be read before anything of the connection
	request    []byte // what has been read of an incomplete request
	serving    bool   // a request is being served
	mixed      bool   // bytes of several requests, or of a body, may have been read
	frozen     bool
	handedOver bool
	closed     bool
	resolved   chan struct{} // closed by Thaw and HandedOver, made by Freeze

	// Of a Read under way.
	p       []byte
	n       int
	err     error
	stopped bool
	attempt func(fd uintptr) bool
}

// NewConn wraps c, whose peer has sent first before what can be read from c. It returns
// nil if c is of a kind that cannot be handed over.
func NewConn(c net.Conn, first []byte) *Conn {
	raw, err := rawconn.Raw(c)
	if err != nil {
		return nil
	}
	w := &Conn{TCP: c.(rawconn.TCP), raw: raw, first: first}
	w.attempt = w.receive
	return w
}

// NetConn returns the TCP connection.
func (c *Conn) NetConn() net.Conn { return c.TCP }

// Unwrap returns the TCP connection for a caller that has hijacked it, and what its peer has
// sent that was not read.
func (c *Conn) Unwrap() (net.Conn, []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	rest := c.first
	c.first, c.request, c.serving, c.mixed = nil, nil, true, true
	return c.TCP, rest
}

// Read implements net.Conn. It waits while c is frozen, and returns io.EOF once it was
// handed over.
func (c *Conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		c.mu.Lock()
		c.awaitLocked()
		if c.handedOver {
			c.mu.Unlock()
			return 0, io.EOF
		}
		if len(c.first) > 0 {
			n := copy(p, c.first)
			c.first = c.first[n:]
			c.noteLocked(p[:n])
			c.mu.Unlock()
			return n, nil
		}
		c.p, c.n, c.err, c.stopped = p, 0, nil, false
		c.mu.Unlock()
		err := c.raw.Read(c.attempt)
		c.mu.Lock()
		n, stopped, handedOver := c.n, c.stopped, c.handedOver
		if err == nil {
			err = c.err
		}
		c.p = nil
		c.mu.Unlock()
		switch {
		case handedOver:
			return 0, io.EOF
		case stopped:
			continue
		case n == len(p):
			if u, ok := c.TCP.(interface{ Unread() }); ok {
				u.Unread()
			}
		}
		return n, err
	}
}

// receive reads once from the descriptor, unless c is frozen.
func (c *Conn) receive(fd uintptr) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.frozen || c.handedOver {
		c.stopped = true
		return true
	}
	c.n, c.err = rawconn.Receive(int(fd), c.p)
	c.noteLocked(c.p[:c.n])
	return c.n > 0 || c.err != nil
}

// noteLocked remembers bytes that were read.
func (c *Conn) noteLocked(p []byte) {
	switch {
	case c.mixed, len(p) == 0:
	case c.serving:
		c.mixed = true
	default:
		c.request = append(c.request, p...)
	}
}

var endOfHead = []byte("\r\n\r\n")

var errHandedOver = errors.New("another process has the connection")

// Write implements net.Conn. It waits while c is frozen: another process may get to write.
func (c *Conn) Write(p []byte) (int, error) {
	if !c.own() {
		return 0, errHandedOver
	}
	return c.TCP.Write(p)
}

// Close implements net.Conn. It waits while c is frozen, when its descriptor is being sent to
// another process, and must not become another file's.
func (c *Conn) Close() error {
	c.mu.Lock()
	c.awaitLocked()
	c.closed = true // not under the lock: closing waits for a Read, which takes it
	c.mu.Unlock()
	return c.TCP.Close()
}

// CloseWrite shuts down the writing side. It waits while c is frozen: it would act on the
// socket of the other process too.
func (c *Conn) CloseWrite() error {
	if !c.own() {
		return errHandedOver
	}
	return c.TCP.CloseWrite()
}

// own waits while c is frozen, and reports false once another process has it.
func (c *Conn) own() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.awaitLocked()
	return !c.handedOver
}

func (c *Conn) awaitLocked() {
	for c.frozen {
		resolved := c.resolved
		c.mu.Unlock()
		<-resolved
		c.mu.Lock()
	}
}

// ReadFrom implements io.ReaderFrom.
func (c *Conn) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{c}, r)
}

// begin notes that the request is complete. It waits while c is frozen, and reports false
// once it was handed over: then another process serves the request.
func (c *Conn) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.awaitLocked()
	if c.handedOver {
		return false
	}
	if i := bytes.Index(c.request, endOfHead); i != len(c.request)-len(endOfHead) {
		c.mixed = true // a body, or a part of the next request
	}
	c.request, c.serving = nil, true
	return true
}

// end notes that the request has been served, and the answer written.
func (c *Conn) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serving = false
}

// Freeze keeps c from being read, until Thaw or HandedOver, of which one must follow. It
// returns its descriptor, which stays c's, and what has been read of an incomplete request. It
// reports false, and freezes nothing, if c is serving a request or closed, or what it has read
// is not known.
func (c *Conn) Freeze() (fd int, request []byte, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.serving || c.mixed || c.frozen || c.handedOver || c.closed {
		return -1, nil, false
	}
	if err := c.raw.Control(func(p uintptr) { fd = int(p) }); err != nil {
		return -1, nil, false
	}
	c.frozen, c.resolved = true, make(chan struct{})
	return fd, append(bytes.Clone(c.request), c.first...), true
}

// Thaw lets c go on.
func (c *Conn) Thaw() { c.resolve(false) }

// HandedOver closes c's descriptor, since another process has the connection.
func (c *Conn) HandedOver() {
	c.resolve(true)
	rawconn.OffLoop(c.TCP).Close()
}

func (c *Conn) resolve(handedOver bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frozen, c.handedOver = false, handedOver
	close(c.resolved)
}
