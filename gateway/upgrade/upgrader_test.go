//go:build linux

package upgrade

import (
	"testing"

	"golang.org/x/sys/unix"

	"reseat/gateway/handover"
	"reseat/gateway/owner"
	"reseat/gateway/watch"
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

// A bystander is a Server that can be replaced.
type bystander struct{ Server }

func (bystander) Refusal() error { return nil }

// The predecessor's lock comes first: what it hands over last settles the Upgrader while that lock is
// held, and a signal may ask for the next upgrade at the same moment.
func TestUpgradeCanBeRefusedWhilePredecessorSettles(t *testing.T) {
	u := NewUpgrader(Settings{}, Parts{
		Sessions: New(Options{Options: owner.Options{Watch: watch.New(watch.Options{}), Draining: func() bool { return false }}}), Server: bystander{},
	})
	u.Settle()
	forwarded := func() (conns, processes int) {
		if !u.mu.TryLock() {
			t.Error("the Upgrader is locked while it waits for the predecessor's lock")
			return 0, 0
		}
		u.mu.Unlock()
		return 5, maxForwarding
	}
	u.metrics.forwarded.Store(&forwarded)
	if u.refusal() == nil {
		t.Error("a third process may forward")
	}
}
