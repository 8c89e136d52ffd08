// Package sock reads and writes the non-blocking descriptors of TCP connections,
// on Linux.
//
// Its calls never wait, and so they do not tell the scheduler that they are
// calls: telling it costs as much as relaying a small message, and its monitor
// takes the processor away from whoever is often found in a call.
package sock

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

// UnsentOf is how many bytes conn's socket holds that its peer has not
// acknowledged.
func UnsentOf(conn net.Conn) (n int, err error) {
	raw, err := Raw(conn)
	if err != nil {
		return 0, err
	}
	if lent := raw.Control(func(fd uintptr) { n, err = Unsent(int(fd)) }); lent != nil {
		return 0, lent
	}
	return n, err
}
