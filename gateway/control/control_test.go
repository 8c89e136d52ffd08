package control

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
	"reseat/gateway/internal/wstest"
	"reseat/tokens"
	"reseat/upstream"
)

// A world is a gateway between a game and its players, all in memory, with its
// admin address.
type world struct {
	*wstest.Door
	t     *testing.T
	game  *wstest.Game
	gw    *gateway.Gateway
	admin http.Handler
}

// inWorld runs test in a bubble: time passes at once.
func inWorld(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newWorld(t)) })
}

func newWorld(t *testing.T) *world {
	t.Helper()
	keys, err := tokens.Load(nil, tokens.Options{})
	if err != nil {
		t.Fatal(err)
	}
	game := wstest.NewGame(t, 64<<10)
	target := upstream.Target{URL: &url.URL{Scheme: "ws", Host: "game.example:9000"}, DialContext: game.Dial}
	p := gateway.Policy{
		Grace: 90 * time.Second, Heartbeat: 15 * time.Second, DialTimeout: 10 * time.Second,
		BufferBytes: 1 << 20, BufferMessages: 4096, MaxMessage: 1 << 20,
	}
	gw, err := gateway.New(gateway.Config{
		Routes:  []gateway.Route{{Pattern: "/match/*", Upstream: target, Policy: p}},
		Default: p, Keys: keys, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, game: game, gw: gw, admin: New(gw), Door: wstest.Open(t, gw, 64<<10)}
	t.Cleanup(func() {
		gw.Close()
		time.Sleep(20 * time.Second) // fake: whoever takes leave has done so
	})
	return w
}

// play begins a session, in a group where one is named, and gives both its ends.
func (w *world) play(group string) (*wstest.Player, *wstest.Peer) {
	w.t.Helper()
	w.game.Header = ""
	if group != "" {
		w.game.Header = "Reseat-Group: " + group + "\r\n"
	}
	p := w.Player("/match/7")
	return p, w.game.Next()
}

// call asks the admin address, as curl on this machine does.
func (w *world) call(method, target string) *httptest.ResponseRecorder {
	w.t.Helper()
	synctest.Wait()
	rec := httptest.NewRecorder()
	r := httptest.NewRequest(method, target, nil)
	r.Host = "127.0.0.1:8081"
	w.admin.ServeHTTP(rec, r)
	synctest.Wait()
	return rec
}

// wantProblem: an error of RFC 9457 whose detail holds a word.
func (w *world) wantProblem(method, target string, status int, word string) {
	w.t.Helper()
	rec := w.call(method, target)
	var p struct {
		Title, Detail string
		Status        int
	}
	err := json.Unmarshal(rec.Body.Bytes(), &p)
	if rec.Code != status || rec.Header().Get("Content-Type") != "application/problem+json" || err != nil {
		w.t.Errorf("%s %s: %d %s %s, %v, want a problem of %d", method, target, rec.Code, rec.Header().Get("Content-Type"), rec.Body, err, status)
		return
	}
	if p.Status != status || p.Title != http.StatusText(status) || !strings.Contains(p.Detail, word) {
		w.t.Errorf("%s %s: %s, want a word on %q", method, target, rec.Body, word)
	}
}

func (w *world) wantStatus(method, target string, status int) {
	w.t.Helper()
	if rec := w.call(method, target); rec.Code != status || rec.Body.Len() > 0 {
		w.t.Errorf("%s %s: %d %s, want %d", method, target, rec.Code, rec.Body, status)
	}
}

// A page is an answer to GET /sessions.
type page struct {
	Sessions []map[string]any
	Next     *string
}

func (w *world) list(query string) page {
	w.t.Helper()
	rec := w.call("GET", "/api/v1/sessions"+query)
	var p page
	if err := json.Unmarshal(rec.Body.Bytes(), &p); err != nil || rec.Code != http.StatusOK || p.Sessions == nil || p.Next == nil {
		w.t.Fatalf("list%s: %d %s, %v", query, rec.Code, rec.Body, err)
	}
	return p
}

// wantList checks which sessions a query lists, in their order.
func (w *world) wantList(query string, want ...*wstest.Player) {
	w.t.Helper()
	var got, ids []string
	for _, s := range w.list(query).Sessions {
		got = append(got, s["id"].(string))
	}
	for _, p := range want {
		ids = append(ids, p.Hello.Session)
	}
	if strings.Join(got, " ") != strings.Join(ids, " ") {
		w.t.Errorf("list%s: %v, want %v", query, got, ids)
	}
}

func path(p *wstest.Player) string { return "/api/v1/sessions/" + p.Hello.Session }

// callAs asks as somebody else.
func (w *world) callAs(method, target string, a asked) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	r := a.request()
	r.Method, r.URL = method, &url.URL{Path: target}
	w.admin.ServeHTTP(rec, r)
	return rec
}
