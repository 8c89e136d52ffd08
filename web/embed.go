// Package web holds the files that the client address serves itself: the
// browser client and the demo's page.
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
var files embed.FS

// contentSecurityPolicy lets our pages load from their own address alone.
const contentSecurityPolicy = "default-src 'self'; connect-src 'self' ws: wss:; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Client serves the browser client, /reseat.js: to pages of any origin.
func Client() http.Handler {
	h := file("reseat.js")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set("Cross-Origin-Resource-Policy", "cross-origin")
		h.ServeHTTP(w, r)
	})
}

// Demo is the demo's page, by path.
func Demo() map[string]http.Handler {
	pages := map[string]http.Handler{}
	names, _ := fs.Glob(files, "demo/*") // the pattern is good
	for _, name := range names {
		p := "/" + name
		if name == "demo/index.html" {
			p = "/"
		}
		pages[p] = file(name)
	}
	return pages
}

var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
}

// file serves one embedded file and nothing else, whatever path was asked for.
func file(name string) http.Handler {
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
			h.Set("Content-Security-Policy", contentSecurityPolicy)
			h.Set("Referrer-Policy", "no-referrer")
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	})
}
