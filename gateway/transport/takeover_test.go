package transport_test

import (
	"os"
	"runtime"
	"testing"

	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/session"
	"reseat/gateway/transport"
)

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
	if runtime.GOOS != "linux" {
		t.Skip("there are no loops here")
	}
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
	if runtime.GOOS != "linux" {
		t.Skip("there are no loops here")
	}
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
		if p.drive.Reconnect(ours, nil, false) {
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
	if !p.drive.Reconnect(ours, nil, false) {
		t.Fatal("the session needs no upstream")
	}
	p.game = theirs
	if n := descriptors(t) - before; n > 0 {
		t.Errorf("%d more descriptors for an accepted upstream", n)
	}
}
