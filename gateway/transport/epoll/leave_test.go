//go:build linux

package epoll

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"reseat/gateway/session"
	"reseat/gateway/wire"
)

// A session that leaves takes its sockets along. The loop must forget their
// descriptors, which may be reused soon, and epoll must report nothing about them
// although they stay open.
func TestLoopForgetsSocketsOfALeavingSession(t *testing.T) {
	r := newRig(t, true)
	older := r.client
	ours, theirs := socketPair(t)
	t.Cleanup(func() { older.Close() })
	r.client = theirs
	_, here := r.Attach(Descriptor(ours), nil, func(core *session.Session, now session.Time) (*session.Attachment, *session.Refusal) {
		gen := core.NextGen()
		return core.Attach(now, session.Resume{Gen: gen - 1}, session.Pass{Gen: gen, Renew: time.Hour})
	})
	if !here {
		t.Fatal("the session is not here")
	}
	var left []Socket
	r.Leave(func(_ *session.Session, sockets Sockets, _ bool) func() {
		left = append(sockets.Older, sockets.Up, *sockets.Down)
		return func() {}
	})
	if len(left) != 3 {
		t.Fatalf("%d sockets leave, want the upstream's, the client's and the older one's", len(left))
	}
	r.loop.call(func() {
		for _, l := range left {
			if r.loop.legs[l.FD] != nil {
				t.Errorf("descriptor %d: the loop still serves it", l.FD)
			}
			e := unix.EpollEvent{Events: interest, Fd: int32(l.FD)}
			if err := unix.EpollCtl(r.loop.ep, unix.EPOLL_CTL_MOD, l.FD, &e); !errors.Is(err, unix.ENOENT) {
				t.Errorf("descriptor %d: epoll still watches it (%v)", l.FD, err)
			}
		}
		if n := r.loop.Load(); n != 0 || r.loop.sessions != 0 || len(r.loop.due) != 0 {
			t.Errorf("the loop counts %d sessions, %d, and %d alarms; want none", n, r.loop.sessions, len(r.loop.due))
		}
	})
	for _, l := range left {
		unix.Close(l.FD)
	}
}

// A second client whose connection no loop can serve may be faster than the first one.
func TestFirstClientFollowsASessionThatHasLeft(t *testing.T) {
	r := newRig(t, true)
	r.Leave(func(_ *session.Session, sockets Sockets, _ bool) func() {
		unix.Close(sockets.Up.FD)
		unix.Close(sockets.Down.FD)
		return func() {}
	})
	ours, theirs := socketPair(t)
	t.Cleanup(func() { theirs.Close() })
	c, err := r.loop.Accepted(ours, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	followed := make(chan struct{})
	r.AttachFirst(c, nil, func(*session.Session, session.Time) (*session.Attachment, *session.Refusal) {
		t.Error("the loop acts on a session that has left")
		return nil, session.Refuse(wire.CodeInternalError, "")
	}, func() { close(followed) })
	<-followed
	if err := c.Close(); err != nil {
		t.Errorf("the session has taken the connection: %v", err)
	}
}

// The loop reads the clock each turn and before each delivery of mail. Neither goes
// back when the clock does.
func TestLoopTimeNeverGoesBack(t *testing.T) {
	r := newRig(t, true)
	var before, after session.Time
	r.Do(func(_ *session.Session, now session.Time) { before = now })
	r.clock.now.Add(int64(-time.Minute))
	for range 3 {
		r.Do(func(_ *session.Session, now session.Time) { after = now })
		if after < before {
			t.Fatalf("it went back by %v", before.Sub(after))
		}
	}
}
