// Package epoll drives session cores from event loops of its own, on Linux: one
// goroutine reads and writes the sockets of thousands of sessions, and nothing
// on the way of a message takes a lock, hands over to another goroutine or
// allocates.
//
// A Loop owns its sessions: the cores, and the descriptors of both legs. Anyone who
// else wants something of a session puts it into the loop's mailbox. The loop
// never blocks but to wait for its sockets; what happens to a session is told to
// its Observer by a second goroutine.
package epoll

import (
	"runtime"

	"reseat/gateway/session"
)

// A Clock tells the sessions' time.
type Clock interface{ Now() session.Time }

// Sockets are those of a session that leaves its loop. They belong to the receiver.
type Sockets struct {
	Up    Socket
	Down  *Socket  // of the last client; nil: there is none
	Older []Socket // that are still being closed
}

// A Socket is one of them.
type Socket struct {
	FD  int // negative: closed
	Leg session.Leg
}

// Loops is how many loops do the work where so many processors are there: one
// is enough for four, and the handshakes have the others.
func Loops(processors int) int {
	return max(1, (processors+1)/3)
}

// LeaveRoom sees to it that handshakes never wait for the loops.
func LeaveRoom(loops int) {
	if runtime.GOMAXPROCS(0) < loops+1 {
		runtime.GOMAXPROCS(loops + 1)
	}
}
