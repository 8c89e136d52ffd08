//go:build linux

package rawconn

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"reseat/gateway/internal/test/wstest"
)

// pair returns both ends of a TCP connection, the first as a Conn.
func pair(t *testing.T) (quiet, other net.Conn) {
	t.Helper()
	c, other := wstest.TCPPair(t, nil)
	t.Cleanup(func() { c.Close() })
	return Quiet(c), other
}

func TestQuietConnCarriesMoreThanASocketHolds(t *testing.T) {
	quiet, other := pair(t)
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	go func() {
		quiet.Write(sent)
		quiet.(interface{ CloseWrite() error }).CloseWrite()
	}()
	if got, err := io.ReadAll(other); err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("%d bytes of %d, %v", len(got), len(sent), err)
	}
	go func() { other.Write(sent); other.Close() }()
	if got, err := io.ReadAll(quiet); err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("%d bytes of %d, %v", len(got), len(sent), err)
	}
	if n, err := quiet.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("%d, %v behind the end", n, err)
	}
}

func TestQuietConnObservesDeadlines(t *testing.T) {
	quiet, other := pair(t)
	past := time.Now().Add(-time.Second)
	quiet.SetDeadline(past)
	_, readErr := quiet.Read(make([]byte, 1))
	_, writeErr := quiet.Write([]byte("x"))
	for what, err := range map[string]error{"read": readErr, "write": writeErr} {
		var timeout net.Error
		if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("%s: %v", what, err)
		}
	}
	quiet.SetDeadline(time.Time{})
	if _, err := other.Write([]byte("y")); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 8)
	if n, err := quiet.Read(b); string(b[:n]) != "y" || err != nil {
		t.Errorf("%q, %v later on", b[:n], err)
	}
}

func TestClosedQuietConnReturnsErrClosed(t *testing.T) {
	quiet, _ := pair(t)
	ended := make(chan error)
	go func() { _, err := quiet.Read(make([]byte, 1)); ended <- err }()
	quiet.Close()
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("a read that waited: %v", err)
	}
	if _, err := quiet.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a write: %v", err)
	}
}

func TestQuietConnAllocatesNothing(t *testing.T) {
	quiet, other := pair(t)
	b := make([]byte, 64)
	if n := testing.AllocsPerRun(100, func() {
		quiet.Write(b)
		io.ReadFull(other, b)
		other.Write(b)
		io.ReadFull(quiet, b)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestQuietReturnsAPipeUnchanged(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if Quiet(a) != a {
		t.Error("a pipe is taken for a socket")
	}
}
