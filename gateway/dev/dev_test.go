package dev_test

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"reseat/gateway"
	"reseat/gateway/dev"
	"reseat/gateway/faults"
	"reseat/gateway/policy"
	"reseat/tokens"
	"reseat/upstream"
)

// A site is a gateway with --dev, before a game server that answers with page.
type site struct {
	t *testing.T
	http.Handler
	keys *tokens.Keys
	log  bytes.Buffer
	// Set before a request that it answers; the race detector sees that order by asked alone.
	page  http.HandlerFunc
	asked atomic.Int32
	// others are what the cluster knows; nil: no other node answers.
	others []string
}

func newSite(t *testing.T, devTokens dev.Tokens) *site {
	t.Helper()
	s := &site{t: t}
	game := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.asked.Load() > 0 {
			s.page(w, r)
		}
	}))
	t.Cleanup(game.Close)
	to, _ := url.Parse(game.URL)
	var err error
	if s.keys, err = tokens.Load(nil, tokens.Options{}); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(&s.log, nil))
	g, err := gateway.New(gateway.Config{Keys: s.keys, Log: log, Routes: []policy.Route{{Pattern: "/*", Upstream: upstream.Target{URL: to}, Policy: policy.Policy{DialTimeout: 10 * time.Second}}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	lines := faults.NewLines()
	lines.Serve(faults.Options{Cluster: true, Client: func(string) net.Conn { return nil }, Close: func(net.Conn) bool { return true }})
	o := dev.Options{Gateway: g, Lines: lines, Keys: s.keys, Origins: []string{"http://pages.example"}, Tokens: devTokens, Pages: true, Log: log, Others: func(*http.Request, string) []string { return s.others }}
	dev.Serve(o)
	s.Handler = dev.Front(o, g)
	return s
}

func (s *site) ask(method, path, body string, header ...string) *httptest.ResponseRecorder {
	s.t.Helper()
	r := httptest.NewRequest(method, "http://127.0.0.1:8080"+path, strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.asked.Add(1)
	s.ServeHTTP(w, r)
	return w
}

func (s *site) bearer(session string) string {
	s.t.Helper()
	token, _, err := s.keys.Issue(tokens.Claims{Session: session, Subject: session, Gen: 1, Expires: time.Now().Add(time.Hour)})
	if err != nil {
		s.t.Fatal(err)
	}
	return "Bearer " + token
}

const offline = `{"fault":"offline","for":"1s"}`

// A page cuts its own session: its resume token is the proof, and names the session.
func TestPageShowsItsResumeToken(t *testing.T) {
	s := newSite(t, nil)
	other, _ := tokens.Load(nil, tokens.Options{})
	forged, _, _ := other.Issue(tokens.Claims{Session: "s", Subject: "s", Gen: 1, Expires: time.Now().Add(time.Hour)})
	for name, c := range map[string]struct {
		header []string
		want   int
	}{
		"none":           {nil, 401},
		"forged":         {[]string{"Authorization", "Bearer " + forged}, 401},
		"session's id":   {[]string{"Authorization", "Bearer s"}, 401},
		"own":            {[]string{"Authorization", s.bearer("s")}, 204},
		"other scheme":   {[]string{"Authorization", strings.Replace(s.bearer("s"), "Bearer", "Basic", 1)}, 401},
		"allowed origin": {[]string{"Authorization", s.bearer("s"), "Origin", "http://pages.example"}, 204},
		"foreign origin": {[]string{"Authorization", s.bearer("s"), "Origin", "http://evil.example"}, 403},
	} {
		if w := s.ask("POST", "/reseat.dev/faults", offline, c.header...); w.Code != c.want {
			t.Errorf("%s: %d %s, want %d", name, w.Code, w.Body, c.want)
		}
	}
	for _, c := range []struct {
		method, path, body string
		want               int
	}{
		{"DELETE", "/reseat.dev/faults", "", 204}, {"PUT", "/reseat.dev/faults", "", 405}, {"GET", "/reseat.dev/faults", "", 204},
		{"POST", "/reseat.dev/faults", `{"fault":"earthquake"}`, 400}, {"POST", "/reseat.dev/faults", `{"fault":"reset"}`, 409},
		{"POST", "/reseat.dev/faults", `{"fault":"` + strings.Repeat("x", 2000) + `"}`, 400},
		{"GET", "/reseat.dev/session", "", 204},
	} {
		if w := s.ask(c.method, c.path, c.body, "Authorization", s.bearer("s")); w.Code != c.want {
			t.Errorf("%s %s %.40s: %d %s, want %d", c.method, c.path, c.body, w.Code, w.Body, c.want)
		}
	}
}

// The page is led to another node, as by a load balancer. Without one it would lose its session for nothing.
func TestPageThatLosesItsNodeLearnsOfAnother(t *testing.T) {
	s := newSite(t, nil)
	lose := func() *httptest.ResponseRecorder {
		return s.ask("POST", "/reseat.dev/faults", `{"fault":"node","for":"5s"}`, "Authorization", s.bearer("s"))
	}
	if w := lose(); w.Code != 409 {
		t.Errorf("without another node: %d %s", w.Code, w.Body)
	}
	s.others = []string{"http://127.0.0.1:8082/", "http://127.0.0.1:8083/"}
	nodes := regexp.MustCompile(`^{"ms":(5000|4\d\d\d),"nodes":\["http://127.0.0.1:8082/","http://127.0.0.1:8083/"]}\n$`)
	if w := lose(); w.Code != 200 || !nodes.MatchString(w.Body.String()) {
		t.Errorf("with others: %d %s", w.Code, w.Body)
	}
	for session, want := range map[string]int{"s": 200, "other": 204} { // by any page
		if w := s.ask("GET", "/reseat.dev/faults", "", "Authorization", s.bearer(session)); w.Code != want || nodes.MatchString(w.Body.String()) != (want == 200) {
			t.Errorf("%s asks, and gets %d %s, want %d", session, w.Code, w.Body, want)
		}
	}
}

const key = "0123456789abcdef0123456789abcdef"

// A plain client has no token. The game server does not see the key that stands for one.
func TestPlainClientsOfAPageHaveItsKey(t *testing.T) {
	s := newSite(t, nil)
	seen := make(chan string, 1)
	s.page = func(w http.ResponseWriter, r *http.Request) {
		seen <- r.URL.RawQuery
		w.WriteHeader(http.StatusTeapot)
	}
	for query, want := range map[string]string{
		"?a=1&reseat.dev=" + key + "&b=%20": "a=1&b=%20", "?reseat.dev=" + key: "", "?reseat.dev=x": "reseat.dev=x", "?a": "a",
	} {
		s.ask("GET", "/play"+query, "", "Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
		if got := <-seen; got != want {
			t.Errorf("%s: the game server gets %q, want %q", query, got, want)
		}
	}
	for proof, want := range map[string]int{"Page " + key: 204, "Page 0123": 401, "Page " + strings.ToUpper(key): 401, "Bearer " + key: 401} {
		if w := s.ask("POST", "/reseat.dev/faults", offline, "Authorization", proof); w.Code != want {
			t.Errorf("%s: %d, want %d", proof, w.Code, want)
		}
	}
}

func TestPanelOfAllowedOriginMayAsk(t *testing.T) {
	s := newSite(t, nil)
	for origin, want := range map[string]string{"http://pages.example": "http://pages.example", "http://evil.example": ""} {
		h := s.ask("OPTIONS", "/reseat.dev/faults", "", "Origin", origin, "Access-Control-Request-Method", "POST").Header()
		if h.Get("Access-Control-Allow-Origin") != want || (want != "") != strings.Contains(h.Get("Access-Control-Allow-Headers"), "Authorization") {
			t.Errorf("%s: %v", origin, h)
		}
	}
}

func TestPublicGatewayAsksForDevToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	os.WriteFile(file, []byte("first-token\n\nsecond-token\n"), 0o600)
	list, err := dev.LoadTokens(file)
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t, list)
	for token, want := range map[string]int{"": 403, "first": 403, "first-token": 204, "second-token": 204} {
		if w := s.ask("POST", "/reseat.dev/faults", offline, "Authorization", s.bearer("s"), dev.TokenHeader, token); w.Code != want {
			t.Errorf("token %q: %d, want %d", token, w.Code, want)
		}
	}
	os.WriteFile(file, []byte("\n"), 0o600)
	if _, err := dev.LoadTokens(file); err == nil || !strings.Contains(err.Error(), "--dev-token-file") {
		t.Errorf("an empty file: %v", err)
	}
}

const script = `<script src="/reseat.install.js" data-match=":8080/"></script>`

func TestProxiedPageGetsTheScriptFirst(t *testing.T) {
	s := newSite(t, nil)
	for _, c := range []struct{ page, want string }{
		{"<!doctype html><html><head lang=en><title>x</title>", "<!doctype html><html><head lang=en>" + script + "<title>x</title>"},
		{"<html>\n<body>x", "<html>" + script + "\n<body>x"},
		{"<!DOCTYPE html>\n<p>x", "<!DOCTYPE html>" + script + "\n<p>x"},
		{"x", script + "x"},
		{"<!-- <head> -->\n<!doctype html>\n<p>x", "<!-- <head> -->\n<!doctype html>" + script + "\n<p>x"},
		{"<!doctype html><!--[if lt IE 9]><html><head><![endif]--><html><head><p>x", "<!doctype html><!--[if lt IE 9]><html><head><![endif]--><html><head>" + script + "<p>x"},
		{"\ufeff<?xml version='1.0'?><!doctype html><p>'<head>'", "\ufeff<?xml version='1.0'?><!doctype html>" + script + "<p>'<head>'"},
		{`<head><script src="/reseat.install.js" data-banner></script>`, ""},
		{`<head><script src="http://localhost:8080/reseat.dev.js"></script>`, ""},
		{`<head><script type=module>import {ReseatSocket} from '/reseat.js'</script>`, ""},
	} {
		s.page = func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			w.Header().Set("ETag", `"x"`)
			io.WriteString(w, c.page[:1])
			http.NewResponseController(w).Flush()
			io.WriteString(w, c.page[1:])
		}
		if c.want == "" {
			c.want = c.page
		}
		w := s.ask("GET", "/", "", "Accept", "text/html,*/*")
		if got := w.Body.String(); got != c.want || c.want != c.page && w.Header().Get("ETag") != "" {
			t.Errorf("%q becomes %q, want %q; %v", c.page, got, c.want, w.Header())
		}
	}
}

// A server that knows nothing of reseat.v1 may refuse a socket that offers it, or take the second attempt for another player.
func TestScriptTakesSocketsOfTheGatewayAlone(t *testing.T) {
	s := newSite(t, nil)
	s.page = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, "x")
	}
	for host, want := range map[string]string{
		"localhost:8080": ` data-match=":8080/"`, "[::1]:8080": ` data-match=":8080/"`, "play.example": ` data-match="//play.example/"`, `a"b:8080`: "",
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Host = host
		r.Header.Set("Accept", "text/html")
		w := httptest.NewRecorder()
		s.asked.Add(1)
		s.ServeHTTP(w, r)
		if got := strings.TrimSuffix(w.Body.String(), "x"); got != strings.Replace(script, ` data-match=":8080/"`, want, 1) {
			t.Errorf("%s: %s", host, w.Body)
		}
	}
}

func TestOtherAnswersPassUnchanged(t *testing.T) {
	s := newSite(t, nil)
	const body = "<head><p>x"
	for name, c := range map[string]struct {
		accept, kind, encoding string
		status                 int
	}{
		"an asset": {"*/*", "text/html", "", 200}, "no HTML": {"text/html", "text/plain", "", 200},
		"an error": {"text/html", "text/html", "", 404}, "a redirect": {"text/html", "text/html", "", 302},
		"compressed all the same": {"text/html", "text/html", "br", 200},
	} {
		s.page = func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", c.kind)
			if c.encoding != "" {
				w.Header().Set("Content-Encoding", c.encoding)
			}
			w.WriteHeader(c.status)
			io.WriteString(w, body)
		}
		s.log.Reset()
		if w := s.ask("GET", "/", "", "Accept", c.accept); w.Code != c.status || w.Body.String() != body {
			t.Errorf("%s: %d %q", name, w.Code, w.Body)
		}
		if said := strings.Contains(s.log.String(), "dev.page"); said != (c.encoding != "" || c.status == 404) {
			t.Errorf("%s: the log says %s", name, &s.log)
		}
	}
}

// A service worker fetches the pages that it keeps. Other scripts fetch parts of pages.
func TestFetchedPageGetsTheScriptToo(t *testing.T) {
	s := newSite(t, nil)
	for body, whole := range map[string]bool{"<!doctype html><p>x": true, "<!-- x -->\n<html><p>x": true, "<p>x": false, "<!-- x --><p>x": false} {
		s.page = func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.Header().Set("ETag", `"x"`)
			io.WriteString(w, body)
		}
		w := s.ask("GET", "/", "", "Accept", "*/*", "Sec-Fetch-Dest", "empty")
		if got := strings.Contains(w.Body.String(), script); got != whole || (w.Header().Get("ETag") == "") != whole {
			t.Errorf("%s becomes %s, %v", body, w.Body, w.Header())
		}
	}
}

func TestPageTooLargeToHoldPassesWhole(t *testing.T) {
	s := newSite(t, nil)
	body := "<head>" + strings.Repeat("x", 9<<20)
	s.page = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, body)
	}
	if w := s.ask("GET", "/", "", "Accept", "text/html"); w.Body.String() != body || !strings.Contains(s.log.String(), "dev.page") {
		t.Errorf("%d bytes of %d; the log says %s", w.Body.Len(), len(body), &s.log)
	}
}

// Otherwise the browser's cache, or an encoding, would hide the page from the panel.
func TestPageIsAskedForWhole(t *testing.T) {
	s := newSite(t, nil)
	s.page = func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"Accept-Encoding", "If-None-Match", "If-Modified-Since", "Range"} {
			if v := r.Header.Get(name); v != "" {
				t.Errorf("%s: %s", name, v)
			}
		}
	}
	s.ask("GET", "/", "", "Accept", "text/html", "Accept-Encoding", "gzip", "If-None-Match", `"x"`, "If-Modified-Since", "Sat, 28 Nov 2026 11:43:03 GMT", "Range", "bytes=0-1")
}

func TestScriptFollowsTheContentSecurityPolicy(t *testing.T) {
	s := newSite(t, nil)
	for policy, want := range map[string]struct{ nonce, line string }{
		"default-src 'self'": {},
		"script-src 'nonce-abc+/=' 'strict-dynamic'; object-src x": {nonce: "abc+/="},
		"default-src 'none'; script-src https:":                    {},
		"script-src 'sha256-abc'":                                  {line: "script-src 'self'"},
		"default-src 'none'":                                       {line: "default-src 'self'"},
		"script-src 'self' 'strict-dynamic' 'sha256-abc'":          {line: "script-src 'self'"},
		"img-src 'none'":                                           {},
	} {
		s.log.Reset()
		s.page = func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.Header().Set("Content-Security-Policy", policy)
			io.WriteString(w, "<head>")
		}
		got := s.ask("GET", "/", "", "Accept", "text/html").Body.String()
		if (want.nonce != "") != strings.Contains(got, `nonce="`+want.nonce+`"`) || !strings.Contains(got, "/reseat.install.js") {
			t.Errorf("%s: %s", policy, got)
		}
		if said := s.log.String(); (want.line != "") != strings.Contains(said, "dev.csp") || !strings.Contains(said, want.line) {
			t.Errorf("%s: log %q, want %q", policy, said, want.line)
		}
	}
}
