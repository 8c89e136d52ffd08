package drive

import (
	"net"
	"syscall"
	"unsafe"
)

// rawConn is conn's descriptor where conn is a plain TCP connection, which can
// be read and written without waiting.
func rawConn(conn net.Conn) syscall.RawConn {
	c, ok := conn.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

// iovecs are the argument of writev, kept so that writing allocates nothing.
type iovecs struct{ list [16]syscall.Iovec }

// tryWrite writes what the socket takes of bufs at once.
func (l *leg) tryWrite() (int, error) {
	if l.attempt == nil {
		l.attempt = func(fd uintptr) bool {
			l.took, l.writeErr = l.iov.write(fd, l.bufs)
			return true
		}
	}
	if err := l.raw.Write(l.attempt); err != nil {
		return 0, err
	}
	return l.took, l.writeErr
}

// write writes what the socket takes at once, which may be less than bufs, or
// nothing.
func (v *iovecs) write(fd uintptr, bufs [][]byte) (total int, err error) {
	for len(bufs) > 0 {
		batch := bufs[:min(len(bufs), len(v.list))]
		n, errno := v.writev(fd, batch)
		switch errno {
		case 0:
			total += n
			if n < size(batch) {
				return total, nil
			}
			bufs = bufs[len(batch):]
		case syscall.EINTR:
		case syscall.EAGAIN:
			return total, nil
		default:
			return total, errno
		}
	}
	return total, nil
}

// writev is one system call for at most as many buffers as v has room for.
func (v *iovecs) writev(fd uintptr, bufs [][]byte) (int, syscall.Errno) {
	if len(bufs) == 1 {
		n, _, errno := syscall.RawSyscall(syscall.SYS_WRITE, fd, uintptr(unsafe.Pointer(unsafe.SliceData(bufs[0]))), uintptr(len(bufs[0])))
		return max(int(n), 0), errno
	}
	for i, b := range bufs {
		v.list[i].Base = unsafe.SliceData(b)
		v.list[i].SetLen(len(b))
	}
	n, _, errno := syscall.RawSyscall(syscall.SYS_WRITEV, fd, uintptr(unsafe.Pointer(&v.list[0])), uintptr(len(bufs)))
	clear(v.list[:len(bufs)])
	return max(int(n), 0), errno
}

// read is one read of what is there; again where nothing is.
func read(fd uintptr, b []byte) (n int, again bool, err error) {
	for {
		r, _, errno := syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
		var err error = errno
		switch errno {
		case 0:
			return int(r), false, nil
		case syscall.EINTR:
		case syscall.EAGAIN:
			return 0, true, nil
		default:
			return 0, false, err
		}
	}
}

// backlog is how many bytes the socket holds that the peer has not acknowledged
// (tcp(7), SIOCOUTQ); false where that cannot be told.
func (l *leg) backlog() (bytes int, ok bool) {
	if l.raw == nil {
		return 0, false
	}
	var n int32
	var errno syscall.Errno
	err := l.raw.Control(func(fd uintptr) {
		_, _, errno = syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCOUTQ, uintptr(unsafe.Pointer(&n)))
	})
	return int(n), err == nil && errno == 0
}
