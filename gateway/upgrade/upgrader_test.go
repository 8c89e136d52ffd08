//go:build linux

package upgrade

import (
	"testing"

	"golang.org/x/sys/unix"

	"reseat/gateway/handover"
)

// An older process may exit, and its channel be closed, between the moment that an offer has its
// descriptor and the moment that it is sent.
func TestOfferKeepsChannelOfProcessThatExits(t *testing.T) {
	exited, other, err := handover.Pair()
	if err != nil {
		t.Fatal(err)
	}
	other.Close()
	exited.Close()
	ch, far, err := handover.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	fds := (&Upgrader{older: []*handover.Conn{exited, ch}}).olderChannels()
	defer closeAll(fds)
	ch.Close()
	if len(fds) != 1 {
		t.Fatalf("%d descriptors, want 1", len(fds))
	}
	if _, err := unix.Write(fds[0], []byte("x")); err != nil {
		t.Fatal(err)
	}
	var b [1]byte
	if n, err := unix.Read(int(far.Fd()), b[:]); n != 1 || b[0] != 'x' {
		t.Errorf("%d bytes, %v", n, err)
	}
}
