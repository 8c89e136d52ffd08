//go:build linux

package rawconn

import (
	"net"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

type hungUp chan struct{}

func (h hungUp) HungUp() { close(h) } // a second call panics

// watchedPair returns a connection registered with h, and its peer.
func watchedPair(t *testing.T, h *Hangups) (raw syscall.RawConn, fd int, other net.Conn, notified hungUp) {
	t.Helper()
	quiet, other := pair(t)
	raw = quiet.(*Conn).raw
	notified = make(hungUp)
	var err error
	raw.Control(func(d uintptr) {
		fd = int(d)
		err = h.Add(fd, notified)
	})
	if err != nil {
		t.Fatal(err)
	}
	return raw, fd, other, notified
}

func watchHangups(t *testing.T) *Hangups {
	t.Helper()
	h, err := WatchHangups()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close(); h.Wait() })
	return h
}

func TestHangupIsReportedOnce(t *testing.T) {
	for name, end := range map[string]func(*net.TCPConn){
		"end of stream": func(c *net.TCPConn) { c.CloseWrite() },
		"reset":         func(c *net.TCPConn) { c.SetLinger(0); c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			h := watchHangups(t)
			_, fd, other, notified := watchedPair(t, h)
			other.Write([]byte("x"))
			end(other.(*net.TCPConn))
			<-notified
			WakeReader(fd) // epoll reports this as a hangup too
			other.Close()
			_, next, later, nextNotified := watchedPair(t, h)
			later.Close()
			<-nextNotified
			h.Remove(fd)
			h.Remove(next)
		})
	}
}

func TestWokenReaderFindsTheEnd(t *testing.T) {
	h := watchHangups(t)
	raw, fd, other, notified := watchedPair(t, h)
	defer h.Remove(fd)
	other.Write([]byte("x"))
	other.(*net.TCPConn).CloseWrite()
	<-notified
	waits, ended := make(chan struct{}), make(chan error)
	go func() {
		reads := 0
		raw.Read(func(fd uintptr) bool {
			reads++
			n, err := Receive(int(fd), make([]byte, 10))
			if reads == 1 {
				close(waits)
				return n != 1 // it has not seen the end
			}
			ended <- err
			return true
		})
	}()
	<-waits
	WakeReader(fd)
	if err := <-ended; err == nil {
		t.Error("nothing to read, and no end")
	}
}

type slow struct{ notified, proceed chan struct{} }

func (p slow) HungUp() {
	close(p.notified)
	<-p.proceed
}

// A notified peer may need a lock that the goroutine calling Remove holds.
func TestRemoveDuringHangUpDoesNotDeadlock(t *testing.T) {
	h := watchHangups(t)
	quiet, other := pair(t)
	p := slow{make(chan struct{}), make(chan struct{})}
	quiet.(*Conn).raw.Control(func(fd uintptr) {
		h.Add(int(fd), p)
		other.Close()
		<-p.notified
		h.Close()
		h.Remove(int(fd))
	})
	close(p.proceed)
	h.Wait()
}

// One epoll_wait returns many hangups. Before the last of them is notified, its
// descriptor may belong to another connection, whose reader would take it for closed.
func TestReusedDescriptorGetsNoEarlierHangup(t *testing.T) {
	h := watchHangups(t)
	halves := func() (ours, theirs int) {
		p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(p[0]) })
		return p[0], p[1]
	}
	slowOne := func() (slow, int, int) {
		p := slow{make(chan struct{}), make(chan struct{})}
		ours, theirs := halves()
		h.Add(ours, p)
		return p, ours, theirs
	}
	first, a, firstEnd := slowOne()
	second, b, secondEnd := slowOne()
	third, thirdEnd := halves()
	h.Add(third, make(hungUp))
	unix.Close(firstEnd)
	<-first.notified // the next epoll_wait finds both of the following
	unix.Close(secondEnd)
	unix.Close(thirdEnd)
	close(first.proceed)
	<-second.notified
	h.Remove(third)
	next, nextEnd := halves()
	defer unix.Close(nextEnd)
	if err := unix.Dup3(next, third, unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	wrong := make(hungUp)
	h.Add(third, wrong)
	close(second.proceed)
	last, d, lastEnd := slowOne()
	close(last.proceed)
	unix.Close(lastEnd)
	<-last.notified // by a later epoll_wait
	select {
	case <-wrong:
		t.Error("an open connection gets the hangup of another")
	default:
	}
	for _, fd := range []int{a, b, third, d} {
		h.Remove(fd)
	}
}
