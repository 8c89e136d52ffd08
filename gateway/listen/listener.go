package listen

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
)

// A Listener is a TCP listener that can be paused, for an upgrade.
type Listener struct {
	*net.TCPListener
	own *acceptor // nil: TCPListener accepts

	mu     sync.Mutex
	change sync.Cond
	paused bool
	closed bool
}

// Listen listens at a TCP address.
func Listen(addr string) (*Listener, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	return newListener(ln), nil
}

// Inherit returns a Listener of a descriptor, which it owns from then on.
func Inherit(fd int) (*Listener, error) {
	f := os.NewFile(uintptr(fd), "listener")
	defer f.Close()
	ln, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	if _, ok := ln.(*net.TCPListener); !ok {
		ln.Close()
		return nil, fmt.Errorf("an inherited listener is not for TCP")
	}
	return newListener(ln), nil
}

func newListener(ln net.Listener) *Listener {
	l := &Listener{TCPListener: ln.(*net.TCPListener)}
	l.change.L = &l.mu
	return l
}

// Accept implements net.Listener. It waits while l is paused.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		l.wait()
		c, err := l.accept()
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return c, err
		}
	}
}

func (l *Listener) accept() (net.Conn, error) {
	if l.own != nil {
		return l.own.accept()
	}
	return l.TCPListener.Accept()
}

// SetDeadline interrupts Accept at t.
func (l *Listener) SetDeadline(t time.Time) error {
	if l.own != nil {
		return l.own.setDeadline(t)
	}
	return l.TCPListener.SetDeadline(t)
}

// wait waits while l is paused.
func (l *Listener) wait() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.paused && !l.closed {
		l.change.Wait()
	}
	l.SetDeadline(time.Time{})
}

// Pause keeps l from accepting until Resume. The system still completes connections, up to
// the backlog of the socket.
func (l *Listener) Pause() { l.set(func() { l.paused = true }) }

// Resume undoes Pause.
func (l *Listener) Resume() { l.set(func() { l.paused = false }) }

func (l *Listener) set(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	l.SetDeadline(time.Unix(1, 0)) // wakes Accept
	l.change.Broadcast()
}

// Close implements net.Listener. Another process that has the socket goes on listening.
func (l *Listener) Close() error {
	l.mu.Lock()
	l.closed = true
	l.change.Broadcast()
	l.mu.Unlock()
	if l.own != nil {
		l.own.close()
	}
	return l.TCPListener.Close()
}
