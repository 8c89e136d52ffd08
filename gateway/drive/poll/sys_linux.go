package poll

import (
	"fmt"
	"io"
	"net"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	maxEvents = 256
	maxPieces = 64 // of one write

	// Edges of all kinds at once, so that a socket's interest never changes:
	// what is not wanted now is remembered.
	interest = unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET

	hasEnded  = unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR
	mayRead   = unix.EPOLLIN | hasEnded
	mayWrite  = unix.EPOLLOUT | unix.EPOLLHUP | unix.EPOLLERR
	sendFlags = unix.MSG_DONTWAIT | unix.MSG_NOSIGNAL
)

// Take makes a second descriptor of conn, where it is a plain TCP connection,
// and reports whether it could. Close conn once the descriptor is in use: the
// runtime does not wait for it any more then, and the connection lives on.
func Take(conn net.Conn) (fd int, err error) {
	c, ok := conn.(*net.TCPConn)
	if !ok {
		return -1, ErrUnsupported
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	if e := raw.Control(func(from uintptr) { fd, err = unix.FcntlInt(from, unix.F_DUPFD_CLOEXEC, 0) }); e != nil {
		return -1, e
	}
	return fd, err
}

// Release closes a descriptor that Take made, and does nothing for a negative
// one.
func Release(fd int) {
	if fd >= 0 {
		unix.Close(fd)
	}
}

// receive reads once. io.EOF is the end, EAGAIN is no error but nothing.
//
// These calls do not tell the scheduler that they are calls: none of them waits,
// and telling it costs as much as a small message.
func receive(fd int, b []byte) (int, error) {
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

type syscall6 func(trap, a1, a2, a3, a4, a5, a6 uintptr) (r1, r2 uintptr, err unix.Errno)

// epollWait waits for at most limit, rounded up to milliseconds; negative is for
// ever. The runtime's signals end it early, and then it must return to where the
// runtime can stop it.
func epollWait(call syscall6, ep int, events *[maxEvents]unix.EpollEvent, limit time.Duration) int {
	ms := int((limit + time.Millisecond - 1) / time.Millisecond)
	if limit < 0 {
		ms = -1
	}
	n, _, errno := call(unix.SYS_EPOLL_PWAIT, uintptr(ep), uintptr(unsafe.Pointer(events)), maxEvents, uintptr(ms), 0, 0)
	switch errno {
	case 0:
		return int(n)
	case unix.EINTR:
		return 0
	}
	panic(fmt.Errorf("epoll_wait: %w", errno)) // it has no other errors
}

// An iovecs is the argument of a write, kept so that writing allocates nothing.
type iovecs [maxPieces]unix.Iovec

// send writes what the socket takes of bufs at once, and reports whether that
// was less than all.
func (v *iovecs) send(fd int, bufs [][]byte) (n int, full bool, err error) {
	for len(bufs) > 0 {
		batch := bufs[:min(len(bufs), len(v))]
		size := 0
		for _, b := range batch {
			size += len(b)
		}
		k, errno := v.sendBatch(fd, batch)
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

func (v *iovecs) sendBatch(fd int, bufs [][]byte) (int, unix.Errno) {
	if len(bufs) == 1 {
		b := bufs[0]
		n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), sendFlags, 0, 0)
		return int(n), errno
	}
	for i, b := range bufs {
		v[i].Base = unsafe.SliceData(b)
		v[i].SetLen(len(b))
	}
	var msg unix.Msghdr
	msg.Iov = &v[0]
	msg.SetIovlen(len(bufs))
	n, _, errno := unix.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&msg)), sendFlags)
	clear(v[:len(bufs)])
	return int(n), errno
}
