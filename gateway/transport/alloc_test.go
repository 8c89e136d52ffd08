//go:build !race

package transport_test

import (
	"io"
	"testing"

	"reseat/gateway/transport"
)

// Under the race detector sync.Pool drops items on purpose, so this test runs without
// it; `make test` does both. Package tls allocates for each read.
func TestRelayingAllocatesNothing(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) { relayingAllocatesNothing(t, newDriver(t, kind)) })
	}
}

func relayingAllocatesNothing(t *testing.T, d *transport.Driver) {
	r := newRig(t, d, zeroKey)
	down, up := numbered(nil, 1, 128, false), numbered(nil, 1, 48, true)
	got := make([]byte, 256)
	trip := func() {
		r.game.Write(down)
		io.ReadFull(r.client, got[:len(down)])
		r.client.Write(up)
		io.ReadFull(r.game, got[:len(up)])
	}
	for range 200 {
		trip()
	}
	if n := testing.AllocsPerRun(500, trip); n >= 1 {
		t.Fatalf("%v allocations for a message each way, want 0", n)
	}
}
