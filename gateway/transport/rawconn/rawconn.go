// Package rawconn reads and writes the non-blocking descriptors of TCP connections, on
// Linux.
//
// Its calls never block, so they don't announce themselves to the scheduler as system
// calls. Announcing one costs as much as relaying a small message, and the scheduler's
// monitor preempts goroutines that it often finds in system calls.
package rawconn

import (
	"errors"
	"net"
	"os"
	"syscall"
	"time"
)

// ErrUnsupported means that the connection has no descriptor that this package can use:
// it is not a plain TCP connection, or the system is not Linux.
var ErrUnsupported = errors.New("not a plain TCP connection on Linux")

// Raw returns conn's own descriptor as a RawConn.
func Raw(conn net.Conn) (syscall.RawConn, error) {
	if !Plain(conn) || !Supported {
		return nil, ErrUnsupported
	}
	return conn.(syscall.Conn).SyscallConn()
}

// Plain reports whether conn is a plain TCP connection, with nothing above it.
func Plain(conn net.Conn) bool {
	switch conn.(type) {
	case *net.TCPConn, Looped:
		return true
	}
	return false
}

// Stream reports whether conn is a socket with nothing above it: a plain TCP connection, or an end of a socket
// pair between processes.
func Stream(conn net.Conn) bool {
	_, pair := conn.(*net.UnixConn)
	return pair || Plain(conn)
}

// A TCP has the methods of a net.TCPConn that a Looped has too. Others may have them: see
// Plain.
type TCP interface {
	net.Conn
	syscall.Conn
	CloseWrite() error
	SetLinger(sec int) error
}

// A Looped is a TCP connection that an event loop watches, instead of the runtime's poller.
// Its descriptor must not be duplicated while it does: the kernel would go on watching the
// duplicate.
type Looped interface {
	TCP
	// TCP takes the connection from the loop, for the runtime's poller. It closes the Looped
	// in any case.
	TCP() (net.Conn, error)
}

// OffLoop returns conn, or what a Looped has become. If that fails, the connection is closed.
func OffLoop(conn net.Conn) net.Conn {
	c, ok := conn.(Looped)
	if !ok {
		return conn
	}
	if plain, err := c.TCP(); err == nil {
		return plain
	}
	return conn
}

// A Socket is a connection of a frozen session.
type Socket struct {
	FD        int      // negative: there is none, or Conn has it
	Conn      net.Conn // one that has no usable descriptor, such as one over TLS; nil: there is none
	Forwarded bool     // it is an end of a socket pair, and another process forwards between that and the peer
}

// NoSocket is the one of a closed connection.
var NoSocket = Socket{FD: -1}

// Descriptor returns the descriptor of a socket, which stays c's: it is valid until c is
// closed.
func Descriptor(c syscall.Conn) (fd int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	err = raw.Control(func(p uintptr) { fd = int(p) })
	return fd, err
}

// ConnOf returns the connection of a descriptor, and closes that in any case.
func ConnOf(fd int) (net.Conn, error) {
	f := os.NewFile(uintptr(fd), "connection")
	defer f.Close()
	return net.FileConn(f)
}

// A State is what the operating system reports about a connection.
type State struct {
	RTT    time.Duration // smoothed round trip; zero: none was measured
	Acked  uint64        // bytes that the peer has acknowledged since the connection was opened
	Queued int           // bytes in the send buffer that the peer has not acknowledged
	Unread bool          // the receive buffer is not empty
}

// Lowest unwraps conn (TLS, compression) by its NetConn methods and returns the
// connection at the bottom, or conn itself.
func Lowest(conn net.Conn) net.Conn {
	for {
		above, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			return conn
		}
		conn = above.NetConn()
	}
}

// Below returns the Conn that conn is above of, by NetConn methods; nil if there is none.
func Below(conn net.Conn) *Conn {
	for {
		if c, ok := conn.(*Conn); ok {
			return c
		}
		above, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			return nil
		}
		conn = above.NetConn()
	}
}

// StateOfConn returns the state of the TCP connection at the bottom of conn. A
// connection of another kind may report its own with a method SocketState.
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
