//go:build linux

package epoll

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"reseat/gateway/frame"
	"reseat/gateway/replay"
	"reseat/gateway/session"
)

// numbers writes frames numbered from 1 to n.
func numbers(t *testing.T, c net.Conn, n int, masked bool) {
	var b []byte
	for i := range n {
		payload := binary.BigEndian.AppendUint32(nil, uint32(i+1))
		if b = b[:0]; masked {
			b = frame.AppendMasked(b, frame.Binary, [4]byte{1, 2, 3, 4}, payload)
		} else {
			b = frame.Append(b, frame.Binary, payload)
		}
		if _, err := c.Write(b); err != nil {
			t.Errorf("message %d: %v", i+1, err)
			return
		}
	}
}

// wantNumbers reads the frames of numbers, and returns what differs.
func wantNumbers(t *testing.T, c net.Conn, n int, masked bool) {
	size := 2 + 4
	if masked {
		size += 4
	}
	b := make([]byte, size)
	for i := range n {
		c.SetReadDeadline(time.Now().Add(20 * time.Second))
		if _, err := io.ReadFull(c, b); err != nil {
			t.Errorf("message %d: %v", i+1, err)
			return
		}
		payload := b[2:]
		if masked {
			frame.XOR(b[6:], [4]byte(b[2:6]))
			payload = b[6:]
		}
		if got := binary.BigEndian.Uint32(payload); got != uint32(i+1) {
			t.Errorf("message %d came in the place of %d", got, i+1)
			return
		}
	}
}

// An upgrade in small: both sides send and read all the time, and the session moves from
// one loop to the other and back.
func TestSessionMovesUnderTraffic(t *testing.T) {
	const messages, wanted = 20_000, 40
	ours, client := socketPair(t)
	r := newRigOf(t, ours, client, func(c *session.Config) { c.Resumable = false })
	other, err := Start(r.clock)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Close(); other.Wait() })
	store := replay.NewStore(1<<30, nil)
	var sides sync.WaitGroup
	over := make(chan struct{})
	sides.Go(func() { numbers(t, r.game, messages, false) })
	sides.Go(func() { numbers(t, client, messages, true) })
	sides.Go(func() { wantNumbers(t, client, messages, false) })
	sides.Go(func() { wantNumbers(t, r.game, messages, true) })
	go func() { sides.Wait(); close(over) }()

	from, to, moves := r.loop, other, 0
	for traffic := true; traffic && moves < wanted; {
		select {
		case <-over:
			traffic = false
		case <-time.After(time.Millisecond):
		}
		if r.move(t, from, to, store) {
			from, to, moves = to, from, moves+1
		}
	}
	<-over
	if moves < wanted/4 {
		t.Errorf("it moved %d times under traffic, which proves little", moves)
	}
	if from == other { // the rig ends it on its own loop
		for !r.move(t, other, r.loop, store) {
		}
	}
	if n := other.Load(); n != 0 || other.sessions != 0 {
		t.Errorf("%d sessions stayed behind", n)
	}
}

// move moves the rig's session, unless it is busy.
func (r *rig) move(t *testing.T, from, to *Loop, store *replay.Store) bool {
	t.Helper()
	resume := from.Pause()
	defer resume()
	f, err := r.Freeze(session.Formats[0])
	if errors.Is(err, session.ErrBusy) {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	core, err := session.Restore(session.Formats[0], f.State, slices.Concat(f.Content...), store, func() [4]byte { return [4]byte{} })
	if err != nil {
		t.Fatal(err)
	}
	up, down := duplicate(t, f.Up), duplicate(t, f.Down)
	r.Drop()
	r.Session = to.Adopt(core, up, down, r)
	return true
}

func duplicate(t *testing.T, fd int) int {
	t.Helper()
	if fd < 0 {
		return fd
	}
	fd, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// Nobody is cut where the other process does not come up: the loop goes on.
func TestFrozenSessionGoesOnWhereItDoesNotMove(t *testing.T) {
	ours, client := socketPair(t)
	r := newRigOf(t, ours, client, func(c *session.Config) { c.Resumable = false })
	var sides sync.WaitGroup
	sides.Go(func() { numbers(t, r.game, 3000, false) })
	sides.Go(func() { wantNumbers(t, client, 3000, false) })
	for range 100 {
		resume := r.loop.Pause()
		if _, err := r.Freeze(session.Formats[0]); err != nil && !errors.Is(err, session.ErrBusy) {
			t.Error(err)
		}
		resume()
	}
	sides.Wait()
}
