//go:build linux

package epoll

import (
	"io"
	"sync"
	"testing"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/session"
)

// A slow Observer stops the game server from being read, and lets it be read again, or
// the memory of the process would be what --log-messages is behind by.
func TestSessionIsNotReadWhileItsObserverIsBehind(t *testing.T) {
	const messages = 200 // so many small ones a socket holds
	ours, client := socketPair(t)
	r := newRigOf(t, ours, client, func(c *session.Config) { c.Resumable, c.MessageLog.On = false, true })
	stuck := make(chan struct{})
	free := sync.OnceFunc(func() { close(stuck) })
	t.Cleanup(free)
	r.onEvents.Store(func([]session.Event) { <-stuck })
	msg := frame.Append(nil, frame.Binary, []byte{1})
	sent := func() (n uint64) {
		r.Do(func(core *session.Session, _ session.Time) { n = core.Info().Sent })
		return n
	}
	for range messages {
		if _, err := r.game.Write(msg); err != nil {
			t.Fatal(err)
		}
		sent() // each is read by itself, or it waits in the socket
	}
	n := int(sent())
	if n <= maxUntold/2 || n > maxUntold+2 {
		t.Errorf("%d messages were read while the Observer was behind, want about %d", n, maxUntold)
	}
	read := func(messages int) {
		client.SetReadDeadline(time.Now().Add(10 * time.Second))
		if n, err := io.ReadFull(client, make([]byte, messages*len(msg))); err != nil {
			t.Errorf("%d bytes of %d messages came: %v", n, messages, err)
		}
	}
	read(n)
	free() // nothing else wakes the loop now
	read(messages - n)
}
