package gateway

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync/atomic"
)

// A HeadListener lets its Gateway see what net/http does not tell: whether a
// request had a header line that goes on on the next one. Of a connection's later
// requests it sees those that come when the answer to the one before is done.
// RFC 9112 section 5.2 has such requests refused; net/http joins the lines, and
// what stood in front may have read them otherwise.
//
// It may stand before a listener of *tls.Conn whose handshakes are done. One that
// has agreed on HTTP/2, where no line can be folded, passes as it is: net/http
// serves HTTP/2 to a *tls.Conn alone.
type HeadListener struct{ net.Listener }

// Accept waits for the next connection.
func (l HeadListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	t, secure := c.(*tls.Conn)
	switch {
	case !secure:
		return &headConn{Conn: c}, nil
	case t.ConnectionState().NegotiatedProtocol == "h2":
		return c, nil
	}
	return &secureHeadConn{headConn{Conn: resettable{t}}, t}, nil
}

type connKey struct{}

// ConnContext is for http.Server, whose connections come from a HeadListener.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// A headConn looks at what is read until a head is over.
type headConn struct {
	net.Conn
	folded atomic.Bool
	over   bool
	line   int  // bytes in the present line, its CR not counted
	begun  bool // a line has ended before this one
}

func (c *headConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	for _, x := range b[:n] {
		if c.over {
			break
		}
		c.look(x)
	}
	return n, err
}

// next is called where another head is to come.
func (c *headConn) next() {
	c.folded.Store(false)
	c.over, c.line, c.begun = false, 0, false
}

func (c *headConn) look(x byte) {
	switch {
	case x == '\n':
		c.over = c.begun && c.line == 0
		c.begun, c.line = true, 0
	case x == '\r':
	default:
		if c.line == 0 && c.begun && (x == ' ' || x == '\t') {
			c.folded.Store(true)
		}
		c.line++
	}
}

// A secureHeadConn tells net/http that its connection is encrypted.
type secureHeadConn struct {
	headConn
	tls *tls.Conn
}

// ConnectionState is what net/http takes Request.TLS from.
func (c *secureHeadConn) ConnectionState() tls.ConnectionState { return c.tls.ConnectionState() }

// A resettable connection can be closed with a reset, as the one under its TLS can.
type resettable struct{ *tls.Conn }

// SetLinger implements what a *net.TCPConn has.
func (r resettable) SetLinger(sec int) error {
	if l, ok := r.NetConn().(interface{ SetLinger(int) error }); ok {
		return l.SetLinger(sec)
	}
	return nil
}

// head is also that of what embeds a headConn.
func (c *headConn) head() *headConn { return c }

// hasFoldedLine reports whether r's head had a folded line.
func hasFoldedLine(r *http.Request) bool {
	c, ok := r.Context().Value(connKey{}).(interface{ head() *headConn })
	return ok && c.head().folded.Load()
}

// lowest is the connection that was accepted, below whatever stands on it.
func lowest(c net.Conn) net.Conn {
	for {
		switch above := c.(type) {
		case interface{ head() *headConn }:
			c = above.head().Conn
		case interface{ NetConn() net.Conn }:
			c = above.NetConn()
		default:
			return c
		}
	}
}

// bare is the connection under a headConn.
func bare(c net.Conn) net.Conn {
	if h, ok := c.(interface{ head() *headConn }); ok {
		return h.head().Conn
	}
	return c
}
