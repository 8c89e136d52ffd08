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
)

// stalls are the ways in which a peer can stall a session indefinitely.
var stalls = map[string]func(r *rig){
	"a client that reads nothing":        func(r *rig) { fill(r.game, false) },
	"a game server that reads nothing":   func(r *rig) { fill(r.client, true) },
	"a frame that does not go on":        func(r *rig) { r.client.Write(numbered(nil, 1, 1000, true)[:500]) },
	"a message that does not go on":      func(r *rig) { r.client.Write(frame.AppendMasked(nil, frame.Text, [4]byte{}, nil)[:1]) },
	"a header of the game's that stalls": func(r *rig) { r.game.Write([]byte{0x82, 127, 0, 0}) },
}

const big = 64 << 10

// fill writes big messages until c is closed.
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

// I14: a stalled session delays no other. The test reads no clock: the first session
// stays stalled until the other has finished its round trips, which would block if it
// ever waited for the first.
func TestStalledSessionDelaysNoOther(t *testing.T) {
	for name, stall := range stalls {
		t.Run(name, func(t *testing.T) {
			drivers(t, func(t *testing.T, d *transport.Driver) {
				var stuck []*rig
				for range 2 * runtime.GOMAXPROCS(0) { // several next to each other on each loop
					r := newRig(t, d, zeroKey)
					stall(r)
					stuck = append(stuck, r)
				}
				other := newRig(t, d, zeroKey)
				for i := range 500 {
					if err := other.echo(i); err != nil {
						t.Fatal(err)
					}
				}
				for _, r := range stuck {
					select {
					case <-r.events.over:
						t.Errorf("a stalled session ended: %s", r.events.reason)
					default:
					}
				}
			})
		})
	}
}

// I14: on a loop, only a few reads of a flooding session are served before another
// session's message. The test counts the frames that pass meanwhile, not time, so the
// machine's speed doesn't matter.
func TestFloodDelaysAnotherSessionByAFewReadsAtMost(t *testing.T) {
	const floods, read = 4, 256 << 10
	// Per flood: the rest of this turn of the loop, and its read in the next turn; each
	// may follow a read caused by an event.
	const maxFrames = floods * 4 * (read/big + 1)
	if runtime.GOOS != "linux" {
		t.Skip("there are loops on Linux alone")
	}
	d := newDriverOf(t, transport.Poll, 1)
	var passed, seen atomic.Int64 // frames of the floods: relayed so far, and when the other session's message arrived
	all := make([]*rig, floods)
	for i := range all {
		all[i] = newRig(t, d, func() [4]byte { passed.Add(1); return [4]byte{} })
	}
	other := newRig(t, d, func() [4]byte { seen.Store(passed.Load()); return [4]byte{} })
	var running sync.WaitGroup
	defer running.Wait()
	for _, r := range all {
		defer r.client.Close()
		fill(r.client, true)
		running.Go(func() { io.Copy(io.Discard, r.game) })
	}
	worst := int64(0)
	for i := 0; i < 100 || passed.Load() < 10*maxFrames; i++ { // otherwise this was no flood
		if i == 1e5 {
			t.Fatalf("%d frames were relayed, too few for a flood", passed.Load())
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
	if worst > maxFrames {
		t.Errorf("%d frames preceded the other session's message, want at most %d", worst, maxFrames)
	}
}
