package rawconn

import (
	"io"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// Supported reports whether this package works on this system.
	Supported = true

	maxPieces = 64 // per write
	sendFlags = unix.MSG_DONTWAIT | unix.MSG_NOSIGNAL
)

// Take duplicates the descriptor of conn, a Stream. Close conn once the duplicate is in use: then the
// runtime no longer polls the connection, which stays open. For a Virtual it returns an eventfd: see Wake.
func Take(conn net.Conn) (fd int, err error) {
	if _, ok := conn.(Virtual); ok {
		return unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	}
	if !Stream(conn) {
		return -1, ErrUnsupported
	}
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return -1, err
	}
	if e := raw.Control(func(from uintptr) { fd, err = unix.FcntlInt(from, unix.F_DUPFD_CLOEXEC, 0) }); e != nil {
		return -1, e
	}
	return fd, err
}

// keepAlive is the interval of TCP's own probes, as package net sets it by default.
const keepAlive = 15 // s

// SetOptions sets the options of a TCP socket that package net sets by default. Sockets that a
// listening one accepts inherit them.
func SetOptions(fd int) error {
	for _, o := range [...]struct{ level, name, value int }{
		{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, keepAlive},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, keepAlive},
	} {
		if err := unix.SetsockoptInt(fd, o.level, o.name, o.value); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
	}
	return nil
}

// Wake makes an edge at an eventfd, for those who watch it.
func Wake(fd int) {
	one := uint64(1)
	unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&one)), 8) // it can fail only when it is full: then it was woken
}

// Release closes a descriptor that Take returned. It ignores a negative one.
func Release(fd int) {
	if fd >= 0 {
		unix.Close(fd)
	}
}

// Receive reads once into b. It returns 0 and no error if there is nothing to read now,
// and io.EOF at the end of the stream.
func Receive(fd int, b []byte) (int, error) {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_DONTWAIT, 0, 0)
		switch {
		case errno == unix.EINTR:
		case errno == unix.EAGAIN:
			return 0, nil
		case errno != 0:
			return 0, errno
		case n == 0:
			return 0, io.EOF
		default:
			return int(n), nil
		}
	}
}

// Send writes as much of b as the socket accepts without blocking, and reports whether
// that was less than all.
func Send(fd int, b []byte) (n int, full bool, err error) { return SendMore(fd, b, false) }

// SendMore is Send. more says that more follows at once, so that the system may send both
// together.
func SendMore(fd int, b []byte, more bool) (n int, full bool, err error) {
	flags := uintptr(sendFlags)
	if more {
		flags |= unix.MSG_MORE
	}
	for {
		switch n, errno := send(fd, b, flags); errno {
		case 0:
			return n, n < len(b), nil
		case unix.EINTR:
		case unix.EAGAIN:
			return 0, true, nil
		default:
			return 0, false, errno
		}
	}
}

// send makes one system call.
func send(fd int, b []byte, flags uintptr) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), flags, 0, 0)
	return int(n), errno
}

// A Sender writes several buffers with one system call. Callers keep one so that a
// write allocates nothing; it holds no buffer between calls.
type Sender struct{ list [maxPieces]unix.Iovec }

// Send writes as much of bufs as the socket accepts without blocking, and reports
// whether that was less than all.
func (s *Sender) Send(fd int, bufs [][]byte) (n int, full bool, err error) {
	for len(bufs) > 0 {
		batch := bufs[:min(len(bufs), maxPieces)]
		size := 0
		for _, b := range batch {
			size += len(b)
		}
		k, errno := s.send(fd, batch)
		switch {
		case errno == unix.EINTR:
			continue
		case errno == unix.EAGAIN:
			return n, true, nil
		case errno != 0:
			return n, false, errno
		case k < size:
			return n + k, true, nil
		}
		n += k
		bufs = bufs[len(batch):]
	}
	return n, false, nil
}

// send makes one system call for up to maxPieces buffers.
func (s *Sender) send(fd int, bufs [][]byte) (int, unix.Errno) {
	if len(bufs) == 1 {
		return send(fd, bufs[0], sendFlags)
	}
	for i, b := range bufs {
		s.list[i].Base = unsafe.SliceData(b)
		s.list[i].SetLen(len(b))
	}
	var msg unix.Msghdr
	msg.Iov = &s.list[0]
	msg.SetIovlen(len(bufs))
	n, _, errno := unix.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&msg)), sendFlags)
	clear(s.list[:len(bufs)])
	return int(n), errno
}

// StateOf returns the state of a socket: tcp(7), TCP_INFO, SIOCOUTQ and SIOCINQ.
func StateOf(fd int) (State, error) {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return State{}, err
	}
	queued, err := unix.IoctlGetInt(fd, unix.TIOCOUTQ)
	if err != nil {
		return State{}, err
	}
	unread, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
	return State{RTT: time.Duration(info.Rtt) * time.Microsecond, Acked: info.Bytes_acked, Queued: queued, Unread: unread > 0}, err
}

// AddrOf converts the address of a TCP socket.
func AddrOf(name syscall.Sockaddr) *net.TCPAddr {
	switch a := name.(type) {
	case *syscall.SockaddrInet4:
		return &net.TCPAddr{IP: a.Addr[:], Port: a.Port}
	case *syscall.SockaddrInet6:
		zone := ""
		if a.ZoneId != 0 {
			zone = strconv.FormatUint(uint64(a.ZoneId), 10)
			if i, err := net.InterfaceByIndex(int(a.ZoneId)); err == nil {
				zone = i.Name
			}
		}
		return &net.TCPAddr{IP: a.Addr[:], Port: a.Port, Zone: zone}
	}
	return &net.TCPAddr{}
}

// PeerOf returns the process that has made the other end of a Unix socket pair, 0 if that is
// unknown: SO_PEERCRED, socket(7).
func PeerOf(fd int) (pid int) {
	if cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
		pid = int(cred.Pid)
	}
	return pid
}
