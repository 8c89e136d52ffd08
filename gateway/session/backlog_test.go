package session_test

import (
	"testing"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/replay"
	"reseat/gateway/session"
)

const heartbeat = 10 * time.Second

// attached is a session whose driver has been handed out what is to be written to
// its client, at moment 1.
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

// full is one whose client's socket was found full then, with as much in it as
// was written.
func full(t *testing.T) (*session.Session, *session.Attachment) {
	t.Helper()
	s, a := attached(t)
	s.Wrote(1, a, 2000, true)
	return s, a
}

// run ticks s whenever it wants to be, up to the end, and says each time how much of
// what is queued the client has taken.
func run(t *testing.T, s *session.Session, a *session.Attachment, end session.Time, backlog func(now session.Time) int) {
	t.Helper()
	for n := 0; s.State() == session.Attached; n++ {
		now := s.Next()
		if now > end {
			return
		}
		if n > 1000 {
			t.Fatal("it wants to be called without end")
		}
		if held := backlog(now); s.WatchesSocket(a) {
			s.Socket(now, a, session.SocketState{Acked: uint64(2000 - held), Queued: held})
		}
		s.Tick(now)
	}
}

// protocol section 5: bytes that the peer's socket goes on accepting while a
// send buffer is full count as heard.
func TestFullSocketThatDrainsSlowlyIsHeard(t *testing.T) {
	s, a := full(t)
	end := session.Time(10 * heartbeat)
	run(t, s, a, end, func(now session.Time) int { return 2000 - int(now.Sub(0)/time.Second) })
	if s.State() != session.Attached {
		t.Fatal("a client whose socket takes a byte a second was taken for dead")
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

func TestFullSocketThatStopsDrainingIsSilentFromThenOn(t *testing.T) {
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

// waiting is a session whose driver has begun, at moment 1, to write by waiting.
func waiting(t *testing.T) (*session.Session, *session.Attachment) {
	t.Helper()
	s, a := attached(t)
	s.Waits(1, a)
	return s, a
}

// A driver that stands above TLS or compression does not know that the socket is
// full before it has taken what it was given: that it has not is what says so.
func TestWriteThatWaitsOnASocketThatDrainsIsHeard(t *testing.T) {
	s, a := waiting(t)
	run(t, s, a, session.Time(10*heartbeat), func(now session.Time) int { return 2000 - int(now.Sub(0)/time.Second) })
	if s.State() != session.Attached {
		t.Fatal("a client whose socket takes a byte a second was taken for dead")
	}
}

func TestWriteThatWaitsOnASocketThatTakesNothingIsSilent(t *testing.T) {
	s, a := waiting(t)
	var last session.Time
	run(t, s, a, session.Time(10*heartbeat), func(now session.Time) int { last = now; return 2000 })
	if s.State() != session.Ended || last.Sub(1) != 2*heartbeat {
		t.Fatalf("%v at %v, want it ended after twice the heartbeat", s.State(), last.Sub(1))
	}
}
