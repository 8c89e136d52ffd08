package rawconn

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Hangups tells of sockets whose peer has ended its side or broken the
// connection. Who reads until less comes than there was room for, and then waits,
// may have taken the last bytes without having seen that nothing comes after
// them, and the runtime's poller tells of both but once. Finding out by a read
// that finds nothing costs a tenth of a message; being told costs nothing until
// it happens.
//
// Its methods may be called by anyone.
type Hangups struct {
	epoll   *os.File
	raw     syscall.RawConn
	running sync.WaitGroup

	mu      sync.Mutex
	peers   []told // by descriptor
	added   int32  // ever, if it has not gone round
	count   int
	closing bool
}

// told is who is told of a descriptor, and the number that the kernel says with it:
// what it has said of the descriptor before that was another's is not for this one.
type told struct {
	Peer
	number int32
}

// A Peer is who wants to know.
type Peer interface {
	// HungUp is called once, and must not block.
	HungUp()
}

// WatchHangups starts to watch; Close ends it.
func WatchHangups() (*Hangups, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	if err := unix.SetNonblock(ep, true); err != nil { // so that the runtime waits for it
		unix.Close(ep)
		return nil, err
	}
	h := &Hangups{epoll: os.NewFile(uintptr(ep), "hangups")}
	if h.raw, err = h.epoll.SyscallConn(); err != nil {
		h.epoll.Close()
		return nil, err
	}
	h.running.Go(h.run)
	return h, nil
}

// Add has p told of the socket, once. Remove comes before it is closed.
func (h *Hangups) Add(fd int, p Peer) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for fd >= len(h.peers) {
		h.peers = append(h.peers, make([]told, max(64, len(h.peers)/4))...)
	}
	h.added++
	e := unix.EpollEvent{Events: unix.EPOLLRDHUP | unix.EPOLLONESHOT, Fd: int32(fd), Pad: h.added}
	var errno error
	if err := h.raw.Control(func(ep uintptr) { errno = unix.EpollCtl(int(ep), unix.EPOLL_CTL_ADD, fd, &e) }); err != nil {
		return err
	}
	if errno != nil {
		return fmt.Errorf("epoll_ctl: %w", errno)
	}
	h.peers[fd] = told{p, h.added}
	h.count++
	return nil
}

// Remove undoes Add.
func (h *Hangups) Remove(fd int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.peers[fd] = told{}
	h.count--
	h.endIfDone()
}

// Close ends it once nobody is left to be told. It does not wait.
func (h *Hangups) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closing = true
	h.endIfDone()
}

// Wait waits until nothing runs any more.
func (h *Hangups) Wait() { h.running.Wait() }

// endIfDone has run end. Closing the descriptor here would wait for run, which may
// wait for a holder of our lock, or a caller's.
func (h *Hangups) endIfDone() {
	if h.closing && h.count == 0 {
		h.epoll.SetReadDeadline(time.Unix(1, 0))
	}
}

func (h *Hangups) run() {
	defer h.epoll.Close()
	var events [64]unix.EpollEvent
	h.raw.Read(func(ep uintptr) (enough bool) { // until endIfDone
		for {
			n, err := unix.EpollWait(int(ep), events[:], 0)
			if n <= 0 && err != unix.EINTR {
				return false
			}
			for _, e := range events[:max(n, 0)] {
				if p := h.peer(e); p != nil {
					p.HungUp()
				}
			}
		}
	})
}

// peer is whom e is for, nil where that one is gone.
func (h *Hangups) peer(e unix.EpollEvent) Peer {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := h.peers[e.Fd]; t.number == e.Pad {
		return t.Peer
	}
	return nil
}

// WakeReader wakes a reader that waits on a socket whose peer has hung up, so that
// what is left of it is read and its end is seen. It changes nothing else: nothing
// more can come.
func WakeReader(fd int) { unix.Shutdown(fd, unix.SHUT_RD) }
