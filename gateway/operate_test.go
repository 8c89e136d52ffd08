package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
	"reseat/gateway/control"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/newest"
	"reseat/gateway/policy"
	"reseat/gateway/registry"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

// drain begins the final drain, and closes the channel once it is over. It has no time if at once says so.
func (w *world) drain(atOnce bool) (over chan bool) {
	ctx, cancel := context.WithCancel(context.Background())
	if atOnce {
		cancel()
	}
	over = make(chan bool)
	go func() {
		defer cancel()
		w.gw.Drain(ctx)
		close(over)
	}()
	synctest.Wait()
	return over
}

// wantNew checks whether new sessions are accepted.
func (w *world) wantNew(taken bool) {
	w.t.Helper()
	c, _, resp, err := w.Handshake("/new", nil, "")
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	if taken {
		wstest.Equal(w.t, "a new session is answered", resp.StatusCode, 101)
		w.game.Next()
		return
	}
	if resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" {
		w.t.Errorf("a new session is answered %v, want 503 with Retry-After", resp)
	}
}

func TestReceivedMessagesAreDeliveredBeforeDrainCloses(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		stall, p := stalledGame(t, w)
		chunk := strings.Repeat("x", 16<<10)
		for range 8 {
			p.Text(chunk)
		}
		synctest.Wait()
		w.drain(true)
		p.WantClosing(wire.CodeDraining)
		game := stall.read(t)
		for range 8 {
			game.Want(chunk)
		}
		game.WantClose(wire.CodeGoingAway)
		w.wantState(p, session.Ended)
	})
}

// The log must say what clients or game servers did not receive.
func TestDrainLogsConnectionsThatDidNotClose(t *testing.T) {
	said := new(syncBuffer)
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		for range 2 {
			_, p := stalledGame(t, w)
			for range 8 {
				p.Text(strings.Repeat("x", 16<<10))
			}
		}
		w.game.Refuse = nil
		p, game := w.play()
		synctest.Wait() // the gateway has more queued for the two games than their connections accept
		began := time.Now()
		over := w.drain(true)
		p.WantClosing(wire.CodeDraining)
		game.WantClose(wire.CodeGoingAway)
		<-over
		wstest.Equal(t, "the drain took", time.Since(began), 3*time.Second)
		synctest.Wait()
		if !strings.Contains(said.String(), "msg=drain.connections_aborted sessions=2") {
			t.Errorf("the log does not say that 2 were aborted: %s", said.String())
		}
	}, logTo(said))
}

// wantDrain checks what operators see of a drain: until when it runs, zero if it does not, and of how many sessions.
func (w *world) wantDrain(draining bool, until time.Time, sessions int) {
	w.t.Helper()
	i := w.gw.DrainInfo()
	if i.Draining != draining || i.Sessions != sessions || (i.Until == nil) != until.IsZero() || i.Until != nil && !i.Until.Equal(until) {
		w.t.Errorf("drain %+v, want draining %v until %v with %d sessions", i, draining, until, sessions)
	}
}

// A session with a slow upstream is closed as soon as it begins.
func TestDrainClosesSessionsBeingCreated(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		answer := make(chan bool)
		w.game.Refuse = func(net.Conn, *http.Request) bool { <-answer; return false }
		time.AfterFunc(time.Second, w.gw.BeginDrain)
		time.AfterFunc(9*time.Second, func() { close(answer) })
		p, _ := w.play()
		w.wantState(p, session.Attached)
		p.WantClosing(wire.CodeDraining)

		w.gw.CallOffDrain()
		answer = make(chan bool)
		closed := make(chan bool)
		go func() {
			defer close(closed)
			p, game := w.play()
			p.WantClosing(wire.CodeDraining)
			game.WantClose(wire.CodeGoingAway)
		}()
		synctest.Wait()
		w.drain(true)
		close(answer)
		<-closed
	})
}

func (w *world) patch(id string, c control.Change) registry.Snapshot {
	w.t.Helper()
	i, o := w.gw.Control().Patch(id, c)
	if o != control.Done {
		w.t.Fatalf("Patch: outcome %v, want done", o)
	}
	return i
}

// create creates a session by the API, and returns its game server's connection.
func (w *world) create(r gateway.CreateRequest) (id, token string, game *wstest.Peer) {
	w.t.Helper()
	id, token, err := w.gw.Create(w.t.Context(), nil, r)
	if err != nil {
		w.t.Fatal(err)
	}
	return id, token, w.game.Next()
}

// The client's token must outlive the grace period: an attached client gets another token, a
// detached one cannot.
func TestGraceBeyondTokenLifetimeRenewsTokenOrConflicts(t *testing.T) {
	inScene(t, testPolicy(), func(s *scene) {
		s.play(`sync`)
		s.patch(s.client.Hello.Session, control.Change{Grace: new(3 * time.Hour)})
		s.play(`client< ^grace`)
		var v struct{ Token string }
		if err := json.Unmarshal([]byte(s.client.WantControl(wire.VerbToken).Data), &v); err != nil {
			t.Fatal(err)
		}
		s.play(`client drops; detached`)
		_, o := s.gw.Control().Patch(s.client.Hello.Session, control.Change{Grace: new(7 * time.Hour)})
		wstest.Equal(t, "a change beyond the token", o, control.Conflict)
		s.play(`info grace=3h; 2h59m; refused 4401`) // the first one has expired
		s.client.Hello.Token = v.Token
		s.play(`resume 0; game> there you are; client< there you are`)
	})
}

func TestEndGroupEndsDetachedAndResetsTheOthers(t *testing.T) {
	inScene(t, testPolicy(), func(s *scene) {
		group := func() {
			s.patch(s.client.Hello.Session, control.Change{Group: new("match-17"), Started: new(true)})
			if _, o := s.gw.Control().SetData(s.client.Hello.Session, []byte("score 3"), nil); o != control.Done {
				t.Fatal(o)
			}
		}
		stranger, strangerGame := s.client, s.up
		s.play(`begin`)
		group()
		s.play(`detach; begin`)
		group()
		wstest.Equal(t, "sessions", s.gw.Control().EndGroup("match-17", ""), 2)
		s.play(`before< Close 1000; info state=attached started=false`)
		s.wantData("")
		goesOn(s.client, s.up)
		goesOn(stranger, strangerGame)
		s.client = s.older
		s.play(`refused 4410`)
	})
}

// States may be declared by the flag, by the answer of the game server, and by PATCH: the nearest wins.
func TestSessionGetsTheNewestOfEachState(t *testing.T) {
	states := func(values ...string) *newest.Rules {
		r, err := newest.Parse(values)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	flag := changed(testPolicy(), func(p *policy.Policy) { p.Newest = states("a=A") })
	for name, c := range map[string]struct {
		header string
		patch  *newest.Rules
		want   []string // after A1, B1, C1, A2, B2, C2
		newest []string
	}{
		"the flag":        {"", nil, []string{"skip", "B1", "C1", "A2", "B2", "C2"}, []string{"a=A"}},
		"the answer":      {"Reseat-Newest: b=B\r\nReseat-Newest: c=C\r\n", nil, []string{"A1", "skip", "A2", "B2", "C2"}, []string{"b=B", "c=C"}},
		"PATCH":           {"Reseat-Newest: b=B\r\n", states("c=text:C"), []string{"A1", "B1", "skip", "A2", "B2", "C2"}, []string{"c=text:C"}},
		"a faulty answer": {"Reseat-Newest: b=B\r\nReseat-Newest: c\r\n", nil, []string{"skip", "B1", "C1", "A2", "B2", "C2"}, []string{"a=A"}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, flag, func(t *testing.T, w *world) {
				w.game.Header = c.header
				p := w.Player("/match/7", "reseat.skip")
				game := w.game.Next()
				if c.patch != nil {
					w.patch(p.Hello.Session, control.Change{Newest: &c.patch})
				}
				p.Ack(0)
				w.detach(p)
				for _, m := range []string{"A1", "B1", "C1", "A2", "B2", "C2"} {
					game.Text(m)
				}
				synctest.Wait()
				q := p.Resume(0)
				var got []string
				for range c.want {
					m, _ := q.Next()
					got = append(got, m.Verb+m.Data)
				}
				i, _ := w.gw.Control().Session(p.Hello.Session)
				replaced := uint64(6 - q.Hello.Replay)
				if fmt.Sprint(i.Newest) != fmt.Sprint(c.newest) || i.Skipped != replaced || q.Hello.Skipped != replaced || q.Hello.Lost != 0 {
					t.Errorf("%v, %d skipped; hello %+v", i.Newest, i.Skipped, q.Hello)
				}
				for i, want := range c.want {
					if want == "skip" && strings.HasPrefix(got[i], want) {
						got[i] = want
					}
				}
				if fmt.Sprint(got) != fmt.Sprint(c.want) {
					t.Errorf("the client gets %q, want %q", got, c.want)
				}
				if _, hidden := p.Answer.Header["Reseat-Newest"]; hidden {
					t.Error("the client sees Reseat-Newest")
				}
			})
		})
	}
}

func TestPreCreatedSessionWaitsForItsClient(t *testing.T) {
	inWorld(t, changed(testPolicy(), func(p *policy.Policy) { p.Notices.Resume = "back" }), func(t *testing.T, w *world) {
		id, token, game := w.create(gateway.CreateRequest{
			Path: "/match/9?x=1", Subprotocols: []string{"chat.v2"}, Player: "ann", Group: "match-9", Data: []byte("d"), Grace: new(time.Minute),
		})
		if r := game.Req; r.URL.String() != "/match/9?x=1" || r.Header.Get("Reseat-Session") != id || r.Header.Get("Reseat-Player") != "ann" || r.Header.Get("Sec-Websocket-Protocol") != "chat.v2" {
			t.Errorf("the upstream was asked %v %v", r.URL, r.Header)
		}
		game.Text("early")
		synctest.Wait()
		i, _ := w.gw.Control().Session(id)
		if i.State != "detached" || i.Group != "match-9" || i.Player != "ann" || i.Grace != "1m" || i.DetachedSince == nil || i.Sent != 1 {
			t.Errorf("%+v, want what was asked for", i)
		}
		time.Sleep(time.Minute - time.Second) // the full grace period, though the token was never confirmed
		p := w.Claim(token)
		if h := p.Hello; h.Resumed || h.Session != id || h.Replay != 1 || h.Received != 0 {
			t.Errorf("hello %+v, want a first attach with one message", h)
		}
		p.Want("early")
		p.Pass(game, "hi") // no --on-resume at the first attach
		p.Drop()
		w.wantState(p, session.Detached)
		p.Resume(1)
		game.Want("back")
	})
}

func TestInvalidCreateRequestsAreRefused(t *testing.T) {
	inWorld(t, loggedIn(policy.Reject), func(t *testing.T, w *world) {
		for name, c := range map[string]struct {
			wish gateway.CreateRequest
			want error
		}{
			"no path":          {gateway.CreateRequest{}, gateway.ErrBadRequest},
			"a relative path":  {gateway.CreateRequest{Path: "match/7"}, gateway.ErrBadRequest},
			"another's URL":    {gateway.CreateRequest{Path: "http://x/match/7"}, gateway.ErrBadRequest},
			"no route":         {gateway.CreateRequest{Path: "/elsewhere"}, gateway.ErrNoRoute},
			"grace 0":          {gateway.CreateRequest{Path: "/match/7", Grace: new(time.Duration(0))}, gateway.ErrBadRequest},
			"large data":       {gateway.CreateRequest{Path: "/match/7", Data: make([]byte, gateway.MaxData+1)}, gateway.ErrBadRequest},
			"no URL":           {gateway.CreateRequest{Path: "/match/7", Upstream: "game-1.internal:9000"}, gateway.ErrBadRequest},
			"foreign upstream": {gateway.CreateRequest{Path: "/match/7", Upstream: "ws://game.example:9000"}, gateway.ErrNotAllowed},
			"across a dot":     {gateway.CreateRequest{Path: "/match/7", Upstream: "ws://game-1.evil.internal:9000"}, gateway.ErrNotAllowed},
			"another port":     {gateway.CreateRequest{Path: "/match/7", Upstream: "ws://10.0.0.7:9001"}, gateway.ErrNotAllowed},
		} {
			if _, _, err := w.gw.Create(t.Context(), nil, c.wish); !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
		}
		if _, _, err := w.gw.Create(t.Context(), nil, gateway.CreateRequest{Path: "/match/7", Upstream: "ws://game-1.internal:9000"}); err != nil {
			t.Errorf("an allowed upstream: %v", err)
		}
		w.game.Refuse = refuseDials
		if _, _, err := w.gw.Create(t.Context(), nil, gateway.CreateRequest{Path: "/match/7"}); err == nil {
			t.Error("an upstream that closes: no error")
		}
		w.onlySession()
	}, func(c *gateway.Config) {
		c.Routes[0].Pattern = "/match/*"
		c.UpstreamAllow = []string{"game-*.internal:*", "10.0.0.*:9000"}
	})
}

func TestDrainServesResumesRefusesNewSessionsAndClosesTheRest(t *testing.T) {
	inScene(t, testPolicy(), func(s *scene) {
		s.play(`visit; detach; mark`)
		over := s.drain(false)
		wstest.Equal(t, "draining at once", s.gw.Draining(), true)
		s.play(`new refused; 5s; resume 0; game> s1; client< s1, ^close 4503 final; took 10s; ` + // this gateway is its only server
			`game< Close 1001 draining; plain< Close 1012; beside< Close 1001`)
		<-over
	})
}

func TestOperatorsDrainClosesTheRestAndStaysInForce(t *testing.T) {
	inScene(t, testPolicy(), func(s *scene) {
		s.play(`sync`)
		s.wantDrain(false, time.Time{}, 1)
		end := time.Now().Add(10 * time.Second)
		s.play(`forget; drain; counts reseat_draining =1`)
		s.wantDrain(true, end, 1)
		s.play(`new refused; counts reseat_handshakes_refused_total draining=1; 9s; drain; client drops; resume 0; 999ms; attached; 1ms; ` + // a second call changes nothing
			`client< ^close 4503; game< Close 1001; 1h`)
		s.wantDrain(true, time.Time{}, 0)
		s.play(`new refused`)
		wstest.Equal(t, "cancelled", s.gw.CallOffDrain(), true)
		s.play(`counts reseat_draining; new accepted`)
	})
}

// The timer of the first drain may have fired before it was stopped, and waited for the lock.
func TestCancelledDrainClosesNothing(t *testing.T) {
	inScene(t, testPolicy(), func(s *scene) {
		wstest.Equal(t, "cancelling without a drain", s.gw.CallOffDrain(), true)
		s.play(`drain`)
		first := gateway.DrainTimer(s.gw)
		s.play(`5s; call off; drain`)
		end := time.Now().Add(10 * time.Second)
		first.Reset(0)
		s.play(`9.999s; attached`)
		s.wantDrain(true, end, 1)
		s.play(`call off; 1h; attached; new accepted`)
	})
}

// SIGTERM during an operator's drain: the final drain has its full time, and cannot be
// cancelled.
func TestFinalDrainReplacesOperatorsDrain(t *testing.T) {
	inScene(t, testPolicy(), func(s *scene) {
		s.play(`sync; drain; 8s`)
		over := s.drain(false)
		wstest.Equal(t, "the final drain was cancelled", s.gw.CallOffDrain(), false)
		s.play(`drain; 9s; attached; new refused; 1s; client< ^close 4503; game< Close 1001`)
		<-over
	})
}

func TestChangedGracePeriodIsSentAndHoldsAtOnce(t *testing.T) {
	inScene(t, testPolicy(), func(s *scene) {
		change := func(d time.Duration) { s.patch(s.client.Hello.Session, control.Change{Grace: &d}) }
		s.play(`sync`)
		change(10 * time.Second)
		s.play(`info grace=10s; client< ^grace 10000; detach; 5s`)
		change(time.Minute) // longer while it runs
		s.play(`54s; detached`)
		change(59500 * time.Millisecond) // shorter
		s.play(`500ms; game< Close 1001`)
		_, o := s.gw.Control().Patch(s.client.Hello.Session, control.Change{Group: new("x")})
		wstest.Equal(t, "a change of an ended session", o, control.Conflict)
		_, o = s.gw.Control().Patch("nobody", control.Change{})
		wstest.Equal(t, "a change of no session", o, control.Unknown)
	})
}

func TestGraceBeforeStartHoldsUntilSessionIsStarted(t *testing.T) {
	terms := changed(testPolicy(), func(p *policy.Policy) { p.Grace, p.GraceBeforeStart = time.Minute, new(5*time.Second) })
	for name, start := range map[string]func(s *scene, id string){
		"by PATCH": func(s *scene, id string) { s.patch(id, control.Change{Started: new(true)}) },
		"by group": func(s *scene, id string) {
			s.patch(id, control.Change{Group: new("match-17")})
			wstest.Equal(s.t, "sessions started", s.gw.Control().StartGroup("match-17"), 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inScene(t, terms, func(s *scene) { // of two sessions one is started
				s.play(`hello grace_ms=5000; sync; begin; sync`)
				start(s, s.client.Hello.Session)
				s.play(`client< ^grace 60000; info started=true grace=1m; older drops; client drops; 5s; before< Close 1001; 54s; detached; 1s; game< Close 1001`)
			})
		})
	}
}

func TestUpstreamAnswerSetsTheTerms(t *testing.T) {
	inScene(t, testPolicy(), func(s *scene) {
		s.game.Header = "Reseat-Grace: 2m\r\nReseat-Overflow: end\r\nReseat-Group: match-9\r\n"
		s.play(`begin; info grace=2m overflow=end group=match-9; hello grace_ms=120000`)
		s.patch(s.client.Hello.Session, control.Change{Overflow: new(session.DropOldest)})
		s.play(`info overflow=drop-oldest grace=2m`)
	})
}

// A grace period above the flag's maximum would overflow, and outlive its tokens.
func TestGraceOfTheUpstreamsAnswerIsBounded(t *testing.T) {
	inScene(t, testPolicy(), func(s *scene) {
		for value, want := range map[string]string{"8760h": "8760h", "8761h": "30s", "2000000h": "30s", "9999999999h": "30s", "-1s": "30s", "0": "0s", "soon": "30s"} {
			s.game.Header = "Reseat-Grace: " + value + "\r\n"
			s.play(`begin; info grace=` + want)
		}
	})
}
