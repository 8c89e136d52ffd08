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

// A slow Observer pauses reading from the game server, and resumes it when it catches
// up. Otherwise --log-messages could use unbounded memory.
func TestSessionIsNotReadWhileItsObserverIsBehind(t *testing.T) {
	const messages = 200 // a socket holds this many small messages
	ours, client := socketPair(t)
	r := newRigOf(t, ours, client, func(c *session.Config) { c.Resumable, c.MessageLog.On = false, true })
	stuck := make(chan struct{})
	free := sync.OnceFunc(func() { close(stuck) })
	t.Cleanup(free)
	r.onEvents.Store(func([]session.Event) { <-stuck })
	msg := frame.Append(nil, frame.Binary, []byte{1})
	sentCount := func() (n uint64) {
		r.Do(func(core *session.Session, _ session.Time) { n = core.Info().Sent })
		return n
	}
	for range messages {
		if _, err := r.game.Write(msg); err != nil {
			t.Fatal(err)
		}
		sentCount() // so that each is read by itself, or stays in the socket
	}
	n := int(sentCount())
	if n <= maxPending/2 || n > maxPending+2 {
		t.Errorf("%d messages were read while the Observer was behind, want about %d", n, maxPending)
	}
	read := func(messages int) {
		client.SetReadDeadline(time.Now().Add(time.Minute))
		if n, err := io.ReadFull(client, make([]byte, messages*len(msg))); err != nil {
			t.Errorf("%d bytes of %d messages came: %v", n, messages, err)
		}
	}
	read(n)
	free() // nothing else wakes the loop from here on
	read(messages - n)
}
