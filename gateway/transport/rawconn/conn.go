package rawconn

import (
	"net"
	"sync"
	"syscall"
)

// A Conn is a TCP connection that reads and writes by the calls of this package,
// for layers between a socket and a driver: TLS, compression. Every
// read and write of a net.TCPConn wakes the scheduler's monitor from its sleep.
// It may be used as a net.TCPConn may.
type Conn struct {
	*net.TCPConn
	raw syscall.RawConn
	in  call
	out call
}

// A call is what one direction is at. The functions are made once, since a
// closure of each call's own would be memory for each.
type call struct {
	mu      sync.Mutex // held while waiting: another call of the direction waits too
	p       []byte
	n       int
	err     error
	attempt func(fd uintptr) (done bool)
}

// Quiet is c as a Conn, or c itself where it is no plain TCP connection on Linux.
func Quiet(c net.Conn) net.Conn {
	raw, err := Raw(c)
	if err != nil {
		return c
	}
	q := &Conn{TCPConn: c.(*net.TCPConn), raw: raw}
	q.in.attempt, q.out.attempt = q.in.receive, q.out.send
	return q
}

// NetConn is the connection below.
func (c *Conn) NetConn() net.Conn { return c.TCPConn }

func (c *call) receive(fd uintptr) bool {
	c.n, c.err = Receive(int(fd), c.p)
	return c.n > 0 || c.err != nil
}

func (c *call) send(fd uintptr) bool {
	n, full, err := Send(int(fd), c.p[c.n:])
	c.n, c.err = c.n+n, err
	return err != nil || !full
}

// do waits by way of wait, a RawConn's, until p is done.
func (c *call) do(wait func(func(uintptr) bool) error, p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.p, c.n, c.err = p, 0, nil
	err := wait(c.attempt)
	if err == nil {
		err = c.err
	}
	c.p = nil
	return c.n, err
}

// Read is that of net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	return c.in.do(c.raw.Read, p)
}

// Write is that of net.Conn.
func (c *Conn) Write(p []byte) (int, error) { return c.out.do(c.raw.Write, p) }
