package gateway_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
	"reseat/gateway/frame"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/policy"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

// drops are the ways in which a client disconnects without a bye.
var drops = map[string]func(p *wstest.Player){
	"reset":          func(p *wstest.Player) { p.Drop() },
	"end of stream":  func(p *wstest.Player) { p.Conn.Close() },
	"half close":     func(p *wstest.Player) { p.Conn.CloseWrite() },
	"Close 1000":     func(p *wstest.Player) { p.Close(1000, "") },
	"Close 1001":     func(p *wstest.Player) { p.Close(1001, "going away") },
	"Close empty":    func(p *wstest.Player) { p.Close(frame.NoStatus, "") },
	"in mid-frame":   func(p *wstest.Player) { p.Raw([]byte{0x81, 0xfe, 1, 0, 9, 9, 9, 9, 'x'}); p.Drop() },
	"in mid-header":  func(p *wstest.Player) { p.Raw([]byte{0x81, 0xfe}); p.Drop() },
	"in mid-message": func(p *wstest.Player) { p.Frame(frame.Text, false, "half"); p.Drop() },
	"silence":        func(p *wstest.Player) { p.Conn.Silence(); time.Sleep(31 * time.Second) },
	"no answer":      func(p *wstest.Player) { p.Mute.Store(true); time.Sleep(31 * time.Second); p.WantEnd() },
	"silence mid-data": func(p *wstest.Player) {
		p.Frame(frame.Text, false, "half")
		p.Conn.Silence()
		time.Sleep(31 * time.Second)
	},
}

func TestEveryDisconnectDetachesWithoutLoss(t *testing.T) {
	for name, drop := range drops {
		t.Run(name, func(t *testing.T) {
			inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
				p.Pass(game, "c1")
				game.Pass(p, "s1")
				p.Ack(1)
				p.Sync()
				drop(p)
				w.wantState(p, session.Detached)
				game.Frame(frame.Ping, true, "still there?")
				if m, _ := game.Next(); m.Op != frame.Pong || m.Data != "still there?" {
					t.Errorf("got %v, want the Pong", m)
				}
				game.Text("s2")
				game.WantNothing(0)
				synctest.Wait() // the gateway has read it
				p = p.Resume(1)
				if h := p.Hello; h.Received != 1 || h.Replay != 1 || h.Lost != 0 {
					t.Fatalf("hello %+v, want received 1, replay 1, lost 0", h)
				}
				p.Want("s2")
				p.Pass(game, "c2")
			})
		})
	}
}

func TestUnconfirmedHelloHasGracePeriodOfItsOwn(t *testing.T) {
	inSession(t, changed(testPolicy(), func(p *policy.Policy) { p.Grace, p.GraceUnconfirmed = time.Hour, 2*time.Second }), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		p.Drop() // no ack: perhaps the token never arrived
		time.Sleep(2*time.Second - time.Millisecond)
		w.wantState(p, session.Detached)
		time.Sleep(time.Millisecond)
		game.WantClose(wire.CodeGoingAway)
		w.wantState(p, session.Ended)
	})
}

func TestZeroGraceEndsAtDisconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pol := testPolicy()
		pol.Grace = 0
		w, p, game := newDetached(t, pol)
		game.WantClose(wire.CodeGoingAway)
		w.wantState(p, session.Ended)
	})
}

// A bye holds, also if the connection breaks after it.
func TestByeEndsSessionAfterPrecedingData(t *testing.T) {
	for arg, want := range map[string]struct {
		code   int
		reason string
	}{
		"bye":                           {1000, ""},
		`bye {"code":1005,"reason":""}`: {frame.NoStatus, ""}, // protocol section 5: close() without a code
		`bye {"code":4321,"reason":"left the match"}`: {4321, "left the match"},
		`bye {"code":1001}`:                           {1001, ""},
		`bye {"reason":"x","unknown":[1]}`:            {1000, "x"},
	} {
		t.Run(arg, func(t *testing.T) {
			inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
				p.Text("last words")
				p.Control(arg)
				game.Want("last words")
				game.WantReason(want.code, want.reason)
				p.WantClose(want.code) // without a close before it
				w.wantState(p, session.Ended)
				p.TryResume(p.Hello.Token, "0").WantClosing(wire.CodeNoSession)
				p, game = w.play()
				p.Control(arg)
				p.Conn.Close()
				game.WantReason(want.code, want.reason)
				w.wantState(p, session.Ended)
			})
		})
	}
}

func TestByeGivesAStalledUpstreamTenSeconds(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		game, p := stalledGame(t, w)
		for range 20 {
			p.Text(strings.Repeat("x", 16<<10))
		}
		p.Control("bye")
		p.WantClose(1000)
		synctest.Wait()
		time.Sleep(9 * time.Second)
		synctest.Wait()
		if game.closed() {
			t.Fatal("the upstream's connection was closed before its 10 seconds were over")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if !game.closed() {
			t.Fatal("a stalled upstream's connection is still open 11 s after bye")
		}
	})
}

func TestUpstreamCloseReachesTheClientAfterAllMessages(t *testing.T) {
	for _, c := range []struct {
		code   int
		reason string
	}{{1000, "over"}, {4007, "the end"}, {frame.NoStatus, ""}} {
		inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
			game.Text("s1")
			game.Text("s2")
			game.Close(c.code, c.reason)
			p.Want("s1", "s2")
			wantEnd(t, p.Peer, c.code, c.reason)
			w.wantState(p, session.Attached) // until the client answers
			p.Close(c.code, "")
			w.wantState(p, session.Ended)
			r := p.TryResume(p.Hello.Token, "2").WantClosing(wire.CodeEnded)
			if r.Reason != c.reason {
				t.Fatalf("a later resume gets %q, want %q", r.Reason, c.reason)
			}
		})
	}
}

func wantEnd(t *testing.T, p *wstest.Peer, code int, reason string) {
	t.Helper()
	m := p.WantControl(wire.VerbEnd)
	if !strings.Contains(m.Data, `"reason":"`+reason+`"`) {
		t.Fatalf("end %s, want reason %q", m.Data, reason)
	}
	p.WantClose(code)
}

func TestUpstreamCloseIsKeptForDetachedClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p, game := newDetached(t, testPolicy())
		game.Text("s1")
		game.Close(4007, "the end")
		game.WantClose(4007) // the gateway's answer
		time.Sleep(20 * time.Second)
		w.wantState(p, session.Detached)
		p = p.Resume(0)
		p.Want("s1")
		wantEnd(t, p.Peer, 4007, "the end")
		p.Drop() // before it answers
		w.wantState(p, session.Detached)
		p = p.Resume(1)
		wantEnd(t, p.Peer, 4007, "the end")
		p.Close(4007, "")
		w.wantState(p, session.Ended)
	})
}

func TestUnansweredCloseDetachesAfterASecond(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		p.Sync()
		game.Close(1000, "")
		wantEnd(t, p.Peer, 1000, "")
		time.Sleep(2 * time.Second)
		w.wantState(p, session.Detached)
	})
}

func TestUpstreamDisconnectIs4502AndThen4404(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		game.Text("s1")
		synctest.Wait()
		game.Drop()
		p.Want("s1")
		if c := p.WantClosing(wire.CodeUpstreamLost); c.Retry {
			t.Fatal("4502 says retry")
		}
		p.Close(wire.CodeUpstreamLost, "")
		w.wantState(p, session.Ended)
		p.TryResume(p.Hello.Token, "1").WantClosing(wire.CodeNoSession)
	})
}

func TestByeMayCrossUpstreamClose(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		game.Close(4007, "")
		wantEnd(t, p.Peer, 4007, "")
		p.Control("bye")
		w.wantState(p, session.Ended)
		p.WantEnd()
	})
}

// A client that reads nothing has five seconds to read the end.
func TestUnreadCloseTimesOut(t *testing.T) {
	for wait, told := range map[time.Duration]bool{4 * time.Second: true, 6 * time.Second: false} {
		t.Run(wait.String(), func(t *testing.T) {
			inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
				p.Sync()
				p.Hold(true)
				for range 40 { // more than its connection accepts
					game.Binary(noise(4 << 10))
				}
				synctest.Wait()
				w.gw.End(p.Hello.Session, 1000, "banned")
				time.Sleep(wait)
				p.Hold(false)
				var last wstest.Message
				for m, ok := p.Next(); ok && m.Err == nil; m, ok = p.Next() {
					last = m
				}
				if (last.Op == frame.Close) != told {
					t.Errorf("the last message is %v, want the close: %t", last, told)
				}
				p.TryResume(p.Hello.Token, "0").WantClosing(wire.CodeEnded)
			})
		})
	}
}

// A peer that answers Pings stays connected. A silent client is disconnected within twice the heartbeat, a silent game server
// if there is an --upstream-heartbeat.
func TestSilentPeerIsDisconnected(t *testing.T) {
	pol := testPolicy()
	inSession(t, pol, func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		plain, plainGame := w.plain()
		game.Mute.Store(true) // which nobody asks for an answer
		time.Sleep(time.Hour)
		w.wantState(p, session.Attached)
		goesOn(plain, plainGame)
		p.Mute.Store(true)
		plain.Mute.Store(true)
		time.Sleep(29 * time.Second)
		w.wantState(p, session.Attached)
		time.Sleep(2 * time.Second)
		w.wantState(p, session.Detached)
		plainGame.WantEnd()
	})
	pol.UpstreamHeartbeat = 5 * time.Second
	inSession(t, pol, func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		time.Sleep(time.Minute)
		w.wantState(p, session.Attached)
		game.Mute.Store(true)
		time.Sleep(11 * time.Second)
		p.WantClosing(wire.CodeUpstreamLost)
	})
}

// The reason of an end is remembered for the grace period, or for half a minute if that is longer.
func TestReasonOfEndIsRemembered(t *testing.T) {
	for grace, kept := range map[time.Duration]time.Duration{time.Minute: time.Minute, time.Second: 30 * time.Second} {
		inSession(t, changed(testPolicy(), func(p *policy.Policy) { p.Grace = grace }), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
			p.Sync()
			wstest.Equal(t, "the outcome", w.gw.End(p.Hello.Session, 4000, "banned"), gateway.Done)
			game.WantClose(4000)
			p.WantClosing(wire.CodeEnded)
			time.Sleep(kept - time.Second)
			wstest.Equal(t, "the reason", p.TryResume(p.Hello.Token, "0").WantClosing(wire.CodeEnded).Reason, "banned")
			time.Sleep(3 * time.Second)
			p.TryResume(p.Hello.Token, "0").WantClosing(wire.CodeNoSession)
		})
	}
}
