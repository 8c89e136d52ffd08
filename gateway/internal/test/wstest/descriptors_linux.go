package wstest

import (
	"testing"

	"golang.org/x/sys/unix"
)

// Duplicate duplicates a descriptor, as a process that receives it does. It fails if fd is closed; a negative one stays.
func Duplicate(t testing.TB, fd int) int {
	t.Helper()
	if fd < 0 {
		return fd
	}
	fd, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// SocketPair returns two connected Unix sockets, which are closed at the end of the test.
func SocketPair(t testing.TB, kind int) (a, b int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fds[0]); unix.Close(fds[1]) })
	return fds[0], fds[1]
}
