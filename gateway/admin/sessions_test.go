package admin

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
	"reseat/gateway/control"
	"reseat/gateway/faults"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/transport/rawconn"
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

func TestPatchChangesLiveSession(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, _ := w.play("red")
		for _, c := range []struct {
			body   string
			member string
			want   any
		}{
			{`{"grace":"2m"}`, "grace", "2m"},
			{`{"grace":"0"}`, "grace", "0s"},
			{`{"grace":"1h30m"}`, "grace", "1h30m"},
			{`{"overflow":"drop-oldest"}`, "overflow", "drop-oldest"},
			{`{"overflow":"end"}`, "overflow", "end"},
			{`{"newest":["s=tick ","e=json:/entity"]}`, "newest", []any{"s=tick ", "e=json:/entity"}},
			{`{"newest":[]}`, "newest", []any{}},
			{`{"group":"blue"}`, "group", "blue"},
			{`{"group":""}`, "group", ""},
			{`{"started":true}`, "started", true},
			{`{"started":false}`, "started", false},
			{`{}`, "grace", "1h30m"},
			{` {"grace" : "45s" , "group":"\u00fc", "started":true}`, "group", "ü"},
		} {
			got := w.object("PATCH", path(p), c.body, http.StatusOK)
			if now := w.describe(p); !reflect.DeepEqual(got[c.member], c.want) || !reflect.DeepEqual(now[c.member], c.want) {
				t.Errorf("%s: answered %v, then it is %v", c.body, got[c.member], now[c.member])
			}
		}
		w.wantList("?group=ü", p)
	})
}

func TestGraceShorterThanElapsedEndsSession(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, _ := w.playAndDrop()
		time.Sleep(60 * time.Second)
		w.wantObject("PATCH", path(p), `{"grace":"30s"}`, "state", "ended", "reason", "grace_over")
		w.wantList("?state=ended", p)
	})
}

func TestGraceBeyondTokenOfDetachedClientIsConflict(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, _ := w.play("")
		p.Ack(0)
		p.Sync()
		w.object("PATCH", path(p), `{"grace":"2h"}`, http.StatusOK) // attached: it gets a new token
		w.object("PATCH", path(p), `{"grace":"90s"}`, http.StatusOK)
		p.Drop()
		w.wantRefused("PATCH", path(p), `{"grace":"8760h","group":"red"}`, http.StatusConflict, "token")
		w.wantDescribed(p, "grace", "1m30s", "group", "")
	})
}

func TestBadPatchesChangeNothing(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, _ := w.play("red")
		before := w.describe(p)
		for body, word := range map[string]string{
			"": "JSON object", "[]": "JSON object", `{"state":"ended"}`: `unknown member "state"; known are grace, group, newest, overflow, started`, `{"Grace":"1s"}`: "unknown", `{"player":"x"}`: "unknown", `{"group":"blue","x":1}`: "unknown",
			`{"group":"blue","group":"green"}`: "repeated JSON member", `{"group":null}`: "group: want a string, got null", `{"group":7}`: "group", `{"group":"` + strings.Repeat("x", 201) + `"}`: "200 bytes", `{"group":"a\u0000b"}`: "printable", `{"group":"\udc00"}`: "Unicode",
			`{"started":"true"}`: "started: want true or false, got a string", `{"started":1}`: "started", `{"started":null}`: "started",
			`{"overflow":"drop_oldest"}`: "overflow: want", `{"overflow":"Pause"}`: "overflow", `{"overflow":""}`: "overflow", `{"overflow":0}`: "overflow", `{"group":"blue","overflow":"x"}`: "overflow",
			`{"newest":["s"]}`: "newest: want NAME", `{"newest":"s=tick"}`: "newest: want a list of strings", `{"newest":null}`: "newest: want a list", `{"group":"blue","newest":[""]}`: "newest",
			`{"grace":"45"}`: "grace", `{"grace":"-45s"}`: "grace", `{"grace":"1us"}`: "grace", `{"grace":"8761h"}`: "grace", `{"grace":45}`: "grace", `{"grace":"99999999999h"}`: "grace", `{"grace":" 45s"}`: "grace",
		} {
			w.wantRefused("PATCH", path(p), body, http.StatusBadRequest, word)
		}
		w.wantRefused("PATCH", sessions+"/nothing", `{}`, http.StatusNotFound, "no such")
		w.wantRefused("PATCH", path(p), `{"group":"`+strings.Repeat("x", maxJSON), http.StatusRequestEntityTooLarge, "at most")
		after := w.describe(p)
		for name, v := range before {
			if !reflect.DeepEqual(after[name], v) {
				t.Errorf("%s was %v, is %v", name, v, after[name])
			}
		}
	})
}

func TestGroupIsEnded(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, _ := w.play("red")
		b, _ := w.play("blue")
		c, gone := w.play("red")
		for _, p := range []string{path(a), path(b), path(c)} {
			w.object("PATCH", p, `{"started":true}`, http.StatusOK)
			w.send("PUT", p+"/data", "seat")
		}
		c.Drop()
		w.wantObject("POST", "/api/v1/groups/red/end", "", "sessions", 2.0)
		gone.WantClose(1000)
		w.wantList("?state=ended", c)
		w.wantList("", a, b)
		w.wantProblem("GET", path(a)+"/data", http.StatusNotFound, "no data")
		w.wantProblem("GET", path(c)+"/data", http.StatusNotFound, "ended")
		if rec := w.call("GET", path(b)+"/data"); rec.Body.String() != "seat" {
			t.Errorf("another group's data is %q", rec.Body)
		}
		if w.describe(a)["started"] != false || w.describe(b)["started"] != true {
			t.Error("started is not as it should be")
		}
	})
}

// Names appear in paths. An empty one does not name the sessions without a group.
func TestGroupNamesMayBeAnyText(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		lone, _ := w.play("")
		for name, escaped := range map[string]string{"a/b": "a%2Fb", "100%": "100%25", "ä ö": "%C3%A4%20%C3%B6", "%41": "%2541", "A": "%41", "..": "%2e%2e", "a?b#c": "a%3Fb%23c", "a+b": "a+b", "start": "start"} {
			w.object("PATCH", path(lone), `{"group":"`+name+`"}`, http.StatusOK)
			w.wantObject("POST", "/api/v1/groups/"+escaped+"/start", "", "sessions", 1.0)
		}
		w.object("PATCH", path(lone), `{"group":""}`, http.StatusOK)
		for _, call := range []string{"/api/v1/groups//end", "/api/v1/groups//start", "/api/v1/groups/end", "/api/v1/groups/", "/api/v1/groups/a/b/end", "/api/v1/groups/a/End"} {
			w.wantProblem("POST", call, http.StatusNotFound, "no such")
		}
		w.wantObject("POST", "/api/v1/groups/nobody/end", "", "sessions", 0.0)
		lone.Sync()
	})
}

func TestDrainCanBeStartedAndCancelled(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, _ := w.play("")
		p.Sync()
		drain := func(method string, draining bool, until, sessions any) {
			t.Helper()
			got := w.object(method, "/api/v1/drain", "", http.StatusOK)
			if got["draining"] != draining || got["until"] != until || got["sessions"] != sessions {
				t.Errorf("%s: %v, want %t, %v, %v", method, got, draining, until, sessions)
			}
			want := "200 ok\n"
			if draining {
				want = "503 draining\n"
			}
			if rec := w.call("GET", "/readyz"); fmt.Sprint(rec.Code, " ", rec.Body) != want {
				t.Errorf("/readyz after %s: %d %q, want %q", method, rec.Code, rec.Body, want)
			}
			if rec := w.call("GET", "/healthz"); rec.Code != http.StatusOK || rec.Body.String() != "ok\n" {
				t.Errorf("/healthz after %s: %d %q", method, rec.Code, rec.Body)
			}
		}
		end := time.Now().Add(10 * time.Second).UTC().Format(time.RFC3339Nano)
		drain("GET", false, nil, 1.0)
		drain("DELETE", false, nil, 1.0)
		drain("POST", true, end, 1.0)
		time.Sleep(time.Second)
		drain("POST", true, end, 1.0)
		drain("GET", true, end, 1.0)
		drain("DELETE", false, nil, 1.0)
		q, _ := w.play("")
		drain("POST", true, time.Now().Add(10*time.Second).UTC().Format(time.RFC3339Nano), 2.0)
		time.Sleep(10 * time.Second)
		p.WantClosing(wire.CodeDraining)
		q.WantClosing(wire.CodeDraining)
		drain("GET", true, nil, 0.0)
		drain("DELETE", false, nil, 0.0)
		w.play("")
		go w.gw.Drain(t.Context())
		synctest.Wait()
		w.wantProblem("DELETE", "/api/v1/drain", http.StatusConflict, "shutting down")
		drain("POST", true, nil, 1.0)
		time.Sleep(time.Minute)
	})
}

func TestConditionalRequestsAreHonoured(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, _ := w.play("")
		data := path(p) + "/data"
		put := func(status int, header ...string) string {
			t.Helper()
			rec := w.send("PUT", data, "x", header...)
			if rec.Code != status {
				t.Errorf("PUT with %q: %d %s, want %d", header, rec.Code, rec.Body, status)
			}
			return rec.Header().Get("ETag")
		}
		get := func(status int, header ...string) {
			t.Helper()
			if rec := w.send("GET", data, "", header...); rec.Code != status || status == http.StatusNotModified && (rec.Body.Len() > 0 || rec.Header().Get("ETag") == "") {
				t.Errorf("GET with %q: %d %s, want %d", header, rec.Code, rec.Body, status)
			}
		}
		put(412, "If-Match: *")
		put(412, `If-Match: "1"`)
		first := put(204, "If-None-Match: *")
		put(412, "If-None-Match: *")
		put(412, "If-None-Match: "+first)
		put(412, "If-None-Match: W/"+first)
		put(412, `If-None-Match: "a", `+first)
		second := put(204, "If-Match: "+first, `If-None-Match: "a"`)
		put(412, "If-Match: "+first)
		put(412, "If-Match: W/"+second)
		put(412, "If-Match: "+first, "If-None-Match: *")
		get(412, "If-Match: "+first)
		get(200, "If-Match: "+second)
		get(304, "If-None-Match: "+second)
		get(304, "If-None-Match: W/"+second)
		get(304, "If-None-Match: *")
		get(200, "If-None-Match: "+first)
		third := put(204, "If-Match: *")
		fourth := put(204, `If-Match: "a", W/"b", `+third+` ,"c"`)
		put(204, `If-Match: "a"`, "If-Match: "+fourth)
	})
}

func TestMalformedConditionsAreRefused(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, _ := w.play("")
		tag := w.send("PUT", path(p)+"/data", "x").Header().Get("ETag")
		for _, v := range []string{"", " ", ",", strings.Trim(tag, `"`), `"a`, `a"`, `"a" "b"`, `*, "a"`, `w/"a"`, `W/a`, `"a";`} {
			for _, name := range []string{"If-Match: ", "If-None-Match: "} {
				w.wantRefused("PUT", path(p)+"/data", "y", http.StatusBadRequest, "in their quotes", name+v)
				w.wantRefused("GET", path(p)+"/data", "", http.StatusBadRequest, "in their quotes", name+v)
			}
		}
		if rec := w.call("GET", path(p)+"/data"); rec.Body.String() != "x" {
			t.Errorf("data is %q", rec.Body)
		}
	})
}

func TestEntityTagListsAreParsed(t *testing.T) {
	for value, want := range map[string][]string{
		"*": {"*"}, " * ": {"*"}, `"a"`: {`"a"`}, `W/"a"`: {`W/"a"`}, `"a","b"`: {`"a"`, `"b"`}, `"a" , W/"b",, "c" `: {`"a"`, `W/"b"`, `"c"`}, `""`: {`""`}, `"a,b"`: {`"a,b"`}, `"*"`: {`"*"`},
	} {
		got, err := readTags(http.Header{"If-Match": {value}}, "If-Match")
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v", value, got, err)
		}
	}
}

// Of concurrent writers with the same tag, exactly one succeeds.
func TestExactlyOneConcurrentConditionalWriteSucceeds(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, _ := w.play("")
		first := w.send("PUT", path(p)+"/data", "0").Header().Get("ETag")
		done := make(chan int)
		for range 50 {
			go func() {
				tag, o := w.gw.Control().SetData(p.Hello.Session, []byte("x"), func(tag uint64) bool { return etag(tag) == first })
				if o == control.Done && tag > 0 {
					done <- 1
					return
				}
				done <- 0
			}()
		}
		won := 0
		for range 50 {
			won += <-done
		}
		if won != 1 {
			t.Errorf("%d of 50 were first", won)
		}
	})
}

// withFaults runs the gateway as --dev does.
func withFaults(lines *faults.Lines) change {
	return func(_ *gateway.Config, o *Options) { o.Faults = lines }
}

func TestFaultsNeedDev(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, _ := w.play("")
		w.wantRefused("POST", path(p)+"/faults", `{"fault":"reset"}`, http.StatusConflict, "--dev")
		w.wantProblem("DELETE", path(p)+"/faults", http.StatusConflict, "--dev")
		p.Sync()
	})
}

func TestFaultsActOnLivingSessionsAlone(t *testing.T) {
	lines := faults.NewLines()
	inWorld(t, func(t *testing.T, w *world) {
		lines.Serve(faults.Options{
			Client: func(id string) net.Conn { return rawconn.Lowest(w.gw.Control().ClientConn(id)) },
			Close:  func(net.Conn) bool { return true },
		})
		p, _ := w.play("")
		q, _ := w.play("")
		w.wantStatus("DELETE", path(q), http.StatusNoContent)
		w.wantRefused("POST", path(q)+"/faults", `{"fault":"offline"}`, http.StatusConflict, "ended")
		w.wantRefused("POST", sessions+"/nothing/faults", `{"fault":"offline"}`, http.StatusNotFound, "no such")
		w.wantRefused("POST", path(p)+"/faults", `{"fault":"earthquake"}`, http.StatusBadRequest, "want one of silence")
		w.wantRefused("POST", path(p)+"/faults", `{"fault":"`+strings.Repeat("x", maxFault)+`"}`, http.StatusRequestEntityTooLarge, "at most")
		// The connection of the test has no relay.
		w.wantRefused("POST", path(p)+"/faults", `{"fault":"reset"}`, http.StatusConflict, "no client")
		if rec := w.send("POST", path(p)+"/faults", `{"fault":"slow","latency":"1s","for":"2s","direction":"up","rate":1000}`); rec.Code != http.StatusNoContent {
			t.Errorf("slow: %d %s", rec.Code, rec.Body)
		}
		w.wantStatus("DELETE", path(p)+"/faults", http.StatusNoContent)
	}, withFaults(lines))
}
