package admin

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"reseat/gateway"
	"reseat/web"
)

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
			t.Errorf("%v", header)
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

func TestIsDashboardMatchesOnlyItsPaths(t *testing.T) {
	for p, want := range map[string]bool{
		"/": true, "/dashboard/main.js": true, "/dashboard/vendor/htm.js": true,
		"": false, "/dashboard": false, "/dashboardx": false, "//": false, "/api/v1/overview": false, "/metrics": false, "/x/dashboard/": false,
	} {
		if isDashboard(p) != want {
			t.Errorf("%q: %t", p, !want)
		}
	}
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
