package gateway

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"reseat/gateway/hop"
)

// ServeNode serves a client that another node has passed on. The caller has made sure that
// r comes from a node.
func (g *Gateway) ServeNode(w http.ResponseWriter, r *http.Request) {
	c, err := hop.Read(r.Header)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r = r.WithContext(context.WithValue(r.Context(), passedKey{}, c))
	r.RemoteAddr, r.Host, r.TLS = c.Peer, c.Host, nil
	if c.HTTPS {
		r.TLS = &tls.ConnectionState{Version: tls.VersionTLS13, HandshakeComplete: true}
	}
	g.metrics.forwards.WithLabelValues("in", "ok").Inc()
	g.ServeHTTP(countedWriter{w, &g.passedIn}, r)
}

// A countedWriter counts the connection of its request, once that has been taken over and
// until it is closed.
type countedWriter struct {
	http.ResponseWriter
	n *atomic.Int64
}

// Hijack implements http.Hijacker.
func (w countedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	w.n.Add(1)
	return &countedConn{Conn: conn, end: sync.OnceFunc(func() { w.n.Add(-1) })}, rw, nil
}

// Unwrap is for http.ResponseController.
func (w countedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

type countedConn struct {
	net.Conn
	end func()
}

func (c *countedConn) Close() error { c.end(); return c.Conn.Close() }

// NetConn returns the connection below: see rawconn.Lowest.
func (c *countedConn) NetConn() net.Conn { return c.Conn }

// CloseWrite ends the direction to the peer.
func (c *countedConn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return errors.ErrUnsupported
}
