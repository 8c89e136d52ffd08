//go:build !linux

package listen

import (
	"net"
	"time"

	"reseat/gateway/transport/rawconn"
)

// An acceptor works only on Linux.
type acceptor struct{}

// AcceptBy returns rawconn.ErrUnsupported.
func (l *Listener) AcceptBy(func(fd int, local, peer net.Addr) (net.Conn, error)) error {
	return rawconn.ErrUnsupported
}

func (*acceptor) accept() (net.Conn, error)   { return nil, rawconn.ErrUnsupported }
func (*acceptor) setDeadline(time.Time) error { return nil }
func (*acceptor) close()                      {}
