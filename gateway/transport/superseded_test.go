//go:build linux

package transport_test

import (
	"testing"
	"time"

	"reseat/gateway/session"
	"reseat/gateway/transport"
	"reseat/gateway/wire"
)

// A superseded client whose socket is full gets 4409 once it reads on, behind what was
// in flight.
func TestSupersededClientWithAFullSocketIsNotified(t *testing.T) {
	drivers(t, func(t *testing.T, d *transport.Driver) {
		p := newPlayer(t, d, func(c *session.Config) { c.BufferBytes, c.BufferMessages = 64<<20, 1<<20 })
		ours, theirs := narrowPair(t)
		ours, theirs = secured(t, d, ours, theirs)
		p.resume(ours, theirs, 0)
		const messages, size = 6, 1 << 20 // more than any socket holds
		go func() {
			for i := range messages {
				p.game.Write(numbered(nil, i, size, false))
			}
		}()
		await(func() bool { return p.drive.Info().Sent == messages })
		old := p.client
		ours, theirs = clientPair(t, d)
		p.resume(ours, theirs, 0)
		defer theirs.Close()
		old.SetReadDeadline(time.Now().Add(time.Minute))
		if code, err := old.closed(); code != wire.CodeSuperseded || err != nil {
			t.Errorf("the older connection: %d, %v; want 4409", code, err)
		}
	})
}
