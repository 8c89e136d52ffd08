//go:build linux

package epoll

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"reseat/gateway/internal/test/wstest"
)

// loopConn returns a Conn and its peer.
func loopConn(t *testing.T) (*Conn, *net.TCPConn) {
	t.Helper()
	loop := newLoop(t, new(handClock))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	c, err := loop.Dial(t.Context(), netip.MustParseAddrPort(ln.Addr().String()))
	if err != nil {
		t.Fatal(err)
	}
	peer, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); peer.Close() })
	peer.SetDeadline(time.Now().Add(time.Minute))
	return c, peer.(*net.TCPConn)
}

func TestConnReadsWhatItsPeerWrites(t *testing.T) {
	c, peer := loopConn(t)
	want := bytes.Repeat([]byte("0123456789"), 100_000)
	go func() {
		peer.Write(want)
		peer.CloseWrite()
	}()
	if got, err := io.ReadAll(c); !bytes.Equal(got, want) || err != nil {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	go c.Write(want)
	got := make([]byte, len(want))
	if n, err := io.ReadFull(peer, got); !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// The end of the stream may be there before the read of what comes before it.
func TestConnFindsTheEndBehindTheData(t *testing.T) {
	for range 100 {
		c, peer := loopConn(t)
		peer.Write([]byte("last words"))
		peer.Close()
		for !c.ending.Load() {
			time.Sleep(10 * time.Microsecond)
		}
		if got, err := io.ReadAll(c); string(got) != "last words" || err != nil {
			t.Fatalf("%q, %v", got, err)
		}
	}
}

func TestConnDeadlines(t *testing.T) {
	c, peer := loopConn(t)
	for name, set := range map[string]func(){
		"before": func() { c.SetReadDeadline(time.Unix(1, 0)) },
		"soon":   func() { c.SetReadDeadline(time.Now().Add(10 * time.Millisecond)) },
		"during": func() { time.AfterFunc(10*time.Millisecond, func() { c.SetReadDeadline(time.Unix(1, 0)) }) },
		"changed": func() {
			c.SetReadDeadline(time.Now().Add(time.Hour))
			time.AfterFunc(10*time.Millisecond, func() { c.SetReadDeadline(time.Now()) })
		},
	} {
		set()
		if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: %d, %v", name, n, err)
		}
		c.SetReadDeadline(time.Time{})
	}
	c.SetReadDeadline(time.Now().Add(time.Minute))
	peer.Write([]byte("x"))
	if n, err := c.Read(make([]byte, 10)); n != 1 || err != nil {
		t.Errorf("afterwards %d, %v", n, err)
	}
	c.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
	if _, err := c.Write(make([]byte, 64<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a write that nobody reads: %v", err)
	}
}

func TestCloseEndsReadAndWriteOfConn(t *testing.T) {
	c, _ := loopConn(t)
	failed := make(chan error, 2)
	go func() { _, err := c.Read(make([]byte, 1)); failed <- err }()
	go func() { _, err := c.Write(make([]byte, 64<<20)); failed <- err }()
	time.Sleep(10 * time.Millisecond)
	c.Close()
	for range 2 {
		if err := <-failed; !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	}
	if err := c.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("again: %v", err)
	}
}

func TestStoppingLoopClosesItsConns(t *testing.T) {
	c, peer := loopConn(t)
	failed := make(chan error)
	go func() { _, err := c.Read(make([]byte, 1)); failed <- err }()
	c.loop.all.Close()
	if err := <-failed; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	if _, err := peer.Read(make([]byte, 1)); err == nil {
		t.Error("its peer reads on")
	}
	c.loop.all.Wait()
	if _, err := c.loop.Accepted(dup(t, peer), nil, nil); err == nil {
		t.Error("a stopped loop takes a connection")
	}
}

// dup duplicates the descriptor of a connection, as rawconn.Take does.
func dup(t *testing.T, c *net.TCPConn) (fd int) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(from uintptr) { fd = wstest.Duplicate(t, int(from)) })
	return fd
}

func TestConnLeavesItsLoop(t *testing.T) {
	c, peer := loopConn(t)
	fd := c.fd
	peer.Write([]byte("before"))
	plain, err := c.TCP()
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the Conn reads: %v", err)
	}
	e := unix.EpollEvent{Events: interest, Fd: int32(fd)}
	if err := unix.EpollCtl(c.loop.ep, unix.EPOLL_CTL_MOD, fd, &e); err == nil {
		t.Error("the loop still watches it")
	}
	got := make([]byte, 10)
	if n, err := plain.Read(got); string(got[:n]) != "before" || err != nil {
		t.Errorf("%q, %v", got[:n], err)
	}
}

func TestDialErrorsAreThoseOfPackageNet(t *testing.T) {
	c, _ := loopConn(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := ln.Addr().String()
	ln.Close()
	_, want := net.Dial("tcp", closed)
	_, err = c.loop.Dial(t.Context(), netip.MustParseAddrPort(closed))
	if err == nil || want == nil || err.Error() != want.Error() {
		t.Errorf("%v, want %v", err, want)
	}
	var op *net.OpError
	if !errors.As(err, &op) || !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("%#v", err)
	}
}

func TestDialWaitsNoLongerThanItsContext(t *testing.T) {
	c, _ := loopConn(t)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	to := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(name.(*unix.SockaddrInet4).Port))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	for range 10 { // the queue of the listener takes one or two
		var n *Conn
		if n, err = c.loop.Dial(ctx, to); err != nil {
			break
		}
		defer n.Close()
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want that the time is over", err)
	}
}
