package gateway_test

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/policy"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

// endings are ways to end a session, by the reason that is counted.
var endings = map[string]struct {
	policy func() policy.Policy
	end    func(*testing.T, *world)
}{
	"bye": {testPolicy, func(_ *testing.T, w *world) {
		p, _ := w.play()
		p.Control("bye")
		p.WantClose(wire.CodeNormal)
	}},
	"grace_over": {testPolicy, func(_ *testing.T, w *world) {
		p, game := w.play()
		w.detach(p)
		game.WantClose(wire.CodeGoingAway)
	}},
	"upstream_closed": {testPolicy, func(t *testing.T, w *world) {
		p, game := w.play()
		game.Close(4007, "over")
		wantEnd(t, p.Peer, 4007, "over")
		p.Close(4007, "")
	}},
	"upstream_lost": {testPolicy, func(_ *testing.T, w *world) {
		p, game := w.play()
		game.Drop()
		p.WantClosing(wire.CodeUpstreamLost)
		p.Close(wire.CodeUpstreamLost, "")
	}},
	"idle_timeout": {func() policy.Policy {
		p := testPolicy()
		p.IdleTimeout = time.Minute
		return p
	}, func(_ *testing.T, w *world) {
		p, _ := w.play()
		p.WantClosing(wire.CodeEnded)
	}},
	"no_progress": {testPolicy, func(_ *testing.T, w *world) {
		p, game := w.play()
		game.Text("poison")
		for range 6 {
			p.Ack(0)
			p.Want("poison")
			time.Sleep(3 * time.Second)
			p.Drop()
			synctest.Wait()
			if i, _ := w.gw.Session(p.Hello.Session); i.State == session.Ended.String() {
				break
			}
			p = p.Resume(0)
		}
	}},
	"client_gone": {testPolicy, func(_ *testing.T, w *world) {
		p := w.Plain("/")
		w.game.Next()
		p.Drop()
	}},
	"protocol_error": {testPolicy, func(_ *testing.T, w *world) {
		p, _ := w.play()
		p.Raw([]byte{0xf1, 0x80, 0, 0, 0, 0})
		p.WantClosing(wire.CodeProtocolError)
	}},
	"invalid_utf8": {testPolicy, func(_ *testing.T, w *world) {
		p, _ := w.play()
		p.Control("ping \xff")
		p.WantClosing(wire.CodeInvalidUTF8)
	}},
	"message_too_big": {testPolicy, func(_ *testing.T, w *world) {
		p, _ := w.play()
		p.Text(strings.Repeat("x", 1<<20+1))
		p.WantClosing(wire.CodeMessageTooBig)
	}},
	"internal_error": {testPolicy, func(_ *testing.T, w *world) {
		p, _ := w.play()
		gateway.Fail(w.gw, p.Hello.Session)
		p.WantClosing(wire.CodeInternalError)
	}},
	"protocol_violation": {testPolicy, func(_ *testing.T, w *world) {
		p, _ := w.play()
		p.Ack(7)
		p.WantClosing(wire.CodeProtocolViolation)
	}},
	"window_exceeded": {func() policy.Policy { return small(session.EndSession) }, func(_ *testing.T, w *world) {
		p, game := w.play()
		w.detach(p)
		sendAll(game, numbered(1, 11))
		game.WantClose(wire.CodeTryAgainLater)
	}},
	"superseded": {func() policy.Policy { return loggedIn(policy.Takeover) }, func(_ *testing.T, w *world) {
		p := w.Player("/?player=ann")
		w.Player("/?player=ann")
		p.WantClosing(wire.CodeSuperseded)
	}},
	"ended": {testPolicy, func(_ *testing.T, w *world) {
		p, _ := w.play()
		w.gw.End(p.Hello.Session, wire.CodeNormal, "")
		p.WantClosing(wire.CodeEnded)
	}},
	"too_fast": {func() policy.Policy { return rated(session.Rate{Messages: 1, End: true}) }, func(_ *testing.T, w *world) {
		p, _ := w.play()
		for range 10 {
			p.Text("x")
		}
		p.WantClosing(wire.CodeTooFast)
	}},
	"draining": {testPolicy, func(_ *testing.T, w *world) {
		p, _ := w.play()
		w.gw.BeginDrain()
		p.WantClosing(wire.CodeDraining)
	}},
}

func TestEachEndIsCountedOnceByReason(t *testing.T) {
	for reason, c := range endings {
		t.Run(reason, func(t *testing.T) {
			inWorld(t, c.policy(), func(t *testing.T, w *world) {
				before := w.metrics()
				c.end(t, w)
				w.wantSince(before, "reseat_sessions_ended_total", map[string]float64{reason: 1})
				m := w.metrics()
				living := m["reseat_sessions{connecting}"] + m["reseat_sessions{attached}"] + m["reseat_sessions{detached}"]
				if created := m["reseat_sessions_created_total"]; created != living+1 {
					t.Errorf("%v sessions created, %v live, one has ended", created, living)
				}
			})
		})
	}
	for _, reason := range reasons {
		if _, ok := endings[reason]; !ok && reason != "bad_token" && reason != "no_session" && reason != "refused" && // those only end a connection
			reason != "node_lost" { // that ends a session of another node
			t.Errorf("nothing here ends a session for %s", reason)
		}
	}
}

// refusedResumes are resumes, by the result that is counted.
var refusedResumes = map[string]struct {
	policy func() policy.Policy
	resume func(*testing.T, *world, *wstest.Player)
}{
	"ok":        {testPolicy, func(_ *testing.T, _ *world, p *wstest.Player) { p.Resume(0) }},
	"bad_token": {testPolicy, func(_ *testing.T, _ *world, p *wstest.Player) { p.TryResume("x", "0").WantClosing(wire.CodeBadToken) }},
	"protocol_violation": {testPolicy, func(_ *testing.T, _ *world, p *wstest.Player) {
		p.TryResume(p.Hello.Token, "9").WantClosing(wire.CodeProtocolViolation)
	}},
	"no_session": {testPolicy, func(_ *testing.T, _ *world, p *wstest.Player) {
		p.Control("bye")
		p.WantClose(wire.CodeNormal)
		p.TryResume(p.Hello.Token, "0").WantClosing(wire.CodeNoSession)
	}},
	"ended": {testPolicy, func(_ *testing.T, w *world, p *wstest.Player) {
		w.gw.End(p.Hello.Session, wire.CodeNormal, "")
		p.TryResume(p.Hello.Token, "0").WantClosing(wire.CodeEnded)
	}},
	"window_exceeded": {func() policy.Policy { return small(session.EndSession) }, func(_ *testing.T, w *world, p *wstest.Player) {
		p.Drop()
		w.wantState(p, session.Detached)
		sendAll(w.game.Next(), numbered(1, 11))
		w.wantState(p, session.Ended)
		p.TryResume(p.Hello.Token, "0").WantClosing(wire.CodeWindowExceeded)
	}},
	"upstream_lost": {hard, func(_ *testing.T, w *world, p *wstest.Player) {
		p.Drop()
		w.game.Refuse = func(c net.Conn, _ *http.Request) bool { c.Close(); return true }
		w.wantState(p, session.Detached)
		p.TryResume(p.Hello.Token, "0").WantClosing(wire.CodeUpstreamLost)
	}},
}

func TestEachResumeIsCountedByResult(t *testing.T) {
	for result, c := range refusedResumes {
		t.Run(result, func(t *testing.T) {
			inWorld(t, c.policy(), func(t *testing.T, w *world) {
				p := w.Player("/")
				p.Sync()
				before := w.metrics()
				c.resume(t, w, p)
				w.wantSince(before, "reseat_resumes_total", map[string]float64{result: 1})
			})
		})
	}
}

func TestConcurrentResumesAreEachCounted(t *testing.T) {
	inSession(t, hard(), func(t *testing.T, w *world, p *wstest.Player, _ *wstest.Peer) {
		p.Sync()
		before := w.metrics()
		for range 20 {
			p = p.Resume(0)
		}
		p.TryResume(p.Hello.Token, "0").WantClosing(wire.CodeTooFast)
		w.detach(p)
		w.game.Refuse = func(net.Conn, *http.Request) bool { time.Sleep(5 * time.Second); return false }
		first := p.TryResume(p.Hello.Token, "0")
		time.Sleep(time.Second)
		p.Resume(0)
		first.WantClosing(wire.CodeSuperseded)
		w.wantSince(before, "reseat_resumes_total", map[string]float64{"ok": 21, "too_fast": 1, "superseded": 1})
	})
}
