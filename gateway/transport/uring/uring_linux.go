package uring

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// From linux/io_uring.h.
const (
	setupSubmitAll   = 1 << 7 // 5.18: a call that is refused does not hold up those behind it
	setupCoopTaskrun = 1 << 8 // 5.19: no interrupt for what is complete
	featSingleMmap   = 1 << 0
	offSubmissions   = 0x10000000
	enterGetEvents   = 1 << 0

	opSendMsg = 9
	opSend    = 26
	opRecv    = 27
)

// A submission is a struct io_uring_sqe.
type submission struct {
	op       uint8
	flags    uint8
	ioprio   uint16
	fd       int32
	off      uint64
	addr     uint64
	len      uint32
	msgFlags uint32
	user     uint64
	_        [24]byte
}

// A completion is a struct io_uring_cqe.
type completion struct {
	user  uint64
	res   int32
	flags uint32
}

type params struct {
	sqEntries, cqEntries, flags, cpu, idle, features, wq uint32
	_                                                    [3]uint32
	sq                                                   struct {
		head, tail, mask, entries, flags, dropped, array, _ uint32
		_                                                   uint64
	}
	cq struct {
		head, tail, mask, entries, overflow, cqes, flags, _ uint32
		_                                                   uint64
	}
}

// A Ring collects calls, and makes them together. None of them waits. It is for one goroutine
// at a time.
type Ring struct {
	fd           int
	rings, sqMem []byte

	sqHead, sqTail, cqHead, cqTail *uint32
	sqMask, cqMask                 uint32
	submissions                    []submission
	completions                    []completion

	n       int // calls collected
	results [Batch]int32
	buffers [Batch]*byte // of calls with one: the kernel's address neither keeps it nor moves with a stack
	msgs    [Batch]unix.Msghdr
	pieces  [Batch][maxPieces]unix.Iovec
}

// notMade is the result of a call that was not made.
const notMade = -int32(unix.EINTR)

// New makes a Ring. It returns an error where the system does not know io_uring (Linux before
// 5.19), forbids it (seccomp, kernel.io_uring_disabled), or only pretends to have it.
func New() (*Ring, error) {
	p := params{flags: setupSubmitAll | setupCoopTaskrun}
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, Batch, uintptr(unsafe.Pointer(&p)), 0)
	if errno != 0 {
		return nil, fmt.Errorf("io_uring_setup: %w", errno)
	}
	r := &Ring{fd: int(fd)}
	if err := r.open(&p); err != nil {
		r.Close()
		return nil, err
	}
	if err := r.try(); err != nil {
		r.Close()
		return nil, fmt.Errorf("io_uring: %w", err)
	}
	return r, nil
}

// open maps the ring's memory.
func (r *Ring) open(p *params) (err error) {
	if p.features&featSingleMmap == 0 {
		return errors.New("io_uring: an old kernel")
	}
	size := max(int(p.sq.array+4*p.sqEntries), int(p.cq.cqes)+int(p.cqEntries)*int(unsafe.Sizeof(completion{})))
	const prot, flags = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_SHARED | unix.MAP_POPULATE
	if r.rings, err = unix.Mmap(r.fd, 0, size, prot, flags); err != nil {
		return fmt.Errorf("mmap: %w", err)
	}
	if r.sqMem, err = unix.Mmap(r.fd, offSubmissions, int(p.sqEntries)*int(unsafe.Sizeof(submission{})), prot, flags); err != nil {
		return fmt.Errorf("mmap: %w", err)
	}
	word := func(off uint32) *uint32 { return (*uint32)(unsafe.Pointer(&r.rings[off])) }
	r.sqHead, r.sqTail, r.sqMask = word(p.sq.head), word(p.sq.tail), *word(p.sq.mask)
	r.cqHead, r.cqTail, r.cqMask = word(p.cq.head), word(p.cq.tail), *word(p.cq.mask)
	r.submissions = unsafe.Slice((*submission)(unsafe.Pointer(&r.sqMem[0])), p.sqEntries)
	r.completions = unsafe.Slice((*completion)(unsafe.Pointer(&r.rings[p.cq.cqes])), p.cqEntries)
	for i, at := range unsafe.Slice(word(p.sq.array), p.sqEntries) {
		if at != uint32(i) {
			*word(p.sq.array + 4*uint32(i)) = uint32(i)
		}
	}
	return nil
}

// try makes one call of each kind.
func (r *Ring) try() error {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	b := make([]byte, 3)
	r.Send(fds[0], [][]byte{{1}})
	r.Send(fds[0], [][]byte{{2}, {3}})
	r.Receive(fds[1], b)
	r.Receive(fds[1], b)
	r.Submit()
	var got [4]int
	for i := range got {
		n, errno := r.Result(i)
		if got[i] = n; errno != 0 {
			got[i] = -int(errno)
		}
	}
	r.Drop()
	if want := [4]int{1, 2, 3, -int(unix.EAGAIN)}; got != want || b[0] != 1 || b[2] != 3 {
		return fmt.Errorf("a trial returned %v and %v", got, b)
	}
	return nil
}

// Close closes the Ring.
func (r *Ring) Close() {
	if r.sqMem != nil {
		unix.Munmap(r.sqMem)
	}
	if r.rings != nil {
		unix.Munmap(r.rings)
	}
	unix.Close(r.fd)
}

// Len returns how many calls have been collected.
func (r *Ring) Len() int { return r.n }

// Receive collects a recv(2) into b, which must remain until Submit, and returns the call's
// number. There must be less than Batch calls.
func (r *Ring) Receive(fd int, b []byte) (call int) {
	s, call := r.next(opRecv, fd)
	r.buffers[call] = unsafe.SliceData(b)
	s.addr, s.len, s.msgFlags = address(r.buffers[call]), uint32(len(b)), unix.MSG_DONTWAIT
	return call
}

// Send collects a send(2) or sendmsg(2) of bufs, which must remain until Submit, and returns
// the call's number; a negative one if bufs are too many. There must be less than Batch calls.
func (r *Ring) Send(fd int, bufs [][]byte) (call int) {
	const flags = unix.MSG_DONTWAIT | unix.MSG_NOSIGNAL
	switch len(bufs) {
	case 0:
		return -1
	case 1:
		s, call := r.next(opSend, fd)
		r.buffers[call] = unsafe.SliceData(bufs[0])
		s.addr, s.len, s.msgFlags = address(r.buffers[call]), uint32(len(bufs[0])), flags
		return call
	}
	if len(bufs) > maxPieces {
		return -1
	}
	s, call := r.next(opSendMsg, fd)
	pieces := &r.pieces[call]
	for i, b := range bufs {
		pieces[i].Base = unsafe.SliceData(b)
		pieces[i].SetLen(len(b))
	}
	m := &r.msgs[call]
	m.Iov = &pieces[0]
	m.SetIovlen(len(bufs))
	s.addr, s.len, s.msgFlags = address(m), 1, flags
	return call
}

func address[T any](p *T) uint64 { return uint64(uintptr(unsafe.Pointer(p))) }

func (r *Ring) next(op uint8, fd int) (*submission, int) {
	call := r.n
	r.n++
	s := &r.submissions[(*r.sqTail+uint32(call))&r.sqMask]
	*s = submission{op: op, fd: int32(fd), user: uint64(call)}
	r.results[call] = notMade
	return s, call
}

// Submit makes the calls that were collected, in order.
func (r *Ring) Submit() {
	atomic.StoreUint32(r.sqTail, *r.sqTail+uint32(r.n))
	made, complete := 0, 0
	for made < r.n {
		k, _, errno := unix.RawSyscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), uintptr(r.n-made), 0, enterGetEvents, 0, 0)
		if errno != 0 || k == 0 { // no memory, perhaps
			break
		}
		made += int(k)
		complete += r.reap()
	}
	atomic.StoreUint32(r.sqTail, atomic.LoadUint32(r.sqHead)) // forgets the rest
	for complete < made {
		// None waits, so all are complete already; this is for a system that sees it differently.
		unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), 0, uintptr(made-complete), enterGetEvents, 0, 0)
		complete += r.reap()
	}
}

// reap takes the results that are there.
func (r *Ring) reap() (n int) {
	head, tail := *r.cqHead, atomic.LoadUint32(r.cqTail)
	for ; head != tail; head++ {
		c := &r.completions[head&r.cqMask]
		r.results[c.user] = c.res
		n++
	}
	atomic.StoreUint32(r.cqHead, head)
	return n
}

// Result returns what a call has returned, or unix.EINTR if it was not made; a negative call
// never is.
func (r *Ring) Result(call int) (n int, errno unix.Errno) {
	if call < 0 {
		return 0, unix.EINTR
	}
	if res := r.results[call]; res < 0 {
		return 0, unix.Errno(-res)
	} else {
		return int(res), 0
	}
}

// Drop forgets the calls that were collected, and their buffers.
func (r *Ring) Drop() {
	clear(r.buffers[:r.n])
	for i := range r.n {
		if r.msgs[i].Iov != nil {
			r.msgs[i] = unix.Msghdr{}
			r.pieces[i] = [maxPieces]unix.Iovec{}
		}
	}
	r.n = 0
}
