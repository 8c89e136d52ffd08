//go:build linux

package transport_test

import (
	"io"
	"os"
	"syscall"
	"testing"

	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/replay"
	"reseat/gateway/session"
	"reseat/gateway/transport"
)

// noDescriptors runs f while the process can't open descriptors.
func noDescriptors(t *testing.T, f func()) {
	t.Helper()
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	none := syscall.Rlimit{Cur: 3, Max: was.Max}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	defer syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was)
	f()
}

// A client that attaches while no descriptor is left is disconnected, and may resume
// later.
func TestClientIsDetachedWhenDescriptorsAreExhausted(t *testing.T) {
	p := newPlayer(t, newDriver(t, transport.Poll), nil)
	var pass session.Pass
	p.do(func(core *session.Session, now session.Time) { pass = session.Pass{Gen: core.NextGen()} })
	ours, theirs := clientPair(t, p.driver)
	noDescriptors(t, func() {
		if ref := p.drive.Attach(ours, nil, session.Resume{Gen: 1}, pass); ref != nil {
			t.Error(ref)
		}
	})
	if _, err := theirs.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the client reads %v, want its end", err)
	}
	p.events.await(session.Disconnected)
	ours, theirs = clientPair(t, p.driver)
	p.resume(ours, theirs, 0)
	p.wantUp(1)
}

func TestSessionRunsOnGoroutinesWhenDescriptorsAreExhausted(t *testing.T) {
	d := newDriver(t, transport.Poll)
	gameEnd, game := wstest.TCPPair(t, nil)
	clientEnd, theirs := wstest.TCPPair(t, nil)
	core := session.New(sessionConfig(replay.NewStore(1<<30, nil)), d.Clock().Now(), nil)
	p := &player{t: t, driver: d, events: newEvents(), game: game, client: newClient(t, theirs)}
	noDescriptors(t, func() { p.drive = d.New(core, gameEnd, clientEnd, p.events) })
	p.drive.AttachFirst(clientEnd, nil, session.Pass{})
	p.wantUp(1)
	p.client.Close()
	p.game.Close()
	<-p.events.closed
	p.drive.Wait()
}

// descriptors counts the open descriptors of the process.
func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// Superseded clients that don't close hold few descriptors, long before their
// deadlines. Goroutines of the other driver release theirs when they notice; see
// TestLingeringConnectionsOfTakeoversAreBounded.
func TestLoopClosesTheOldestSupersededConnections(t *testing.T) {
	p := newPlayer(t, newDriver(t, transport.Poll), nil)
	p.wantUp(1) // both connections are the loop's
	before := descriptors(t)
	const takeovers = 15
	for range takeovers {
		ours, theirs := wstest.TCPPair(t, nil)
		p.resume(ours, theirs, 0)
	}
	if n := descriptors(t) - before - takeovers; n > session.MaxLingering { // one end of each belongs to the test
		t.Errorf("%d descriptors of superseded clients, want at most %d", n, session.MaxLingering)
	}
}

// A loop duplicates the descriptors of connections and closes the originals. It
// releases at once what it can't use.
func TestLoopHoldsOneDescriptorPerConnection(t *testing.T) {
	d := newDriver(t, transport.Poll)
	newPlayer(t, d, nil).wantUp(1) // the loops themselves, and no connection under way to them
	before := descriptors(t)
	p := newPlayer(t, d, func(c *session.Config) { c.Hard = true })
	p.wantUp(1)                               // the loop has started
	if n := descriptors(t) - before; n != 4 { // two per connection: ours and the test's
		t.Errorf("%d descriptors for two connections, want 4", n)
	}
	before = descriptors(t)
	for range 5 {
		ours, theirs := wstest.TCPPair(t, nil)
		if ref := p.drive.Attach(ours, nil, session.Resume{Gen: 99}, session.Pass{Gen: 100}); ref == nil {
			t.Fatal("a generation that was never issued is accepted")
		}
		if p.drive.Reconnect(ours, nil, 0) {
			t.Fatal("a session with an upstream takes another")
		}
		ours.Close()
		theirs.Close()
	}
	if n := descriptors(t) - before; n != 0 {
		t.Errorf("%d descriptors of refused connections", n)
	}
	p.client.Close()
	p.events.await(session.Disconnected)
	older := p.game
	defer older.Close() // not earlier: closing it would free a descriptor
	ours, theirs := wstest.TCPPair(t, nil)
	before = descriptors(t)
	if !p.drive.Reconnect(ours, nil, 0) {
		t.Fatal("the session needs no upstream")
	}
	p.game = theirs
	if n := descriptors(t) - before; n > 0 {
		t.Errorf("%d more descriptors for an accepted upstream", n)
	}
}
