package upgrade

import (
	"net/http"

	"reseat/gateway/dial"
	"reseat/gateway/front"
	"reseat/gateway/handshake"
	"reseat/gateway/transport/rawconn"
)

// next returns the Successor that has the sessions, nil if there is none.
func (u *Sessions) next() Successor {
	if to := u.successor.Load(); to != nil {
		return *to
	}
	return nil
}

// HandedOver reports whether a successor has the sessions.
func (u *Sessions) HandedOver() bool { return u.next() != nil }

// Forward hands the client of r over if a successor has the sessions. This process has left the
// cluster then, so its failed lookups there prove nothing.
func (u *Sessions) Forward(w http.ResponseWriter, r *front.Request) bool {
	to := u.next()
	if to == nil {
		return false
	}
	conn, early, err := handshake.Hijack(w)
	if err != nil {
		u.Log.Debug("client.disconnected_early", "err", err)
		return true
	}
	to.Conn(LateConn{Conn: rawconn.OffLoop(conn), Request: front.Head(r.Request), Early: early, Secure: r.TLS != nil})
	return true
}

// ForwardAnswered hands a client over that was refused because the successor has its session.
func (u *Sessions) ForwardAnswered(r *front.Request, a *dial.Arrival, id string) bool {
	to := u.next()
	if to == nil || u.Registry.Find(id) != nil {
		return false
	}
	to.Conn(LateConn{Conn: rawconn.OffLoop(a.Conn), Request: front.Head(r.Request), Early: a.Early, Answered: true, Secure: r.TLS != nil})
	return true
}
