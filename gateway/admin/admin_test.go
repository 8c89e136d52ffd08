package admin

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/policy"
	"reseat/tokens"
)

// A world is a gateway between a game and its players, all in memory, with its admin
// address.
type world struct {
	*wstest.Door
	t     *testing.T
	game  *wstest.Game
	gw    *gateway.Gateway
	admin http.Handler
	log   *wstest.Log
}

func newLog(l *wstest.Log) *slog.Logger {
	return slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// A change adjusts what a world is made from.
type change func(*gateway.Config, *Options)

// inWorld runs test in a synctest bubble, where time passes at once.
func inWorld(t *testing.T, test func(t *testing.T, w *world), changes ...change) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newWorld(t, changes...)) })
}

func newWorld(t *testing.T, changes ...change) *world {
	t.Helper()
	keys, err := tokens.Load(nil, tokens.Options{})
	if err != nil {
		t.Fatal(err)
	}
	game := wstest.NewGame(t, 64<<10)
	p := policy.Policy{
		Grace: 90 * time.Second, Heartbeat: 15 * time.Second, DialTimeout: 10 * time.Second,
		BufferBytes: 1 << 20, BufferMessages: 4096, MaxMessage: 1 << 20,
	}
	lines := new(wstest.Log)
	log := newLog(lines)
	cfg := gateway.Config{
		Routes:  []policy.Route{{Pattern: "/match/*", Upstream: game.Target(), Policy: p}},
		Default: p, Keys: keys, Log: log,
	}
	o := Options{Log: log}
	for _, c := range changes {
		c(&cfg, &o)
	}
	gw, err := gateway.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, game: game, gw: gw, admin: New(gw, o), log: lines, Door: wstest.Open(t, gw, 64<<10)}
	t.Cleanup(func() {
		gw.Close()
		time.Sleep(20 * time.Second) // fake time: closing connections have closed
	})
	return w
}

// play begins a session, in a group if one is named, and returns both its ends.
func (w *world) play(group string) (*wstest.Player, *wstest.Peer) {
	w.t.Helper()
	w.game.Header = ""
	if group != "" {
		w.game.Header = "Reseat-Group: " + group + "\r\n"
	}
	p := w.Player("/match/7")
	return p, w.game.Next()
}

// playAndDrop begins a session whose client disconnects once it has confirmed its token.
func (w *world) playAndDrop() (*wstest.Player, *wstest.Peer) {
	w.t.Helper()
	p, game := w.play("")
	p.Ack(0)
	p.Sync()
	p.Drop()
	return p, game
}

// call sends a request without a body, as curl on this machine does.
func (w *world) call(method, target string) *httptest.ResponseRecorder {
	w.t.Helper()
	return w.send(method, target, "")
}

// send sends a request with a body and header lines such as "If-Match: *". The answer must
// match openapi.json.
func (w *world) send(method, target, body string, header ...string) *httptest.ResponseRecorder {
	w.t.Helper()
	synctest.Wait()
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	if body == "" {
		r = httptest.NewRequest(method, target, nil)
	}
	r.Host = "127.0.0.1:8081"
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
		if method == "PUT" {
			r.Header.Set("Content-Type", "application/octet-stream")
		}
	}
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	rec := httptest.NewRecorder()
	w.admin.ServeHTTP(rec, r)
	synctest.Wait()
	described.check(w.t, w.admin, r, body, rec)
	return rec
}

// object sends a JSON body and reads a JSON answer.
func (w *world) object(method, target, body string, status int) map[string]any {
	w.t.Helper()
	rec := w.send(method, target, body)
	var m map[string]any
	if err := json.Unmarshal(rec.Body.Bytes(), &m); err != nil || rec.Code != status {
		w.t.Fatalf("%s %s %.100s: %d %s, %v, want %d", method, target, body, rec.Code, rec.Body, err, status)
	}
	return m
}

// wantObject sends a JSON body, and checks members of the answer: a name, a value and so on.
func (w *world) wantObject(method, target, body string, members ...any) {
	w.t.Helper()
	wantMembers(w.t, method+" "+target, w.object(method, target, body, http.StatusOK), members)
}

// wantDescribed checks members of a session's description.
func (w *world) wantDescribed(p *wstest.Player, members ...any) {
	w.t.Helper()
	wantMembers(w.t, "session "+p.Hello.Session, w.describe(p), members)
}

func wantMembers(t *testing.T, what string, got map[string]any, members []any) {
	t.Helper()
	for i := 0; i < len(members); i += 2 {
		if v := got[members[i].(string)]; v != members[i+1] {
			t.Errorf("%s: %s is %v, want %v", what, members[i], v, members[i+1])
		}
	}
}

// wantProblem: an error of RFC 9457 whose detail holds a word.
func (w *world) wantProblem(method, target string, status int, word string) {
	w.t.Helper()
	wantProblem(w.t, w.call(method, target), status, word)
}

// wantRefused is wantProblem for a call with a body or a header.
func (w *world) wantRefused(method, target, body string, status int, word string, header ...string) {
	w.t.Helper()
	wantProblem(w.t, w.send(method, target, body, header...), status, word)
}

// wantProblem checks that rec is an error of RFC 9457 whose detail contains word.
func wantProblem(t *testing.T, rec *httptest.ResponseRecorder, status int, word string) {
	t.Helper()
	var p struct {
		Title, Detail string
		Status        int
	}
	err := json.Unmarshal(rec.Body.Bytes(), &p)
	if rec.Code != status || rec.Header().Get("Content-Type") != "application/problem+json" || err != nil {
		t.Errorf("%d %s %s, %v, want a problem of %d with a word on %q", rec.Code, rec.Header().Get("Content-Type"), rec.Body, err, status, word)
		return
	}
	if p.Status != status || p.Title != http.StatusText(status) || !strings.Contains(p.Detail, word) {
		t.Errorf("%s, want a word on %q", rec.Body, word)
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

// wantList checks which sessions a query lists, and their order.
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
	described.check(w.t, w.admin, r, "", rec)
	return rec
}

// newRequest sends a request without a body to h.
func newRequest(h http.Handler, method, target string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://node"+target, nil)
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return rec
}
