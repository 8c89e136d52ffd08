package gateway_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
	"reseat/gateway/events"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/registry"
)

// wantRefusal checks the newest refusal of the list, "status | code | why | path", and that its hint has the parts.
func (w *world) wantRefusal(want string, hint ...string) {
	w.t.Helper()
	synctest.Wait()
	list := w.gw.Refusals()
	if len(list) == 0 {
		w.t.Fatal("no refusal is listed")
	}
	r := list[0]
	code := "null"
	if r.Code != nil {
		code = fmt.Sprint(*r.Code)
	}
	if r.Peer == "" || time.Since(r.Time) != 0 {
		w.t.Errorf("peer %q, time %v", r.Peer, r.Time)
	}
	wstest.Equal(w.t, "the newest refusal", fmt.Sprint(r.Status, " | ", code, " | ", r.Why, " | ", r.Path), want)
	for i, part := range hint {
		if i == 0 && !strings.HasPrefix(r.Hint, part+": ") || !strings.Contains(r.Hint, part) {
			w.t.Errorf("hint %q, want %q", r.Hint, hint)
		}
	}
}

func TestRefusedResumesAreListedWithTheirFlag(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, _ *wstest.Peer) {
		p.Sync()
		first := p.Hello.Token
		p = p.Resume(0)
		p.Sync()
		p.TryResume(first, "0").WantClosing(4401)
		w.wantRefusal("101 | 4401 | bad_token: superseded | /resume", "no setting", "older token")
		p.TryResume("no.token.atall", "0").WantClosing(4401)
		w.wantRefusal("101 | 4401 | bad_token: malformed | /resume", "--token-key-file")
		p.Drop()
		time.Sleep(31 * time.Second)
		p.TryResume(p.Hello.Token, "0").WantClosing(4404)
		w.wantRefusal("101 | 4404 | no_session: grace_over | /resume", "--grace")
		time.Sleep(time.Minute) // nothing is remembered
		p.TryResume(p.Hello.Token, "0").WantClosing(4404)
		w.wantRefusal("101 | 4404 | no_session | /resume", "no setting")
		q, _ := w.play()
		q.Sync()
		q.TryResume(q.Hello.Token, "99").WantClosing(4400)
		w.wantRefusal("101 | 4400 | protocol_violation: received 99 is beyond what was sent | /resume", "no setting")
		for _, r := range w.gw.Refusals() {
			if all := fmt.Sprint(r); strings.Contains(all, q.Hello.Token) || strings.Contains(all, first) {
				t.Errorf("a refusal holds a token: %s", all)
			}
		}
	})
}

// A stranger who is refused again and again, with text as long as it can be, fills no
// memory.
func TestRefusalsAreBoundedAndTheNewestStay(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		long := strings.Repeat("x", 4000)
		for i := range 250 {
			conn, _, _, err := w.Handshake(fmt.Sprintf("/%d/%s", i, long), nil, "Origin: https://"+long+"\r\n")
			if err != nil {
				t.Fatal(err)
			}
			conn.Close()
		}
		synctest.Wait()
		list := w.gw.Refusals()
		if len(list) != 100 || !strings.HasPrefix(list[0].Path, "/249/") || !strings.HasPrefix(list[99].Path, "/150/") {
			t.Fatalf("%d refusals, from %.10s to %.10s, want 100 from /249/ to /150/", len(list), list[0].Path, list[len(list)-1].Path)
		}
		for _, r := range list {
			if len(r.Path) > 200 || len(r.Why) > 200 {
				t.Fatalf("%d bytes of a path, %d of a reason", len(r.Path), len(r.Why))
			}
		}
		if o := w.gw.Overview(registry.View{}); o.Refusals != 250 || o.Routes[0].Refused != 250 {
			t.Errorf("%d refusals are counted, and %d of the route, want 250", o.Refusals, o.Routes[0].Refused)
		}
	})
}

// What an overview says of each route.
func TestEachRouteHasItsFigures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, testPolicy(), func(c *gateway.Config) {
			other := c.Routes[0]
			other.Pattern = "/chess/*"
			c.Routes = append(c.Routes, other)
		})
		p, _ := w.play()
		p.Sync()
		p = p.Resume(0) // a takeover
		p.Sync()
		p.Drop()
		synctest.Wait()
		p = p.Resume(0)
		p.Sync()
		p.Drop()
		chess := w.Player("/chess/1")
		w.game.Next()
		chess.Sync()
		ended := w.Player("/chess/2")
		w.game.Next()
		w.gw.End(ended.Hello.Session, 1000, "enough")
		w.Handshake("/chess/3", nil, "Origin: https://elsewhere.example\r\n")
		synctest.Wait()
		got := w.gw.Overview(registry.View{}).Routes
		upstream := "ws://game.example:9000"
		want := []gateway.RouteFigures{
			{Pattern: "/*", Upstream: upstream, Sessions: gateway.StateCounts{Detached: 1}, Created: 1, Detached: 2, Resumed: 2},
			{Pattern: "/chess/*", Upstream: upstream, Sessions: gateway.StateCounts{Attached: 1}, Created: 2, Ended: 1, Refused: 1},
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}

// Each flag that a hint names is on the page of flags, and each kind of refusal has one.
func TestEveryHintNamesAFlagThatExists(t *testing.T) {
	page, err := os.ReadFile("../docs/flags.md")
	if err != nil {
		t.Fatal(err)
	}
	flag := regexp.MustCompile(`--[a-z-]+[a-z]`)
	for label, hint := range gateway.Hints {
		if first, _, _ := strings.Cut(hint, ": "); first != "no setting" && flag.FindString(first) != first {
			t.Errorf("%s: %q begins with no flag", label, hint)
		}
		for _, name := range flag.FindAllString(hint, -1) {
			if !strings.Contains(string(page), "`"+name) {
				t.Errorf("%s: there is no %s", label, name)
			}
		}
	}
	labels := append([]string{"bad_token", "no_session", "window_exceeded", "superseded", "ended", "too_fast", "upstream_lost", "protocol_violation"}, gateway.RefusalReasons...)
	for _, label := range labels {
		if gateway.Hints[label] == "" {
			t.Errorf("%s has no hint", label)
		}
	}
}

// Lists, events and the log say by the same words where a session was begun.
func TestASessionIsNamedAlikeInListsEventsAndTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, said := newLoginWorld(t, "query:login", false)
		l := w.listen()
		p := w.Player("/match/caf%C3%A9?login=" + loginOf(t, "ann", time.Hour))
		w.game.Next()
		p.Sync()
		id := p.Hello.Session
		info, _ := w.gw.Session(id)
		if info.Path != "/match/caf%C3%A9" || info.Client != "resumable" || info.Player != "ann" {
			t.Errorf("%+v", info)
		}
		p.Drop()
		synctest.Wait()
		p = p.Resume(0)
		p.Sync()
		p = p.Resume(0)
		p.Sync()
		w.gw.EndBy("admin-token line 2", id, 1000, "enough")
		synctest.Wait()
		for _, msg := range []string{"session.created", "session.detached", "session.resumed", "session.superseded", "session.ended"} {
			wantLine(t, said, msg, "session="+id, "player=ann", "path=/match/caf%C3%A9", "client=resumable")
		}
		wantLine(t, said, "session.ended", `by="admin-token line 2"`)
		told, _ := l.Next(make([]events.Event, 0, 64))
		if len(told) != 5 {
			t.Errorf("%d events, want 5", len(told))
		}
		for _, e := range told {
			if e.Path != info.Path || (e.By == "admin-token line 2") != (e.Type == "session.ended") {
				t.Errorf("%+v", e)
			}
		}
		if info, _ = w.gw.Session(id); info.By != "admin-token line 2" || info.Path != "/match/caf%C3%A9" {
			t.Errorf("the ended one: %+v", info)
		}
		past, _, _ := w.gw.History(id)
		if last := past[len(past)-1]; last.By != "admin-token line 2" {
			t.Errorf("its history: %+v", last)
		}
		for text, want := range map[string]int{"CAF%c3": 1, "RESUMABLE": 1, "login=": 0, "cookie": 0} {
			if o := w.gw.Overview(registry.View{Filter: registry.Filter{State: "ended", Limit: 9}, Text: text}); o.Matching != want {
				t.Errorf("%q is found %d times, want %d", text, o.Matching, want)
			}
		}
	})
}

// A session that is ended twice is ended by the first.
func TestASessionIsEndedByTheFirstWhoEndsIt(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, _ *wstest.Peer) {
		p.Sync()
		w.gw.EndBy("first", p.Hello.Session, 1000, "")
		w.gw.EndBy("second", p.Hello.Session, 1000, "")
		if info, _ := w.gw.Session(p.Hello.Session); info.By != "first" {
			t.Errorf("ended by %q", info.By)
		}
		q, _ := w.play()
		q.Control(`bye {"code":1000,"reason":""}`)
		synctest.Wait()
		w.gw.EndBy("late", q.Hello.Session, 1000, "")
		if info, _ := w.gw.Session(q.Hello.Session); info.By != "" || info.Reason != "bye" {
			t.Errorf("ended by %q, %s", info.By, info.Reason)
		}
	})
}

// What a stranger writes into a path takes a bounded place in each record.
func TestThePathOfASessionIsBounded(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		p := w.Player("/" + strings.Repeat("x", 10_000))
		w.game.Next()
		if info, _ := w.gw.Session(p.Hello.Session); len(info.Path) != 200 {
			t.Errorf("%d bytes", len(info.Path))
		}
	})
}
