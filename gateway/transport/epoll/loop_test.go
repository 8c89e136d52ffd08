//go:build linux

package epoll

import (
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/internal/test/leaks"
	"reseat/gateway/replay"
	"reseat/gateway/session"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// A handClock advances only when moved.
type handClock struct{ now atomic.Int64 }

func (c *handClock) Now() session.Time { return session.Time(c.now.Load()) }

// A rig is one session on a loop whose clock the test moves.
type rig struct {
	*Session
	clock        *handClock
	closed       chan struct{}
	client, game net.Conn
	onEvents     atomic.Value // func([]session.Event), called by Events if set
}

func (r *rig) Events(list []session.Event) {
	if f, ok := r.onEvents.Load().(func([]session.Event)); ok {
		f(list)
	}
}

func (r *rig) Panicked(any, []byte) {}
func (r *rig) Closed()              { close(r.closed) }

func newRig(t *testing.T, resumable bool) *rig {
	clientEnd, client := socketPair(t)
	return newRigOf(t, clientEnd, client, func(c *session.Config) { c.Resumable = resumable })
}

// newRigOf makes one with the test's own client connection.
func newRigOf(t *testing.T, clientEnd int, client net.Conn, with func(*session.Config)) *rig {
	clock := new(handClock)
	return newRigOn(t, newLoop(t, clock), clock, clientEnd, client, with)
}

// newLoop starts a loop, which ends with the test.
func newLoop(t *testing.T, clock *handClock) *Loop {
	return newLoops(t, clock, 1).list[0]
}

func newLoops(t *testing.T, clock *handClock, n int) *Loops {
	clock.now.Store(int64(time.Hour))
	all, err := Start(clock, n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		all.Close()
		clock.now.Add(int64(time.Hour)) // past every deadline
		for range 2 {
			for _, l := range all.list {
				l.call(func() {})
			}
		}
		all.Wait()
	})
	return all
}

func newRigOn(t *testing.T, loop *Loop, clock *handClock, clientEnd int, client net.Conn, with func(*session.Config)) *rig {
	r := &rig{clock: clock, closed: make(chan struct{})}
	gameEnd, game := socketPair(t)
	r.game, r.client = game, client
	cfg := session.Config{
		ID: "s", Resumable: true, Terms: session.Terms{Grace: time.Minute, GraceBeforeStart: time.Minute}, GraceUnconfirmed: time.Minute, Heartbeat: 15 * time.Second,
		BufferBytes: 1 << 20, BufferMessages: 4096, MaxMessage: 1 << 20,
		Store: replay.NewStore(1<<30, nil), Key: func() [4]byte { return [4]byte{} },
	}
	with(&cfg)
	core := session.New(cfg, r.clock.Now(), nil)
	r.Session = loop.New(core, Descriptor(gameEnd), r)
	r.Attach(Descriptor(clientEnd), nil, func(core *session.Session, now session.Time) (*session.Attachment, *session.Refusal) {
		return core.AttachFirst(now, session.Pass{Gen: 1, Renew: time.Hour}), nil
	})
	t.Cleanup(func() {
		r.Do(func(core *session.Session, now session.Time) { core.Terminate(now, 1000, "test over") })
		client.Close()
		game.Close()
	})
	return r
}

// after moves the clock, and makes the loop notice.
func (r *rig) after(d time.Duration) {
	r.clock.now.Add(int64(d))
	for range 2 { // the second turn does what the first one queued
		r.Do(func(*session.Session, session.Time) {})
	}
}

// pass advances the clock in steps small enough not to look like a suspended process.
func (r *rig) pass(d time.Duration) {
	for step := 100 * time.Millisecond; d > 0; d -= step {
		r.after(min(d, step))
	}
}

// sockets counts the legs that are not closed.
func (r *rig) sockets() (n int) {
	r.Do(func(*session.Session, session.Time) { n = r.open })
	return n
}

// socketPair returns a connection: the loop's end, and the test's.
func socketPair(t *testing.T) (ours int, theirs net.Conn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fds[1]), "")
	defer f.Close()
	if theirs, err = net.FileConn(f); err != nil {
		t.Fatal(err)
	}
	return fds[0], theirs
}

func TestClosingHandshakeTimesOut(t *testing.T) {
	r := newRig(t, true)
	r.Do(func(core *session.Session, now session.Time) { core.Terminate(now, 1000, "over") })
	if r.after(session.LingerTime - 10*time.Millisecond); r.sockets() != 2 {
		t.Fatalf("%d sockets are open before a second has passed, want 2", r.sockets())
	}
	r.after(100 * time.Millisecond)
	<-r.closed
}

func TestClientThatReadsNothingIsClosedAfterTheFlushTime(t *testing.T) {
	r := newRig(t, false)
	r.fill(t)
	r.Do(func(core *session.Session, now session.Time) { core.Terminate(now, 1000, "over") })
	if r.after(session.LingerTime + time.Second); r.sockets() != 1 {
		t.Fatalf("%d sockets are open after two seconds, want the client's alone", r.sockets())
	}
	r.after(new(session.Attachment).FlushTime())
	<-r.closed
}

// fill makes the game server send until the client's socket is full.
func (r *rig) fill(t *testing.T) {
	t.Helper()
	msg := frame.Append(nil, frame.Binary, make([]byte, 1<<16))
	full := false
	for !full {
		if _, err := r.game.Write(msg); err != nil {
			t.Fatal(err)
		}
		r.Do(func(*session.Session, session.Time) { full = r.down.full })
	}
}

func TestSilentClientIsPingedAndClosed(t *testing.T) {
	r := newRig(t, true)
	b := make([]byte, 4096)
	r.client.Read(b) // the hello
	r.pass(15*time.Second + 100*time.Millisecond)
	if n, err := r.client.Read(b); err != nil || string(b[:n]) != "\x81\x07\x10ping 1" {
		t.Fatalf("got %q, %v; want a ping", b[:n], err)
	}
	r.pass(15*time.Second + 100*time.Millisecond)
	io.ReadAll(r.client) // until the loop closes it
	if n := r.sockets(); n != 1 {
		t.Errorf("%d sockets are open, want the upstream's alone", n)
	}
}

// A waiting loop also wakes by its own clock.
func TestAlarmWakesTheLoop(t *testing.T) {
	clock := &running{time.Now()}
	all, err := Start(clock, 1)
	if err != nil {
		t.Fatal(err)
	}
	gameEnd, game := socketPair(t)
	over := &rig{closed: make(chan struct{})}
	core := session.New(session.Config{
		ID: "s", Heartbeat: time.Second, Idle: 20 * time.Millisecond, BufferBytes: 1, BufferMessages: 1,
		Store: replay.NewStore(1<<30, nil), Key: func() [4]byte { return [4]byte{} },
	}, clock.Now(), nil)
	all.Place().New(core, Descriptor(gameEnd), over)
	io.Copy(io.Discard, game) // until the loop closes it
	game.Close()
	<-over.closed
	all.Close()
	all.Wait()
}

type running struct{ start time.Time }

func (c *running) Now() session.Time { return session.Time(time.Since(c.start)) + 1 }
