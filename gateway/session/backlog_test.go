package session_test

import (
	"testing"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/replay"
	"reseat/gateway/session"
)

const heartbeat = 10 * time.Second

// attached returns a session whose driver has taken its output for the client, at
// moment 1.
func attached(t *testing.T) (*session.Session, *session.Attachment) {
	t.Helper()
	s := session.New(session.Config{
		ID: "s", Heartbeat: heartbeat, BufferBytes: 1 << 20, BufferMessages: 4096, MaxMessage: 1 << 20,
		Store: replay.NewStore(1<<30, nil), Key: func() [4]byte { return [4]byte{} },
	}, 1, frame.Append(nil, frame.Binary, make([]byte, 3000)))
	a := s.AttachFirst(1, session.Pass{})
	if out := s.Out(1, a, nil); len(out) == 0 {
		t.Fatal("nothing to write")
	}
	return s, a
}

// full returns such a session after its write filled the client's socket.
func full(t *testing.T) (*session.Session, *session.Attachment) {
	t.Helper()
	s, a := attached(t)
	s.Wrote(1, a, 2000, true)
	return s, a
}

// run calls Tick whenever s asks for it, until end. Before each call it reports how much
// of the socket's content the client has taken.
func run(t *testing.T, s *session.Session, a *session.Attachment, end session.Time, backlog func(now session.Time) int) {
	t.Helper()
	for n := 0; s.State() == session.Attached; n++ {
		now := s.Next()
		if now > end {
			return
		}
		if n > 1000 {
			t.Fatal("it asks for Tick without end")
		}
		if held := backlog(now); s.WatchesSocket(a) {
			s.Socket(now, a, session.SocketState{Acked: uint64(2000 - held), Queued: held})
		}
		s.Tick(now)
	}
}

// Protocol section 5.4: bytes that a full socket accepts count as heard.
func TestSlowlyDrainingFullSocketCountsAsHeard(t *testing.T) {
	s, a := full(t)
	end := session.Time(10 * heartbeat)
	run(t, s, a, end, func(now session.Time) int { return 2000 - int(now.Sub(0)/time.Second) })
	if s.State() != session.Attached {
		t.Fatal("a client whose socket takes a byte a second was declared dead")
	}
}

func TestFullSocketThatTakesNothingIsSilent(t *testing.T) {
	s, a := full(t)
	var last session.Time
	run(t, s, a, session.Time(10*heartbeat), func(now session.Time) int { last = now; return 2000 })
	if s.State() != session.Ended || last.Sub(1) != 2*heartbeat {
		t.Fatalf("%v at %v, want it ended after twice the heartbeat", s.State(), last.Sub(1))
	}
}

func TestFullSocketIsSilentOnceItStopsDraining(t *testing.T) {
	s, a := full(t)
	var last session.Time
	stop := session.Time(25 * time.Second)
	run(t, s, a, session.Time(10*heartbeat), func(now session.Time) int {
		last = now
		return 2000 - int(min(now, stop).Sub(0)/time.Second)
	})
	// What it took between two looks is seen at the second one.
	if d := last.Sub(stop); s.State() != session.Ended || d < 2*heartbeat || d > 2*heartbeat+heartbeat/4 {
		t.Fatalf("%v %v after it stopped, want it ended after twice the heartbeat", s.State(), d)
	}
}

// waiting returns a session whose driver has begun a blocking write at moment 1.
func waiting(t *testing.T) (*session.Session, *session.Attachment) {
	t.Helper()
	s, a := attached(t)
	s.WriteBlocks(1, a)
	return s, a
}

// A driver above TLS or compression cannot see whether the socket is full. That its write
// has not returned shows it.
func TestBlockedWriteOnDrainingSocketCountsAsHeard(t *testing.T) {
	s, a := waiting(t)
	run(t, s, a, session.Time(10*heartbeat), func(now session.Time) int { return 2000 - int(now.Sub(0)/time.Second) })
	if s.State() != session.Attached {
		t.Fatal("a client whose socket takes a byte a second was declared dead")
	}
}

func TestBlockedWriteOnStuckSocketIsSilent(t *testing.T) {
	s, a := waiting(t)
	var last session.Time
	run(t, s, a, session.Time(10*heartbeat), func(now session.Time) int { last = now; return 2000 })
	if s.State() != session.Ended || last.Sub(1) != 2*heartbeat {
		t.Fatalf("%v at %v, want it ended after twice the heartbeat", s.State(), last.Sub(1))
	}
}
