package gateway

import (
	"bytes"
	"fmt"
	"net"
	"net/http"

	"reseat/gateway/dial"
	"reseat/gateway/front"
	"reseat/gateway/transport/rawconn"
)

// movedTo returns the Successor that has the sessions, nil if there is none.
func (g *Gateway) movedTo() Successor {
	if to := g.successor.Load(); to != nil {
		return *to
	}
	return nil
}

// forward hands the client of r over to the process that has the sessions.
func (g *Gateway) forward(w http.ResponseWriter, r *front.Request) {
	conn, early, err := hijack(w)
	if err != nil {
		g.log.Debug("client.disconnected_early", "err", err)
		return
	}
	g.movedTo().Conn(LateConn{Conn: rawconn.OffLoop(conn), Request: requestHead(r.Request), Early: early, Secure: r.TLS != nil})
}

// forwardMoved hands the client of r over if a successor has the sessions. This process has left the
// cluster then, so its failed lookups there prove nothing.
func (g *Gateway) forwardMoved(w http.ResponseWriter, r *front.Request) bool {
	if g.movedTo() == nil {
		return false
	}
	g.forward(w, r)
	return true
}

// hijack takes a client's connection over, with what the client has sent after its request.
func hijack(w http.ResponseWriter) (conn net.Conn, early []byte, err error) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, nil, err
	}
	early, _ = rw.Reader.Peek(rw.Reader.Buffered())
	if c, ok := conn.(interface{ Unwrap() (net.Conn, []byte) }); ok {
		var rest []byte
		conn, rest = c.Unwrap()
		early = append(early, rest...)
	}
	return conn, early, nil
}

// forwardAnswered hands a client over that was refused because its session has moved.
func (g *Gateway) forwardAnswered(r *front.Request, a *dial.Arrival, id string) bool {
	to := g.movedTo()
	if to == nil || g.reg.Find(id) != nil {
		return false
	}
	to.Conn(LateConn{Conn: rawconn.OffLoop(a.Conn), Request: requestHead(r.Request), Early: a.Early, Answered: true, Secure: r.TLS != nil})
	return true
}

// requestHead is r as on the wire. A handshake has no body.
func requestHead(r *http.Request) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", r.Method, r.RequestURI, r.Host)
	r.Header.Write(&b)
	b.WriteString("\r\n")
	return b.Bytes()
}
