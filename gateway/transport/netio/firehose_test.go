//go:build linux

package netio

import (
	"io"
	"net"
	"testing"
	"time"

	"reseat/gateway/replay"
	"reseat/gateway/session"
	"reseat/gateway/transport/rawconn"
)

// silent is a Observer of a test that wants to know only of the end.
type silent struct{ closed chan struct{} }

func (silent) Events([]session.Event) {}
func (silent) Panicked(any, []byte)   {}
func (w silent) Closed()              { close(w.closed) }

// plainNet is a plain client's session between two TCP connections, and the far
// ends of these.
func plainNet(t *testing.T) (s *Session, game, client net.Conn) {
	t.Helper()
	pair := func() (a, b net.Conn) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		if b, err = net.Dial("tcp", ln.Addr().String()); err != nil {
			t.Fatal(err)
		}
		if a, err = ln.Accept(); err != nil {
			t.Fatal(err)
		}
		return a, b
	}
	cfg := session.Config{
		ID: "s", Heartbeat: time.Minute, BufferBytes: 1 << 20, BufferMessages: 4096, MaxMessage: 1 << 20,
		Store: replay.NewStore(1<<30, nil), Key: func() [4]byte { return [4]byte{} },
	}
	up, game := pair()
	down, client := pair()
	d, watch := NewDriver(clock()), silent{make(chan struct{})}
	s = d.New(session.New(cfg, d.now(), nil), up, watch)
	s.Attach(down, nil, func(core *session.Session, now session.Time) (*session.Attachment, *session.Refusal) {
		return core.AttachFirst(now, session.Pass{}), nil
	})
	t.Cleanup(func() {
		s.Do(func(core *session.Session, now session.Time) { core.Terminate(now, 1000, "test over") })
		game.Close()
		client.Close()
		<-watch.closed
		s.running.Wait()
		d.Close()
		d.Wait()
	})
	return s, game, client
}

// Whoever writes for another, while that one goes on, has a socket of its own to
// read: a client's reader that wrote a firehose to the end would hear nothing of
// its client, which is then taken for silent.
func TestWhoWritesForAFirehoseIsSoonRelieved(t *testing.T) {
	s, _, client := plainNet(t)
	go io.Copy(io.Discard, client)
	frame := []byte{0x82, 1, 'x'}
	more := func() {
		room := s.core.Room(s.up.leg, nil)
		s.core.Read(s.now, s.up.leg, room[:copy(room, frame)])
	}
	writes := 0
	s.enter()
	for s.down.writing {
		s.mu.Unlock()
		s.enter()
	}
	s.down.attempt = func(fd uintptr) bool {
		writes++
		if s.mu.Lock(); writes < 1000 {
			more() // the upstream's reader was here meanwhile
		}
		s.mu.Unlock()
		s.down.took, s.down.short, s.down.writeErr = new(rawconn.Sender).Send(int(fd), s.down.bufs)
		return true
	}
	more()
	s.flush(s.down)
	s.settle()
	if writes != flushRounds {
		t.Errorf("it has written %d times, want %d", writes, flushRounds)
	}
}

// Where a line is written for each message, the log is slower than a game server.
func TestNobodyIsReadWhileTooMuchIsToBeTold(t *testing.T) {
	s, _, _ := plainNet(t)
	s.enter()
	for s.telling {
		s.mu.Unlock()
		s.enter()
	}
	s.telling = true // somebody is, and has not come back yet
	s.events = make([]session.Event, maxUntold)
	if !s.reads(s.up) {
		t.Error("it is not read, and little is to be told")
	}
	s.events = make([]session.Event, maxUntold+1)
	if s.reads(s.up) || s.reads(s.down) {
		t.Error("it is read on, and much is to be told")
	}
	s.up.parked = true
	s.mu.Unlock()
	for s.tellNext() {
	}
	select {
	case <-s.up.wake:
	default:
		t.Error("all is told, and nobody reads on")
	}
}

// A socket that nobody watches is read once more after each message, in vain.
func TestPlainConnectionsAreWatchedForTheirEnd(t *testing.T) {
	s, _, _ := plainNet(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, l := range map[string]*leg{"upstream": s.up, "client": s.down} {
		if l.raw != nil && !l.watched {
			t.Errorf("the %s's end would be found out by a read for each message", name)
		}
	}
}
