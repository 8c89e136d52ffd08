package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
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
