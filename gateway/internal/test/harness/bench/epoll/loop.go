//go:build linux

// Package epoll serves any number of plain TCP sockets on one thread with as few system
// calls as possible: one read per input, one write per output. Nothing in it is safe
// for concurrent use.
package epoll

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	readSize  = 256 << 10
	maxEvents = 512
	sysPwait2 = 441 // epoll_pwait2, the same number on every architecture
)

// An Owner is notified about its Conn.
type Owner interface {
	// Connected is called when a dialed connection is established.
	Connected()
	// Data passes received bytes. The owner may overwrite b, and must not keep it.
	Data(b []byte)
	// Room is called when the socket has accepted all pending output, if the Conn is
	// Hungry.
	Room()
	// Gone is the last call, with the reason: io.EOF after a clean end. The socket is
	// closed. It is not called after the owner's own Close or Reset.
	Gone(err error)
}

// A Loop waits for its sockets and for the clock.
type Loop struct {
	ep     int
	files  []slot // by descriptor
	events []unix.EpollEvent
	buf    []byte
}

// A slot is the current owner of a descriptor. An event for an earlier owner carries an
// earlier generation.
type slot struct {
	gen   int32
	ready func(events uint32)
}

// New makes a Loop.
func New() (*Loop, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	return &Loop{ep: ep, events: make([]unix.EpollEvent, maxEvents), buf: make([]byte, readSize)}, nil
}

// Close closes the loop itself; the owners close their sockets.
func (l *Loop) Close() { unix.Close(l.ep) }

// Wait waits for events, at most until the given time (of Now), and handles them.
func (l *Loop) Wait(until int64) error {
	_, err := l.handle(until)
	return err
}

// Poll handles all events that are pending, and those that come meanwhile.
func (l *Loop) Poll() error {
	for {
		if n, err := l.handle(0); n == 0 || err != nil {
			return err
		}
	}
}

// handle waits for events, at most until the given time, and handles and counts them.
func (l *Loop) handle(until int64) (int, error) {
	n, err := l.wait(max(until-Now(), 0))
	if errors.Is(err, unix.EINTR) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("epoll_wait: %w", err)
	}
	for _, e := range l.events[:n] {
		if s := l.files[e.Fd]; s.gen == e.Pad && s.ready != nil {
			s.ready(e.Events)
		}
	}
	return n, nil
}

// The three frequent system calls are made without informing Go's scheduler: the loop's
// thread has its own processor, and informing the scheduler costs as much as a small
// message. The runtime interrupts a wait when it needs to.
//
// wait uses epoll_pwait2, with a timeout in nanoseconds, or on kernels before 5.11
// epoll_wait, with a timeout in milliseconds.
func (l *Loop) wait(d int64) (int, error) {
	ts := unix.NsecToTimespec(d)
	n, _, errno := unix.RawSyscall6(sysPwait2, uintptr(l.ep), uintptr(unsafe.Pointer(&l.events[0])), maxEvents, uintptr(unsafe.Pointer(&ts)), 0, 0)
	switch errno {
	case 0:
		return int(n), nil
	case unix.ENOSYS:
		return unix.EpollWait(l.ep, l.events, int(time.Duration(d).Milliseconds())+1)
	}
	return 0, errno
}

// Watch calls ready whenever the descriptor fd, for example of a pipe, is readable or
// has ended.
func (l *Loop) Watch(fd int, ready func()) error {
	return l.add(fd, unix.EPOLLIN, func(uint32) { ready() })
}

func (l *Loop) add(fd int, events uint32, ready func(uint32)) error {
	for fd >= len(l.files) {
		l.files = append(l.files, make([]slot, max(64, len(l.files)))...)
	}
	s := &l.files[fd]
	s.gen++
	s.ready = ready
	return l.control(unix.EPOLL_CTL_ADD, fd, events)
}

func (l *Loop) change(fd int, events uint32) error {
	return l.control(unix.EPOLL_CTL_MOD, fd, events)
}

func (l *Loop) control(op, fd int, events uint32) error {
	e := unix.EpollEvent{Events: events, Fd: int32(fd), Pad: l.files[fd].gen}
	if err := unix.EpollCtl(l.ep, op, fd, &e); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	return nil
}

// forget closes fd and discards its pending events.
func (l *Loop) forget(fd int) {
	l.files[fd].gen++
	l.files[fd].ready = nil
	unix.Close(fd)
}

// Listen accepts connections at addr, whose port may be 0. For each it calls accept,
// which returns the owner. It returns the actual address.
func (l *Loop) Listen(addr netip.AddrPort, accept func(*Conn) Owner) (netip.AddrPort, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return addr, fmt.Errorf("socket: %w", err)
	}
	unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if err := unix.Bind(fd, sockaddr(addr)); err != nil {
		return addr, fmt.Errorf("bind %v: %w", addr, err)
	}
	if err := unix.Listen(fd, 4096); err != nil {
		return addr, fmt.Errorf("listen: %w", err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return addr, fmt.Errorf("getsockname: %w", err)
	}
	in := sa.(*unix.SockaddrInet4)
	addr = netip.AddrPortFrom(netip.AddrFrom4(in.Addr), uint16(in.Port))
	return addr, l.add(fd, unix.EPOLLIN, func(uint32) { l.acceptAll(fd, accept) })
}

func (l *Loop) acceptAll(fd int, accept func(*Conn) Owner) {
	for {
		s, _, err := unix.Accept4(fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		if err != nil {
			return // EAGAIN, or a connection that was reset meanwhile
		}
		c := &Conn{loop: l, fd: s, open: true}
		c.owner = accept(c)
		if err := c.register(); err != nil {
			c.fail(err)
		}
	}
}

// Dial starts a connection from an address, which may be zero: any. The loop calls the owner's Connected, or Gone.
func (l *Loop) Dial(from netip.Addr, addr netip.AddrPort, owner Owner) (*Conn, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	c := &Conn{loop: l, fd: fd, owner: owner}
	if from.IsValid() {
		// connect chooses the port then, so that one serves for many addresses.
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
		if err := unix.Bind(fd, sockaddr(netip.AddrPortFrom(from, 0))); err != nil {
			unix.Close(fd)
			return nil, fmt.Errorf("bind to %v: %w", from, err)
		}
	}
	if err := unix.Connect(fd, sockaddr(addr)); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		unix.Close(fd)
		return nil, fmt.Errorf("connect to %v: %w", addr, err)
	}
	return c, c.register()
}

func sockaddr(addr netip.AddrPort) *unix.SockaddrInet4 {
	return &unix.SockaddrInet4{Port: int(addr.Port()), Addr: addr.Addr().As4()}
}

func read(fd int, b []byte) (int, error) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	if errno != 0 {
		return -1, errno
	}
	return int(n), nil
}

func write(fd int, b []byte) (int, error) {
	n, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	if errno != 0 {
		return -1, errno
	}
	return int(n), nil
}

// errOf returns the meaning of a read of n bytes with err: nil while the socket is
// open.
func errOf(n int, err error) error {
	switch {
	case err == nil && n == 0:
		return io.EOF
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return nil
	}
	return err
}
