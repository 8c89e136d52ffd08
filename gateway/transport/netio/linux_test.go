//go:build linux

package netio

import (
	"io"
	"net"
	"testing"

	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/session"
	"reseat/gateway/transport/rawconn"
)

// plainNet returns a plain client's session between two TCP connections, and the
// client's end.
func plainNet(t *testing.T) (s *Session, client net.Conn) {
	t.Helper()
	up, game := wstest.TCPPair(t, nil)
	down, client := wstest.TCPPair(t, nil)
	s = newSession(t, up, &[]net.Conn{game, client})
	s.attachFirst(down)
	return s, client
}

// A goroutine that writes another's output must soon return to its own socket. A
// client's reader that wrote all of a fast upstream's messages would read nothing
// from its client, which would then count as silent.
func TestReaderWritesForAnotherLegOnlyBriefly(t *testing.T) {
	s, client := plainNet(t)
	go io.Copy(io.Discard, client)
	frame := []byte{0x82, 1, 'x'}
	more := func() {
		room := s.core.Room(s.up.leg)
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
			more() // as the upstream's reader does meanwhile
		}
		s.mu.Unlock()
		s.down.written, s.down.full, s.down.writeErr = new(rawconn.Sender).Send(int(fd), s.down.bufs)
		return true
	}
	more()
	s.flush(s.down)
	s.settle()
	if writes != flushRounds {
		t.Errorf("it has written %d times, want %d", writes, flushRounds)
	}
}

// If a line is logged for each message, the log is slower than a game server.
func TestReadingPausesWhileObserverIsBehind(t *testing.T) {
	s, _ := plainNet(t)
	s.enter()
	for s.notifying {
		s.mu.Unlock()
		s.enter()
	}
	s.notifying = true // a goroutine is, and has not returned yet
	s.events = make([]session.Event, maxPending)
	if !s.reads(s.up) {
		t.Error("reading is paused with few events pending")
	}
	s.events = make([]session.Event, maxPending+1)
	if s.reads(s.up) || s.reads(s.down) {
		t.Error("reading goes on with too many events pending")
	}
	s.up.parked = true
	s.mu.Unlock()
	for s.notifyNext() {
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.up.parked { // the reader itself may have received from wake already
		t.Error("no event is pending, and reading is not resumed")
	}
}

// An unwatched socket costs an empty read after each message.
func TestPlainTCPConnectionsAreWatched(t *testing.T) {
	s, _ := plainNet(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, l := range map[string]*leg{"upstream": s.up, "client": s.down} {
		if l.raw != nil && !l.watched {
			t.Errorf("the %s's connection is not watched", name)
		}
	}
}

func TestSocketStateFollowsThePeersReads(t *testing.T) {
	conn, peer := wstest.TCPPair(t, nil)
	defer conn.Close()
	defer peer.Close()
	l := newLeg(nil, conn, nil)
	if st, err := rawconn.StateOfConn(conn); st != (rawconn.State{RTT: st.RTT}) || err != nil || st.RTT == 0 {
		t.Fatalf("%+v %v of an idle socket", st, err)
	}
	if _, err := peer.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	var err error
	for st := (rawconn.State{}); !st.Unread; { // it is on its way
		if st, err = rawconn.StateOfConn(conn); err != nil || st.Queued != 0 {
			t.Fatalf("%+v %v, want a byte to be read", st, err)
		}
	}
	wrote := 0
	for {
		l.bufs = [][]byte{make([]byte, 64<<10)}
		n, full, err := l.tryWrite()
		if err != nil {
			t.Fatal(err)
		}
		wrote += n
		if full {
			break
		}
	}
	before, err := rawconn.StateOfConn(conn)
	if err != nil || before.Queued == 0 || before.Queued >= wrote || int(before.Acked)+before.Queued > wrote {
		t.Fatalf("%+v %v of a full socket that was given %d", before, err, wrote)
	}
	if _, err := io.ReadFull(peer, make([]byte, wrote)); err != nil {
		t.Fatal(err)
	}
	for st := before; int(st.Acked) < wrote; { // the acknowledgements are on their way
		if st, err = rawconn.StateOfConn(conn); err != nil || st.Acked < before.Acked {
			t.Fatalf("%+v %v, after %+v", st, err, before)
		}
	}
}

func TestPipeHasNoSocketState(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if _, err := rawconn.StateOfConn(a); err == nil {
		t.Fatal("no error")
	}
}
