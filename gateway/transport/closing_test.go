package transport_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
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

// closeFrame returns a Close frame, masked with a zero key if a client sends it, as the
// session's own frames are.
func closeFrame(code int, masked bool) []byte {
	p := frame.ClosePayload(code, "")
	if masked {
		return frame.AppendMasked(nil, frame.Close, [4]byte{}, p)
	}
	return frame.Append(nil, frame.Close, p)
}

// wantGame reads exactly these bytes on the game server's side.
func (p *player) wantGame(want []byte) {
	p.t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(p.game, got); err != nil || !bytes.Equal(got, want) {
		p.t.Fatalf("the game got % x, %v; want % x", got, err, want)
	}
}

// wantNoMore checks that the gateway closes the game server's connection.
func (p *player) wantNoMore() {
	p.t.Helper()
	if rest, err := io.ReadAll(p.game); err != nil || len(rest) > 0 {
		p.t.Errorf("the game got % x and %v behind the Close", rest, err)
	}
}

// plainPlayer starts a session of a plain client.
func plainPlayer(t *testing.T, d *transport.Driver) *player {
	return newPlayer(t, d, func(c *session.Config) { c.Resumable = false })
}

func TestPlainClosingHandshakeIsRelayed(t *testing.T) {
	drivers(t, func(t *testing.T, d *transport.Driver) {
		t.Run("begun by the client", func(t *testing.T) {
			t.Parallel() // each waits a second for the client to close
			p := plainPlayer(t, d)
			p.wantUp(1)
			p.client.Write(closeFrame(4001, true))
			p.wantGame(closeFrame(4001, true))
			for i := range 3 {
				p.sendDown(i)
				p.wantDown(i)
			}
			p.game.Write(closeFrame(4002, false))
			if code, err := p.client.closed(); code != 4002 || err != nil {
				t.Errorf("the client got Close %d, %v; want 4002", code, err)
			}
			p.wantNoMore()
		})
		t.Run("begun by the game", func(t *testing.T) {
			t.Parallel()
			p := plainPlayer(t, d)
			p.sendDown(1)
			p.game.Write(closeFrame(4002, false))
			p.wantDown(1)
			if op, payload, err := p.client.next(); op != frame.Close || err != nil {
				t.Fatalf("the client got %x %q, %v; want the game's Close", op, payload, err)
			}
			for i := range 3 {
				p.wantUp(i)
			}
			p.client.Write(closeFrame(4003, true))
			p.wantGame(closeFrame(4003, true))
			p.wantNoMore()
		})
		t.Run("the client hangs up behind its Close", func(t *testing.T) {
			t.Parallel()
			p := plainPlayer(t, d)
			p.client.Write(closeFrame(4001, true))
			p.client.Close()
			p.wantGame(closeFrame(4001, true))
			p.wantNoMore()
		})
	})
}

// An above is a layer on top of a connection, as TLS is.
type above struct{ net.Conn }

func (a above) NetConn() net.Conn { return a.Conn }

// Closing with a reset reaches the TCP connection below TLS and compression.
func TestResetReachesTheConnectionBelowALayer(t *testing.T) {
	p := newPlayer(t, newDriver(t, transport.Net), nil)
	ours, theirs := wstest.TCPPair(t, nil)
	p.resume(above{ours}, theirs, 0)
	p.do(func(core *session.Session, now session.Time) { core.Disconnect(now) })
	if _, err := p.client.closed(); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the client's connection ended with %v, want a reset", err)
	}
}

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
	const atOnce, each = 32, 20
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
