package admin

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway/control"
	"reseat/gateway/wire"
)

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
