package owner

import (
	"bufio"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"reseat/gateway/cluster"
	"reseat/gateway/front"
	"reseat/gateway/hop"
	"reseat/gateway/registry"
)

// ServeNode has next serve a client that another node has passed on. The caller has made sure that
// r comes from a node.
func (o *Owner) ServeNode(w http.ResponseWriter, r *http.Request, next http.Handler) {
	c, err := hop.Read(r.Header)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r = front.Passed(r, c)
	r.RemoteAddr, r.Host, r.TLS = c.Peer, c.Host, nil
	if c.HTTPS {
		r.TLS = &tls.ConnectionState{Version: tls.VersionTLS13, HandshakeComplete: true}
	}
	o.Watch.Metrics.Forwards.WithLabelValues("in", "ok").Inc()
	next.ServeHTTP(countedWriter{w, &o.passedIn, c.From}, r)
}

// A countedWriter counts the connection of its request, once it is hijacked and until it
// is closed.
type countedWriter struct {
	http.ResponseWriter
	n    *atomic.Int64
	from string // the node that has passed it on
}

// Hijack implements http.Hijacker.
func (w countedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	w.n.Add(1)
	return &countedConn{Conn: conn, from: w.from, end: sync.OnceFunc(func() { w.n.Add(-1) })}, rw, nil
}

// Unwrap is for http.ResponseController.
func (w countedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

type countedConn struct {
	net.Conn
	from string
	end  func()
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

// NodeOf returns the node that has a session, "" without a cluster.
func (o *Owner) NodeOf(session string) string {
	switch {
	case o.Cluster == nil || len(session) != cluster.IDLen+registry.SessionIDLen:
		return ""
	case o.Registry.Find(session) != nil:
		return o.Cluster.ID()
	}
	if to := o.recipients.node(session); to != "" {
		return to
	}
	return session[:cluster.IDLen]
}

// MovedTo returns the node that this one has handed a session off to, "" if it has not.
func (o *Owner) MovedTo(session string) string { return o.recipients.node(session) }

// FrontOf returns the node that a client of this node's is connected to, by its connection. "" if
// it is not connected.
func (o *Owner) FrontOf(c net.Conn) string {
	if c == nil || o.Cluster == nil {
		return ""
	}
	for {
		if passed, ok := c.(*countedConn); ok {
			return passed.from
		}
		below, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return o.Cluster.ID()
		}
		c = below.NetConn()
	}
}
