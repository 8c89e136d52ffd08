package drive_test

import (
	"os"
	"runtime"
	"testing"

	"reseat/gateway/drive"
	"reseat/gateway/session"
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
// when they have noticed: TestTakeoversLeaveFewConnectionsBehind.
func TestALoopKeepsFewConnectionsThatWereTakenOver(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there are no loops here")
	}
	p := newPlayer(t, newDriver(t, drive.Poll), nil)
	before := descriptors(t)
	const takeovers = 15
	for range takeovers {
		ours, theirs := tcpPair(t)
		p.resume(ours, theirs, 0)
	}
	if n := descriptors(t) - before - takeovers; n > session.MostParting { // one of each is the test's
		t.Errorf("%d descriptors of clients that were taken over, want %d at most", n, session.MostParting)
	}
}
