package transport_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/replay"
	"reseat/gateway/session"
	"reseat/gateway/transport"
	"reseat/gateway/wire"
)

// A player is a resumable session between two real TCP connections, with its client's
// current connection.
type player struct {
	t      *testing.T
	driver *transport.Driver
	drive  *transport.Session
	events *events
	*client
	game net.Conn
}

// newPlayer makes a session and attaches its client. change may alter the
// configuration.
func newPlayer(t *testing.T, d *transport.Driver, change func(*session.Config)) *player {
	t.Helper()
	gameEnd, game := wstest.TCPPair(t, nil)
	return newPlayerOf(t, d, change, gameEnd, game)
}

// newPlayerOf is newPlayer with a given connection to the game server.
func newPlayerOf(t *testing.T, d *transport.Driver, change func(*session.Config), gameEnd, game net.Conn) *player {
	t.Helper()
	store := replay.NewStore(1<<30, nil)
	cfg := sessionConfig(store)
	cfg.Resumable = true
	if change != nil {
		change(&cfg)
	}
	p := &player{t: t, driver: d, events: newEvents(), game: game}
	clientEnd, conn := clientPair(t, d)
	p.drive = d.New(session.New(cfg, d.Clock().Now(), nil), gameEnd, clientEnd, p.events)
	p.drive.AttachFirst(clientEnd, nil, session.Pass{Gen: 1, Expires: d.Clock().Now().Add(time.Hour), Renew: time.Hour})
	p.client = newClient(t, conn)
	if cfg.Resumable {
		p.client.hello()
	}
	t.Cleanup(func() {
		p.drive.Do(func(core *session.Session, now session.Time) { core.Terminate(now, 1000, "test over") })
		p.client.Close()
		p.game.Close()
		<-p.events.closed
		p.drive.Wait()
		if n := store.Used(); n != 0 {
			t.Errorf("%d bytes of buffer memory are still lent out", n)
		}
	})
	return p
}

// resume attaches another connection; ours is the session's end of it.
func (p *player) resume(ours, theirs net.Conn, received uint64) wire.Hello {
	p.t.Helper()
	p.attach(ours, theirs, received)
	return p.client.hello()
}

// attach is resume without reading a hello, for a client that may be disconnected
// already.
func (p *player) attach(ours, theirs net.Conn, received uint64) {
	p.t.Helper()
	var pass session.Pass
	p.drive.Do(func(core *session.Session, now session.Time) {
		pass = session.Pass{Gen: core.NextGen(), Expires: now.Add(time.Hour), Renew: time.Hour}
	})
	if ref := p.drive.Attach(ours, nil, session.Resume{Gen: pass.Gen - 1, Received: received}, pass); ref != nil {
		p.t.Fatal(ref)
	}
	p.client = newClient(p.t, theirs)
}

func (p *player) do(f func(core *session.Session, now session.Time)) { p.drive.Do(f) }

// A client reads what the session sends.
type client struct {
	net.Conn
	t *testing.T
	r *bufio.Reader
}

func newClient(t *testing.T, c net.Conn) *client { return &client{c, t, bufio.NewReader(c)} }

// next returns the next frame.
func (c *client) next() (op byte, payload []byte, err error) {
	var b []byte
	for {
		h, err := frame.Parse(b)
		if err != nil {
			return 0, nil, err
		}
		if h.Size > 0 {
			payload := make([]byte, h.Length)
			_, err := io.ReadFull(c.r, payload)
			return h.Op, payload, err
		}
		x, err := c.r.ReadByte()
		if err != nil {
			return 0, nil, err
		}
		b = append(b, x)
	}
}

// data returns the next data message, and skips gateway messages before it.
func (c *client) data() []byte {
	c.t.Helper()
	for {
		op, payload, err := c.next()
		if err != nil {
			c.t.Fatal(err)
		}
		if op == frame.Binary {
			return payload
		}
	}
}

func (c *client) hello() (h wire.Hello) {
	c.t.Helper()
	_, payload, err := c.next()
	arg, ok := strings.CutPrefix(string(payload), "\x10hello ")
	if err != nil || !ok || json.Unmarshal([]byte(arg), &h) != nil {
		c.t.Fatalf("got %q and %v, want hello", payload, err)
	}
	return h
}

// closed reads to the end and returns the code of the Close frame before it.
func (c *client) closed() (code int, err error) {
	for {
		op, payload, err := c.next()
		switch {
		case errors.Is(err, io.EOF):
			return code, nil
		case err != nil:
			return code, err
		case op == frame.Close:
			code, _, _ = frame.ParseClose(payload)
		}
	}
}

// wantSuperseded reads to the end, before which 4409 must come.
func (c *client) wantSuperseded() {
	c.t.Helper()
	c.SetReadDeadline(time.Now().Add(patience))
	if code, err := c.closed(); code != wire.CodeSuperseded || err != nil {
		c.t.Errorf("the older connection: %d, %v; want 4409", code, err)
	}
}

func (p *player) sendDown(i int) { p.game.Write(numbered(nil, i, 100, false)) }

func (p *player) wantDown(i int) {
	p.t.Helper()
	want := numbered(nil, i, 100, false)
	if got := p.client.data(); !bytes.Equal(got, want[len(want)-100:]) {
		p.t.Fatalf("got a message that begins % x, want number %d", got[:4], i)
	}
}

// wantUp sends message i upstream and reads it at the game server.
func (p *player) wantUp(i int) {
	p.t.Helper()
	want := numbered(nil, i, 100, true)
	p.client.Write(want)
	got := make([]byte, len(want))
	if _, err := io.ReadFull(p.game, got); err != nil || !bytes.Equal(got, want) {
		p.t.Fatalf("message %d did not arrive: %v", i, err)
	}
}

// wantTakenOver checks that resuming an attached session replays what was not acked,
// closes the old connection, and relays in both directions.
func (p *player) wantTakenOver(t *testing.T, resume func() wire.Hello) {
	t.Helper()
	p.sendDown(1)
	p.wantDown(1)
	old := p.client
	if h := resume(); !h.Resumed || h.Replay != 1 {
		t.Errorf("hello %+v, want a resume with one message to replay", h)
	}
	p.wantDown(1)
	old.wantSuperseded()
	old.Close()
	p.sendDown(2)
	p.wantDown(2)
	p.wantUp(1)
}

func TestTakeoverClosesTheOldConnection(t *testing.T) {
	drivers(t, func(t *testing.T, d *transport.Driver) {
		p := newPlayer(t, d, nil)
		ours, theirs := clientPair(t, p.driver)
		p.wantTakenOver(t, func() wire.Hello { return p.resume(ours, theirs, 0) })
	})
}

func TestRefusedConnectionStaysOpen(t *testing.T) {
	drivers(t, func(t *testing.T, d *transport.Driver) {
		p := newPlayer(t, d, nil)
		ours, theirs := clientPair(t, p.driver)
		if ref := p.drive.Attach(ours, nil, session.Resume{Gen: 7}, session.Pass{Gen: 2}); ref == nil {
			t.Fatal("a generation that was never issued is accepted")
		}
		go transport.Farewell(ours, []byte("no"))
		if b, err := io.ReadAll(theirs); string(b) != "no" || err != nil {
			t.Errorf("read %q, %v", b, err)
		}
		theirs.Close()
		p.wantUp(1)
	})
}

func TestDisconnectResetsTheConnection(t *testing.T) {
	drivers(t, func(t *testing.T, d *transport.Driver) {
		p := newPlayer(t, d, nil)
		p.do(func(core *session.Session, now session.Time) { core.Disconnect(now) })
		_, linked := overLink.Load(d) // the front node only closes
		if _, _, err := p.client.next(); !errors.Is(err, syscall.ECONNRESET) && (err != io.EOF || !linked) {
			t.Errorf("the client reads %v, want a reset", err)
		}
		ours, theirs := clientPair(t, p.driver)
		p.resume(ours, theirs, 0)
		p.wantUp(1)
	})
}

func TestDisconnectedClientResumes(t *testing.T) {
	drivers(t, func(t *testing.T, d *transport.Driver) {
		p := newPlayer(t, d, nil)
		tcp(p.client.Conn).SetLinger(0)
		p.client.Close()
		p.events.await(session.Disconnected)
		p.sendDown(1)
		ours, theirs := clientPair(t, p.driver)
		p.resume(ours, theirs, 0)
		p.wantDown(1)
	})
}

// The window is smaller than what the game server sends before its Close, and the
// client reads nothing before the game server has closed.
func TestUpstreamsMessagesPrecedeItsClose(t *testing.T) {
	drivers(t, func(t *testing.T, d *transport.Driver) {
		p := newPlayer(t, d, func(c *session.Config) { c.Resumable = false })
		const messages, size = 4000, 4000
		var sending sync.WaitGroup
		sending.Go(func() {
			for i := range messages {
				p.game.Write(numbered(nil, i, size, false))
			}
			p.game.Write(frame.Append(nil, frame.Close, frame.ClosePayload(4321, "done")))
			p.game.(*net.TCPConn).CloseWrite()
		})
		for i := range messages {
			want := numbered(nil, i, size, false)
			if got := p.client.data(); !bytes.Equal(got, want[len(want)-size:]) {
				t.Fatalf("message %d is wrong", i)
			}
		}
		sending.Wait()
		_, payload, err := p.client.next()
		if code, _, _ := frame.ParseClose(payload); code != 4321 || err != nil {
			t.Errorf("Close %d, %v; want 4321", code, err)
		}
	})
}

func TestHardSessionReplacesItsUpstream(t *testing.T) {
	drivers(t, func(t *testing.T, d *transport.Driver) {
		p := newPlayer(t, d, func(c *session.Config) { c.Hard = true })
		p.wantUp(1)
		p.client.Close()
		p.events.await(session.Disconnected)
		wantClose(t, p.game, wire.CodeGoingAway)
		p.game.Close()
		ours, theirs := wstest.TCPPair(t, nil)
		if !p.drive.Reconnect(ours, numbered(nil, 1, 100, false), 0) {
			t.Fatal("the session needs no upstream")
		}
		p.game = theirs
		spare, other := wstest.TCPPair(t, nil)
		if p.drive.Reconnect(spare, nil, 0) {
			t.Fatal("the session takes a second upstream")
		}
		spare.Close()
		other.Close()
		ours, theirs = clientPair(t, p.driver)
		p.resume(ours, theirs, 0)
		p.wantDown(1)
		p.wantUp(2)
	})
}

func TestInfosDescribesEachSession(t *testing.T) {
	drivers(t, func(t *testing.T, d *transport.Driver) {
		var list []*transport.Session
		var players []*player
		for i := range 70 {
			p := newPlayer(t, d, nil)
			for n := range i % 4 {
				p.wantUp(n)
			}
			players, list = append(players, p), append(list, p.drive)
		}
		list = append(list, nil)
		infos := transport.Infos(list)
		for i := range players {
			if got, want := infos[i].Received, uint64(i%4); got != want || infos[i].State != session.Attached {
				t.Errorf("session %d: %d received, %v; want %d, attached", i, got, infos[i].State, want)
			}
		}
		if infos[70].Created != 0 {
			t.Errorf("no session is described as %+v", infos[70])
		}
	})
}

// What a session holds for an upstream that accepts nothing is released when the
// upstream disconnects: newPlayer checks.
func TestBuffersAreFreedWhenAStalledUpstreamDisconnects(t *testing.T) {
	drivers(t, func(t *testing.T, d *transport.Driver) {
		p := newPlayer(t, d, func(c *session.Config) { c.Resumable = false })
		var sending sync.WaitGroup
		sending.Go(func() {
			for i := range 2000 { // far more than sockets hold
				if _, err := p.client.Write(numbered(nil, i, 10_000, true)); err != nil {
					return
				}
			}
		})
		await(t, "a message waits for the game server", func() bool { i := p.drive.Info(); return i.Received > i.Written })
		p.do(func(core *session.Session, now session.Time) { core.Terminate(now, 1000, "over") })
		p.game.(*net.TCPConn).CloseWrite()
		<-p.events.closed
		sending.Wait()
	})
}

// await waits until holds is true.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("within %v not: %s", patience, what)
		}
	}
}

// patience is how long tests wait for what must come: only a fault takes as long.
const patience = time.Minute

// An Observer may call its session, or wait for a goroutine that does, without blocking
// a loop.
func TestObserverMayCallItsSession(t *testing.T) {
	drivers(t, func(t *testing.T, d *transport.Driver) {
		p := newPlayer(t, d, nil)
		states := make(chan session.State, 1)
		p.events.whenDropped(func() {
			p.do(func(core *session.Session, now session.Time) { states <- core.State() })
		})
		p.client.Close()
		if s := <-states; s != session.Detached {
			t.Errorf("the Observer finds the session %v, want detached", s)
		}
	})
}

func TestBlockedObserverStopsNoSession(t *testing.T) {
	d := newDriver(t, transport.Poll)
	p, other := newPlayer(t, d, nil), newPlayer(t, d, nil)
	stuck, release := make(chan struct{}), make(chan struct{})
	p.events.whenDropped(sync.OnceFunc(func() {
		close(stuck)
		<-release
	}))
	p.client.Close()
	<-stuck
	other.wantUp(1)
	ours, theirs := clientPair(t, p.driver)
	p.resume(ours, theirs, 0)
	p.wantUp(1)
	close(release)
}
