package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/wire"
)

func TestListIsPaged(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var all []*wstest.Player
		for i := range 7 {
			p, _ := w.play(fmt.Sprint("g", i%2))
			all = append(all, p)
		}
		odd := []*wstest.Player{all[1], all[3], all[5]}
		w.wantPages("?limit=3", all[:3], all[3:6], all[6:])
		w.wantPages("?limit=1&group=g1", odd[:1], odd[1:2], odd[2:])
		w.wantPages("?limit=1", all[:1], all[1:2], all[2:3], all[3:4], all[4:5], all[5:6], all[6:])
		w.wantPages("?limit=7", all)
		w.wantPages("?limit=6", all[:6], all[6:])
		w.wantPages("?limit=1000", all)
		w.wantPages("?limit=100000", all)
	})
}

// wantPages follows next from page to page, up to the last.
func (w *world) wantPages(query string, pages ...[]*wstest.Player) {
	w.t.Helper()
	cursor := ""
	for i, want := range pages {
		w.wantList(query+cursor, want...)
		next := *w.list(query + cursor).Next
		if (next == "") != (i == len(pages)-1) {
			w.t.Fatalf("list%s: page %d of %d has next %q", query, i+1, len(pages), next)
		}
		cursor = "&cursor=" + next
	}
}

func TestBadQueriesAreRefusedAndChangeNothing(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, game := w.play("")
		const far = "99999999999999999999"
		for _, tt := range []struct{ call, word, queries string }{
			{"GET " + sessions, "limit", "limit=0 limit=-1 limit=%2B5 limit=x limit=1.5 limit=%20 limit=" + far},
			{"GET " + sessions, "cursor", "cursor=%2B5 cursor=x cursor=-1 cursor=1.5 cursor=%00 cursor=" + far},
			{"GET " + sessions, "state", "state=x state=Attached state=attached,detached state=all"},
			{"GET /api/v1/overview", "limit: want 0 to 200", "limit=201 limit=-1 limit=x"},
			{"GET /api/v1/overview", "offset", "offset=-1 offset=99999999999"},
			{"GET /api/v1/overview", "sort", "sort=age sort=- sort=--rtt"},
			{"GET /api/v1/overview", "state", "state=gone"},
			{"GET /api/v1/overview", "since", "since=yesterday"},
			{"GET /api/v1/overview", "q: want", "q=" + strings.Repeat("x", 201)},
			{"DELETE " + path(p), "code", "code=0 code=999 code=1002 code=1005 code=1006 code=1011 code=2999 code=5000 code=-1000 code=x code=%2B1000 code=1000.0 code=1e3 code=%201000 code=66536 code=" + far},
			{"DELETE " + path(p), "reason", "reason=" + strings.Repeat("x", 124) + " reason=" + strings.Repeat("%C3%A9", 62) + " reason=%FF reason=ok%C3 code=4000&reason=%ED%A0%80"},
		} {
			method, target, _ := strings.Cut(tt.call, " ")
			for _, query := range strings.Fields(tt.queries) {
				w.wantProblem(method, target+"?"+query, http.StatusBadRequest, tt.word)
			}
		}
		game.Text("still here")
		p.Want("still here")
	})
}

func TestSessionIsDescribed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, game := w.play("red")
		for i := range 3 {
			game.Text(strings.Repeat("x", 10+i))
			p.Want(strings.Repeat("x", 10+i))
		}
		p.Text("one")
		game.Want("one")
		p.Ack(1)
		p.Sync()
		got := w.describe(p)
		id := p.Hello.Session
		for name, want := range map[string]any{
			"id": id, "state": "attached", "player": "", "group": "red", "peer": "127.0.0.1", "route": "/match/*", "client": "resumable", "resumable": true,
			"grace": "1m30s", "overflow": "pause", "detached_since": nil,
			"received": 1.0, "written": 1.0, "sent": 3.0, "acked": 1.0, "buffer_messages": 2.0, "buffer_bytes": 23.0,
		} {
			if v, ok := got[name]; !ok || v != want {
				t.Errorf("%s is %v, want %v", name, v, want)
			}
		}
		if since, err := time.Parse(time.RFC3339, got["since"].(string)); err != nil || since.After(time.Now()) {
			t.Errorf("since %v: %v", got["since"], err)
		}
		if _, found := got["reason"]; found {
			t.Errorf("a living session has the reason %v", got["reason"])
		}
		listed := w.list("").Sessions[0]
		if !reflect.DeepEqual(listed, got) {
			t.Errorf("the list says %v, the session %v", listed, got)
		}
	})
}

func (w *world) describe(p *wstest.Player) map[string]any {
	w.t.Helper()
	rec := w.call("GET", path(p))
	var m map[string]any
	if err := json.Unmarshal(rec.Body.Bytes(), &m); err != nil || rec.Code != http.StatusOK || rec.Header().Get("Content-Type") != "application/json" || rec.Header().Get("Cache-Control") != "no-store" {
		w.t.Fatalf("%d %v %s", rec.Code, rec.Header(), rec.Body)
	}
	return m
}

func TestEndedSessionShowsItsReason(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, _ := w.play("")
		w.wantStatus("DELETE", path(p)+"?reason=kicked+out", http.StatusNoContent)
		w.wantDescribed(p, "state", "ended", "reason", wire.Name(wire.CodeEnded), "detail", "kicked out")
		if listed := w.list("?state=ended").Sessions; len(listed) != 1 || listed[0]["detail"] != "kicked out" {
			t.Errorf("the list says %v", listed)
		}
		q, game := w.play("")
		game.Close(4007, "the match is over")
		q.WantControl(wire.VerbEnd)
		q.Close(4007, "")
		synctest.Wait()
		w.wantDescribed(q, "reason", "upstream_closed", "detail", "the match is over")
		w.wantProblem("DELETE", path(p), http.StatusConflict, "ended")
		w.wantProblem("POST", path(p)+"/disconnect", http.StatusConflict, "")
		time.Sleep(5 * time.Minute)
		w.wantProblem("GET", path(p), http.StatusNotFound, "session")
		w.wantProblem("DELETE", path(p), http.StatusNotFound, "session")
	})
}

// RFC 9110 section 15.5.6.
func TestAllowHeaderListsMethodsOfResource(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, _ := w.play("")
		for target, allow := range map[string]string{
			"/api/v1/sessions":              "GET, HEAD, POST",
			path(p):                         "GET, HEAD, PATCH, DELETE",
			path(p) + "/disconnect":         "POST",
			path(p) + "/data":               "GET, HEAD, PUT",
			"/api/v1/groups/red/start":      "POST",
			"/api/v1/groups/a%2Fb/end":      "POST",
			"/api/v1/drain":                 "GET, HEAD, POST, DELETE",
			"/api/v1/events":                "GET, HEAD",
			"/api/v1/openapi.json":          "GET, HEAD",
			"/metrics":                      "GET, HEAD",
			"/debug/pprof/":                 "GET, HEAD",
			"/debug/pprof/symbol":           "GET, HEAD, POST",
			"/healthz":                      "GET, HEAD",
			"/readyz":                       "GET, HEAD",
			"/api/v1/sessions?limit=1&x=%2": "GET, HEAD, POST",
		} {
			for _, method := range []string{"OPTIONS", "TRACE", "BREW"} {
				rec := w.call(method, target)
				wantProblem(t, rec, http.StatusMethodNotAllowed, "method")
				if got := rec.Header().Values("Allow"); len(got) != 1 || got[0] != allow {
					t.Errorf("%s %s: Allow %q, want %q", method, target, got, allow)
				}
			}
		}
	})
}

func TestDeleteEndsTheSessionWithCodeAndReason(t *testing.T) {
	full := strings.Repeat("x", 123)
	for _, tt := range []struct {
		query  string
		code   int
		reason string
	}{
		{"", 1000, ""},
		{"?code=1001&reason=restart", 1001, "restart"},
		{"?code=3000", 3000, ""},
		{"?code=4999&reason=gr%C3%BC%C3%9Fe%20%F0%9F%91%8B", 4999, "gr\u00fc\u00dfe \U0001F44B"},
		{"?reason=" + full, 1000, full},
		{"?code=&reason=", 1000, ""},
	} {
		inWorld(t, func(t *testing.T, w *world) {
			p, game := w.play("")
			w.wantStatus("DELETE", path(p)+tt.query, http.StatusNoContent)
			if got := game.WantClose(tt.code); got != tt.reason {
				t.Errorf("%s: the upstream got %q", tt.query, got)
			}
			if c := p.WantClosing(wire.CodeEnded); c.Reason != tt.reason || c.Retry {
				t.Errorf("%s: the client got %+v", tt.query, c)
			}
		})
	}
}

// T11, T44: without a token no call of a foreign page, or by a foreign name, passes the
// guard, but for the two health paths.
func TestEveryPathIsGuarded(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, game := w.play("")
		open := []string{"GET /healthz", "GET /readyz"}
		calls := append(open, "GET /metrics", "GET /api/v1/sessions", "GET "+path(p), "GET "+path(p)+"/data", "GET "+path(p)+"/history", "GET /api/v1/overview", "GET /api/v1/refusals", "GET /api/v1/upgrade", "GET /api/v1/events", "GET /api/v1/openapi.json", "GET /api/v1/drain", "POST /api/v1/drain",
			"DELETE "+path(p), "POST "+path(p)+"/disconnect", "GET /", "GET /dashboard/main.js", "GET /dashboard/vendor/htm.js", "GET /nothing", "PUT "+path(p), "OPTIONS "+path(p))
		for _, call := range calls {
			method, target, _ := strings.Cut(call, " ")
			for name, a := range refused {
				rec := w.callAs(method, target, a)
				if want := slices.Contains(open, call); (rec.Code == http.StatusOK) != want || !want && rec.Code != http.StatusForbidden {
					t.Errorf("%s by %s: %d", call, name, rec.Code)
				}
				if rec.Header().Get("Access-Control-Allow-Origin") != "" {
					t.Errorf("%s is shared with other origins", call)
				}
			}
		}
		for name, a := range passes {
			if rec := w.callAs("GET", sessions, a); rec.Code != http.StatusOK || rec.Header().Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("%s: %d %v, want it to pass", name, rec.Code, rec.Header())
			}
		}
		game.Text("untouched")
		p.Want("untouched")
	})
}
