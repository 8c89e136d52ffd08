//go:build linux

package uring

import (
	"bytes"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"reseat/gateway/internal/test/wstest"
)

func newRing(t *testing.T) *Ring {
	r, err := New()
	if _, lacking := errors.AsType[unix.Errno](err); lacking {
		t.Skip("the system has no io_uring: ", err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// A call returns what it would have returned by itself, though others of the batch fail.
func TestCallsOfABatchSucceedAndFailEachByItself(t *testing.T) {
	r := newRing(t)
	a, b := wstest.SocketPair(t, unix.SOCK_STREAM)
	ended, gone := wstest.SocketPair(t, unix.SOCK_STREAM)
	unix.Shutdown(gone, unix.SHUT_RDWR)
	for range 3 { // the ring goes round
		buf, none, end := make([]byte, 8), make([]byte, 8), make([]byte, 8)
		calls := []int{
			r.Receive(b, none),
			r.Send(a, [][]byte{[]byte("one")}),
			r.Send(-1, [][]byte{[]byte("x")}),
			r.Send(a, [][]byte{[]byte("t"), []byte("w"), []byte("o")}),
			r.Receive(ended, end),
			r.Send(ended, [][]byte{[]byte("x")}),
			r.Receive(b, buf),
		}
		if r.Len() != len(calls) {
			t.Fatalf("%d calls, want %d", r.Len(), len(calls))
		}
		r.Submit()
		for i, want := range []struct {
			n     int
			errno unix.Errno
		}{{0, unix.EAGAIN}, {3, 0}, {0, unix.EBADF}, {3, 0}, {0, 0}, {0, unix.EPIPE}, {6, 0}} {
			if n, errno := r.Result(calls[i]); n != want.n || errno != want.errno {
				t.Errorf("call %d: %d, %v; want %d, %v", i, n, errno, want.n, want.errno)
			}
		}
		if !bytes.Equal(buf[:6], []byte("onetwo")) {
			t.Errorf("%q has arrived", buf)
		}
		r.Drop()
	}
}

func TestWholeBatchIsMade(t *testing.T) {
	r := newRing(t)
	a, b := wstest.SocketPair(t, unix.SOCK_DGRAM)
	for round := range 20 {
		for i := range Batch {
			if i%2 == 0 {
				r.Send(a, [][]byte{{byte(round)}, {byte(i)}})
			} else {
				r.Receive(b, make([]byte, 4))
			}
		}
		r.Submit()
		for i := range Batch {
			if n, errno := r.Result(i); n != 2 || errno != 0 {
				t.Fatalf("round %d, call %d: %d, %v", round, i, n, errno)
			}
		}
		r.Drop()
	}
}

// A call that is not submitted is known to have been left out, and its buffer is not written.
func TestCallThatIsNotMadeSaysSo(t *testing.T) {
	r := newRing(t)
	a, b := wstest.SocketPair(t, unix.SOCK_STREAM)
	unix.Write(a, []byte("x"))
	buf := make([]byte, 1)
	call := r.Receive(b, buf)
	if _, errno := r.Result(call); errno != unix.EINTR {
		t.Errorf("%v, want EINTR", errno)
	}
	r.Drop()
	unix.Close(r.fd) // the kernel refuses
	call = r.Receive(b, buf)
	r.Submit()
	if _, errno := r.Result(call); errno != unix.EINTR || buf[0] != 0 {
		t.Errorf("%v, %q; want EINTR", errno, buf)
	}
	r.Drop()
	r.fd = -1
}

// A full socket takes a part, and then nothing.
func TestShortSendIsReported(t *testing.T) {
	r := newRing(t)
	a, _ := wstest.SocketPair(t, unix.SOCK_STREAM)
	large := make([]byte, 4<<20)
	call := r.Send(a, [][]byte{large[:1<<20], large})
	again := r.Send(a, [][]byte{large})
	r.Submit()
	n, errno := r.Result(call)
	if errno != 0 || n == 0 || n >= 5<<20 {
		t.Errorf("%d, %v; want a part", n, errno)
	}
	if n, errno := r.Result(again); errno != unix.EAGAIN {
		t.Errorf("%d, %v; want EAGAIN", n, errno)
	}
}

func TestTooManyPiecesAreRefused(t *testing.T) {
	r := newRing(t)
	a, _ := wstest.SocketPair(t, unix.SOCK_STREAM)
	if call := r.Send(a, make([][]byte, maxPieces+1)); call >= 0 || r.Len() != 0 {
		t.Errorf("call %d, %d collected", call, r.Len())
	}
}

func TestBatchesAllocateNothing(t *testing.T) {
	r := newRing(t)
	a, b := wstest.SocketPair(t, unix.SOCK_STREAM)
	out, buf := [][]byte{[]byte("a"), []byte("b")}, make([]byte, 8)
	if n := testing.AllocsPerRun(100, func() {
		r.Send(a, out)
		r.Receive(b, buf)
		r.Submit()
		r.Drop()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A goroutine's stack moves when it grows. What was on it when a call was collected must not be
// where the kernel writes.
func TestBufferOfACallDoesNotMove(t *testing.T) {
	r := newRing(t)
	a, b := wstest.SocketPair(t, unix.SOCK_STREAM)
	unix.Write(a, []byte("x"))
	got := make(chan byte)
	go func() {
		var room [1]byte
		r.Receive(b, room[:])
		deep(1000)
		r.Submit()
		r.Drop()
		got <- room[0]
	}()
	if c := <-got; c != 'x' {
		t.Errorf("%q is in the buffer, want x", c)
	}
}

// deep needs a stack of some 300 bytes a level.
//
//go:noinline
func deep(levels int) (sum int) {
	var local [32]int
	if levels > 0 {
		local[levels%len(local)] = deep(levels - 1)
	}
	for _, n := range local {
		sum += n
	}
	return sum + 1
}
