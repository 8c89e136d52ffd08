package gateway_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
	"reseat/gateway/events"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/policy"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

// A listener reads a gateway's events.
type listener struct {
	t *testing.T
	*events.Reader
}

func (w *world) listen() listener {
	synctest.Wait() // earlier events are published first
	return listener{w.t, w.gw.Events().Live()}
}

// want checks the events of a session since the last call, each as "type reason".
func (l listener) want(id string, want ...string) {
	l.t.Helper()
	synctest.Wait()
	var got []string
	list, _ := l.Next(make([]events.Event, 0, 64))
	for _, e := range list {
		if e.Session == id {
			got = append(got, strings.TrimSpace(e.Type+" "+e.Reason))
		}
	}
	if !slices.Equal(got, want) {
		l.t.Errorf("got %q, want %q", got, want)
	}
}

func TestEachTransitionIsOneEvent(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		l := w.listen()
		p, game := w.play()
		id := p.Hello.Session
		l.want(id, events.Created)
		w.gw.Patch(id, gateway.Change{Started: new(true)})
		l.want(id, events.Started)
		w.gw.Disconnect(id)
		l.want(id, events.Detached+" disconnected by the operator")
		q := p.Resume(0)
		l.want(id, events.Resumed)
		q = q.Resume(0)
		l.want(id, events.Superseded)
		game.Pass(q, "no event")
		q.Ack(1)
		q.Pass(game, "nor this")
		time.Sleep(time.Minute) // heartbeats
		l.want(id)
		q.Control("bye")
		l.want(id, events.Ended+" bye")
	})
}

func TestEndedEventHasTheReasonOfTheMetric(t *testing.T) {
	for reason, end := range map[string]func(w *world, p *wstest.Player, game *wstest.Peer){
		session.ReasonGraceOver: func(_ *world, p *wstest.Player, _ *wstest.Peer) {
			p.Drop()
			time.Sleep(time.Minute)
		},
		session.ReasonUpstreamClosed: func(_ *world, p *wstest.Player, game *wstest.Peer) {
			game.Close(1000, "over")
			p.WantControl(wire.VerbEnd)
			p.WantClose(1000)
			p.Close(1000, "")
		},
		wire.Name(wire.CodeEnded):    func(w *world, p *wstest.Player, _ *wstest.Peer) { w.gw.End(p.Hello.Session, 1000, "kicked") },
		wire.Name(wire.CodeDraining): func(w *world, _ *wstest.Player, _ *wstest.Peer) { w.gw.Drain(w.t.Context()) },
	} {
		t.Run(reason, func(t *testing.T) {
			inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
				p.Ack(0)
				p.Sync()
				l := w.listen()
				end(w, p, game)
				time.Sleep(5 * time.Second) // for the client to close
				list, _ := l.Next(make([]events.Event, 0, 8))
				if last := list[len(list)-1]; last.Type != events.Ended || last.Reason != reason {
					t.Errorf("the last event is %+v", last)
				}
			})
		})
	}
}

// A second login ends the older session; it does not take it over.
func TestSecondLoginPublishesEndOfTheFirst(t *testing.T) {
	inWorld(t, changed(testPolicy(), func(p *policy.Policy) { p.Duplicate = policy.Takeover }), func(t *testing.T, w *world) {
		l := w.listen()
		older, _, err := w.gw.Create(t.Context(), gateway.CreateRequest{Path: "/match/1", Player: "ann", Group: "red"})
		if err != nil {
			t.Fatal(err)
		}
		newer, _, err := w.gw.Create(t.Context(), gateway.CreateRequest{Path: "/match/2", Player: "ann", Group: "blue"})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		var got []string
		list, _ := l.Next(make([]events.Event, 0, 8))
		for _, e := range list {
			who := map[string]string{older: "older", newer: "newer"}[e.Session]
			got = append(got, strings.Join([]string{e.Type, who, e.Player, e.Group, e.Reason}, " "))
		}
		slices.Sort(got)
		want := []string{"session.created newer ann blue ", "session.created older ann red ", "session.ended older ann red superseded"}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestSupersededTokenPublishesLimitedEvents(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, a *wstest.Player, _ *wstest.Peer) {
		b := a.Resume(0)
		b.Resume(0)
		synctest.Wait() // its events have been published
		l := w.listen()
		a.TryResume(a.Hello.Token, "0").WantClosing(wire.CodeBadToken)
		l.want(a.Hello.Session, events.Replayed)
		for range 200 {
			a.TryResume(a.Hello.Token, "0").WantClosing(wire.CodeBadToken)
		}
		synctest.Wait()
		list, _ := l.Next(make([]events.Event, 0, 300))
		if len(list) < 40 || len(list) > 60 {
			t.Errorf("%d events of 200 at once", len(list))
		}
	})
}

// A thief may try a copy of a token after the session has ended.
func TestSupersededTokenIsPublishedAfterSessionEnd(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, a *wstest.Player, _ *wstest.Peer) {
		b := a.Resume(0)
		c := b.Resume(0)
		c.Control("bye")
		w.wantState(a, session.Ended)
		l := w.listen()
		a.TryResume(c.Hello.Token, "0").WantClosing(wire.CodeNoSession)
		l.want(a.Hello.Session)
		a.TryResume(a.Hello.Token, "0").WantClosing(wire.CodeBadToken)
		l.want(a.Hello.Session, events.Replayed)
		list, _, _ := w.gw.History(a.Hello.Session)
		if last := list[len(list)-1]; last.Type != events.Replayed {
			t.Errorf("its history ends with %+v", last)
		}
	})
}

func TestOverflowIsPublishedOnce(t *testing.T) {
	inSession(t, changed(testPolicy(), func(p *policy.Policy) { p.BufferMessages = 2 }), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		l := w.listen()
		p.Drop()
		synctest.Wait()
		for range 5 {
			game.Text("x")
		}
		synctest.Wait()
		list, _ := l.Next(make([]events.Event, 0, 8))
		if len(list) != 2 || list[0].Type != events.Detached || list[1].Type != events.Overflowed || list[1].Reason == "" {
			t.Errorf("got %+v", list)
		}
	})
}
