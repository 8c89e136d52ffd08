package transport_test

import (
	"io"
	"net"
	"testing"

	"reseat/gateway/frame"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/session"
	"reseat/gateway/transport"
	"reseat/gateway/wire"
)

// ended returns a connection whose peer has sent b and then closed it with end. All of
// that has arrived, and the runtime's poller has noticed it, before anything is read.
func ended(t *testing.T, b []byte, end func(far *net.TCPConn)) (ours, theirs net.Conn) {
	t.Helper()
	ours, theirs = wstest.TCPPair(t, nil)
	theirs.Write(b)
	end(theirs.(*net.TCPConn))
	here, there := wstest.TCPPair(t, nil) // the poller reports sockets in order
	defer here.Close()
	defer there.Close()
	there.Write([]byte{1})
	if _, err := io.ReadFull(here, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return ours, theirs
}

func halfClose(far *net.TCPConn) { far.CloseWrite() }

func reset(far *net.TCPConn) {
	far.SetLinger(0)
	far.Close()
}

// One read takes the data and leaves room, so no further edge reports the end behind
// it. Without HungUp only the next heartbeat would notice, a minute later.
func TestEndRightAfterTheLastDataIsSeen(t *testing.T) {
	for name, end := range map[string]func(*net.TCPConn){"end of stream": halfClose, "reset": reset} {
		t.Run("upstream/"+name, func(t *testing.T) {
			drivers(t, func(t *testing.T, d *transport.Driver) {
				for range 30 { // whether the reader is already waiting when notified is up to the scheduler
					gameEnd, game := ended(t, numbered(nil, 1, 100, false), end)
					p := newPlayerOf(t, d, nil, gameEnd, game)
					p.wantDown(1)
					p.client.wantClose(wire.CodeUpstreamLost)
				}
			})
		})
	}
	t.Run("client", func(t *testing.T) {
		drivers(t, func(t *testing.T, d *transport.Driver) {
			p := newPlayer(t, d, nil)
			p.client.Close()
			p.events.await(session.Disconnected)
			ours, theirs := ended(t, numbered(nil, 1, 100, true), halfClose)
			p.attach(ours, theirs, 0) // the end may be seen before its hello is written
			p.events.await(session.Disconnected)
			p.sendDown(1)
			ours, theirs = wstest.TCPPair(t, nil)
			if h := p.resume(ours, theirs, 0); h.Received != 1 {
				t.Errorf("%d messages were received, want 1", h.Received)
			}
			p.wantDown(1)
		})
	})
}

// wantClose reads up to a Close frame and checks its code.
func (c *client) wantClose(want int) {
	c.t.Helper()
	for {
		op, payload, err := c.next()
		if err != nil {
			c.t.Fatal(err)
		}
		if op == frame.Close {
			if code, _, _ := frame.ParseClose(payload); code != want {
				c.t.Errorf("Close %d, want %d", code, want)
			}
			return
		}
	}
}
