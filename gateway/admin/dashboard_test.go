package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
	"reseat/gateway/registry"
	"reseat/gateway/watch"
	"reseat/web"
)

// overviewOf requests an overview.
func (w *world) overviewOf(query string) (o overview) {
	w.t.Helper()
	rec := w.call("GET", "/api/v1/overview"+query)
	if err := json.Unmarshal(rec.Body.Bytes(), &o); err != nil || rec.Code != http.StatusOK {
		w.t.Fatalf("overview%s: %d %s, %v", query, rec.Code, rec.Body, err)
	}
	return o
}

// wantShown checks which players an overview shows, and their order; ? has no name.
func (w *world) wantShown(query, want string) {
	w.t.Helper()
	var got []string
	for _, s := range w.overviewOf(query).Sessions {
		if s.Player == "" {
			s.Player = "?"
		}
		got = append(got, s.Player)
	}
	if list := strings.Join(got, " "); list != want {
		w.t.Errorf("overview%s: %q, want %q", query, list, want)
	}
}

func TestOverviewIdentifiesGatewayAndDrain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		o := w.overviewOf("")
		if o.Host != "host" || o.Version != "v1" || o.Listen != "[::]:8080" || len(o.ID) != 32 || o.DrainTime != "10s" || o.DrainUntil != nil {
			t.Errorf("%+v", o)
		}
		w.call("POST", "/api/v1/drain")
		if o = w.overviewOf(""); !o.Draining || o.DrainUntil == nil || o.DrainUntil.Sub(o.Time) != 10*time.Second {
			t.Errorf("while it drains: %+v", o)
		}
	}, func(_ *gateway.Config, o *Options) { o.Host, o.Version, o.Listen = "host", "v1", "[::]:8080" })
}

// orders maps queries of an overview to the players that the answer shows.
var orders = map[string]string{
	"":                     "Zoe ann bob ?",
	"?sort=since":          "Zoe ann bob ?",
	"?sort=-since":         "? bob ann Zoe",
	"?sort=player":         "Zoe ann bob ?",
	"?sort=-player":        "bob ann Zoe ?",
	"?sort=group":          "ann Zoe bob ?",
	"?sort=grace":          "ann Zoe bob ?",
	"?sort=-grace":         "bob Zoe ann ?",
	"?sort=-buffer":        "bob ann Zoe ?",
	"?sort=buffer":         "Zoe ann bob ?",
	"?q=zOE":               "Zoe",
	"?q=%3CB%3E":           "ann",
	"?q=o":                 "Zoe bob",
	"?q=nobody":            "",
	"?q=/match/*":          "Zoe ann bob ?",
	"?q=/MATCH/8":          "ann",
	"?q=resumable":         "Zoe ann bob ?",
	"?player=ann":          "ann",
	"?group=red":           "Zoe",
	"?state=attached":      "?",
	"?state=detached":      "Zoe ann bob",
	"?state=ended":         "",
	"?limit=2":             "Zoe ann",
	"?limit=2&offset=1":    "ann bob",
	"?limit=2&offset=3":    "bob ?",
	"?limit=2&offset=9000": "bob ?",
	"?limit=9&offset=9000": "Zoe ann bob ?",
}

func TestOverviewIsFilteredAndSorted(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for i, body := range []string{
			`{"path":"/match/7","player":"Zoe","group":"red","grace":"60s"}`,
			`{"path":"/match/8","player":"ann","group":"Blue <b>","grace":"20s"}`,
			`{"path":"/match/9","player":"bob","grace":"80s"}`,
		} {
			w.object("POST", sessions, body, http.StatusCreated)
			synctest.Wait()
			game := w.game.Next()
			for range i + 1 {
				game.Text("kept")
			}
		}
		p, _ := w.play("")
		p.Sync()
		for query, want := range orders {
			w.wantShown(query, want)
		}
	})
}

// An answer holds at most 200 rows and 180 samples.
func TestOverviewSizeIsLimited(t *testing.T) {
	var recorder *Recorder
	inWorld(t, func(t *testing.T, w *world) {
		for i := range 2 * keptSamples {
			recorder.add(watch.Totals{Created: uint64(i), Time: time.Now().Add(time.Duration(i) * time.Second)})
		}
		o := w.overviewOf("?limit=200")
		if len(o.Samples) != keptSamples || o.Samples[0].Created != keptSamples {
			t.Errorf("%d samples, the first of %d", len(o.Samples), o.Samples[0].Created)
		}
		last := o.Samples[keptSamples-3].Time
		o = w.overviewOf("?since=" + url.QueryEscape(last.Format(time.RFC3339Nano)))
		if len(o.Samples) != 2 || !o.Samples[0].Time.After(last) {
			t.Errorf("%d samples after the last but two", len(o.Samples))
		}
	}, withRecorder(&recorder))
}

func TestRecorderSamplesEveryFiveSeconds(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		r := NewRecorder(w.gw)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go r.Run(ctx)
		w.play("")
		time.Sleep(11 * time.Second)
		list := r.since(time.Time{})
		if len(list) != 3 || list[2].Sessions.Attached != 1 || list[2].Time.Sub(list[1].Time) != sampleEvery {
			t.Errorf("%d samples: %+v", len(list), list)
		}
	})
}

func TestHistoryShowsPeersAndDurations(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, game := w.play("")
		p.Sync()
		time.Sleep(1500 * time.Millisecond)
		p.Drop()
		synctest.Wait()
		game.Text("kept")
		time.Sleep(2400 * time.Millisecond)
		p = p.Resume(0)
		p.Want("kept")
		p.Sync()
		w.object("PATCH", path(p), `{"grace":"5m"}`, http.StatusOK)
		w.object("PATCH", path(p), `{"grace":"5m"}`, http.StatusOK) // changes nothing
		time.Sleep(700 * time.Millisecond)
		p.Resume(0).Want("kept")
		w.wantStatus("DELETE", path(p)+"?reason=cheating", http.StatusNoContent)
		rec := w.call("GET", path(p)+"/history")
		var h struct {
			Events []registry.Moment
			Left   int `json:"left_out"`
		}
		if err := json.Unmarshal(rec.Body.Bytes(), &h); err != nil || rec.Code != http.StatusOK {
			t.Fatalf("%d %s, %v", rec.Code, rec.Body, err)
		}
		var got []string
		for _, m := range h.Events {
			got = append(got, fmt.Sprintf("%s silent=%s away=%s replay=%d detail=%s peer=%t was=%t", m.Type, m.Silent, m.Away, m.Replay, m.Detail, m.Peer != "", m.Was != ""))
		}
		want := []string{
			"session.created silent= away= replay=0 detail= peer=true was=false",
			"session.detached silent=1.5s away= replay=0 detail= peer=true was=false",
			"session.resumed silent= away=3.9s replay=1 detail= peer=true was=false",
			"grace.changed silent= away= replay=0 detail=5m peer=false was=true",
			"session.superseded silent= away=700ms replay=1 detail= peer=true was=true",
			"session.ended silent= away= replay=0 detail=cheating peer=false was=false",
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") || h.Left != 0 {
			t.Errorf("%d left out, got\n%s\nwant\n%s", h.Left, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if since := w.describe(p)["since"]; since != h.Events[0].Time.Format(time.RFC3339Nano) {
			t.Errorf("since %v, and its history begins at %v", since, h.Events[0].Time)
		}
		w.wantProblem("GET", sessions+"/none/history", http.StatusNotFound, "no such session")
	})
}

func pathOf(id string) string { return sessions + "/" + id }

func TestDashboardIsServedCompletely(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for target := range web.Dashboard() {
			name := "index.html"
			if target != "/" {
				name = strings.TrimPrefix(target, "/dashboard/")
			}
			want, err := os.ReadFile("../../web/dashboard/" + name)
			if err != nil {
				t.Fatal(err)
			}
			rec := w.call("GET", target)
			if rec.Code != http.StatusOK || rec.Body.String() != string(want) {
				t.Errorf("%s: %d, %d bytes, want the %d of %s", target, rec.Code, rec.Body.Len(), len(want), name)
			}
			if rec := w.send("GET", target, "", "If-None-Match: "+rec.Header().Get("ETag")); rec.Code != http.StatusNotModified {
				t.Errorf("%s again: %d", target, rec.Code)
			}
		}
	})
}

// T20: unknown files are not found, and nothing is redirected.
func TestOnlyDashboardFilesAreServed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for _, target := range []string{"/index.html", "/dashboard/", "/dashboard/index.html", "/dashboard/none.js", "/dashboard/vendor/none.js", "/dashboard/vendor/", "/dashboard/format.test.mjs", "/dashboard/vendor.mjs", "/dashboard/..%2fembed.go", "/dashboard/vendor/..%2fmain.js", "/dashboard//main.js", "/reseat.js", "/demo/demo.js"} {
			w.wantProblem("GET", target, http.StatusNotFound, "no such")
		}
	})
}

// The page loads, connects to and runs only its own files.
func TestDashboardContentSecurityPolicyIsStrict(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		header := w.call("GET", "/").Header()
		got := map[string]string{}
		for directive := range strings.SplitSeq(header.Get("Content-Security-Policy"), "; ") {
			name, value, _ := strings.Cut(directive, " ")
			got[name] = value
		}
		want := map[string]string{
			"default-src": "'none'", "script-src": "'self'", "style-src": "'self'", "connect-src": "'self'", "img-src": "data:",
			"base-uri": "'none'", "form-action": "'none'", "frame-ancestors": "'none'", "require-trusted-types-for": "'script'", "trusted-types": "'none'",
		}
		if !maps.Equal(got, want) || header.Get("Referrer-Policy") != "no-referrer" || header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("headers %v, want the policy %v", header, want)
		}
		page := strings.ToLower(w.call("GET", "/").Body.String())
		for _, bad := range []string{"<script>", " onclick=", " onload=", " style=", "<style", "src=\"http", "href=\"http", "src=\"//"} {
			if strings.Contains(page, bad) {
				t.Errorf("the page holds %q, which its policy forbids", bad)
			}
		}
	})
}

// With tokens everyone may load the page, which asks for one itself, and ask for the health.
func TestDashboardDataRequiresToken(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for _, target := range []string{"/healthz", "/readyz", "/", "/dashboard/main.js", "/dashboard/vendor/preact.js"} {
			if rec := w.call("GET", target); rec.Code != http.StatusOK {
				t.Errorf("%s: %d", target, rec.Code)
			}
			if isDashboard(target) {
				w.wantProblem("POST", target, http.StatusForbidden, "viewer")
			}
		}
		w.wantProblem("GET", "/dashboard/none.js", http.StatusNotFound, "no such")
		for token, write := range map[string]string{viewerToken: `"write":false`, adminToken: `"write":true`} {
			rec := w.send("GET", "/api/v1/overview", "", "Authorization: Bearer "+token)
			if rec.Code != http.StatusOK || !strings.Contains(rec.Body.String(), write) {
				t.Errorf("%.6s: %d %s, want %s", token, rec.Code, rec.Body, write)
			}
		}
	}, withTokens(t))
}

// The router does not take a path that leads out of /dashboard/ for one of its files:
// without a token there is no answer.
func TestNoSpellingOfDashboardPathBypassesToken(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for _, target := range []string{"/dashboard/../api/v1/sessions", "/dashboard/..%2fapi%2fv1%2fsessions", "/dashboard/vendor/../../metrics", "/dashboard/%2e%2e/metrics"} {
			r := httptest.NewRequest("GET", "http://127.0.0.1:8081"+target, nil)
			rec := httptest.NewRecorder()
			w.admin.ServeHTTP(rec, r)
			if rec.Code != http.StatusNotFound && rec.Code != http.StatusUnauthorized {
				t.Errorf("%s: %d", target, rec.Code)
			}
		}
	}, withTokens(t))
}

func withRecorder(keep **Recorder) change {
	return func(_ *gateway.Config, o *Options) {
		o.Recorder = NewRecorder(nil)
		*keep = o.Recorder
	}
}
