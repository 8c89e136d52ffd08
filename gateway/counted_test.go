package gateway_test

import (
	"strings"
	"testing"
	"time"

	"reseat/gateway"
	"reseat/gateway/events"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/policy"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

// inCounted runs f with a session of a player, and checks by how much a family of metrics has grown then.
func inCounted(t *testing.T, p policy.Policy, family string, want map[string]float64, f func(*world, *wstest.Player, *wstest.Peer)) {
	t.Helper()
	inWorld(t, p, func(t *testing.T, w *world) {
		p, game := w.loginAs("ann")
		p.Sync()
		before := w.metrics()
		f(w, p, game)
		w.wantSince(before, family, want)
	})
}

// An act on a session of a player.
type act func(*world, *wstest.Player, *wstest.Peer)

// closedWith is an act that the client is told of.
func closedWith(code int, cause func(*world, *wstest.Player)) act {
	return func(w *world, p *wstest.Player, _ *wstest.Peer) {
		cause(w, p)
		p.WantClosing(code)
	}
}

// endings are ways to end a session, by the reason that is counted.
var endings = map[string]struct {
	policy policy.Policy
	end    act
}{
	"bye": {testPolicy(), func(_ *world, p *wstest.Player, _ *wstest.Peer) {
		p.Control("bye")
		p.WantClose(wire.CodeNormal)
	}},
	"grace_over": {testPolicy(), func(w *world, p *wstest.Player, game *wstest.Peer) {
		w.detach(p)
		game.WantClose(wire.CodeGoingAway)
	}},
	"upstream_closed": {testPolicy(), func(w *world, p *wstest.Player, game *wstest.Peer) {
		game.Close(4007, "over")
		wantEnd(w.t, p.Peer, 4007, "over")
		p.Close(4007, "")
	}},
	"upstream_lost": {testPolicy(), func(_ *world, p *wstest.Player, game *wstest.Peer) {
		game.Drop()
		p.WantClosing(wire.CodeUpstreamLost)
		p.Close(wire.CodeUpstreamLost, "")
	}},
	"no_progress": {testPolicy(), func(w *world, p *wstest.Player, game *wstest.Peer) {
		game.Text("poison")
		for range 6 {
			p.Ack(0)
			p.Want("poison")
			time.Sleep(3 * time.Second)
			p.Drop()
			if w.state(p) == session.Ended.String() {
				break
			}
			p = p.Resume(0)
		}
	}},
	"client_gone": {testPolicy(), func(w *world, _ *wstest.Player, _ *wstest.Peer) {
		plain, _ := w.plain()
		plain.Drop()
	}},
	"window_exceeded": {small(session.EndSession), func(w *world, p *wstest.Player, game *wstest.Peer) {
		w.detach(p)
		sendAll(game, numbered(1, 11))
		game.WantClose(wire.CodeTryAgainLater)
	}},
	"idle_timeout":       {changed(testPolicy(), func(p *policy.Policy) { p.IdleTimeout = time.Minute }), closedWith(wire.CodeEnded, func(*world, *wstest.Player) {})},
	"superseded":         {loggedIn(policy.Takeover), closedWith(wire.CodeSuperseded, func(w *world, _ *wstest.Player) { w.loginAs("ann") })},
	"protocol_error":     {testPolicy(), closedWith(wire.CodeProtocolError, func(_ *world, p *wstest.Player) { p.Raw([]byte{0xf1, 0x80, 0, 0, 0, 0}) })},
	"invalid_utf8":       {testPolicy(), closedWith(wire.CodeInvalidUTF8, func(_ *world, p *wstest.Player) { p.Control("ping \xff") })},
	"message_too_big":    {testPolicy(), closedWith(wire.CodeMessageTooBig, func(_ *world, p *wstest.Player) { p.Text(strings.Repeat("x", 1<<20+1)) })},
	"internal_error":     {testPolicy(), closedWith(wire.CodeInternalError, func(w *world, p *wstest.Player) { gateway.Fail(w.gw, p.Hello.Session) })},
	"protocol_violation": {testPolicy(), closedWith(wire.CodeProtocolViolation, func(_ *world, p *wstest.Player) { p.Ack(7) })},
	"ended":              {testPolicy(), closedWith(wire.CodeEnded, func(w *world, p *wstest.Player) { w.gw.End(p.Hello.Session, wire.CodeNormal, "") })},
	"draining":           {testPolicy(), closedWith(wire.CodeDraining, func(w *world, _ *wstest.Player) { w.gw.BeginDrain() })},
	"too_fast":           {rated(session.Rate{Messages: 1, End: true}), closedWith(wire.CodeTooFast, func(_ *world, p *wstest.Player) { sendAll(p.Peer, numbered(1, 10)) })},
}

// The event has the reason of the metric.
func TestEachEndIsCountedOnceByReason(t *testing.T) {
	for reason, c := range endings {
		t.Run(reason, func(t *testing.T) {
			inCounted(t, c.policy, "reseat_sessions_ended_total", map[string]float64{reason: 1}, func(w *world, p *wstest.Player, game *wstest.Peer) {
				l := w.listen()
				c.end(w, p, game)
				wstest.Equal(w.t, "reason of the event", l.first(events.Ended).Reason, reason)
				m := w.metrics()
				living := m["reseat_sessions{connecting}"] + m["reseat_sessions{attached}"] + m["reseat_sessions{detached}"]
				if created := m["reseat_sessions_created_total"]; created != living+1 {
					w.t.Errorf("%v sessions created, %v live, one has ended", created, living)
				}
			})
		})
	}
	elsewhere := map[string]bool{"bad_token": true, "no_session": true, "refused": true, // those only end a connection
		"node_lost": true} // that ends a session of another node
	for _, reason := range reasons {
		if _, ok := endings[reason]; !ok && !elsewhere[reason] {
			t.Errorf("nothing here ends a session for %s", reason)
		}
	}
}

func TestConcurrentResumesAreEachCounted(t *testing.T) {
	want := map[string]float64{"ok": 21, "too_fast": 1, "superseded": 1}
	inCounted(t, hard(), "reseat_resumes_total", want, func(w *world, p *wstest.Player, _ *wstest.Peer) {
		for range 20 {
			p = p.Resume(0)
		}
		p.TryResume(p.Hello.Token, "0").WantClosing(wire.CodeTooFast)
		w.detach(p)
		w.game.Refuse = after(5 * time.Second)
		first := p.TryResume(p.Hello.Token, "0")
		time.Sleep(time.Second)
		p.Resume(0)
		first.WantClosing(wire.CodeSuperseded)
	})
}
