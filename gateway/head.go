package gateway

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
)

// A HeadListener lets its Gateway see what net/http does not tell: whether a
// connection's first request had a header line that goes on on the next one.
// RFC 9112 section 5.2 has such requests refused; net/http joins the lines, and
// what stood in front may have read them otherwise.
type HeadListener struct{ net.Listener }

// Accept waits for the next connection.
func (l HeadListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &headConn{Conn: c}, nil
}

type connKey struct{}

// ConnContext is for http.Server, whose connections come from a HeadListener.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// A headConn looks at what is read until the first head is over.
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

// hasFoldedLine reports whether r came on a connection whose first head had a
// folded line.
func hasFoldedLine(r *http.Request) bool {
	c, ok := r.Context().Value(connKey{}).(*headConn)
	return ok && c.folded.Load()
}

// bare is the connection under a headConn.
func bare(c net.Conn) net.Conn {
	if h, ok := c.(*headConn); ok {
		return h.Conn
	}
	return c
}
