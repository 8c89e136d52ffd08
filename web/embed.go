// Package web holds the files that the gateway serves itself: the browser client
// and the demo's page at the client address, the dashboard at the admin address.
package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"
)

//go:embed dist/*.js dist/*.map demo/*.html demo/*.css demo/*.js
//go:embed dashboard/*.html dashboard/*.css dashboard/*.js dashboard/vendor/*.js dashboard/vendor/*.css dashboard/vendor/*.txt
var files embed.FS

// demoPolicy allows the demo's page to load only from its own address.
const demoPolicy = "default-src 'self'; connect-src 'self' ws: wss:; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// dashboardPolicy allows the dashboard to load only its own scripts, styles and
// responses, and forbids turning text into markup or script.
const dashboardPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

//go:generate go run ./bundle

// Client returns the browser client, by path: the module /reseat.js, what it loads on
// demand, the classic script /reseat.install.js and their source maps. Pages of any
// origin may load them.
func Client() map[string]http.Handler {
	pages := map[string]http.Handler{}
	for p, h := range site("dist", "") {
		if !strings.HasPrefix(p, "/dist/reseat.dev.") {
			pages[strings.TrimPrefix(p, "/dist")] = shared(h)
		}
	}
	return pages
}

// Panel returns the panel of --dev and --demo, by path.
func Panel() map[string]http.Handler {
	pages := map[string]http.Handler{}
	for _, name := range []string{"reseat.dev.js", "reseat.dev.js.map"} {
		pages["/"+name] = shared(file("dist/"+name, ""))
	}
	return pages
}

// WithPanel returns the two scripts that pages include, by path, with the panel before them, and their
// source maps.
func WithPanel() map[string]http.Handler {
	panel, _ := files.ReadFile("dist/reseat.dev.js") // embedded at build time
	panel, _, _ = bytes.Cut(panel, []byte("//# sourceMappingURL"))
	panelMap, _ := files.ReadFile("dist/reseat.dev.js.map")
	pages := map[string]http.Handler{}
	for _, name := range []string{"reseat.js", "reseat.install.js"} {
		own, _ := files.ReadFile("dist/" + name)
		pages["/"+name] = shared(serve(name, slices.Concat(panel, own), ""))
		ownMap, _ := files.ReadFile("dist/" + name + ".map")
		both := fmt.Sprintf(`{"version":3,"sections":[{"offset":{"line":0,"column":0},"map":%s},{"offset":{"line":%d,"column":0},"map":%s}]}`,
			panelMap, bytes.Count(panel, []byte("\n")), ownMap)
		pages["/"+name+".map"] = shared(serve(name+".map", []byte(both), ""))
	}
	return pages
}

// shared lets pages of any origin load h.
func shared(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set("Cross-Origin-Resource-Policy", "cross-origin")
		h.ServeHTTP(w, r)
	})
}

// Demo returns the demo's page, by path.
func Demo() map[string]http.Handler { return site("demo", demoPolicy) }

// DemoInCluster returns the same page, which may also ask other nodes than its own.
func DemoInCluster() map[string]http.Handler {
	return site("demo", strings.Replace(demoPolicy, "ws: wss:", "ws: wss: http: https:", 1))
}

// Dashboard returns the operator's page, by path.
func Dashboard() map[string]http.Handler { return site("dashboard", dashboardPolicy) }

// site returns the files of a directory, by path: its index.html is /.
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
	".map":  "application/json",
}

// file serves one embedded file for any path.
func file(name, policy string) http.Handler {
	content, err := files.ReadFile(name)
	if err != nil {
		panic("web: " + err.Error()) // embedded at build time
	}
	return serve(name, content, policy)
}

// serve serves a file of that name for any path, compressed if the client accepts gzip and that is
// smaller. A page is served with policy as its Content-Security-Policy.
func serve(name string, content []byte, policy string) http.Handler {
	identity := representation{content: content, etag: etag(content)}
	// Compress the whole file, not a range: Accept-Encoding and Range do not mix well.
	small := sync.OnceValue(func() representation {
		packed := compressed(content)
		return representation{packed, etag(packed)}
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
			return
		}
		h := w.Header()
		h.Set("Content-Type", contentTypes[path.Ext(name)])
		h.Set("Cache-Control", "no-cache")
		h.Set("Vary", "Accept-Encoding")
		h.Set("X-Content-Type-Options", "nosniff")
		if strings.HasSuffix(name, ".html") {
			h.Set("Content-Security-Policy", policy)
			h.Set("Referrer-Policy", "no-referrer")
		}
		send := identity
		if r.Header.Get("Range") == "" && acceptsGzip(r.Header) && len(small().content) < len(content) {
			send = small()
			h.Set("Content-Encoding", "gzip")
			// ServeContent omits it if an encoding is set.
			h.Set("Content-Length", strconv.Itoa(len(send.content)))
		}
		h.Set("ETag", send.etag)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(send.content))
	})
}

// A representation is one encoding of a file (RFC 9110 section 3.2), with its own ETag.
type representation struct {
	content []byte
	etag    string
}

func etag(content []byte) string {
	sum := sha256.Sum256(content)
	return `"` + hex.EncodeToString(sum[:8]) + `"`
}

func compressed(content []byte) []byte {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // the level is valid
	_, _ = w.Write(content)                               // writing to a Buffer never fails
	_ = w.Close()
	return b.Bytes()
}

// acceptsGzip reports whether the client prefers gzip to no encoding (RFC 9110 section
// 12.5.3).
func acceptsGzip(h http.Header) bool {
	any := false
	for part := range strings.SplitSeq(strings.Join(h.Values("Accept-Encoding"), ","), ",") {
		coding, parameter, _ := strings.Cut(part, ";")
		key, weight, _ := strings.Cut(strings.TrimSpace(parameter), "=")
		q := 1.0
		if strings.EqualFold(strings.TrimSpace(key), "q") {
			q, _ = strconv.ParseFloat(strings.TrimSpace(weight), 64)
		}
		switch coding = strings.TrimSpace(coding); {
		case strings.EqualFold(coding, "gzip"), strings.EqualFold(coding, "x-gzip"):
			return q > 0
		case coding == "*":
			any = q > 0
		}
	}
	return any
}
