package transport_test

import (
	"io"
	"net"
	"testing"

	"reseat/gateway/frame"
	"reseat/gateway/session"
	"reseat/gateway/transport"
	"reseat/gateway/wire"
)

// ended is a connection whose far end has sent b and has then gone by end, all of
// which has come, and was noticed by the runtime's poller, before anybody reads it.
func ended(t *testing.T, b []byte, end func(far *net.TCPConn)) (ours, theirs net.Conn) {
	t.Helper()
	ours, theirs = tcpPair(t)
	theirs.Write(b)
	end(theirs.(*net.TCPConn))
	here, there := tcpPair(t) // the poller tells of sockets in their order
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

// One read takes the data and leaves room: nothing says any more that there was an
// end behind it. It would be noticed by the next heartbeat, a minute later.
func TestEndThatCameWithTheLastDataIsSeen(t *testing.T) {
	for name, end := range map[string]func(*net.TCPConn){"end of stream": halfClose, "reset": reset} {
		t.Run("upstream/"+name, func(t *testing.T) {
			drivers(t, func(t *testing.T, d *transport.Driver) {
				for range 30 { // whether the reader waits already when it is told is chance
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
			p.events.await(session.Dropped)
			ours, theirs := ended(t, numbered(nil, 1, 100, true), halfClose)
			p.attach(ours, theirs, 0) // its end may be seen before its hello is written
			p.events.await(session.Dropped)
			p.sendDown(1)
			ours, theirs = tcpPair(t)
			if h := p.resume(ours, theirs, 0); h.Received != 1 {
				t.Errorf("%d messages were received, want 1", h.Received)
			}
			p.wantDown(1)
		})
	})
}

// wantClose reads up to a Close frame.
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
