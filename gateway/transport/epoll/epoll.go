// Package epoll drives session cores from its own event loops, on Linux: one goroutine
// reads and writes the sockets of thousands of sessions. On a message's path nothing
// takes a lock, hands over to another goroutine, or allocates.
//
// A Loop owns its sessions: the cores, and the descriptors of both legs. Other
// goroutines put what they want done into the loop's mailbox. The loop blocks only in
// epoll_wait; a second goroutine calls the Observers.
package epoll

import (
	"net"
	"runtime"

	"reseat/gateway/session"
)

// A Clock supplies the sessions' time.
type Clock interface{ Now() session.Time }

// A Socket is the connection of a leg of a frozen session.
type Socket struct {
	FD        int      // negative: there is none, or Conn has it
	Conn      net.Conn // of a layer above the socket; nil: there is none
	Forwarded bool     // FD is an end of a socket pair: see Forwarded
}

// A Layered is a connection above a rawconn.Conn, which the NetConn methods lead to, such as TLS and
// compression. It continues after an error of a read that is temporary. Close does not block, and may be
// called after the socket is closed.
type Layered interface {
	net.Conn
	NetConn() net.Conn
	CloseWrite() error
}

// Loops returns the number of loops for so many processors: one loop is enough for
// four, and handshakes need the others.
func Loops(processors int) int {
	return max(1, (processors+1)/3)
}

// LeaveRoom raises GOMAXPROCS if needed, so that handshakes never wait for the loops.
func LeaveRoom(loops int) {
	if runtime.GOMAXPROCS(0) < loops+1 {
		runtime.GOMAXPROCS(loops + 1)
	}
}
