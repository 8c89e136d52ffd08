package server

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
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
		{"/lobby/../%63hess/7?x=1", 0, []string{`ok    --try "/lobby/../%63hess/7?x=1": route /chess/*, sent on as /chess/7; no login, Origin https://play.example, grace 5m0s, disconnect soft, overflow pause`, "the game server answered 101"}, "/chess/7?x=1"},
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
	closed := startGame(t, nil)
	closed.Close()
	p := beginWith(t, "--upstream="+closed.url("ws"))
	if line := p.wait("dashboard.ready"); line["level"] != "INFO" || !strings.HasPrefix(line["url"].(string), "http://127.0.0.1:") {
		t.Errorf("%v", line)
	}
	if line := p.wait("upstream.unreachable"); line["level"] != "WARN" || line["upstream"] != closed.url("ws") {
		t.Errorf("%v", line)
	}
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
	if line := p.wait("settings.changed"); !strings.Contains(line["text"].(string), "a restart would fail") || !strings.Contains(line["err"].(string), "grace") {
		t.Errorf("%v", line)
	}
	writeFile(t, file, "grace = \"5s\"\n")
	os.Chtimes(file, time.Now(), time.Now().Add(time.Hour)) // only the content counts
	c := watchConfig(file, nil, nil)
	var log bytes.Buffer
	if c.compare(slog.New(slog.NewTextHandler(&log, nil))); log.Len() > 0 {
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
