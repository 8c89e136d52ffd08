package gateway_test

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/policy"
	"reseat/gateway/registry"
	"reseat/gateway/session"
	"reseat/gateway/wire"
)

func span(d time.Duration) *time.Duration { return &d }
func flag(v bool) *bool                   { return &v }
func text(s string) *string               { return &s }

func (w *world) patch(id string, c gateway.Change) registry.Snapshot {
	w.t.Helper()
	i, o := w.gw.Patch(id, c)
	if o != gateway.Done {
		w.t.Fatalf("Patch: outcome %v", o)
	}
	return i
}

func TestChangedGracePeriodIsSentAndHoldsAtOnce(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		p.Sync()
		if i := w.patch(p.Hello.Session, gateway.Change{Grace: span(10 * time.Second)}); i.Grace != "10s" {
			t.Errorf("grace %q", i.Grace)
		}
		if m := p.WantControl("grace"); m.Data != "10000" {
			t.Errorf("grace %q, want 10000", m.Data)
		}
		p.Drop()
		w.wantState(p, session.Detached)
		time.Sleep(5 * time.Second)
		w.patch(p.Hello.Session, gateway.Change{Grace: span(time.Minute)}) // longer while it runs
		time.Sleep(54 * time.Second)
		w.wantState(p, session.Detached)
		w.patch(p.Hello.Session, gateway.Change{Grace: span(59500 * time.Millisecond)}) // shorter
		time.Sleep(500 * time.Millisecond)
		game.WantClose(wire.CodeGoingAway)
		if _, o := w.gw.Patch(p.Hello.Session, gateway.Change{Group: text("x")}); o != gateway.Conflict {
			t.Errorf("a change of an ended session: %v, want Conflict", o)
		}
		if _, o := w.gw.Patch("nobody", gateway.Change{}); o != gateway.Unknown {
			t.Errorf("a change of no session: %v, want Unknown", o)
		}
	})
}

func TestShorterGraceThatHasPassedEndsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p, game := newDetached(t, testPolicy())
		time.Sleep(10 * time.Second)
		w.gw.Patch(p.Hello.Session, gateway.Change{Grace: span(5 * time.Second)})
		game.WantClose(wire.CodeGoingAway)
		w.wantState(p, session.Ended)
	})
}

// The client's token must outlive the grace period: an attached client gets another token, a
// detached one cannot.
func TestGraceBeyondTokenLifetimeRenewsTokenOrConflicts(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, game *wstest.Peer) {
		p.Sync()
		w.patch(p.Hello.Session, gateway.Change{Grace: span(3 * time.Hour)})
		p.WantControl("grace")
		m := p.WantControl(wire.VerbToken)
		var v struct{ Token string }
		if err := json.Unmarshal([]byte(m.Data), &v); err != nil {
			t.Fatal(err)
		}
		p.Drop()
		w.wantState(p, session.Detached)
		if _, o := w.gw.Patch(p.Hello.Session, gateway.Change{Grace: span(7 * time.Hour)}); o != gateway.Conflict {
			t.Fatalf("outcome %v, want Conflict", o)
		}
		if i, _ := w.gw.Session(p.Hello.Session); i.Grace != "3h" {
			t.Errorf("grace %q after a refused change", i.Grace)
		}
		time.Sleep(2*time.Hour + 59*time.Minute)
		p.TryResume(p.Hello.Token, "0").WantClosing(wire.CodeBadToken) // the first one has expired
		p.Hello.Token = v.Token
		p = p.Resume(0)
		game.Pass(p, "there you are")
	})
}

func TestGraceBeforeStartHoldsUntilSessionIsStarted(t *testing.T) {
	for name, start := range map[string]func(w *world, id string){
		"by PATCH": func(w *world, id string) { w.patch(id, gateway.Change{Started: flag(true)}) },
		"by group": func(w *world, id string) {
			w.patch(id, gateway.Change{Group: text("match-17")})
			if n := w.gw.StartGroup("match-17"); n != 1 {
				w.t.Errorf("%d sessions started, want 1", n)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pol := testPolicy()
				pol.Grace, pol.GraceBeforeStart = time.Minute, span(5*time.Second)
				w := newWorld(t, pol)
				p, game := w.play()
				if p.Hello.Grace != 5000 {
					t.Errorf("hello says a grace of %d ms, want 5000", p.Hello.Grace)
				}
				q, other := w.play()
				q.Sync()
				q.Drop()
				p.Sync()
				start(w, p.Hello.Session)
				if m := p.WantControl("grace"); m.Data != "60000" {
					t.Errorf("grace %q, want 60000", m.Data)
				}
				if i, _ := w.gw.Session(p.Hello.Session); !i.Started || i.Grace != "1m" {
					t.Errorf("started %v, grace %q", i.Started, i.Grace)
				}
				p.Drop()
				time.Sleep(5 * time.Second)
				other.WantClose(wire.CodeGoingAway)
				time.Sleep(54 * time.Second)
				w.wantState(p, session.Detached)
				time.Sleep(time.Second)
				game.WantClose(wire.CodeGoingAway)
			})
		})
	}
}

func TestEndGroupEndsDetachedAndResetsTheOthers(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		here, hereGame := w.play()
		away, awayGame := w.play()
		stranger, strangerGame := w.play()
		for _, p := range []string{here.Hello.Session, away.Hello.Session} {
			w.patch(p, gateway.Change{Group: text("match-17"), Started: flag(true)})
			if _, o := w.gw.SetData(p, []byte("score 3"), nil); o != gateway.Done {
				t.Fatal(o)
			}
		}
		w.detach(away)
		if n := w.gw.EndGroup("match-17", ""); n != 2 {
			t.Errorf("%d sessions, want 2", n)
		}
		awayGame.WantClose(wire.CodeNormal)
		away.TryResume(away.Hello.Token, "0").WantClosing(wire.CodeEnded)
		i, _ := w.gw.Session(here.Hello.Session)
		data, _, _ := w.gw.Data(here.Hello.Session)
		if i.State != "attached" || i.Started || data != nil {
			t.Errorf("the attached one is %s, started %v, with data %q", i.State, i.Started, data)
		}
		for _, g := range []struct {
			p    interface{ Want(...string) }
			game interface{ Text(string) }
		}{{here, hereGame}, {stranger, strangerGame}} {
			g.game.Text("goes on")
			g.p.Want("goes on")
		}
	})
}

func TestUpstreamAnswerSetsTheTerms(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		w.game.Header = "Reseat-Grace: 2m\r\nReseat-Overflow: end\r\nReseat-Group: match-9\r\n"
		p, _ := w.play()
		i, _ := w.gw.Session(p.Hello.Session)
		if i.Grace != "2m" || i.Overflow != "end" || i.Group != "match-9" || p.Hello.Grace != 120000 {
			t.Errorf("%+v, hello's grace %d", i, p.Hello.Grace)
		}
		drop := session.DropOldest
		if i = w.patch(p.Hello.Session, gateway.Change{Overflow: &drop}); i.Overflow != "drop-oldest" || i.Grace != "2m" {
			t.Errorf("%+v", i)
		}
	})
}

// A grace period above the flag's maximum would overflow, and outlive its tokens.
func TestGraceOfTheUpstreamsAnswerIsBounded(t *testing.T) {
	for value, want := range map[string]string{"8760h": "8760h", "8761h": "30s", "2000000h": "30s", "9999999999h": "30s", "-1s": "30s", "0": "0s", "soon": "30s"} {
		inWorld(t, testPolicy(), func(t *testing.T, w *world) {
			w.game.Header = "Reseat-Grace: " + value + "\r\n"
			p, _ := w.play()
			if i, _ := w.gw.Session(p.Hello.Session); i.Grace != want {
				t.Errorf("Reseat-Grace: %s: grace %s, want %s", value, i.Grace, want)
			}
		})
	}
}

func TestDataIsKeptWithOptimisticConcurrency(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, _ *wstest.Peer) {
		id := p.Hello.Session
		if data, tag, o := w.gw.Data(id); data != nil || tag != 0 || o != gateway.Done {
			t.Errorf("unset: %q %d %v", data, tag, o)
		}
		one, _ := w.gw.SetData(id, []byte("one"), nil)
		is := func(want uint64) func(uint64) bool { return func(tag uint64) bool { return tag == want } }
		two, o := w.gw.SetData(id, []byte("two"), is(one))
		if o != gateway.Done || two == one {
			t.Fatalf("tag %d after %d: %v", two, one, o)
		}
		if _, o := w.gw.SetData(id, []byte("late"), is(one)); o != gateway.Stale {
			t.Errorf("a write over another: %v, want Stale", o)
		}
		if data, tag, _ := w.gw.Data(id); string(data) != "two" || tag != two {
			t.Errorf("%q with tag %d", data, tag)
		}
	})
}

func TestPreCreatedSessionWaitsForItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pol := testPolicy()
		pol.Notices.Resume = "back"
		w := newWorld(t, pol)
		id, token, err := w.gw.Create(t.Context(), gateway.CreateRequest{
			Path: "/match/9?x=1", Subprotocols: []string{"chat.v2"}, Player: "ann", Group: "match-9", Data: []byte("d"), Grace: span(time.Minute),
		})
		if err != nil {
			t.Fatal(err)
		}
		game := w.game.Next()
		if r := game.Req; r.URL.String() != "/match/9?x=1" || r.Header.Get("Reseat-Session") != id || r.Header.Get("Reseat-Player") != "ann" || r.Header.Get("Sec-Websocket-Protocol") != "chat.v2" {
			t.Errorf("the upstream was asked %v %v", r.URL, r.Header)
		}
		game.Text("early")
		synctest.Wait()
		i, _ := w.gw.Session(id)
		if i.State != "detached" || i.Group != "match-9" || i.Player != "ann" || i.Grace != "1m" || i.DetachedSince == nil || i.Sent != 1 {
			t.Errorf("%+v", i)
		}
		time.Sleep(time.Minute - time.Second) // the full grace period, though the token was never confirmed
		p := w.Claim(token)
		if h := p.Hello; h.Resumed || h.Session != id || h.Replay != 1 || h.Received != 0 {
			t.Errorf("hello %+v, want a first attach with one message", h)
		}
		p.Want("early")
		p.Text("hi")
		game.Want("hi") // no --on-resume at the first attach
		p.Drop()
		w.wantState(p, session.Detached)
		p.Resume(1)
		game.Want("back")
	})
}

func TestPreCreatedSessionEndsWithoutClient(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		_, token, err := w.gw.Create(t.Context(), gateway.CreateRequest{Path: "/"})
		if err != nil {
			t.Fatal(err)
		}
		game := w.game.Next()
		time.Sleep(30 * time.Second)
		game.WantClose(wire.CodeGoingAway)
		c, err := w.Dial("/", []string{wire.Subprotocol, "reseat.token." + token, "reseat.received.0"})
		if err != nil {
			t.Fatal(err)
		}
		c.WantClosing(wire.CodeNoSession)
	})
}

func TestInvalidCreateRequestsAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, loggedIn(policy.Reject), func(c *gateway.Config) {
			c.Routes[0].Pattern = "/match/*"
			c.UpstreamAllow = []string{"game-*.internal:*", "10.0.0.*:9000"}
		})
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
			if _, _, err := w.gw.Create(t.Context(), c.wish); !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
		}
		if _, _, err := w.gw.Create(t.Context(), gateway.CreateRequest{Path: "/match/7", Upstream: "ws://game-1.internal:9000"}); err != nil {
			t.Errorf("an allowed upstream: %v", err)
		}
		w.game.Refuse = func(c net.Conn, _ *http.Request) bool { c.Close(); return true }
		if _, _, err := w.gw.Create(t.Context(), gateway.CreateRequest{Path: "/match/7"}); err == nil {
			t.Error("an upstream that closes: no error")
		}
		if list, _ := w.gw.Sessions(registry.Filter{Limit: 10}); len(list) != 1 {
			t.Errorf("%d sessions are left, want 1", len(list))
		}
	})
}
