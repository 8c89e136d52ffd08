// Package rawconn reads and writes the non-blocking descriptors of TCP connections,
// on Linux.
//
// Its calls never wait, and so they do not tell the scheduler that they are
// calls: telling it costs as much as relaying a small message, and its monitor
// takes the processor away from a goroutine that is often found in a call.
package rawconn

import (
	"errors"
	"net"
	"syscall"
)

// ErrUnsupported says that connections cannot be had as descriptors: this one is
// no plain TCP connection, or this system is not Linux.
var ErrUnsupported = errors.New("not a plain TCP connection on Linux")

// Raw is conn's own descriptor, which its methods lend.
func Raw(conn net.Conn) (syscall.RawConn, error) {
	c, ok := conn.(*net.TCPConn)
	if !ok || !supported {
		return nil, ErrUnsupported
	}
	return c.SyscallConn()
}

// A State is what the operating system knows of a connection.
type State struct {
	Acked  uint64 // bytes that the peer has acknowledged, since the connection began
	Queued int    // bytes that the socket holds and the peer has not acknowledged
	Unread bool   // bytes have arrived and wait to be read
}

// Lowest is the connection that conn stands on (NetConn), as TLS and compression do; of
// any other it is conn itself.
func Lowest(conn net.Conn) net.Conn {
	for {
		above, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			return conn
		}
		conn = above.NetConn()
	}
}

// StateOfConn is the state of the TCP connection conn, or of the one that it stands
// on (NetConn), as TLS and compression do. A conn that is neither may know its own,
// by a method SocketState.
func StateOfConn(conn net.Conn) (st State, err error) {
	conn = Lowest(conn)
	if c, ok := conn.(interface{ SocketState() (State, error) }); ok {
		return c.SocketState()
	}
	raw, err := Raw(conn)
	if err != nil {
		return State{}, err
	}
	if lent := raw.Control(func(fd uintptr) { st, err = StateOf(int(fd)) }); lent != nil {
		return State{}, lent
	}
	return st, err
}
