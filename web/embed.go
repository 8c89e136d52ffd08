// Package web holds the files that the gateway serves itself: the browser client
// and the demo's page at the client address, the dashboard at the admin address.
package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:embed reseat.js demo/*.html demo/*.css demo/*.js
//go:embed dashboard/*.html dashboard/*.css dashboard/*.js dashboard/vendor/*.js dashboard/vendor/*.css dashboard/vendor/*.txt
var files embed.FS

// demoPolicy lets the demo's page load from its own address alone.
const demoPolicy = "default-src 'self'; connect-src 'self' ws: wss:; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// dashboardPolicy lets the dashboard load its own scripts, styles and answers
// and nothing else, and turn no text into markup or script.
const dashboardPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// Client serves the browser client, /reseat.js: to pages of any origin.
func Client() http.Handler {
	h := file("reseat.js", "")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set("Cross-Origin-Resource-Policy", "cross-origin")
		h.ServeHTTP(w, r)
	})
}

// Demo is the demo's page, by path.
func Demo() map[string]http.Handler { return site("demo", demoPolicy) }

// Dashboard is the operator's page, by path.
func Dashboard() map[string]http.Handler { return site("dashboard", dashboardPolicy) }

// site is what a directory holds, by path: its index.html is /.
func site(dir, policy string) map[string]http.Handler {
	pages := map[string]http.Handler{}
	add := func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		p := "/" + name
		if name == dir+"/index.html" {
			p = "/"
		}
		pages[p] = file(name, policy)
		return nil
	}
	if err := fs.WalkDir(files, dir, add); err != nil {
		panic("web: " + err.Error()) // embedded at build time
	}
	return pages
}

var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".txt":  "text/plain; charset=utf-8",
}

// file serves one embedded file and nothing else, whatever path was asked for. A
// page comes with policy as its Content-Security-Policy.
func file(name, policy string) http.Handler {
	content, err := files.ReadFile(name)
	if err != nil {
		panic("web: " + err.Error()) // embedded at build time
	}
	sum := sha256.Sum256(content)
	etag := `"` + hex.EncodeToString(sum[:8]) + `"`
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
			return
		}
		h := w.Header()
		h.Set("Content-Type", contentTypes[path.Ext(name)])
		h.Set("ETag", etag)
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Content-Type-Options", "nosniff")
		if strings.HasSuffix(name, ".html") {
			h.Set("Content-Security-Policy", policy)
			h.Set("Referrer-Policy", "no-referrer")
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	})
}
