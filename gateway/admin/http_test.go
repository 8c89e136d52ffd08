package admin

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"reseat/gateway/internal/test/wstest"
)

// A site is the admin address served over connections, for behaviour that a
// ResponseRecorder cannot show.
type site struct {
	t      *testing.T
	w      *world
	ln     *wstest.Listener
	server *http.Server
}

func (w *world) serve() *site {
	s := &site{w.t, w, wstest.NewListener(4 << 10), &http.Server{Handler: w.admin}}
	go s.server.Serve(s.ln)
	w.t.Cleanup(func() { s.server.Close() })
	return s
}

// A reply is a connection to the admin address on which a request was sent.
type reply struct {
	*wstest.Conn
	t *testing.T
	s *site
	r *bufio.Reader
}

// request sends a request verbatim.
func (s *site) request(raw string) *reply {
	s.t.Helper()
	c, err := s.ln.Dial()
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	c.Write([]byte(raw))
	return &reply{c, s.t, s, bufio.NewReader(c)}
}

// get requests target, with header lines.
func (s *site) get(target string, header ...string) *reply {
	s.t.Helper()
	return s.request("GET " + target + " HTTP/1.1\r\nHost: localhost\r\n" + strings.Join(append(header, "", ""), "\r\n"))
}

// head reads the head of the answer. Its body follows.
func (r *reply) head(status int) *http.Response {
	r.t.Helper()
	resp, err := http.ReadResponse(r.r, nil)
	if err != nil || resp.StatusCode != status {
		r.t.Fatalf("answered %v, %v, want %d", resp, err, status)
	}
	return resp
}

// whole reads an answer and checks it against its description.
func (r *reply) whole(method, target string, status int) *httptest.ResponseRecorder {
	r.t.Helper()
	resp := r.head(status)
	rec := httptest.NewRecorder()
	maps.Copy(rec.Header(), resp.Header)
	rec.WriteHeader(status)
	io.Copy(rec.Body, resp.Body)
	described.check(r.t, r.s.w.admin, httptest.NewRequest(method, target, nil), "", rec)
	return rec
}

func TestMissingBodyTimesOut(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, _ := w.play("")
		s := w.serve()
		for _, c := range [][2]string{{"POST", sessions}, {"PATCH", path(p)}, {"PUT", path(p) + "/data"}} {
			began := time.Now()
			r := s.request(c[0] + " " + c[1] + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
			wantProblem(t, r.whole(c[0], c[1], http.StatusRequestTimeout), http.StatusRequestTimeout, "in time")
			if d := time.Since(began); d != bodyTimeout {
				t.Errorf("%s: given up after %v", c[0], d)
			}
		}
		w.wantList("", p)
	})
}

func TestOversizedBodyIsNotRead(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, _ := w.play("")
		s := w.serve()
		for _, c := range [][2]string{{"POST", sessions}, {"PATCH", path(p)}, {"PUT", path(p) + "/data"}} {
			r := s.request(c[0] + " " + c[1] + " HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
			go func() {
				chunk := []byte("1000\r\n" + strings.Repeat(" ", 0x1000) + "\r\n")
				for range 1 << 12 { // 16 MiB, if they were read
					if _, err := r.Write(chunk); err != nil {
						return
					}
				}
			}()
			wantProblem(t, r.whole(c[0], c[1], http.StatusRequestEntityTooLarge), http.StatusRequestEntityTooLarge, "at most")
			r.Close()
		}
	})
}

func TestHEADIsGETWithoutBody(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, _ := w.play("")
		s := w.serve()
		for _, target := range []string{"/healthz", "/metrics", sessions, path(p), "/api/v1/events", "/api/v1/openapi.json"} {
			r := s.request("HEAD " + target + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
			resp, err := http.ReadResponse(r.r, httptest.NewRequest("HEAD", target, nil))
			if err != nil || resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") == "" {
				t.Fatalf("%s: %v, %v", target, resp, err)
			}
			if rest, err := io.ReadAll(r.r); len(rest) > 0 || err != nil {
				t.Errorf("%s: a body of %d bytes, %v", target, len(rest), err)
			}
		}
		synctest.Wait()
	})
}

// lines returns the log lines with a message.
func (w *world) lines(msg string) (list []map[string]any) {
	w.t.Helper()
	for line := range strings.Lines(w.log.String()) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			w.t.Fatalf("%s: %v", line, err)
		}
		if m["msg"] == msg {
			list = append(list, m)
		}
	}
	return list
}

func TestEachWriteIsOneLogLine(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, _ := w.play("red")
		id := p.Hello.Session
		as := "Authorization: Bearer " + adminToken
		m := w.send("POST", sessions, `{"path":"/match/7"}`, as)
		w.game.Next()
		var newer created
		json.Unmarshal(m.Body.Bytes(), &newer)
		for _, c := range []struct{ method, target, body, session, status string }{
			{"PATCH", path(p), `{"grace":"5m"}`, id, "200"},
			{"PATCH", path(p), `{"grace":5}`, id, "400"},
			{"PUT", path(p) + "/data", "x", id, "204"},
			{"POST", path(p) + "/disconnect", "", id, "204"},
			{"POST", "/api/v1/groups/red/end", "", "", "200"},
			{"DELETE", path(p) + "?reason=secret", "", id, "409"},
			{"DELETE", sessions + "/nothing", "", "nothing", "404"},
			{"POST", "/api/v1/drain", "", "", "200"},
			{"POST", sessions, `{"path":"/match/7"}`, "", "503"},
			{"DELETE", "/api/v1/drain", "", "", "200"},
			{"PUT", "/api/v1/nothing", "", "", "404"},
			{"PUT", "/metrics", "", "", "405"},
		} {
			before := len(w.lines("admin.write"))
			w.send(c.method, c.target, c.body, as)
			lines := w.lines("admin.write")[before:]
			if len(lines) != 1 {
				t.Fatalf("%s %s: %d lines", c.method, c.target, len(lines))
			}
			target, _, _ := strings.Cut(c.target, "?")
			got := fmt.Sprint(lines[0]["who"], " ", lines[0]["method"], " ", lines[0]["path"], " ", lines[0]["session"], " ", lines[0]["status"], " ", lines[0]["peer"])
			if want := fmt.Sprint("admin-token line 1 ", c.method, " ", target, " ", c.session, " ", c.status, " 192.0.2.1:1234"); got != want {
				t.Errorf("the line says %q, want %q", got, want)
			}
		}
		if first := w.lines("admin.write")[0]; first["session"] != newer.ID || first["status"] != 201.0 {
			t.Errorf("of the created session: %v", first)
		}
		before := len(w.lines("admin.write"))
		for _, target := range []string{sessions, path(p), "/metrics", "/healthz", "/api/v1/drain", "/debug/pprof/heap"} {
			w.send("GET", target, "", as)
			w.send("HEAD", target, "", as)
		}
		if n := len(w.lines("admin.write")) - before; n > 0 {
			t.Errorf("%d lines for reading", n)
		}
	}, withTokens(t))
}

// T43: what a caller puts into a path is quoted and capped.
func TestAuditLinesAreQuotedAndCapped(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.call("DELETE", sessions+"/a%0Amsg=forged%1B[31m")
		w.call("DELETE", sessions+"/"+strings.Repeat("x", 1<<20))
		for line := range strings.Lines(w.log.String()) {
			if len(line) > 2000 || strings.Contains(line, "\x1b") || !json.Valid([]byte(line)) {
				t.Errorf("%.300q", line)
			}
		}
		if n := len(w.lines("admin.write")); n != 2 {
			t.Errorf("%d lines", n)
		}
	})
}

// T8: tokens and session data appear in no log line, event or metric, and in no answer but
// the one that returns them.
func TestTokensAppearInNoLogOrAnswer(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const wrong, data, reason = "wrong-CANARY-0123456789", "data-CANARY", "kicked"
		as := "Authorization: Bearer " + adminToken
		l := w.serve().listen("", as)
		var out strings.Builder
		p, _ := w.play("red")
		rec := w.send("POST", sessions, `{"path":"/match/7?token=query-CANARY","player":"ann","data":"`+data+`"}`, as)
		w.game.Next()
		var m created
		json.Unmarshal(rec.Body.Bytes(), &m)
		for _, cred := range []string{as, "Authorization: Bearer " + viewerToken, "Authorization: Bearer " + wrong, "Authorization: Basic " + wrong, "X-Token: " + wrong} {
			for _, c := range guardedCalls {
				if strings.HasSuffix(c.target, "/data") || strings.Contains(c.target, "pprof/heap") {
					continue
				}
				rec := w.send(c.method, strings.Replace(c.target, "%s", m.ID, 1)+"?access_token="+wrong+"&reason="+reason, c.body, cred)
				fmt.Fprint(&out, rec.Header(), rec.Body)
			}
		}
		w.send("PUT", path(p)+"/data", data, as)
		p.TryResume(wrong, "0")
		p.TryResume(m.Token[:len(m.Token)-2], "0")
		q := p.Resume(0)
		q.Resume(0)
		p.TryResume(p.Hello.Token, "0")
		synctest.Wait()
		w.gw.Close()
		for e := l.next(); ; e = l.next() {
			b, _ := json.Marshal(e)
			out.Write(b)
			if e.Type == "session.ended" && e.Session == p.Hello.Session {
				break
			}
		}
		out.WriteString(w.log.String())
		if !strings.Contains(out.String(), "token.replayed") {
			t.Error("the superseded token was not logged")
		}
		for _, secret := range []string{"CANARY", adminToken, viewerToken, m.Token, p.Hello.Token, q.Hello.Token, m.Token[:len(m.Token)-2]} {
			if i := strings.Index(out.String(), secret); i >= 0 {
				t.Errorf("%.30s appears: %.300s", secret, out.String()[max(0, i-150):])
			}
		}
	}, withTokens(t))
}

// T30: whatever sessions, players, groups and paths are named, the metrics have the same
// series.
func TestNamesCreateNoMetricSeries(t *testing.T) {
	series := func(w *world) (names []string) {
		families, err := prometheus.Gatherers{w.gw.Watch().Metrics.Registry}.Gather()
		if err != nil {
			w.t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.Metric {
				names = append(names, fmt.Sprint(f.GetName(), m.Label))
			}
		}
		return names
	}
	inWorld(t, func(t *testing.T, w *world) {
		p, _ := w.play("")
		w.make(`{"path":"/match/x"}`)
		w.call("DELETE", sessions+"/x")
		before := series(w)
		pages := len(w.call("GET", "/metrics").Body.String())
		for i := range 10_000 {
			r := httptest.NewRequest("PATCH", path(p), strings.NewReader(fmt.Sprintf(`{"group":"g%d"}`, i)))
			r.Host = "localhost"
			w.admin.ServeHTTP(httptest.NewRecorder(), r)
			r = httptest.NewRequest("DELETE", fmt.Sprintf("%s/s%d", sessions, i), nil)
			r.Host = fmt.Sprint("h", i)
			w.admin.ServeHTTP(httptest.NewRecorder(), r)
		}
		for i := range 200 {
			w.make(fmt.Sprintf(`{"path":"/match/%d","player":"p%d","group":"g%d"}`, i, i, i))
		}
		if after := series(w); !slices.Equal(before, after) {
			t.Errorf("%d series became %d", len(before), len(after))
		}
		body := w.call("GET", "/metrics").Body.String()
		if len(body) > pages*2 || strings.Contains(body, "g99") || strings.Contains(body, "p99") || strings.Contains(body, p.Hello.Session) {
			t.Errorf("%d bytes of metrics became %d", pages, len(body))
		}
	})
}

func TestProfilesAreServed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for target, kind := range map[string]string{
			"":                  "text/html; charset=utf-8",
			"heap":              "application/octet-stream",
			"goroutine?debug=1": "text/plain; charset=utf-8",
			"cmdline":           "text/plain; charset=utf-8",
			"symbol":            "text/plain; charset=utf-8",
			"allocs":            "application/octet-stream",
		} {
			rec := w.call("GET", "/debug/pprof/"+target)
			if rec.Code != http.StatusOK || rec.Header().Get("Content-Type") != kind {
				t.Errorf("%s: %d %s", target, rec.Code, rec.Header().Get("Content-Type"))
			}
		}
		if rec := w.send("POST", "/debug/pprof/symbol", "0x1", "Content-Type: text/plain"); rec.Code != http.StatusOK || !strings.Contains(rec.Body.String(), "num_symbols") {
			t.Errorf("symbol: %d %s", rec.Code, rec.Body)
		}
		w.wantProblem("GET", "/debug/pprof/nothing", http.StatusNotFound, "profile")
		w.wantProblem("GET", "/debug/pprof", http.StatusNotFound, "no such")
		w.wantProblem("GET", "/debug/", http.StatusNotFound, "no such")
	})
}

func TestPanicInHandlerIsAnsweredAndLogged(t *testing.T) {
	lines := new(wstest.Log)
	a := &api{Options: Options{Log: newLog(lines)}}
	rec := httptest.NewRecorder()
	a.recoverPanic(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("oh") })).ServeHTTP(rec, httptest.NewRequest("GET", "/x", nil))
	wantProblem(t, rec, http.StatusInternalServerError, "internal error")
	if got := lines.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, `"fault":"oh"`) || !strings.Contains(got, "http_test.go") {
		t.Errorf("logged %s, want one line with the fault and its stack", got)
	}
	defer func() {
		if recover() != http.ErrAbortHandler {
			t.Error("an aborted answer is no fault")
		}
	}()
	a.recoverPanic(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })).ServeHTTP(rec, httptest.NewRequest("GET", "/x", nil))
}
