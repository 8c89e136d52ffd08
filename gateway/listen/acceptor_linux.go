package listen

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"reseat/gateway/transport/rawconn"
)

// An acceptor accepts connections that package net does not get to see, so that whoever
// watches them is the only one.
type acceptor struct {
	file *os.File // of the listening socket
	raw  syscall.RawConn
	addr net.Addr
	make func(fd int, local, peer net.Addr) (net.Conn, error)
}

// AcceptBy has Accept return what make returns for an accepted descriptor, which is
// non-blocking and make's. local is the address of l. It must be called before Accept. An
// error leaves l as it was.
func (l *Listener) AcceptBy(make func(fd int, local, peer net.Addr) (net.Conn, error)) error {
	file, err := l.TCPListener.File()
	if err != nil {
		return fmt.Errorf("accept: %w", err)
	}
	a := &acceptor{file: file, addr: l.Addr(), make: make}
	if a.raw, err = file.SyscallConn(); err == nil {
		err = a.prepare()
	}
	if err != nil {
		file.Close()
		return fmt.Errorf("accept: %w", err)
	}
	l.own = a
	return nil
}

// keepAlive is the interval of TCP's own probes, as package net sets it by default.
const keepAlive = 15 // s

// prepare sets options that accepted sockets inherit.
func (a *acceptor) prepare() (err error) {
	failed := a.raw.Control(func(fd uintptr) {
		err = errors.Join(
			unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1),
			unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, keepAlive),
			unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, keepAlive),
		)
	})
	return errors.Join(failed, err)
}

func (a *acceptor) accept() (net.Conn, error) {
	for {
		var fd int
		var name syscall.Sockaddr
		var err error
		failed := a.raw.Read(func(ln uintptr) bool {
			fd, name, err = syscall.Accept4(int(ln), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC) // unix.Accept4 asks for the protocol too
			return !errors.Is(err, unix.EAGAIN)
		})
		switch {
		case errors.Is(failed, os.ErrClosed):
			return nil, a.fault(net.ErrClosed)
		case failed != nil:
			return nil, a.fault(failed)
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ECONNABORTED):
		case err != nil:
			return nil, a.fault(os.NewSyscallError("accept4", err))
		default:
			return a.make(fd, a.addr, rawconn.AddrOf(name))
		}
	}
}

// fault returns an error of Accept as package net would.
func (a *acceptor) fault(err error) error {
	return &net.OpError{Op: "accept", Net: "tcp", Addr: a.addr, Err: err}
}

func (a *acceptor) setDeadline(t time.Time) error { return a.file.SetReadDeadline(t) }

func (a *acceptor) close() { a.file.Close() }
