package web_test

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"reseat/gateway"
	"reseat/tokens"
	"reseat/web"
)

// serve returns the client address of a gateway without routes.
func serve(t *testing.T) http.Handler {
	t.Helper()
	keys, err := tokens.Load(nil, tokens.Options{})
	if err != nil {
		t.Fatal(err)
	}
	g, err := gateway.New(gateway.Config{Keys: keys, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	for _, pages := range []map[string]http.Handler{web.Client(), web.Demo()} {
		for p, h := range pages {
			g.Page(p, h)
		}
	}
	return g
}

// ask sends a request without cleaning its path.
func ask(t *testing.T, h http.Handler, line string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	head := line + " HTTP/1.1\r\nHost: game.example\r\n" + strings.Join(append(header, ""), "\r\n") + "\r\n"
	rec := httptest.NewRecorder()
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(head)))
	if err != nil { // a server answers 400
		rec.Code = http.StatusBadRequest
		return rec
	}
	r.RemoteAddr = "192.0.2.7:5000"
	h.ServeHTTP(rec, r)
	return rec
}

// T20: none of these is a file, not even an embedded one.
var traversals = []string{
	"/../reseat.js", "/./reseat.js", "//reseat.js", "/reseat.js/", "/reseat.js/.", "/reseat.js/..", "/demo/../reseat.js", "/demo/..//reseat.js",
	"/%2e%2e/reseat.js", "/%2e/reseat.js", "/.%2e/embed.go", "/..%2fembed.go", "/..%5cembed.go", "/..\\embed.go", "/demo/..\\embed.go", "/demo/%2e%2e/embed.go", "/demo/%2e%2e%2fembed.go",
	"/demo%2f..%2fembed.go", "/demo/..%252fembed.go", "/%252e%252e/embed.go", "/..%c0%af..%c0%afetc/passwd", "/..%ef%bc%8fetc/passwd", "/....//embed.go", "/..;/embed.go", "/demo/..;/embed.go",
	"/../../../../etc/passwd", "/%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/etc/passwd", "/demo/../../../../../etc/passwd", "/file:///etc/passwd", "/C:/windows/win.ini", "/demo/C:%5cwindows%5cwin.ini",
	"/embed.go", "/dist/reseat.js", "/client/socket.js", "/bundle/main.go", "/package.json", "/reseat.d.ts", "/test/resume.test.js", "/demo", "/demo/", "/demo/index.html", "/index.html", "/demo/demo.js/", "/demo//demo.js", "/demo/demo.js%00", "/reseat.js%00.html", "/reseat.js%20", "/reseat.js.", "/RESEAT.JS",
	"/Demo/demo.js", "/demo/demo.js~", "/demo/.demo.js", "/reseat.js;x", "/demo/*", "/.git/config", "/.env", "/node_modules/playwright/package.json", "/proc/self/environ",
}

func TestOnlyEmbeddedFilesAreServed(t *testing.T) {
	h := serve(t)
	for _, p := range traversals {
		for _, method := range []string{"GET", "HEAD", "POST"} {
			rec := ask(t, h, method+" "+p)
			if rec.Code != http.StatusNotFound && rec.Code != http.StatusBadRequest {
				t.Errorf("%s %s: %d", method, p, rec.Code)
			}
			if body := rec.Body.String(); len(body) > 200 || rec.Header().Get("ETag") != "" || rec.Header().Get("Location") != "" {
				t.Errorf("%s %s: %v, %d bytes", method, p, rec.Header(), len(body))
			}
		}
	}
	if len(traversals) < 30 {
		t.Errorf("%d spellings", len(traversals))
	}
}

// The served files are those of the repository, each under one name.
func TestPagesMatchTheFiles(t *testing.T) {
	h := serve(t)
	files := map[string]string{"/": "demo/index.html"}
	for _, name := range []string{"/reseat.js", "/reseat.js.map", "/reseat.page.js", "/reseat.page.js.map", "/reseat.install.js", "/reseat.install.js.map"} {
		files[name] = "dist" + name
	}
	for _, ext := range []string{"html", "css", "js"} {
		names, _ := filepath.Glob("demo/*." + ext)
		for _, n := range names {
			if n = filepath.ToSlash(n); n != "demo/index.html" {
				files["/"+n] = n
			}
		}
	}
	if got := len(web.Demo()) + len(web.Client()); got != len(files) {
		t.Errorf("%d pages for %d files", got, len(files))
	}
	for p, name := range files {
		want, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if rec := ask(t, h, "GET "+p); rec.Code != http.StatusOK || rec.Body.String() != string(want) {
			t.Errorf("%s: %d, %d bytes, want the %d of %s", p, rec.Code, rec.Body.Len(), len(want), name)
		}
	}
}

var types = map[string]string{".map": "application/json", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".html": "text/html; charset=utf-8"}

func TestEveryPageHasItsHeaders(t *testing.T) {
	h := serve(t)
	for p := range web.Demo() {
		rec := ask(t, h, "GET "+p)
		name := p
		if p == "/" {
			name = "/index.html"
		}
		html := strings.HasSuffix(name, ".html")
		policy := rec.Header().Get("Content-Security-Policy")
		switch {
		case rec.Header().Get("Content-Type") != types[filepath.Ext(name)], rec.Header().Get("X-Content-Type-Options") != "nosniff", rec.Header().Get("ETag") == "",
			rec.Header().Get("Cache-Control") != "no-cache", rec.Header().Get("Access-Control-Allow-Origin") != "", html != (policy != ""):
			t.Errorf("%s: %v", p, rec.Header())
		case html && (rec.Header().Get("Referrer-Policy") != "no-referrer" || !strings.Contains(policy, "default-src 'self'") || strings.Contains(policy, "unsafe") || strings.Contains(policy, "*")):
			t.Errorf("%s: %v", p, rec.Header())
		}
	}
}

// A page with inline scripts would not work under a policy that forbids them.
func TestPagesHaveNoInlineScripts(t *testing.T) {
	for p, h := range web.Demo() {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest("GET", p, nil))
		if !strings.HasPrefix(rec.Header().Get("Content-Type"), "text/html") {
			continue
		}
		body := strings.ToLower(rec.Body.String())
		for _, bad := range []string{"<script>", "javascript:", " onclick=", " onload=", " onerror=", " style=\"", "<style", "src=\"http", "href=\"http"} {
			if strings.Contains(body, bad) {
				t.Errorf("%s holds %q, which its policy forbids", p, bad)
			}
		}
	}
}

// Pages of any origin may import it.
func TestClientIsSharedWithEveryOrigin(t *testing.T) {
	h := serve(t)
	requests := []string{"GET /reseat.js", "HEAD /reseat.js", "GET /reseat.install.js", "HEAD /reseat.install.js", "GET /reseat.js.map"}
	for _, request := range requests {
		method, p, _ := strings.Cut(request, " ")
		rec := ask(t, h, request, "Origin: https://site.example")
		for name, want := range map[string]string{
			"Content-Type": types[filepath.Ext(p)], "Access-Control-Allow-Origin": "*", "Cross-Origin-Resource-Policy": "cross-origin", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-cache",
		} {
			if got := rec.Header().Values(name); !slices.Equal(got, []string{want}) {
				t.Errorf("%s: %s is %q, want %q", request, name, got, want)
			}
		}
		etag := rec.Header().Get("ETag")
		if len(etag) < 10 || !strings.HasPrefix(etag, `"`) || !strings.HasSuffix(etag, `"`) || rec.Code != http.StatusOK || (rec.Body.Len() == 0) != (method == "HEAD") {
			t.Errorf("%s: %d, ETag %s, %d bytes", request, rec.Code, etag, rec.Body.Len())
		}
	}
	if rec := ask(t, h, "GET /reseat.js?v=3"); rec.Code != http.StatusOK {
		t.Errorf("with a query: %d", rec.Code)
	}
}

func TestFilesAreCompressedIfAccepted(t *testing.T) {
	h := serve(t)
	plain := ask(t, h, "GET /reseat.js")
	for accept, packed := range map[string]bool{
		"gzip": true, "br, GZIP;q=0.5": true, "*": true, "x-gzip": true, "*;q=0, gzip": true,
		"": false, "br": false, "gzip;q=0": false, "gzip; q=0.000, *": false, "identity": false, "gzipped": false,
	} {
		for _, method := range []string{"GET", "HEAD"} {
			rec := ask(t, h, method+" /reseat.js", "Accept-Encoding: "+accept)
			if got := rec.Header().Get("Content-Encoding") == "gzip"; got != packed || rec.Header().Get("Vary") != "Accept-Encoding" {
				t.Errorf("%s, %q: %v", method, accept, rec.Header())
			}
			if length := rec.Header().Get("Content-Length"); method == "GET" && length != strconv.Itoa(rec.Body.Len()) || length == "0" {
				t.Errorf("%s, %q: Content-Length %s, %d bytes", method, accept, length, rec.Body.Len())
			}
			if method == "HEAD" {
				continue
			}
			var body io.Reader = rec.Body
			if packed {
				var err error
				if body, err = gzip.NewReader(rec.Body); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := io.ReadAll(body); err != nil || string(got) != plain.Body.String() {
				t.Errorf("%q: %d bytes, %v", accept, len(got), err)
			}
		}
	}
	packed := ask(t, h, "GET /reseat.js", "Accept-Encoding: gzip").Header().Get("ETag")
	if packed == plain.Header().Get("ETag") {
		t.Error("two encodings share an ETag")
	}
	if rec := ask(t, h, "GET /reseat.js", "Accept-Encoding: gzip", "If-None-Match: "+packed); rec.Code != http.StatusNotModified || rec.Body.Len() > 0 {
		t.Errorf("known, compressed: %d, %d bytes", rec.Code, rec.Body.Len())
	}
	if rec := ask(t, h, "GET /reseat.js", "Accept-Encoding: gzip", "Range: bytes=0-9"); rec.Code != http.StatusPartialContent || rec.Body.String() != plain.Body.String()[:10] {
		t.Errorf("a range: %d, %q", rec.Code, rec.Body.String())
	}
}

// maxScript is the max size of each script on the wire, in bytes.
const maxScript = 27 << 9 // 13.5 KiB

func TestScriptsAreSmall(t *testing.T) {
	h := serve(t)
	for _, p := range []string{"/reseat.js", "/reseat.install.js"} {
		rec := ask(t, h, "GET "+p, "Accept-Encoding: gzip")
		if n := rec.Body.Len(); n == 0 || n > maxScript {
			t.Errorf("%s: %d bytes, max %d", p, n, maxScript)
		}
	}
}

func TestCachedFileIsNotSentAgain(t *testing.T) {
	h := serve(t)
	for _, p := range []string{"/reseat.js", "/"} {
		etag := ask(t, h, "GET "+p).Header().Get("ETag")
		for match, want := range map[string]int{
			etag: 304, "*": 304, `"other", ` + etag: 304, "W/" + etag: 304,
			`"other"`: 200, "": 200, strings.Trim(etag, `"`): 200,
		} {
			rec := ask(t, h, "GET "+p, "If-None-Match: "+match)
			if rec.Code != want || (rec.Body.Len() == 0) != (want == 304) || rec.Header().Get("ETag") != etag {
				t.Errorf("%s with If-None-Match %s: %d, %d bytes, want %d", p, match, rec.Code, rec.Body.Len(), want)
			}
			if p == "/reseat.js" && rec.Header().Get("Access-Control-Allow-Origin") != "*" {
				t.Errorf("%d without Access-Control-Allow-Origin", rec.Code)
			}
		}
	}
}

func TestFilesAllowOnlyGETAndHEAD(t *testing.T) {
	h := serve(t)
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "get"} {
		for _, p := range append(slices.Collect(maps.Keys(web.Demo())), "/reseat.js") {
			rec := ask(t, h, method+" "+p)
			if rec.Code != http.StatusMethodNotAllowed && rec.Code != http.StatusBadRequest || rec.Body.Len() > 100 {
				t.Errorf("%s %s: %d, %d bytes", method, p, rec.Code, rec.Body.Len())
			}
			if method != "CONNECT" && rec.Code == http.StatusMethodNotAllowed && rec.Header().Get("Allow") != "GET, HEAD" {
				t.Errorf("%s %s: Allow is %q", method, p, rec.Header().Get("Allow"))
			}
		}
	}
}

// The module uses its own address as the default URL, so a handshake at that path must
// not be answered with the file.
func TestHandshakeIsNotAnsweredWithAFile(t *testing.T) {
	rec := ask(t, serve(t), "GET /reseat.js", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")
	if rec.Code != http.StatusNotFound || rec.Body.Len() > 200 {
		t.Errorf("%d, %d bytes", rec.Code, rec.Body.Len())
	}
}

// Nothing of the panel reaches a page without --dev.
func TestPanelIsServedWithDevAlone(t *testing.T) {
	text := func(h http.Handler) string {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/", nil))
		return rec.Body.String()
	}
	client, with, panel := web.Client(), web.WithPanel(), text(web.Panel()["/reseat.dev.js"])
	for _, path := range []string{"/reseat.js", "/reseat.install.js"} {
		own := text(client[path])
		if strings.Contains(own, "reseat-dev") || !strings.HasSuffix(text(with[path]), own) || !strings.Contains(text(with[path]), "reseat-dev") {
			t.Errorf("%s: the panel is there without --dev, or is not with it", path)
		}
	}
	for _, path := range []string{"/reseat.js", "/reseat.install.js"} {
		var index struct {
			Sections []struct {
				Offset struct{ Line int }
				Map    struct{ Sources []string }
			}
		}
		if err := json.Unmarshal([]byte(text(with[path+".map"])), &index); err != nil || len(index.Sections) != 2 {
			t.Fatalf("%s.map: %v, %d sections", path, err, len(index.Sections))
		}
		before, _ := strings.CutSuffix(text(with[path]), text(client[path]))
		for i, part := range []string{"", before} {
			if s := index.Sections[i]; s.Offset.Line != strings.Count(part, "\n") || !strings.HasPrefix(s.Map.Sources[0], []string{"../dev/", "../client/"}[i]) {
				t.Errorf("%s.map: section %d begins at line %d, with %v", path, i, s.Offset.Line, s.Map.Sources)
			}
		}
	}
	for path := range client {
		if strings.Contains(path, "dev") {
			t.Errorf("%s is served without --dev", path)
		}
	}
	if !strings.Contains(panel, "reseat-dev") {
		t.Error("no panel")
	}
}
