package listen

import (
	"net"
	"sync"
)

// A Queue is a net.Listener of connections that another process has accepted.
type Queue struct {
	addr  net.Addr
	conns chan net.Conn
	close sync.Once
	over  chan struct{}
}

// NewQueue returns an empty Queue. addr is where the connections were accepted.
func NewQueue(addr net.Addr) *Queue {
	return &Queue{addr: addr, conns: make(chan net.Conn), over: make(chan struct{})}
}

// Put passes c to Accept. It waits until Accept takes c, or closes c if the Queue is closed.
func (q *Queue) Put(c net.Conn) {
	select {
	case q.conns <- c:
	case <-q.over:
		c.Close()
	}
}

// Accept implements net.Listener.
func (q *Queue) Accept() (net.Conn, error) {
	select {
	case c := <-q.conns:
		return c, nil
	case <-q.over:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (q *Queue) Close() error {
	q.close.Do(func() { close(q.over) })
	return nil
}

// Addr implements net.Listener.
func (q *Queue) Addr() net.Addr { return q.addr }

// Handed returns a connection of another process, whose peer has sent first before what can be
// read from c. peer is its address if c does not know it, because another process forwards its
// bytes; secure says that it came over TLS there.
func Handed(c net.Conn, first []byte, peer string, secure bool) net.Conn {
	if w := NewConn(c, first); w != nil {
		return w
	}
	return &forwarded{Conn: c, first: first, peer: namedAddr(peer), secure: secure}
}

// A forwarded is a connection whose bytes another process forwards.
type forwarded struct {
	net.Conn
	first  []byte
	peer   namedAddr
	secure bool
}

// Read implements net.Conn.
func (f *forwarded) Read(p []byte) (int, error) {
	if len(f.first) > 0 {
		n := copy(p, f.first)
		f.first = f.first[n:]
		return n, nil
	}
	return f.Conn.Read(p)
}

// RemoteAddr returns the client's address.
func (f *forwarded) RemoteAddr() net.Addr { return f.peer }

// NetConn returns the connection below.
func (f *forwarded) NetConn() net.Conn { return f.Conn }

// Unwrap returns the connection below, and what its peer has sent that was not read.
func (f *forwarded) Unwrap() (net.Conn, []byte) {
	rest := f.first
	f.first = nil
	return f.Conn, rest
}

// A namedAddr is an address as another process knows it.
type namedAddr string

// Network implements net.Addr.
func (namedAddr) Network() string { return "tcp" }

// String implements net.Addr.
func (a namedAddr) String() string { return string(a) }
