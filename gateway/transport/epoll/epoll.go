// Package epoll drives session cores from its own event loops, on Linux: one goroutine
// reads and writes the sockets of thousands of sessions. On a message's path nothing
// takes a lock, hands over to another goroutine, or allocates.
//
// A Loop owns its sessions: the cores, and the descriptors of both legs. Other
// goroutines put what they want done into the loop's mailbox. The loop blocks only in
// epoll_wait; a second goroutine calls the Observers.
//
// # Which loop a session is on
//
// A session starts on the loop with the fewest sessions of those in use: one while the gateway is quiet, up to one
// for each processor while those are busy for most of their time (loops_linux.go). Session.home says where it is.
// Only the loop that has a session may hand it to another, at the end of a turn, with both legs, while nothing of
// it is in the loop's hands: see atRest. It does so when it is busy and another is not, or when it has gone out of
// use (balance_linux.go); and never while the loops are paused for an upgrade. The session's letters follow it in
// order (hand, in move_linux.go), so calls of Do, Attach and Reconnect are made once and in order, and a message
// takes no lock on any loop.
//
// # Turns
//
// A loop works in turns: it takes the events of sockets, wakes handshakes, makes up to maxMail calls from its
// mailbox (a client that attaches is one), fires alarms, reads links, and then serves sessions, the longest waiting
// first, until it has served maxLegs sockets or moved maxEffort bytes. So a new connection or a resume waits for one
// turn, and a session for one turn of each other session that has something to relay. At its end a turn writes to each
// link what has become due on it, for all clients together: see relay_linux.go.
package epoll

import (
	"net"
	"time"

	"reseat/gateway/session"
)

// A Clock supplies the sessions' time.
type Clock interface{ Now() session.Time }

// Stats describes a loop.
type Stats struct {
	InUse    bool          // it takes new sessions
	Sessions int           // that it has
	Busy     time.Duration // spent in turns
	Moved    uint64        // sessions that it has handed to other loops
}

// A Layered is a connection above a rawconn.Conn, which the NetConn methods lead to, such as TLS and
// compression. It continues after an error of a read that is temporary. Close does not block, and may be
// called after the socket is closed.
type Layered interface {
	net.Conn
	NetConn() net.Conn
	CloseWrite() error
}
