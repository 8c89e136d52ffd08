package gateway

import (
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
	conn, early, err := front.Hijack(w)
	if err != nil {
		g.log.Debug("client.disconnected_early", "err", err)
		return
	}
	g.movedTo().Conn(LateConn{Conn: rawconn.OffLoop(conn), Request: front.Head(r.Request), Early: early, Secure: r.TLS != nil})
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

// forwardAnswered hands a client over that was refused because its session has moved.
func (g *Gateway) forwardAnswered(r *front.Request, a *dial.Arrival, id string) bool {
	to := g.movedTo()
	if to == nil || g.reg.Find(id) != nil {
		return false
	}
	to.Conn(LateConn{Conn: rawconn.OffLoop(a.Conn), Request: front.Head(r.Request), Early: a.Early, Answered: true, Secure: r.TLS != nil})
	return true
}
