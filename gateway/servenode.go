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

	"reseat/gateway/cluster"
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
	g.ServeHTTP(countedWriter{w, &g.passedIn, c.From}, r)
}

// A countedWriter counts the connection of its request, once that has been taken over and
// until it is closed.
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
func (g *Gateway) NodeOf(session string) string {
	switch {
	case g.cfg.Cluster == nil || len(session) != cluster.IDLen+SessionIDLen:
		return ""
	case g.reg.Find(session) != nil:
		return g.cfg.Cluster.ID()
	}
	if to := g.moves.node(session); to != "" {
		return to
	}
	return session[:cluster.IDLen]
}

// MovedTo returns the node that this one has handed a session to, "" if it has not.
func (g *Gateway) MovedTo(session string) string { return g.moves.node(session) }

// FrontOf returns the node that the client of a session of this node is connected to, "" if it
// is not connected.
func (g *Gateway) FrontOf(session string) string {
	c := g.ClientConn(session)
	if c == nil || g.cfg.Cluster == nil {
		return ""
	}
	for {
		if passed, ok := c.(*countedConn); ok {
			return passed.from
		}
		below, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return g.cfg.Cluster.ID()
		}
		c = below.NetConn()
	}
}
