package gateway_test

import (
	"encoding/json"
	"errors"
	"fmt"
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

func span(d time.Duration) *time.Duration { return &d }
func flag(v bool) *bool                   { return &v }
func text(s string) *string               { return &s }

func (w *world) patch(id string, c control.Change) registry.Snapshot {
	w.t.Helper()
	i, o := w.gw.Control().Patch(id, c)
	if o != control.Done {
		w.t.Fatalf("Patch: outcome %v, want done", o)
	}
	return i
}

// wantGrace reads the message of a changed grace period, in milliseconds.
func wantGrace(t *testing.T, p *wstest.Player, ms string) {
	t.Helper()
	wstest.Equal(t, "grace", p.WantControl(wire.VerbGrace).Data, ms)
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

func TestChangedGracePeriodIsSentAndHoldsAtOnce(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		p.Sync()
		wstest.Equal(t, "grace", w.patch(p.Hello.Session, control.Change{Grace: span(10 * time.Second)}).Grace, "10s")
		wantGrace(t, p, "10000")
		w.detach(p)
		time.Sleep(5 * time.Second)
		w.patch(p.Hello.Session, control.Change{Grace: span(time.Minute)}) // longer while it runs
		time.Sleep(54 * time.Second)
		w.wantState(p, session.Detached)
		w.patch(p.Hello.Session, control.Change{Grace: span(59500 * time.Millisecond)}) // shorter
		time.Sleep(500 * time.Millisecond)
		game.WantClose(wire.CodeGoingAway)
		_, o := w.gw.Control().Patch(p.Hello.Session, control.Change{Group: text("x")})
		wstest.Equal(t, "a change of an ended session", o, control.Conflict)
		_, o = w.gw.Control().Patch("nobody", control.Change{})
		wstest.Equal(t, "a change of no session", o, control.Unknown)
	})
}

// The client's token must outlive the grace period: an attached client gets another token, a
// detached one cannot.
func TestGraceBeyondTokenLifetimeRenewsTokenOrConflicts(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		p.Sync()
		w.patch(p.Hello.Session, control.Change{Grace: span(3 * time.Hour)})
		p.WantControl(wire.VerbGrace)
		var v struct{ Token string }
		if err := json.Unmarshal([]byte(p.WantControl(wire.VerbToken).Data), &v); err != nil {
			t.Fatal(err)
		}
		p.Drop()
		w.wantState(p, session.Detached)
		_, o := w.gw.Control().Patch(p.Hello.Session, control.Change{Grace: span(7 * time.Hour)})
		wstest.Equal(t, "a change beyond the token", o, control.Conflict)
		i, _ := w.gw.Control().Session(p.Hello.Session)
		wstest.Equal(t, "grace after a refused change", i.Grace, "3h")
		time.Sleep(2*time.Hour + 59*time.Minute)
		p.TryResume(p.Hello.Token, "0").WantClosing(wire.CodeBadToken) // the first one has expired
		p.Hello.Token = v.Token
		p = p.Resume(0)
		game.Pass(p, "there you are")
	})
}

func TestGraceBeforeStartHoldsUntilSessionIsStarted(t *testing.T) {
	eachInBubble(t, map[string]func(w *world, id string){
		"by PATCH": func(w *world, id string) { w.patch(id, control.Change{Started: flag(true)}) },
		"by group": func(w *world, id string) {
			w.patch(id, control.Change{Group: text("match-17")})
			wstest.Equal(w.t, "sessions started", w.gw.Control().StartGroup("match-17"), 1)
		},
	}, func(t *testing.T, start func(*world, string)) {
		w := newWorld(t, changed(testPolicy(), func(p *policy.Policy) { p.Grace, p.GraceBeforeStart = time.Minute, span(5*time.Second) }))
		p, game := w.play()
		wstest.Equal(t, "grace in hello", p.Hello.Grace, 5000)
		q, other := w.play()
		w.detach(q)
		p.Sync()
		start(w, p.Hello.Session)
		wantGrace(t, p, "60000")
		i, _ := w.gw.Control().Session(p.Hello.Session)
		wstest.Equal(t, "started", i.Started, true)
		wstest.Equal(t, "grace", i.Grace, "1m")
		p.Drop()
		time.Sleep(5 * time.Second)
		other.WantClose(wire.CodeGoingAway)
		time.Sleep(54 * time.Second)
		w.wantState(p, session.Detached)
		time.Sleep(time.Second)
		game.WantClose(wire.CodeGoingAway)
	})
}

func TestEndGroupEndsDetachedAndResetsTheOthers(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, here *wstest.Player, hereGame *wstest.Peer) {
		away, awayGame := w.play()
		stranger, strangerGame := w.play()
		for _, p := range []string{here.Hello.Session, away.Hello.Session} {
			w.patch(p, control.Change{Group: text("match-17"), Started: flag(true)})
			if _, o := w.gw.Control().SetData(p, []byte("score 3"), nil); o != control.Done {
				t.Fatal(o)
			}
		}
		w.detach(away)
		wstest.Equal(t, "sessions", w.gw.Control().EndGroup("match-17", ""), 2)
		awayGame.WantClose(wire.CodeNormal)
		away.TryResume(away.Hello.Token, "0").WantClosing(wire.CodeEnded)
		i, _ := w.gw.Control().Session(here.Hello.Session)
		data, _, _ := w.gw.Control().Data(here.Hello.Session)
		if i.State != "attached" || i.Started || data != nil {
			t.Errorf("the attached one is %s, started %v, with data %q; want it reset", i.State, i.Started, data)
		}
		goesOn(here, hereGame)
		goesOn(stranger, strangerGame)
	})
}

func TestUpstreamAnswerSetsTheTerms(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		w.game.Header = "Reseat-Grace: 2m\r\nReseat-Overflow: end\r\nReseat-Group: match-9\r\n"
		p, _ := w.play()
		i, _ := w.gw.Control().Session(p.Hello.Session)
		if i.Grace != "2m" || i.Overflow != "end" || i.Group != "match-9" || p.Hello.Grace != 120000 {
			t.Errorf("%+v, hello's grace %d; want 2m, end, match-9", i, p.Hello.Grace)
		}
		drop := session.DropOldest
		if i = w.patch(p.Hello.Session, control.Change{Overflow: &drop}); i.Overflow != "drop-oldest" || i.Grace != "2m" {
			t.Errorf("%+v, want drop-oldest, 2m", i)
		}
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

// A grace period above the flag's maximum would overflow, and outlive its tokens.
func TestGraceOfTheUpstreamsAnswerIsBounded(t *testing.T) {
	for value, want := range map[string]string{"8760h": "8760h", "8761h": "30s", "2000000h": "30s", "9999999999h": "30s", "-1s": "30s", "0": "0s", "soon": "30s"} {
		inWorld(t, testPolicy(), func(t *testing.T, w *world) {
			w.game.Header = "Reseat-Grace: " + value + "\r\n"
			p, _ := w.play()
			i, _ := w.gw.Control().Session(p.Hello.Session)
			wstest.Equal(t, "grace by Reseat-Grace: "+value, i.Grace, want)
		})
	}
}

func TestDataIsKeptWithOptimisticConcurrency(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, _ *wstest.Peer) {
		id := p.Hello.Session
		if data, tag, o := w.gw.Control().Data(id); data != nil || tag != 0 || o != control.Done {
			t.Errorf("unset: %q with tag %d, %v; want none", data, tag, o)
		}
		one, _ := w.gw.Control().SetData(id, []byte("one"), nil)
		is := func(want uint64) func(uint64) bool { return func(tag uint64) bool { return tag == want } }
		two, o := w.gw.Control().SetData(id, []byte("two"), is(one))
		if o != control.Done || two == one {
			t.Fatalf("tag %d after %d: %v", two, one, o)
		}
		_, o = w.gw.Control().SetData(id, []byte("late"), is(one))
		wstest.Equal(t, "a write over another", o, control.Stale)
		if data, tag, _ := w.gw.Control().Data(id); string(data) != "two" || tag != two {
			t.Errorf("%q with tag %d, want two with %d", data, tag, two)
		}
	})
}

func TestPreCreatedSessionWaitsForItsClient(t *testing.T) {
	inWorld(t, changed(testPolicy(), func(p *policy.Policy) { p.Notices.Resume = "back" }), func(t *testing.T, w *world) {
		id, token, game := w.create(gateway.CreateRequest{
			Path: "/match/9?x=1", Subprotocols: []string{"chat.v2"}, Player: "ann", Group: "match-9", Data: []byte("d"), Grace: span(time.Minute),
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
			"grace 0":          {gateway.CreateRequest{Path: "/match/7", Grace: span(0)}, gateway.ErrBadRequest},
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
