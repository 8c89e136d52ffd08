package gateway_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
	"reseat/gateway/events"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/policy"
	"reseat/gateway/registry"
	"reseat/gateway/watch"
	"reseat/gateway/wire"
	"reseat/tokens/login"
)

// showing is the offer of a client that reads refusals as closes: protocol section 2.
var showing = []string{wire.Subprotocol, "reseat.refusals"}

const expired = "Authorization: Bearer $EXPIRED\r\n"

// A refusal is a first handshake that is refused, and what everybody hears of that.
type refusal struct {
	config             func(*gateway.Config)
	login              bool // the route requires one, in a header
	before             func(*world)
	game               string       // answer of the game server; "silence" for none, "" if it need not answer
	host, path, header string       // "" for game.example and /match/7
	want               wire.Closing // with a Status alone: by HTTP, also for a client that reads refusals
	listed             string       // in the list of refusals, as "why | hint's flag, a part of the hint"
	logged             string       // "message | part of its line | ..."
}

func refusals() map[string]refusal {
	strict := func(c *gateway.Config) { c.Hosts, c.Routes[0].Pattern = []string{"game.example"}, "/match/*" }
	playing := func(w *world) { w.play() }
	full := wire.Closing{Code: 4503, Status: 503, Reason: "full", Retry: true, RetryAfter: 5000}
	return map[string]refusal{
		"no login": {login: true, want: wire.Closing{Code: 4403, Status: 401, Reason: "login: missing"},
			listed: "unauthorized: missing | --auth-from", logged: "handshake.refused | status=401 | why=unauthorized | path=/match/7 | login=missing"},
		"old login": {login: true, header: expired, want: wire.Closing{Code: 4403, Status: 401, Reason: "login: expired"},
			listed: "unauthorized: expired | no setting", logged: "handshake.refused | status=401 | why=unauthorized | path=/match/7 | login=expired"},
		"another page": {config: strict, path: "/match/7?token=secret", header: "Origin: https://Play.example\r\n", want: wire.Closing{Status: 403},
			listed: "origin: https://Play.example | --origin", logged: "origin.refused | add --origin https://play.example;"},
		"a page of this machine": {header: "Origin: http://localhost:3000\r\n", want: wire.Closing{Status: 403},
			listed: "origin: http://localhost:3000 | --origin", logged: "origin.refused | add --origin http://localhost:3000;"},
		"a page without origin": {header: "Origin: null\r\n", want: wire.Closing{Status: 403}, listed: "origin: null | --origin", logged: "origin.refused | add its origin;"},
		"an origin for a shell": {header: "Origin: https://a.example;reboot\r\n", want: wire.Closing{Status: 403},
			listed: "origin: https://a.example;reboot | --origin", logged: "origin.refused | add its origin;"},
		"another host": {config: strict, host: "play.example:8443", want: wire.Closing{Status: 421},
			listed: "host_not_allowed: play.example:8443 | --host", logged: `handshake.refused | add --host play.example:8443"`},
		"a host for a shell": {config: strict, host: "$(reboot)", want: wire.Closing{Status: 421}, listed: "host_not_allowed: $(reboot) | --host", logged: `handshake.refused | add this name"`},
		"no handshake":       {header: "Sec-WebSocket-Key: AAAA\r\n", want: wire.Closing{Status: 400}, listed: "bad_handshake | no setting", logged: "handshake.refused | why=bad_handshake"},
		"no route": {config: strict, path: "/other/caf%C3%A9", want: wire.Closing{Code: 4403, Status: 404, Reason: "no route"},
			listed: "no_route | --route", logged: "handshake.refused | path=/other/caf%C3%A9"},
		"an ambiguous path": {path: "/match//7", want: wire.Closing{Code: 4403, Status: 400, Reason: "unsafe path"},
			listed: "unsafe_path: an empty segment (//) | no setting", logged: "handshake.refused | why=unsafe_path"},
		"full": {config: func(c *gateway.Config) { c.MaxSessions = 1 }, before: playing, want: full, listed: "max_sessions | --max-sessions", logged: "handshake.refused | why=max_sessions"},
		"one address": {config: func(c *gateway.Config) { c.MaxSessionsPerIP = 1 }, before: playing,
			want:   wire.Closing{Code: 4429, Status: 429, Reason: "too many sessions from this address", Retry: true, RetryAfter: 5000},
			listed: "max_sessions_per_ip | --max-sessions-per-ip", logged: "handshake.refused | why=max_sessions_per_ip"},
		"draining": {before: func(w *world) { w.gw.BeginDrain() }, want: wire.Closing{Code: 4503, Status: 503, Reason: "draining", Retry: true, RetryAfter: 5000},
			listed: "draining | no setting", logged: "handshake.refused | why=draining"},
		"unreachable": {config: func(c *gateway.Config) {
			c.Routes[0].Upstream.DialContext = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("connection refused") }
		}, want: wire.Closing{Code: 4502, Status: 502, Reason: "upstream: unreachable", Retry: true},
			listed: "upstream: game.example:9000: connection refused | --upstream", logged: "upstream.refused | route=/*"},
		"silent": {game: "silence", want: wire.Closing{Code: 4502, Status: 504, Reason: "upstream: not in time", Retry: true},
			listed: "upstream: game.example:9000: no answer in time: context deadline exceeded | --dial-timeout", logged: "upstream.refused"},
		"game, 404": {path: "/match/7?token=secret", game: "404 Not Found", want: wire.Closing{Code: 4403, Status: 404, Reason: "upstream: 404"},
			listed: "upstream: refused with status 404 | --upstream, another path", logged: `upstream.refused | route=/* | path=/match/7  | err="upstream refused with status 404"`},
		"game, 403": {game: "403 Forbidden", want: wire.Closing{Code: 4403, Status: 403, Reason: "upstream: 403"}, listed: "upstream: refused with status 403 | --upstream, another path", logged: "upstream.refused"},
		"game, 302": {game: "302 Found\r\nLocation: http://elsewhere/", want: wire.Closing{Code: 4403, Status: 302, Reason: "upstream: 302"},
			listed: "upstream: refused with status 302 | --upstream", logged: "upstream.refused"},
		"game, busy": {game: "503 Busy\r\nRetry-After: 7", want: wire.Closing{Code: 4403, Status: 503, Reason: "upstream: 503", Retry: true, RetryAfter: 7000},
			listed: "upstream: refused with status 503 | --upstream, starting, restarting or overloaded", logged: "upstream.refused"},
		"game, busy until a moment": {game: "503 Busy\r\nRetry-After: Sat, 01 Jan 2000 00:01:00 GMT", want: wire.Closing{Code: 4403, Status: 503, Reason: "upstream: 503", Retry: true, RetryAfter: 60_000},
			listed: "upstream: refused with status 503 | --upstream", logged: "upstream.refused"},
		"game, busy until a moment that has passed": {game: "503 Busy\r\nRetry-After: Fri, 31 Dec 1999 23:55:00 GMT", want: wire.Closing{Code: 4403, Status: 503, Reason: "upstream: 503", Retry: true},
			listed: "upstream: refused with status 503 | --upstream", logged: "upstream.refused"},
		"game, busy for centuries": {game: "503 Busy\r\nRetry-After: 4294967295", want: wire.Closing{Code: 4403, Status: 503, Reason: "upstream: 503", Retry: true, RetryAfter: 86_400_000},
			listed: "upstream: refused with status 503 | --upstream", logged: "upstream.refused"},
		"game, overloaded": {game: "429 Slow\r\nRetry-After: -1", want: wire.Closing{Code: 4403, Status: 429, Reason: "upstream: 429", Retry: true},
			listed: "upstream: refused with status 429 | --upstream, starting, restarting or overloaded", logged: "upstream.refused"},
		"game, 502": {game: "502 Bad", want: wire.Closing{Code: 4403, Status: 502, Reason: "upstream: 502", Retry: true}, listed: "upstream: refused with status 502 | --upstream", logged: "upstream.refused"},
	}
}

// A client hears why its handshake is refused, and operators read it in the list and in the log, with the flag that would
// change that. A page of another site learns nothing, and a request that is not a handshake gets no 101.
func TestRefusedHandshakeIsExplained(t *testing.T) {
	eachInBubble(t, refusals(), func(t *testing.T, c refusal) {
		said := new(bytes.Buffer)
		pol := testPolicy()
		if c.login {
			pol.Auth = headerLogin(t)
		}
		w := newWorld(t, pol, func(cfg *gateway.Config) {
			cfg.Log = slog.New(slog.NewTextHandler(said, nil))
			if err := gateway.OpenLogins(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
			if c.config != nil {
				c.config(cfg)
			}
		})
		if c.before != nil {
			c.before(w)
		}
		if c.game != "" {
			w.game.Refuse = answering(c.game)
		}
		token := loginOf(t, "ann", 0)
		path, header := cmp.Or(c.path, "/match/7"), strings.ReplaceAll(c.header, "$EXPIRED", token)
		if c.host != "" {
			header += "Host: " + c.host + "\r\n"
		}
		bare, _, _ := strings.Cut(path, "?")
		synctest.Wait()
		said.Reset() // what was logged before
		asked := 0
		ask := func(code string, protocols ...string) {
			asked++
			if code != "null" {
				p := w.PlayerRefused(path, header)
				wstest.Equal(t, "the close", p.WantClosing(c.want.Code), c.want)
				p.WantEnd()
			} else if conn, resp := w.handshake(path, header, protocols); resp.StatusCode != c.want.Status {
				t.Errorf("with %q: %s, want status %d", protocols, resp.Status, c.want.Status)
			} else {
				wstest.Equal(t, "it says how to log in", resp.Header.Get("WWW-Authenticate") != "", c.want.Status == http.StatusUnauthorized)
				conn.Close()
			}
			why, hint, _ := strings.Cut(c.listed, " | ")
			w.wantRefusal(fmt.Sprint(c.want.Status, " | ", code, " | ", why, " | ", bare), strings.Split(hint, ", ")...)
		}
		if c.want.Code > 0 {
			ask(fmt.Sprint(c.want.Code))
		} else {
			ask("null", showing...)
		}
		ask("null", wire.Subprotocol)
		ask("null", "reseat.refusals")
		ask("null")
		parts := strings.Split(c.logged, " | ")
		wantLine(t, said, parts[0], parts[1:]...)
		wstest.Equal(t, "lines of the log", strings.Count(said.String(), "msg="+parts[0]+" "), asked)
		if strings.Contains(said.String(), "secret") || strings.Contains(said.String(), token) {
			t.Errorf("the log contains the query, or the login: %s", said)
		}
	})
}

// headerLogin requires a login in a header.
func headerLogin(t *testing.T) *policy.Auth {
	t.Helper()
	from, err := login.ParseSources("header")
	if err != nil {
		t.Fatal(err)
	}
	return &policy.Auth{KeyFile: loginKey(t), Audience: "game", From: from}
}

// handshake is Handshake, with the Host that the header may have.
func (w *world) handshake(path, header string, protocols []string) (net.Conn, *http.Response) {
	w.t.Helper()
	if !strings.Contains(header, "Host: ") {
		header += "Host: game.example\r\n"
	}
	if len(protocols) > 0 {
		header += "Sec-WebSocket-Protocol: " + strings.Join(protocols, ", ") + "\r\n"
	}
	conn, br := w.Request("GET " + path + " HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n" + header + "\r\n")
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return conn, resp
}

// answering is a game server that answers every handshake with a status and header, or with silence.
func answering(status string) func(net.Conn, *http.Request) bool {
	return func(c net.Conn, _ *http.Request) bool {
		if status == "silence" {
			io.Copy(io.Discard, c)
		} else {
			io.WriteString(c, "HTTP/1.1 "+status+"\r\nContent-Length: 0\r\n\r\n")
			c.Close()
		}
		return true
	}
}

// An ordinary request is answered by status, and in no list.
func TestRefusedRequestIsNotListed(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		_, br := w.Request("GET /match/7 HTTP/1.1\r\nHost: 203.0.113.9\r\nConnection: close\r\n\r\n")
		if resp, err := http.ReadResponse(br, nil); err != nil || resp.StatusCode != 421 || len(w.gw.Watch().Refusals()) != 0 {
			t.Errorf("%v, %v, and the refusals %v; want 421 and none", resp, err, w.gw.Watch().Refusals())
		}
	}, func(c *gateway.Config) { c.Hosts = []string{"game.example"} })
}

// wantLine waits for the log line with msg, which must contain all parts.
func wantLine(t *testing.T, said *bytes.Buffer, msg string, parts ...string) {
	t.Helper()
	synctest.Wait()
	line := ""
	for l := range strings.Lines(said.String()) {
		if strings.Contains(l, "msg="+msg+" ") {
			line = l
		}
	}
	for _, part := range parts {
		if !strings.Contains(line, part) {
			t.Errorf("%q is not in the line of %q: %s", part, msg, line)
		}
	}
}

// answerHead returns the lines of the answer to raw, without the empty one.
func (w *world) answerHead(raw string) []string {
	w.t.Helper()
	c, r := w.Request(raw)
	defer c.Close()
	var lines []string
	for {
		line, err := r.ReadString('\n')
		if line = strings.TrimSpace(line); line == "" {
			return lines
		}
		if err != nil {
			w.t.Fatalf("after %q: %v", lines, err)
		}
		lines = append(lines, line)
	}
}

const (
	ordinary  = "Host: game.example\r\n\r\n"
	asksForWS = "Host: game.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: "
)

// RFC 9110 sections 15.5.2, 15.5.6, 15.5.8 and 15.5.22, for an answer of the game server's.
func TestRefusalsOfTheGameServerKeepWhatTheirStatusNeeds(t *testing.T) {
	for _, c := range []struct {
		answer string
		want   []string // lines
	}{
		{"426 Upgrade Required\r\nUpgrade: websocket\r\nConnection: Upgrade", []string{"Upgrade: websocket", "Connection: Upgrade"}},
		{"426 Upgrade Required\r\nUpgrade: websocket\r\nConnection: close, Upgrade", []string{"Upgrade: websocket", "Connection: Upgrade"}},
		{"426 Upgrade Required", []string{"Upgrade: websocket", "Connection: Upgrade"}}, // as the ws package of Node.js
		{"401 Unauthorized\r\nWWW-Authenticate: Bearer", []string{"Www-Authenticate: Bearer"}},
		{"401 Unauthorized\r\nWWW-Authenticate: Bearer\r\nConnection: WWW-Authenticate", []string{"Www-Authenticate: Bearer"}},
		{"405 Method Not Allowed\r\nAllow: GET\r\nConnection: Allow", []string{"Allow: GET"}},
		{"407 Proxy Authentication Required\r\nProxy-Authenticate: Basic", []string{"Proxy-Authenticate: Basic"}},
		{"429 Too Many Requests\r\nRetry-After: 7", []string{"Retry-After: 7"}},
		{"302 Found\r\nLocation: /login", []string{"Location: /login"}},
		{"416 Requested Range Not Satisfiable\r\nContent-Range: bytes */7", []string{"Content-Range: bytes */7"}},
	} {
		inWorld(t, testPolicy(), func(t *testing.T, w *world) {
			w.game.Refuse = func(conn net.Conn, _ *http.Request) bool {
				conn.Write([]byte("HTTP/1.1 " + c.answer + "\r\nX-Hop: 1\r\nKeep-Alive: 9\r\nContent-Length: 0\r\n\r\n"))
				conn.Close()
				return true
			}
			for what, raw := range map[string]string{
				"a handshake": asksForWS + "13\r\n\r\n", "an ordinary request": ordinary, "a last request": "Connection: close\r\n" + ordinary,
			} {
				got := w.answerHead("GET /match/7 HTTP/1.1\r\n" + raw)
				for _, line := range append(c.want, "HTTP/1.1 "+strings.Split(c.answer, "\r\n")[0]) {
					if !slices.Contains(got, line) {
						t.Errorf("%s answered %q: got %q, without %q", what, c.answer, got, line)
					}
				}
				if slices.Contains(got, "Keep-Alive: 9") {
					t.Errorf("%s answered %q: got %q", what, c.answer, got)
				}
			}
		})
	}
}

func TestOwn426NamesTheProtocol(t *testing.T) {
	inWorld(t, changed(testPolicy(), func(p *policy.Policy) { p.HTTPOff = true }), func(t *testing.T, w *world) {
		for what, rest := range map[string]string{
			"a handshake of an old version": asksForWS + "8\r\n\r\n", "one that reads refusals": asksForWS + "8\r\nSec-WebSocket-Protocol: reseat.v1, reseat.refusals\r\n\r\n",
			"an ordinary request": ordinary, "a last request": "Connection: close\r\n" + ordinary,
		} {
			got := w.answerHead("GET / HTTP/1.1\r\n" + rest)
			for _, line := range []string{"HTTP/1.1 426 Upgrade Required", "Upgrade: websocket", "Connection: Upgrade"} {
				if !slices.Contains(got, line) {
					t.Errorf("%s: %q, want %q", what, got, line)
				}
			}
		}
	})
}

// The fields of HTTP/1 are no part of a close, nor of the 101 that carries it.
func TestRefusalByCloseHasNoFieldsOfTheStatus(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		w.game.Refuse = func(conn net.Conn, _ *http.Request) bool {
			conn.Write([]byte("HTTP/1.1 426 Upgrade Required\r\nUpgrade: h2c\r\nConnection: Upgrade\r\nContent-Length: 0\r\n\r\n"))
			conn.Close()
			return true
		}
		got := w.answerHead("GET / HTTP/1.1\r\n" + asksForWS + "13\r\nSec-WebSocket-Protocol: reseat.v1, reseat.refusals\r\n\r\n")
		slices.Sort(got)
		if want := []string{"Connection: Upgrade", "HTTP/1.1 101 Switching Protocols", "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", "Sec-WebSocket-Protocol: reseat.v1", "Upgrade: websocket"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// wantRefusal checks the newest refusal of the list, "status | code | why | path", and that its hint has the parts.
func (w *world) wantRefusal(want string, hint ...string) {
	w.t.Helper()
	synctest.Wait()
	list := w.gw.Watch().Refusals()
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
	inScene(t, testPolicy(), func(s *scene) {
		s.play(`sync; resume 0; sync`)
		first := s.older.Hello.Token
		s.client.TryResume(first, "0").WantClosing(4401)
		s.wantRefusal("101 | 4401 | bad_token: superseded | /resume", "no setting", "older token")
		s.client.TryResume("no.token.atall", "0").WantClosing(4401)
		s.wantRefusal("101 | 4401 | bad_token: malformed | /resume", "--token-key-file")
		s.play(`client drops; 31s; refused 4404`)
		s.wantRefusal("101 | 4404 | no_session: grace_over | /resume", "--grace")
		s.play(`1m; refused 4404`) // nothing is remembered
		s.wantRefusal("101 | 4404 | no_session | /resume", "no setting")
		s.play(`begin; sync; refused 4400 99`)
		s.wantRefusal("101 | 4400 | protocol_violation: received 99 is beyond what was sent | /resume", "no setting")
		for _, r := range s.gw.Watch().Refusals() {
			if all := fmt.Sprint(r); strings.Contains(all, s.client.Hello.Token) || strings.Contains(all, first) {
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
		list := w.gw.Watch().Refusals()
		if len(list) != 100 || !strings.HasPrefix(list[0].Path, "/249/") || !strings.HasPrefix(list[99].Path, "/150/") {
			t.Fatalf("%d refusals, from %.10s to %.10s, want 100 from /249/ to /150/", len(list), list[0].Path, list[len(list)-1].Path)
		}
		for _, r := range list {
			if len(r.Path) > 200 || len(r.Why) > 200 {
				t.Fatalf("%d bytes of a path, %d of a reason", len(r.Path), len(r.Why))
			}
		}
		if o := w.gw.Watch().Overview(registry.View{}); o.Refusals != 250 || o.Routes[0].Refused != 250 {
			t.Errorf("%d refusals are counted, and %d of the route, want 250", o.Refusals, o.Routes[0].Refused)
		}
	})
}

// What an overview says of each route.
func TestEachRouteHasItsFigures(t *testing.T) {
	inScene(t, testPolicy(), func(s *scene) {
		s.play(`sync; resume 0; sync; client drops; resume 0; sync; client drops; begin /chess/1; sync; begin /chess/2; end`)
		s.Handshake("/chess/3", nil, "Origin: https://elsewhere.example\r\n")
		synctest.Wait()
		got := s.gw.Watch().Overview(registry.View{}).Routes
		upstream := "ws://game.example:9000"
		want := []watch.RouteFigures{
			{Pattern: "/*", Upstream: upstream, Sessions: watch.StateCounts{Detached: 1}, Created: 1, Detached: 2, Resumed: 2},
			{Pattern: "/chess/*", Upstream: upstream, Sessions: watch.StateCounts{Attached: 1}, Created: 2, Ended: 1, Refused: 1},
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%+v, want %+v", got, want)
		}
	}, func(c *gateway.Config) {
		other := c.Routes[0]
		other.Pattern = "/chess/*"
		c.Routes = append(c.Routes, other)
	})
}

// Each flag that a hint names is on the page of flags, and each kind of refusal has one.
func TestEveryHintNamesAFlagThatExists(t *testing.T) {
	page, err := os.ReadFile("../docs/flags.md")
	if err != nil {
		t.Fatal(err)
	}
	flag := regexp.MustCompile(`--[a-z-]+[a-z]`)
	for label, hint := range watch.Hints {
		if first, _, _ := strings.Cut(hint, ": "); first != "no setting" && flag.FindString(first) != first {
			t.Errorf("%s: %q begins with no flag", label, hint)
		}
		for _, name := range flag.FindAllString(hint, -1) {
			if !strings.Contains(string(page), "`"+name) {
				t.Errorf("%s: there is no %s", label, name)
			}
		}
	}
	labels := append([]string{"bad_token", "no_session", "window_exceeded", "superseded", "ended", "too_fast", "upstream_lost", "protocol_violation"}, watch.RefusalReasons...)
	for _, label := range labels {
		if watch.Hints[label] == "" {
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
		info, _ := w.gw.Control().Session(id)
		if info.Path != "/match/caf%C3%A9" || info.Client != "resumable" || info.Player != "ann" {
			t.Errorf("%+v", info)
		}
		p.Drop()
		synctest.Wait()
		p = p.Resume(0)
		p.Sync()
		p = p.Resume(0)
		p.Sync()
		w.gw.Control().End("admin-token line 2", id, 1000, "enough")
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
		if info, _ = w.gw.Control().Session(id); info.By != "admin-token line 2" || info.Path != "/match/caf%C3%A9" {
			t.Errorf("the ended one: %+v", info)
		}
		past, _, _ := w.gw.Control().History(id)
		if last := past[len(past)-1]; last.By != "admin-token line 2" {
			t.Errorf("its history: %+v", last)
		}
		for text, want := range map[string]int{"CAF%c3": 1, "RESUMABLE": 1, "login=": 0, "cookie": 0} {
			if o := w.gw.Watch().Overview(registry.View{Filter: registry.Filter{State: "ended", Limit: 9}, Text: text}); o.Matching != want {
				t.Errorf("%q is found %d times, want %d", text, o.Matching, want)
			}
		}
	})
}

// A session that is ended twice is ended by the first.
func TestASessionIsEndedByTheFirstWhoEndsIt(t *testing.T) {
	inScene(t, testPolicy(), func(s *scene) {
		s.play(`sync`)
		s.gw.Control().End("first", s.client.Hello.Session, 1000, "")
		s.gw.Control().End("second", s.client.Hello.Session, 1000, "")
		s.play(`info by=first; begin; client> ^bye; game< Close 1000; ended`)
		s.gw.Control().End("late", s.client.Hello.Session, 1000, "")
		s.play(`info by= reason=bye`)
	})
}

// What a stranger writes into a path takes a bounded place in each record.
func TestThePathOfASessionIsBounded(t *testing.T) {
	inWorld(t, testPolicy(), func(t *testing.T, w *world) {
		p := w.Player("/" + strings.Repeat("x", 10_000))
		w.game.Next()
		if info, _ := w.gw.Control().Session(p.Hello.Session); len(info.Path) != 200 {
			t.Errorf("%d bytes", len(info.Path))
		}
	})
}
