package transport_test

import (
	"os"
	"runtime"
	"testing"

	"reseat/gateway/session"
	"reseat/gateway/transport"
)

// descriptors counts those of the process.
func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// Clients that do not go when they are taken over hold few descriptors, long
// before their time is over. The goroutines of the other driver give theirs back
// when they have noticed: TestLingeringConnectionsOfTakeoversAreBounded.
func TestALoopKeepsFewConnectionsThatWereTakenOver(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there are no loops here")
	}
	p := newPlayer(t, newDriver(t, transport.Poll), nil)
	before := descriptors(t)
	const takeovers = 15
	for range takeovers {
		ours, theirs := tcpPair(t)
		p.resume(ours, theirs, 0)
	}
	if n := descriptors(t) - before - takeovers; n > session.MaxLingering { // one of each is the test's
		t.Errorf("%d descriptors of clients that were taken over, want %d at most", n, session.MaxLingering)
	}
}

// A loop takes connections under descriptors of its own, and closes those that they came
// with; what it is not to have it gives back at once.
func TestLoopHoldsOneDescriptorForEachConnection(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there are no loops here")
	}
	d := newDriver(t, transport.Poll)
	newPlayer(t, d, nil) // the loops themselves
	before := descriptors(t)
	p := newPlayer(t, d, func(c *session.Config) { c.Hard = true })
	p.wantUp(1)                               // the loop has begun
	if n := descriptors(t) - before; n != 4 { // two of each connection: ours and the test's
		t.Errorf("%d descriptors for two connections, want 4", n)
	}
	before = descriptors(t)
	for range 5 {
		ours, theirs := tcpPair(t)
		if ref := p.drive.Attach(ours, nil, session.Resume{Gen: 99}, session.Pass{Gen: 100}); ref == nil {
			t.Fatal("a generation that was never issued is taken")
		}
		if p.drive.Reconnect(ours, nil) {
			t.Fatal("a session with an upstream takes another")
		}
		ours.Close()
		theirs.Close()
	}
	if n := descriptors(t) - before; n != 0 {
		t.Errorf("%d descriptors of what was refused", n)
	}
	p.client.Close()
	p.events.await(session.Dropped)
	older := p.game
	defer older.Close() // not before: its end would give a descriptor back
	ours, theirs := tcpPair(t)
	before = descriptors(t)
	if !p.drive.Reconnect(ours, nil) {
		t.Fatal("the session needs no upstream")
	}
	p.game = theirs
	if n := descriptors(t) - before; n > 0 {
		t.Errorf("%d more descriptors for an upstream that was taken", n)
	}
}
