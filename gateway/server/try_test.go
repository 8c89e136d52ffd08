package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/policy"
	"reseat/upstream"
)

func TestTryReportsRouteAndUpstreamResponse(t *testing.T) {
	asked := make(chan string, 10)
	game := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.RequestURI
		if r.URL.Path == "/closed" {
			http.Error(w, "closed", http.StatusForbidden)
			return
		}
		if c, err := websocket.Accept(w, r, nil); err == nil {
			c.CloseNow()
		}
	}))
	defer game.Close()
	at := strings.Replace(game.URL, "http", "ws", 1)
	args := []string{"check", "--route=/chess/*=" + at + ";grace=5m;origin=https://play.example", "--route=/closed=" + at}
	for _, c := range []struct {
		path   string
		status int
		want   []string
		asked  string
	}{
		{"/lobby/../%63hess/7?x=1", 0, []string{`ok    --try "/lobby/../%63hess/7?x=1": route /chess/*, sent on as /chess/7`, "the game server answered 101"}, "/chess/7?x=1"},
		{"/closed", 1, []string{`ok    --try "/closed": route /closed`, "FAIL", "answered the handshake with 403 Forbidden"}, "/closed"},
		{"/other", 1, []string{`FAIL  --try "/other": clients get 404: no route matches /other`}, ""},
		{"/a%2fb", 1, []string{`FAIL  --try "/a%2fb": clients get 400`}, ""},
		{"chess", 2, []string{"--try: want a path such as /match/7"}, ""},
		{"", 2, []string{"--try: want a path"}, ""},
	} {
		status, report, errs := once(append(args, "--try", c.path)...)
		for _, want := range c.want {
			if !strings.Contains(report+errs, want) {
				t.Errorf("%s: want %q in\n%s%s", c.path, want, report, errs)
			}
		}
		if status != c.status {
			t.Errorf("%s: status %d, want %d\n%s", c.path, status, c.status, report)
		}
		if c.asked != "" {
			if got := <-asked; got != c.asked {
				t.Errorf("%s: the game server was asked for %s, want %s", c.path, got, c.asked)
			}
		}
		if len(asked) > 0 {
			t.Errorf("%s: the game server was asked for %s as well", c.path, <-asked)
		}
	}
	for _, args := range [][]string{{"check", "--demo", "--try"}, {"check", "--try", "--demo"}} { // a flag is not a path
		if status, _, errs := once(args...); status != 2 || !strings.Contains(errs, "--try: want a path such as /match/7, got none") {
			t.Errorf("%q: status %d, %s", args, status, errs)
		}
	}
	if status, _, errs := once("--try=/x", "--demo"); status != 2 || !strings.Contains(errs, "--try") {
		t.Errorf("a start with --try: %d, %s", status, errs)
	}
}

func TestUnreachableUpstreamIsLoggedAtStart(t *testing.T) {
	closed := closedGame(t)
	p := beginWith(t, "--upstream="+closed.url("ws"))
	if line := p.wait("dashboard.ready"); line["level"] != "INFO" || !strings.HasPrefix(line["url"].(string), "http://127.0.0.1:") {
		t.Errorf("%v", line)
	}
	if line := p.wait("upstream.unreachable"); line["level"] != "WARN" || line["upstream"] != closed.url("ws") || !strings.Contains(line["text"].(string), "--upstream") {
		t.Errorf("%v", line)
	}
}

// A game server that cannot be reached is said to be so once, and once when it can.
func TestAnUpstreamThatBecomesReachableIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said wstest.Log
		var up atomic.Bool
		var dials atomic.Int64
		at := func(scheme, host string) policy.Route {
			return policy.Route{Policy: policy.Policy{DialTimeout: time.Second}, Upstream: upstream.Target{
				URL: &url.URL{Scheme: scheme, Host: host},
				DialContext: func(context.Context, string, string) (net.Conn, error) {
					if dials.Add(1); !up.Load() && host == "late:1" {
						return nil, errors.New("connection refused")
					}
					near, _ := net.Pipe()
					return near, nil
				},
			}}
		}
		done := make(chan bool)
		go func() {
			logUnreachable(t.Context(), slog.New(slog.NewTextHandler(&said, nil)), []policy.Route{at("ws", "late:1"), at("ws", "late:1"), at("ws", "good:1")})
			close(done)
		}()
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := said.Take(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "upstream.unreachable upstream=ws://late:1") {
			t.Errorf("in an hour: %s", got)
		}
		if n := dials.Load(); n > 140 {
			t.Errorf("%d dials in an hour", n)
		}
		up.Store(true)
		<-done
		if got := said.Take(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=INFO msg=upstream.reachable upstream=ws://late:1") {
			t.Errorf("once it is there: %s", got)
		}
	})
}

// Nobody has to send SIGHUP to learn that a change of the file needs a restart.
func TestChangedConfigFileIsLoggedByItself(t *testing.T) {
	file := writeFile(t, filepath.Join(t.TempDir(), "reseat.toml"), "grace = \"5s\"\n")
	p := begin(t, "--config="+file)
	writeFile(t, file, "grace = \"60s\"\n")
	if line := p.wait("settings.changed"); line["text"] != "settings changed; restart to apply" {
		t.Errorf("%v", line)
	}
}

func TestEachChangeOfTheConfigFileIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said wstest.Log
		file := filepath.Join(t.TempDir(), "reseat.toml")
		write := func(text string) { writeFile(t, file, text) }
		want := func(lines ...string) {
			t.Helper()
			time.Sleep(time.Minute)
			synctest.Wait()
			got := strings.TrimSpace(said.Take())
			if n := strings.Count(got, "msg="); n != len(lines) {
				t.Errorf("%d lines, want %d: %s", n, len(lines), got)
			}
			for _, l := range lines {
				if !strings.Contains(got, l) {
					t.Errorf("no %q in %s", l, got)
				}
			}
		}
		write("grace = \"5s\"\n")
		c := watchConfig(file, []string{"--demo", "--config=" + file}, nil)
		log := slog.New(slog.NewTextHandler(&said, nil))
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		write("grace = \"60s\"\n") // between its reading and the first check
		go c.watch(ctx, log)
		want("restart to apply")
		write("grace = \"5s\"\n")
		want("settings.restored")
		write("grace = \"5s\"\n") // the content counts
		want()
		write("grace = 6\n")
		want("would fail")
		write("grace = \"6s\"\n")
		want("restart to apply")
		c.compare(log, true)
		want("restart to apply") // SIGHUP asks
		os.Remove(file)
		want("would fail")
		write("grace = \"5s\"\n")
		want("settings.restored")
		time.Sleep(configEvery / 2) // between two looks: at the same instant either may come first
		for i := range 20 {         // while it is being written nothing is said
			write(fmt.Sprintf("grace = \"%d", i))
			time.Sleep(configEvery)
		}
		write("grace = \"5s\"\n")
		want()
	})
}

func TestChangedConfigFileIsLoggedOnSIGHUP(t *testing.T) {
	file := writeFile(t, filepath.Join(t.TempDir(), "reseat.toml"), "grace = \"5s\"\n")
	p := begin(t, "--config="+file)
	p.signals <- syscall.SIGHUP
	p.wait("keys.reloaded") // no settings.changed before it: see below
	writeFile(t, file, "grace = \"6s\"\n")
	p.signals <- syscall.SIGHUP
	if line := p.wait("settings.changed"); line["text"] != "settings changed; restart to apply" || line["file"] != file {
		t.Errorf("%v", line)
	}
	writeFile(t, file, "grace = 6\n")
	p.signals <- syscall.SIGHUP
	line := p.wait("settings.changed")
	if line["err"] == nil { // of the change before, by the watch of the file
		line = p.wait("settings.changed")
	}
	if !strings.Contains(line["text"].(string), "a restart would fail") || !strings.Contains(line["err"].(string), "grace") {
		t.Errorf("%v", line)
	}
	writeFile(t, file, "grace = \"5s\"\n")
	c := watchConfig(file, nil, nil)
	var log bytes.Buffer
	if c.compare(slog.New(slog.NewTextHandler(&log, nil)), true); log.Len() > 0 {
		t.Errorf("unchanged content: %s", log.String())
	}
}

// net/http's own errors are logged, but clients cannot fill the log with them.
func TestErrorsOfNetHTTPAreLoggedAndLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		log := serverLog(slog.New(slog.NewTextHandler(&said, nil)))
		for range 1000 {
			log.Print("http: Accept error: accept tcp: too many open files; retrying in 5ms")
		}
		if n := strings.Count(said.String(), "\n"); n != serverLinesAtOnce || !strings.Contains(said.String(), "level=WARN msg=http.server") {
			t.Errorf("%d lines, want %d warnings:\n%s", n, serverLinesAtOnce, said.String())
		}
		time.Sleep(time.Second)
		said.Reset()
		log.Printf("http: panic serving 127.0.0.1:1: %v\n%s", errors.New("a fault"), strings.Repeat("stack\n", 10_000))
		if s := said.String(); !strings.Contains(s, "level=ERROR") || !strings.Contains(s, "left_out_before=990") || len(s) > 2*maxServerLine {
			t.Errorf("%d bytes: %.200s", len(s), s)
		}
		time.Sleep(time.Minute)
		said.Reset()
		log.Print("http2: server connection error from 192.0.2.1:1: PROTOCOL_ERROR")
		if said.Len() > 0 {
			t.Errorf("a client's error is logged: %s", said.String())
		}
	})
}

// A planned writes a plan and returns its name.
func planned(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "commute.toml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// An api answers as the control API does, for two sessions on two pages, of which one has just ended.
type api struct {
	mu    sync.Mutex
	calls []string
	deny  bool
	empty bool // nobody plays
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	switch {
	case r.Header.Get("Authorization") != "Bearer secret":
		w.WriteHeader(http.StatusUnauthorized)
	case r.Method == http.MethodGet && a.empty:
		io.WriteString(w, `{"sessions":[],"next":""}`)
	case r.Method == http.MethodGet && r.URL.Query().Get("cursor") == "":
		io.WriteString(w, `{"sessions":[{"id":"a","state":"attached"}],"next":"7"}`)
	case r.Method == http.MethodGet:
		io.WriteString(w, `{"sessions":[{"id":"gone","state":"detached"},{"id":"b","state":"attached"}],"next":""}`)
	case a.deny:
		w.WriteHeader(http.StatusConflict)
		io.WriteString(w, `{"detail":"faults need --dev"}`)
	case strings.Contains(r.URL.Path, "/gone/"), strings.Contains(r.URL.Path, "/-/"):
		w.WriteHeader(http.StatusNotFound)
	default:
		a.calls = append(a.calls, fmt.Sprintf("%s %s %s", r.Method, r.URL.Path, body))
		w.WriteHeader(http.StatusNoContent)
	}
}

func (a *api) start(t *testing.T) (args []string) {
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	token := filepath.Join(t.TempDir(), "token")
	os.WriteFile(token, []byte("secret\nother\n"), 0o600)
	return []string{"rehearse", "--admin", server.URL, "--admin-token-file", token, "--plan"}
}

// The command is that of docs/dev.md.
func TestRehearsalReplaysThePlanInItsOrder(t *testing.T) {
	a := new(api)
	plan := planned(t, "[[fault]]\nat = '20ms'\nfault = 'silence'\nfor = '1ms'\n[[fault]]\nat = '0s'\nfault = 'slow'\nfor = '1ms'\nrate = 1000\n")
	var out, errs bytes.Buffer
	if status := Run(append(a.start(t), plan), nil, &out, &errs, nil); status != 0 {
		t.Fatalf("status %d: %s", status, &errs)
	}
	slow, silence := ` {"fault":"slow","for":"1ms","rate":1000}`, ` {"fault":"silence","for":"1ms"}`
	want := []string{"POST /api/v1/sessions/a/faults" + slow, "POST /api/v1/sessions/b/faults" + slow, "POST /api/v1/sessions/a/faults" + silence, "POST /api/v1/sessions/b/faults" + silence}
	if !slices.Equal(a.calls, want) {
		t.Errorf("calls %q, want %q", a.calls, want)
	}
	if !strings.Contains(out.String(), "slow: 2 sessions") || !strings.HasSuffix(out.String(), "over\n") {
		t.Errorf("it says %q", &out)
	}
}

func TestInterruptedRehearsalEndsAllFaults(t *testing.T) {
	a := new(api)
	signals := make(chan os.Signal, 1)
	signals <- syscall.SIGTERM
	if status := Run(append(a.start(t), planned(t, "[[fault]]\nat = '1h'\nfault = 'tunnel'\n")), nil, io.Discard, io.Discard, signals); status != 0 {
		t.Errorf("status %d", status)
	}
	if want := []string{"DELETE /api/v1/sessions/a/faults ", "DELETE /api/v1/sessions/b/faults "}; !slices.Equal(a.calls, want) {
		t.Errorf("calls %q, want %q", a.calls, want)
	}
}

func TestRehearsalSaysWhyItCannotBegin(t *testing.T) {
	good := planned(t, "[[fault]]\nat = '0s'\nfault = 'tunnel'\n")
	denied := (&api{deny: true}).start(t)
	for _, c := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"rehearse"}, 2, "--plan: want a file"},
		{[]string{"rehearse", "--plan", good + "x"}, 2, "no such file"},
		{[]string{"rehearse", "--plan", planned(t, "x")}, 2, "--plan"},
		{[]string{"rehearse", "--plan", planned(t, "")}, 2, "want [[fault]] tables"},
		{[]string{"rehearse", "--plan", planned(t, "[[fault]]\nfault='tunnel'")}, 2, "fault 1: want at"},
		{[]string{"rehearse", "--plan", planned(t, "[[fault]]\nat='1s'\nfault='quake'")}, 2, "want one of silence"},
		{[]string{"rehearse", "--plan", planned(t, "[[fault]]\nat='1s'\nfault='tunnel'\nx=1")}, 2, "x"},
		{[]string{"rehearse", "--plan", good, "--admin", "127.0.0.1:8081"}, 2, "want a URL"},
		{append(denied, good), 1, "faults need --dev"},
		{append((&api{deny: true, empty: true}).start(t), good), 1, "faults need --dev"},
	} {
		var errs bytes.Buffer
		if status := Run(c.args, nil, io.Discard, &errs, nil); status != c.status || !strings.Contains(errs.String(), c.want) {
			t.Errorf("%q: status %d, %q; want %d, %q", c.args, status, &errs, c.status, c.want)
		}
	}
}
