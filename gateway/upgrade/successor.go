package upgrade

import (
	"net"

	"reseat/gateway/events"
)

// A Successor has the sessions. Its methods may be called from any goroutine.
type Successor interface {
	// Conn hands a client's connection over, which is the Successor's from here on.
	Conn(LateConn)
	// Event has the successor publish an event that happened here.
	Event(events.Event)
}

// A LateConn is a client whose request this process has read, for a session that its
// successor has.
type LateConn struct {
	Conn     net.Conn `json:"-"`
	Request  []byte   // the request, as on the wire
	Early    []byte   // what the client has sent after it
	Answered bool     // the client has its 101
	Peer     string   // the client's address, if Conn does not have it
	Secure   bool     // the request came over TLS
}
