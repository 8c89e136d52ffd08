//go:build linux

package rawconn

import (
	"net"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

type hungUp chan struct{}

func (h hungUp) HungUp() { close(h) } // twice panics

// watched is a connection whose peer is to be told of its end.
func watched(t *testing.T, h *Hangups) (raw syscall.RawConn, fd int, other net.Conn, told hungUp) {
	t.Helper()
	quiet, other := pair(t)
	raw = quiet.(*Conn).raw
	told = make(hungUp)
	var err error
	raw.Control(func(d uintptr) {
		fd = int(d)
		err = h.Add(fd, told)
	})
	if err != nil {
		t.Fatal(err)
	}
	return raw, fd, other, told
}

func watching(t *testing.T) *Hangups {
	t.Helper()
	h, err := WatchHangups()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close(); h.Wait() })
	return h
}

func TestHangupIsToldOnce(t *testing.T) {
	for name, end := range map[string]func(*net.TCPConn){
		"end of stream": func(c *net.TCPConn) { c.CloseWrite() },
		"reset":         func(c *net.TCPConn) { c.SetLinger(0); c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			h := watching(t)
			_, fd, other, told := watched(t, h)
			other.Write([]byte("x"))
			end(other.(*net.TCPConn))
			<-told
			WakeReader(fd) // is an end of its own, to epoll
			other.Close()
			_, next, later, toldToo := watched(t, h)
			later.Close()
			<-toldToo
			h.Remove(fd)
			h.Remove(next)
		})
	}
}

func TestWokenReaderFindsTheEnd(t *testing.T) {
	h := watching(t)
	raw, fd, other, told := watched(t, h)
	defer h.Remove(fd)
	other.Write([]byte("x"))
	other.(*net.TCPConn).CloseWrite()
	<-told
	waits, ended := make(chan struct{}), make(chan error)
	go func() {
		reads := 0
		raw.Read(func(fd uintptr) bool {
			reads++
			n, err := Receive(int(fd), make([]byte, 10))
			if reads == 1 {
				close(waits)
				return n != 1 // it has seen no end
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

type slow struct{ told, goOn chan struct{} }

func (p slow) HungUp() {
	close(p.told)
	<-p.goOn
}

// Whoever is told may be in want of a lock that the one who removes another holds.
func TestTheLastOneLeavesWhileAnotherIsTold(t *testing.T) {
	h := watching(t)
	quiet, other := pair(t)
	p := slow{make(chan struct{}), make(chan struct{})}
	quiet.(*Conn).raw.Control(func(fd uintptr) {
		h.Add(int(fd), p)
		other.Close()
		<-p.told
		h.Close()
		h.Remove(int(fd))
	})
	close(p.goOn)
	h.Wait()
}

// One look at what has hung up brings many. Until the last of them is told its
// descriptor may be another connection's, whose reader would take it for ended.
func TestADescriptorsNextConnectionIsNotToldOfTheLastOnesEnd(t *testing.T) {
	h := watching(t)
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
	<-first.told // both of the next are found by one look, after this
	unix.Close(secondEnd)
	unix.Close(thirdEnd)
	close(first.goOn)
	<-second.told
	h.Remove(third)
	next, nextEnd := halves()
	defer unix.Close(nextEnd)
	if err := unix.Dup3(next, third, unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	wrong := make(hungUp)
	h.Add(third, wrong)
	close(second.goOn)
	last, d, lastEnd := slowOne()
	close(last.goOn)
	unix.Close(lastEnd)
	<-last.told // by another look
	select {
	case <-wrong:
		t.Error("a connection that goes on is told that it has ended")
	default:
	}
	for _, fd := range []int{a, b, third, d} {
		h.Remove(fd)
	}
}
