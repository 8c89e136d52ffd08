package link

import (
	"net"
	"syscall"

	"reseat/gateway/handover"
	"reseat/gateway/pipe"
	"reseat/gateway/transport/rawconn"
)

// Socket returns a connection in place of s which has a socket, as event loops need. It is an end of a
// socket pair; what is written to it goes past that into the stream, while the stream takes it at once.
// Where there are no socket pairs, it is s.
func Socket(s *Stream) net.Conn {
	fds, err := handover.SocketPair()
	if err != nil {
		return s
	}
	near, err := rawconn.ConnOf(fds[0])
	far, err2 := rawconn.ConnOf(fds[1])
	if err != nil || err2 != nil { // out of descriptors
		for _, c := range []net.Conn{near, far} {
			if c != nil {
				c.Close()
			}
		}
		return s
	}
	go pipe.Copy(s, rawconn.Quiet(near))
	return &socket{rawconn.Quiet(far).(*rawconn.Conn), s}
}

type socket struct {
	*rawconn.Conn
	stream *Stream
}

// NetConn returns the connection below: see rawconn.Below.
func (s *socket) NetConn() net.Conn { return s.Conn }

// Write implements net.Conn.
func (s *socket) Write(p []byte) (int, error) {
	if s.stream.TryWrite(p) {
		return len(p), nil
	}
	return s.Conn.Write(p)
}

// sinkOf returns a function that writes to conn without blocking, and returns how much conn took. It is nil
// if conn is no socket.
func sinkOf(conn net.Conn) func([]byte) int {
	if _, quiet := conn.(*rawconn.Conn); !quiet && !rawconn.Stream(conn) || !rawconn.Supported {
		return nil
	}
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return nil
	}
	var p []byte
	var n int
	attempt := func(fd uintptr) { n, _, _ = rawconn.Send(int(fd), p) }
	return func(b []byte) int {
		p, n = b, 0
		raw.Control(attempt)
		p = nil
		return n
	}
}
