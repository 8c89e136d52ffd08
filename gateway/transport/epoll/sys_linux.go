package epoll

import (
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	maxEvents = 256

	// All edges are enabled from the start, so that a socket's interest never changes: an
	// edge that can't be used yet is remembered.
	interest = unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET

	hasEnded = unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR
	mayRead  = unix.EPOLLIN | hasEnded
	mayWrite = unix.EPOLLOUT | unix.EPOLLHUP | unix.EPOLLERR
)

// threadTime returns the processor time of the calling thread, in nanoseconds.
func threadTime() int64 {
	var t unix.Timespec
	unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_THREAD_CPUTIME_ID, uintptr(unsafe.Pointer(&t)), 0)
	return t.Nano()
}

type syscall6 func(trap, a1, a2, a3, a4, a5, a6 uintptr) (r1, r2 uintptr, err unix.Errno)

// epollWait waits at most limit, rounded up to milliseconds; negative means forever. It
// also returns on a signal of the runtime's, so that the goroutine reaches a point
// where the runtime can stop it.
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
	panic(fmt.Errorf("epoll_wait: %w", errno)) // no other error is possible
}
