package listen

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"reseat/gateway/transport/rawconn"
)

// An acceptor accepts connections that package net never learns of, for an event loop to watch:
// a descriptor that the runtime's poller watches too costs a second registration.
type acceptor struct {
	file *os.File // of the listening socket
	raw  syscall.RawConn
	addr net.Addr
	make func(fd int, local, peer net.Addr) (net.Conn, error)
}

// AcceptBy makes Accept return the connection that make returns for each accepted descriptor.
// The descriptor is non-blocking, and make owns it; local is the address of l. AcceptBy must be
// called before Accept. If it fails, l accepts as before.
func (l *Listener) AcceptBy(make func(fd int, local, peer net.Addr) (net.Conn, error)) error {
	file, err := l.TCPListener.File()
	if err != nil {
		return fmt.Errorf("accept: %w", err)
	}
	a := &acceptor{file: file, addr: l.Addr(), make: make}
	if a.raw, err = file.SyscallConn(); err == nil {
		var failed error
		err = a.raw.Control(func(fd uintptr) { failed = rawconn.SetOptions(int(fd)) })
		err = cmp.Or(err, failed)
	}
	if err != nil {
		file.Close()
		return fmt.Errorf("accept: %w", err)
	}
	l.own = a
	return nil
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
		case errors.Is(failed, os.ErrDeadlineExceeded):
			return nil, a.fault(failed)
		case failed != nil: // closed; the error of a RawConn is none that package os exports
			return nil, a.fault(net.ErrClosed)
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
