package transport_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"

	"reseat/gateway/frame"
	"reseat/gateway/transport"
)

// departures are the ways to end a session of the storm, with the expected end reason:
// what its own peers did, and nothing else.
var departures = []struct {
	leave  func(r *rig)
	reason string
}{
	{func(r *rig) { r.goodbye() }, "bye"},
	{func(r *rig) { halfClose(tcp(r.client)) }, "client_gone"},
	{func(r *rig) { reset(tcp(r.client)) }, "client_gone"},
	{func(r *rig) { halfClose(r.game.(*net.TCPConn)) }, "upstream_lost"},
	{func(r *rig) { reset(r.game.(*net.TCPConn)) }, "upstream_lost"},
}

// echo sends message i up and makes the game server send it back.
func (r *rig) echo(i int) error {
	pass := func(from, to net.Conn, masked bool) error {
		b := numbered(nil, i, 64, masked)
		got := make([]byte, len(b))
		if _, err := from.Write(b); err != nil {
			return err
		}
		if _, err := io.ReadFull(to, got); err != nil {
			return err
		}
		if !bytes.Equal(got, b) {
			return errors.New("it is not what was sent")
		}
		return nil
	}
	if err := pass(r.client, r.game, true); err != nil {
		return fmt.Errorf("message %d up: %w", i, err)
	}
	if err := pass(r.game, r.client, false); err != nil {
		return fmt.Errorf("message %d down: %w", i, err)
	}
	return nil
}

// goodbye runs the closing handshake from the client's side, and closes both
// connections as soon as possible.
func (r *rig) goodbye() {
	r.client.Write(frame.AppendMasked(nil, frame.Close, [4]byte{}, frame.ClosePayload(1000, "")))
	io.ReadFull(r.game, make([]byte, 8))
	r.game.Write(frame.Append(nil, frame.Close, frame.ClosePayload(1000, "")))
	r.game.Close()
	io.ReadFull(r.client, make([]byte, 4))
	r.client.Close()
}

// Many sessions start, echo a message and end at once, so that descriptors are reused
// quickly: an event for a descriptor's previous socket must not reach the next.
func TestSessionsThatEndAtOnceHarmNoOther(t *testing.T) { drivers(t, sessionsThatEndHarmNoOther) }

func sessionsThatEndHarmNoOther(t *testing.T, d *transport.Driver) {
	const atOnce, each = 32, 40
	var storm sync.WaitGroup
	for k := range atOnce {
		storm.Go(func() {
			for i := range each {
				r := newRig(t, d, zeroKey)
				way := departures[(k+i)%len(departures)]
				if err := r.echo(i); err != nil {
					t.Error(err)
				}
				way.leave(r)
				<-r.events.over
				if r.events.reason != way.reason {
					t.Errorf("it ended by %q, want %q", r.events.reason, way.reason)
				}
				r.client.Close()
				r.game.Close()
			}
		})
	}
	storm.Wait()
}
