package transport_test

import (
	"bytes"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"reseat/gateway/frame"
	"reseat/gateway/transport"
	"reseat/gateway/transport/epoll"
)

// roundTrip sends message i up, and has the game answer it: the bytes must be
// the session's own, each way.
func (r *rig) roundTrip(t *testing.T, i int) {
	t.Helper()
	pass := func(from, to net.Conn, sent, want []byte) {
		t.Helper()
		if _, err := from.Write(sent); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(want))
		if _, err := io.ReadFull(to, got); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("message %d: % x, %v; want % x", i, got, err, want)
		}
	}
	up, down := numbered(nil, i, 16, true), numbered(nil, i, 16, false)
	pass(r.client, r.game, up, up)
	pass(r.game, r.client, down, down)
}

// stalls are what a session can be stuck in for as long as its ends like.
var stalls = map[string]func(r *rig){
	"a client that reads nothing":        func(r *rig) { fill(r.game, false) },
	"a game server that reads nothing":   func(r *rig) { fill(r.client, true) },
	"a frame that does not go on":        func(r *rig) { r.client.Write(numbered(nil, 1, 1000, true)[:500]) },
	"a message that does not go on":      func(r *rig) { r.client.Write(frame.AppendMasked(nil, frame.Text, [4]byte{}, nil)[:1]) },
	"a header of the game's that stalls": func(r *rig) { r.game.Write([]byte{0x82, 127, 0, 0}) },
}

const big = 64 << 10

// fill writes one big message after the other, as they are taken, to c's end.
func fill(c net.Conn, masked bool) {
	message := numbered(nil, 1, big, masked)
	go func() {
		for {
			if _, err := c.Write(message); err != nil {
				return
			}
		}
	}()
}

// I14: a session that stands still makes no other wait. No clock is asked: the one
// stands still until the other has had all its round trips, which it would not
// have if it waited for the first at any point.
func TestASessionThatStandsStillMakesNoOtherWait(t *testing.T) {
	for name, stall := range stalls {
		t.Run(name, func(t *testing.T) {
			drivers(t, func(t *testing.T, d *transport.Driver) {
				var stuck []*rig
				for range 2 * runtime.GOMAXPROCS(0) { // some beside the other in each loop
					r := newRig(t, d, zeroKey)
					stall(r)
					stuck = append(stuck, r)
				}
				other := newRig(t, d, zeroKey)
				for i := range 500 {
					other.roundTrip(t, i)
				}
				for _, r := range stuck {
					select {
					case <-r.events.over:
						t.Errorf("one did not stand still to the end: %s", r.events.reason)
					default:
					}
				}
			})
		})
	}
}

// I14: in a loop a session that floods goes before another's message with no more
// than what a few reads bring. What it passes on meanwhile is counted, and no time:
// so many frames are what the other waits for, however fast or slow the machine is.
func TestAFloodGoesBeforeAnothersMessageWithAFewReadsAtMost(t *testing.T) {
	const floods, read = 4, 256 << 10
	// Of each flood: what is left of this turn of the loop, and its read in the
	// next one; either may follow upon one of an event.
	const most = floods * 4 * (read/big + 1)
	if runtime.GOOS != "linux" {
		t.Skip("there are loops on Linux alone")
	}
	procs := runtime.GOMAXPROCS(1) // one loop for all
	d := newDriver(t, transport.Poll)
	var passed, seen atomic.Int64 // frames of the floods; how many when the other's came
	all := make([]*rig, floods)
	for i := range all {
		all[i] = newRig(t, d, func() [4]byte { passed.Add(1); return [4]byte{} })
	}
	other := newRig(t, d, func() [4]byte { seen.Store(passed.Load()); return [4]byte{} })
	runtime.GOMAXPROCS(procs)
	if epoll.Loops(1) != 1 {
		t.Fatal("there is more than one loop")
	}
	var running sync.WaitGroup
	defer running.Wait()
	for _, r := range all {
		defer r.client.Close()
		fill(r.client, true)
		running.Go(func() { io.Copy(io.Discard, r.game) })
	}
	worst := int64(0)
	for i := 0; i < 100 || passed.Load() < 10*most; i++ { // else it was no flood
		if i == 1e5 {
			t.Fatalf("%d frames were passed on: that is no flood", passed.Load())
		}
		up := numbered(nil, i, 16, true)
		other.client.Write(up)
		sent := passed.Load()
		got := make([]byte, len(up))
		if _, err := io.ReadFull(other.game, got); err != nil || !bytes.Equal(got, up) {
			t.Fatalf("message %d: % x, %v; want % x", i, got, err, up)
		}
		worst = max(worst, seen.Load()-sent)
	}
	t.Logf("%d frames were passed on, at most %d before one of another session", passed.Load(), worst)
	if worst > most {
		t.Errorf("%d frames went before one of another session, want %d at most", worst, most)
	}
}
