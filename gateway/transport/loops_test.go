//go:build linux

package transport_test

import (
	"io"
	"runtime"
	"sync"
	"testing"

	"reseat/gateway/transport"
)

// One loop is in use until it is busy. Then there are two, and the sessions that were there before are shared.
func TestBusyLoopSharesItsSessions(t *testing.T) {
	if runtime.GOMAXPROCS(0) < 2 {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	}
	d := newDriver(t, transport.Poll)
	const sessions = 12
	all := make([]*rig, sessions)
	for i := range all {
		all[i] = newRig(t, d, zeroKey)
		if err := all[i].echo(i); err != nil {
			t.Fatal(err)
		}
	}
	if n := transport.InUse(d.LoopStats()); n != 1 {
		t.Errorf("%d loops are in use for a few messages, want 1", n)
	}
	var running sync.WaitGroup
	for _, r := range all {
		fill(r.client, true)
		running.Go(func() { io.Copy(io.Discard, r.game) })
	}
	await(t, "sessions are on two loops", func() bool {
		stats := d.LoopStats()
		return transport.InUse(stats) >= 2 && stats[0].Moved > 0 && stats[0].Sessions > 0 && stats[0].Sessions < sessions
	})
	for _, r := range all {
		r.client.Close()
	}
	running.Wait()
}
