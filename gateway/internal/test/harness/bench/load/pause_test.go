//go:build linux

package load

import (
	"strings"
	"testing"
	"time"

	"reseat/gateway/internal/test/harness/bench/epoll"
	"reseat/gateway/internal/test/harness/bench/game"
)

// ticking returns clients with ticks both ways, or with the firehose.
func ticking(t *testing.T, mode game.Mode) *Client {
	t.Helper()
	spec := game.Spec{Mode: mode, Sessions: 20, Down: down, Up: up, Every: 5 * time.Millisecond}
	every := 5 * time.Millisecond
	if mode != game.Tick {
		every = 0
	}
	c := between(t, spec, Setup{Every: every, Echo: mode == game.Echo}, nil)
	if err := c.Connect(limit); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return c
}

func more(t *testing.T, c *Client, n uint64) {
	t.Helper()
	want := c.Received + n
	if err := c.Until(func() string { return "too few" }, limit, func() bool { return c.Received >= want }); err != nil {
		t.Fatal(err, c.Faults)
	}
}

func TestNothingIsSentInAPauseAndNothingIsLostByIt(t *testing.T) {
	for _, mode := range []game.Mode{game.Tick, game.Echo, game.Fire} {
		c := ticking(t, mode)
		for range 3 {
			more(t, c, 200)
			r, err := c.Pause(limit)
			if err != nil {
				t.Fatal(mode, err, c.Faults)
			}
			received, written := c.Received, c.Written
			if r.Sent != received || r.Taken != written {
				t.Errorf("%s: %d of %d came, %d of %d went", mode, received, r.Sent, r.Taken, written)
			}
			if err := c.Run(50 * time.Millisecond); err != nil {
				t.Fatal(mode, err)
			}
			if c.Received != received || c.Written != written {
				t.Errorf("%s: %d came and %d went in the pause", mode, c.Received-received, c.Written-written)
			}
			if err := c.Resume(); err != nil {
				t.Fatal(mode, err)
			}
		}
		more(t, c, 200)
		if r, err := c.Stop(limit); err != nil || r.Sent != c.Received {
			t.Errorf("%s: %v, %d of %d", mode, err, c.Received, r.Sent)
		}
	}
}

// A message that is lost in one of many slices fails the run at its end.
func TestMessageMissingAtAPauseFailsTheRun(t *testing.T) {
	calls := 0
	spec := game.Spec{Mode: game.Tick, Sessions: 1, Down: down, Up: up, Every: time.Millisecond, Limit: 50}
	c := between(t, spec, Setup{}, func(b []byte) []byte {
		if calls++; calls > 20 {
			return nil
		}
		return b
	})
	if err := c.Connect(limit); err != nil {
		t.Fatal(err)
	}
	c.Start()
	c.Run(200 * time.Millisecond)
	if _, err := c.Pause(100 * time.Millisecond); err != ErrFaults || c.Faults.Gap == 0 {
		t.Errorf("%v, %v", err, c.Faults)
	}
}

func TestSessionsAtTheEndGetNoTicks(t *testing.T) {
	spec := game.Spec{Mode: game.Tick, Sessions: 4, Idle: 3, Down: down, Up: up, Every: time.Millisecond, Limit: 10}
	c := between(t, spec, Setup{}, nil)
	if err := c.Connect(limit); err != nil {
		t.Fatal(err)
	}
	c.Start()
	more(t, c, 10)
	if r, err := c.Stop(limit); err != nil || r.Sent != 10 || c.sessions[0].check.Taken != 10 {
		t.Errorf("%v, %d sent", err, r.Sent)
	}
}

// After a pause acks are due when they would have been without: their rate is that of a
// run in one piece.
func TestPauseDoesNotChangeWhenAcksAreDue(t *testing.T) {
	g := speaking(t, Setup{Down: down, Up: up})
	g.open()
	g.hello(false, 0, 0)
	g.send(1, 1)
	g.until("the message", func() bool { return g.c.Received == 1 })
	due, _ := g.c.owing.next()
	g.c.paused = epoll.Now()
	g.c.unpause(g.c.paused + 7e9)
	if now, ok := g.c.owing.next(); !ok || now != due+7e9 {
		t.Errorf("due %v later, want 7s", time.Duration(now-due))
	}
	g.c.owing.settle(due + 7e9)
	g.until("the ack", g.said("ack 0", "ack 1"))
}

func TestPingIsAnsweredInAPause(t *testing.T) {
	g := speaking(t, Setup{Down: down, Up: up})
	g.open()
	g.hello(false, 0, 0)
	g.send(1, 1)
	g.until("the message", func() bool { return g.c.Received == 1 })
	g.c.paused = epoll.Now()
	g.say("ping p")
	g.until("ack and pong", g.said("ack 0", "ack 1", "pong p"))
}

// What is sent anyway takes along an ack that has waited for a while, as with the clients
// that are shipped.
func TestAckGoesWithDataAfterHalfASecond(t *testing.T) {
	g := speaking(t, Setup{Down: down, Up: up})
	g.open()
	g.hello(false, 0, 0)
	g.send(1, 1)
	g.until("the message", func() bool { return g.c.Received == 1 })
	s := &g.c.sessions[0]
	s.make()
	g.until("a message alone", func() bool { return g.data == 1 })
	if !g.said("ack 0")() {
		t.Errorf("%q", g.texts)
	}
	s.v1.since -= ackWanted
	s.make()
	g.until("another", func() bool { return g.data == 2 })
	if !g.said("ack 0", "ack 1")() || s.v1.owed != 0 {
		t.Errorf("%q", g.texts)
	}
}

// receives returns whether a result has come, without waiting for it.
func receives(from <-chan error, err *error) func() bool {
	return func() bool {
		select {
		case *err = <-from:
			return true
		default:
			return false
		}
	}
}

func TestClientsBesideResumeWhileOthersGoOn(t *testing.T) {
	g := speaking(t, Setup{Down: down, Up: up})
	b, err := NewBeside(Setup{Target: g.c.Target, Resumable: true, Sessions: 1, InFlight: 1, First: 7, Down: down, Up: up})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	connected := make(chan error, 1)
	go func() { connected <- b.Connect(limit) }()
	g.until("handshake", func() bool { return len(g.heads) == 1 })
	g.hello(false, 0, 0)
	g.until("connected", receives(connected, &err))
	if err != nil || !strings.Contains(g.heads[0], "GET /s/7 ") {
		t.Fatalf("%v, %q", err, g.heads)
	}
	if err := b.Cut(1); err != nil {
		t.Fatal(err)
	}
	b.Resume(limit)
	g.until("resume", func() bool { return len(g.heads) == 2 })
	g.hello(true, 0, 0)
	g.until("back", receives(b.Done(), &err))
	if err != nil || !strings.Contains(g.heads[1], "reseat.token.t1, reseat.received.0\r\n") {
		t.Errorf("%v, %q", err, g.heads[1])
	}
	g.say("close {}")
	g.conn.Write([]byte{0xFF})                           // no frame
	for end := epoll.Now() + int64(limit); err == nil; { // it comes between two orders, or in one
		if epoll.Now() > end {
			t.Fatal("a fault is not reported")
		}
		b.Resume(limit)
		g.until("the fault", receives(b.Done(), &err))
	}
}

// Connecting thousands of sessions takes longer than a gateway waits for an answer.
func TestOthersAreServedWhileClientsConnect(t *testing.T) {
	spec, set := echo(1)
	c := between(t, spec, set, nil)
	calls := 0
	c.Meanwhile = func() error { calls++; return nil }
	if err := c.Connect(limit); err != nil || calls != 1 {
		t.Fatalf("%v, %d calls", err, calls)
	}
	c.called -= meanwhileEvery
	if err := c.Run(time.Millisecond); err != nil || calls != 2 {
		t.Errorf("%v, %d calls", err, calls)
	}
	c.Meanwhile = func() error { return ErrFaults }
	c.called -= 2 * meanwhileEvery
	if err := c.Run(time.Millisecond); err != ErrFaults {
		t.Errorf("%v: the others' fault is not noticed", err)
	}
}
