package session_test

import (
	"testing"
	"time"

	"reseat/gateway/frame"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

// Protocol section 11, an unconfirmed first hello: any message of the client's confirms it.
func TestOnlyMessageConfirmsFirstHello(t *testing.T) {
	const unconfirmed, grace = 5 * time.Second, 30 * time.Second
	for name, c := range map[string]struct {
		sends []byte
		kept  time.Duration
	}{
		"nothing":           {nil, unconfirmed},
		"a Pong frame":      {masked(frame.Pong, ""), unconfirmed},
		"a Close frame":     {masked(frame.Close, ""), unconfirmed},
		"half a message":    {masked(frame.Text, "half")[:8], unconfirmed},
		"an ack":            {masked(frame.Text, "\x10ack 0"), grace},
		"an unknown verb":   {masked(frame.Text, "\x10nod"), grace},
		"a data message":    {masked(frame.Text, "hi"), grace},
		"a message, binary": {masked(frame.Binary, ""), grace},
	} {
		b := connecting(t, config(), nil)
		b.att = b.s.AttachFirst(b.now, b.pass())
		b.reads()
		b.s.Read(b.now, b.att, c.sends)
		b.drop()
		if b.sleep(c.kept - 1); b.s.State() != session.Detached {
			t.Errorf("%s: %v before %v", name, b.s.State(), c.kept)
		}
		if b.sleep(1); b.s.State() != session.Ended {
			t.Errorf("%s: %v after %v", name, b.s.State(), c.kept)
		}
	}
}

func TestGraceOfUnconfirmedHelloIsNoLongerThanAnother(t *testing.T) {
	c := config()
	c.Grace, c.GraceBeforeStart = time.Minute, time.Second
	b := connecting(t, c, nil)
	b.att = b.s.AttachFirst(b.now, b.pass())
	b.drop()
	b.sleep(time.Second)
	b.wantState(session.Ended)
}

// Somebody holds the token of a session that was made ahead, whatever its client confirms.
func TestSessionMadeAheadKeepsItsGrace(t *testing.T) {
	b := connecting(t, config(), nil)
	b.s.Reserve(b.now, b.pass())
	b.resume(0)
	b.drop()
	b.sleep(30*time.Second - 1)
	b.wantState(session.Detached)
}

// A cookie client is pinged for the first time after up to a heartbeat.
func TestCookieClientIsKeptForTwiceTheHeartbeatBeforeItsFirstPong(t *testing.T) {
	c := keptConfig()
	c.GraceBeforeStart = time.Minute
	b := newKept(t, c)
	b.drop()
	b.sleep(30*time.Second - 1)
	b.wantState(session.Detached)
	b.sleep(1)
	b.wantState(session.Ended)
}

// Protocol section 11, a page that is left: Firefox closes the sockets of a page before the page can say bye.
func TestPageThatIsLeftIsKeptForLess(t *testing.T) {
	const short, grace = 5 * time.Second, 30 * time.Second
	leaving := masked(frame.Text, "\x10leaving")
	closed := func(code int) []byte { return masked(frame.Close, string(frame.ClosePayload(code, ""))) }
	for name, c := range map[string]struct {
		sends [][]byte
		kept  time.Duration
	}{
		"leaving, then Close 1001":               {[][]byte{leaving, closed(wire.CodeGoingAway)}, short},
		"leaving, a last message, Close 1001":    {[][]byte{leaving, masked(frame.Text, "hi"), closed(wire.CodeGoingAway)}, short},
		"leaving, then a drop: the network's":    {[][]byte{leaving}, grace},
		"leaving, then another Close: a proxy's": {[][]byte{leaving, closed(wire.CodeNormal)}, grace},
		"Close 1001 alone: a proxy's":            {[][]byte{closed(wire.CodeGoingAway)}, grace},
	} {
		t.Run(name, func(t *testing.T) {
			b := newTable(t, config())
			for _, p := range c.sends {
				b.s.Read(b.now, b.att, p)
			}
			if b.s.State() == session.Attached {
				b.drop()
			}
			if b.sleep(c.kept - 1); b.s.State() != session.Detached {
				t.Errorf("%v before %v", b.s.State(), c.kept)
			}
			if b.sleep(1); b.s.State() != session.Ended {
				t.Errorf("%v after %v", b.s.State(), c.kept)
			}
		})
	}
}

// A page may stay after all: it downloads a file.
func TestPageThatComesBackIsKeptAsBefore(t *testing.T) {
	b := newTable(t, config())
	b.s.Read(b.now, b.att, masked(frame.Text, "\x10leaving"))
	b.s.Read(b.now, b.att, masked(frame.Close, string(frame.ClosePayload(wire.CodeGoingAway, ""))))
	b.sleep(4 * time.Second)
	b.resume(0)
	b.drop() // it came too late: the page has not spoken
	b.sleep(4 * time.Second)
	b.resume(0)
	b.s.Read(b.now, b.att, masked(frame.Text, "\x10ack 0"))
	b.drop()
	b.sleep(30*time.Second - 1)
	b.wantState(session.Detached)
}

// The resume of a page that is being left may reach the gateway, and its answer nobody.
func TestAttachThatNobodyHearsDoesNotBringAPageBack(t *testing.T) {
	b := newTable(t, config())
	b.s.Read(b.now, b.att, masked(frame.Text, "\x10leaving"))
	b.s.Read(b.now, b.att, masked(frame.Close, string(frame.ClosePayload(wire.CodeGoingAway, ""))))
	b.resume(0)
	b.drop()
	b.sleep(5 * time.Second)
	b.wantState(session.Ended)
}
