package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"reseat/gateway"
	"reseat/gateway/events"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/registry"
	"reseat/gateway/wire"
)

// newestRefusal is the newest of the list as "status code why path hint's flag".
func (w *world) newestRefusal() string {
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
	flag, _, _ := strings.Cut(r.Hint, ":")
	return strings.Join([]string{fmt.Sprint(r.Status), code, r.Why, r.Path, flag}, " | ")
}

func (w *world) wantRefusal(want string) {
	w.t.Helper()
	if got := w.newestRefusal(); got != want {
		w.t.Errorf("%s, want %s", got, want)
	}
}

// Each kind of refused handshake is listed with the flag that would change it.
func TestRefusedHandshakesAreListedWithTheirFlag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, testPolicy(), func(c *gateway.Config) {
			c.Routes[0].Pattern, c.Hosts, c.MaxSessionsPerIP = "/match/*", []string{"game.example"}, 1
		})
		try := func(path, header string) {
			conn, _, _, err := w.Handshake(path, []string{wire.Subprotocol}, header)
			if err != nil {
				t.Fatal(err)
			}
			conn.Close()
		}
		try("/match/7?token=secret", "Origin: https://elsewhere.example\r\n")
		w.wantRefusal("403 | null | origin: https://elsewhere.example | /match/7 | --origin")
		try("/match/7", "Sec-WebSocket-Key: AAAA\r\n")
		w.wantRefusal("400 | null | bad_handshake | /match/7 | no setting")
		try("/other/caf%C3%A9", "")
		w.wantRefusal("404 | null | no_route | /other/caf%C3%A9 | --route")
		try("/match//7", "")
		w.wantRefusal("400 | null | unsafe_path: an empty segment (//) | /match//7 | --unsafe-paths")
		w.PlayerRefused("/other", "").WantClosing(4403)
		w.wantRefusal("404 | 4403 | no_route | /other | --route")
		conn, br := w.Request("GET /match/7 HTTP/1.1\r\nHost: 203.0.113.9\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
		http.ReadResponse(br, nil)
		conn.Close()
		w.wantRefusal("421 | null | host_not_allowed: 203.0.113.9 | /match/7 | --host")
		listed := len(w.gw.Refusals())
		_, br = w.Request("GET /match/7 HTTP/1.1\r\nHost: 203.0.113.9\r\nConnection: close\r\n\r\n")
		if resp, err := http.ReadResponse(br, nil); err != nil || resp.StatusCode != 421 || len(w.gw.Refusals()) != listed {
			t.Errorf("an ordinary request: %v, %v, and %d refusals after %d", resp, err, len(w.gw.Refusals()), listed)
		}
		w.play()
		try("/match/8", "")
		w.wantRefusal("429 | null | max_sessions_per_ip | /match/8 | --max-sessions-per-ip")
		w.gw.BeginDrain()
		try("/match/8", "")
		w.wantRefusal("503 | null | draining | /match/8 | no setting")
	})
}

func TestARefusalOfTheGameServersIsListedWithWhatItSaid(t *testing.T) {
	for want, answer := range map[string]func(w *world, c net.Conn) error{
		"404 | 4403 | upstream: refused with status 404 | /match/7 | --upstream": func(_ *world, c net.Conn) error {
			_, err := io.WriteString(c, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
			return err
		},
		"504 | 4502 | upstream: game.example:9000: no answer in time: context deadline exceeded | /match/7 | --dial-timeout": func(_ *world, c net.Conn) error {
			_, err := io.Copy(io.Discard, c)
			return err
		},
	} {
		inWorld(t, testPolicy(), func(t *testing.T, w *world) {
			w.game.Refuse = func(c net.Conn, _ *http.Request) bool { answer(w, c); return true }
			w.PlayerRefused("/match/7", "").Next()
			w.wantRefusal(want)
		})
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, testPolicy(), func(c *gateway.Config) {
			c.Routes[0].Upstream.DialContext = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("connection refused") }
		})
		w.Handshake("/match/7", nil, "")
		w.wantRefusal("502 | null | upstream: game.example:9000: connection refused | /match/7 | --upstream")
	})
}

// A game server that restarts answers 503: no setting of the gateway is wrong.
func TestHintTellsABusyGameServerFromOneThatRefuses(t *testing.T) {
	for status, want := range map[string]string{"503 Unavailable": "starting, restarting or overloaded", "429 Too Many": "starting, restarting or overloaded", "404 Not Found": "another path"} {
		inWorld(t, testPolicy(), func(t *testing.T, w *world) {
			w.game.Refuse = func(c net.Conn, _ *http.Request) bool {
				io.WriteString(c, "HTTP/1.1 "+status+"\r\nContent-Length: 0\r\n\r\n")
				return true
			}
			w.PlayerRefused("/match/7", "").Next()
			synctest.Wait()
			if hint := w.gw.Refusals()[0].Hint; !strings.Contains(hint, want) {
				t.Errorf("%s: %q, want %q in it", status, hint, want)
			}
		})
	}
}

func TestRefusedResumesAreListedWithTheirFlag(t *testing.T) {
	inSession(t, testPolicy(), func(t *testing.T, w *world, p *wstest.Player, _ *wstest.Peer) {
		p.Sync()
		first := p.Hello.Token
		p = p.Resume(0)
		p.Sync()
		p.TryResume(first, "0").WantClosing(4401)
		w.wantRefusal("101 | 4401 | bad_token: superseded | /resume | no setting")
		if hint := w.gw.Refusals()[0].Hint; !strings.Contains(hint, "older token") {
			t.Errorf("hint %q", hint)
		}
		p.TryResume("no.token.atall", "0").WantClosing(4401)
		w.wantRefusal("101 | 4401 | bad_token: malformed | /resume | --token-key-file")
		p.Drop()
		time.Sleep(31 * time.Second)
		p.TryResume(p.Hello.Token, "0").WantClosing(4404)
		w.wantRefusal("101 | 4404 | no_session: grace_over | /resume | --grace")
		time.Sleep(time.Minute) // nothing is remembered
		p.TryResume(p.Hello.Token, "0").WantClosing(4404)
		w.wantRefusal("101 | 4404 | no_session | /resume | no setting")
		q, _ := w.play()
		q.Sync()
		q.TryResume(q.Hello.Token, "99").WantClosing(4400)
		w.wantRefusal("101 | 4400 | protocol_violation: received 99 is beyond what was sent | /resume | no setting")
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
		p := w.Player("/match/caf%C3%A9?login=" + signed(t, jwt.MapClaims{"sub": "ann", "aud": "game", "exp": time.Now().Add(time.Hour).Unix()}))
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
