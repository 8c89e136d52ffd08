package server

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// A started is the program, running within the test on loopback ports.
type started struct {
	t       *testing.T
	lines   chan []byte // of its log
	signals chan os.Signal
	status  chan int
	over    chan struct{}  // closed when it has exited
	clients map[string]any // the log line of the client address
	admin   string         // URL of its admin address
	demo    string         // URL of the demo's page
}

// override replaces flags in args. All have the form --name=value, or --name for a
// boolean.
func override(args []string, others ...string) []string {
	name := func(arg string) string { n, _, _ := strings.Cut(arg, "="); return n }
	kept := slices.DeleteFunc(slices.Clone(args), func(arg string) bool {
		return slices.ContainsFunc(others, func(other string) bool { return name(other) == name(arg) })
	})
	return append(kept, others...)
}

// begin runs the program with the demo game, and waits until it serves. It is stopped at
// the end of the test.
func begin(t *testing.T, args ...string) *started {
	t.Helper()
	p := beginWith(t, override([]string{"--demo"}, args...)...)
	p.demo = p.wait("demo.ready")["url"].(string)
	return p
}

// beginWith is begin with another game.
func beginWith(t *testing.T, args ...string) *started {
	t.Helper()
	out, in := io.Pipe()
	p := &started{t: t, lines: make(chan []byte, 1000), signals: make(chan os.Signal, 1), status: make(chan int, 1), over: make(chan struct{})}
	args = override([]string{"--listen=127.0.0.1:0", "--admin=127.0.0.1:0", "--log-format=json"}, args...)
	go func() {
		p.status <- Run(args, nil, io.Discard, in, p.signals)
		in.Close()
		close(p.over)
	}()
	t.Cleanup(p.stop)
	go func() {
		defer close(p.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- append([]byte(nil), s.Bytes()...)
		}
	}()
	p.clients = p.wait("listen.clients")
	p.admin = p.wait("listen.admin")["http"].(string)
	return p
}

// stop sends signals until the program has exited; the second one makes it exit at once.
func (p *started) stop() {
	for {
		select {
		case p.signals <- syscall.SIGTERM:
		case <-p.over:
			return
		}
	}
}

// wait reads the log up to a line with this message.
func (p *started) wait(msg string) map[string]any {
	p.t.Helper()
	for raw := range p.lines {
		var line map[string]any
		if err := json.Unmarshal(raw, &line); err != nil {
			p.t.Fatalf("log line %s: %v", raw, err)
		}
		if s, _ := line["msg"].(string); strings.HasPrefix(s, msg) {
			return line
		}
	}
	p.t.Fatalf("the log ended before %q", msg)
	return nil
}

// ask sends a request to the admin address with a token, "" for none.
func (p *started) ask(method, path, token string) *http.Response {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), method, p.admin+path, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func (p *started) want(token string, status int) {
	p.t.Helper()
	if resp := p.ask("GET", "/api/v1/drain", token); resp.StatusCode != status {
		p.t.Errorf("with %q: %d, want %d", token, resp.StatusCode, status)
	}
}

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestAdminTokensAreReloadedOnSIGHUP(t *testing.T) {
	const older, newer, viewer = "older-0123456789ab", "newer-0123456789ab", "viewer-0123456789ab"
	file := writeFile(t, filepath.Join(t.TempDir(), "admin"), older)
	p := begin(t, "--admin-token-file="+file, "--viewer-token-file="+writeFile(t, filepath.Join(t.TempDir(), "viewer"), viewer))
	p.want("", http.StatusUnauthorized)
	p.want(older, http.StatusOK)
	p.want(viewer, http.StatusOK)
	if resp := p.ask("POST", "/api/v1/drain", viewer); resp.StatusCode != http.StatusForbidden {
		t.Errorf("a viewer's write: %d", resp.StatusCode)
	}
	writeFile(t, file, newer)
	p.signals <- syscall.SIGHUP
	p.wait("admin.tokens_reloaded")
	p.want(older, http.StatusUnauthorized)
	p.want(newer, http.StatusOK)
	writeFile(t, file, "with a blank")
	p.signals <- syscall.SIGHUP
	p.wait("admin.tokens_reload_failed")
	p.want(newer, http.StatusOK)
	writeFile(t, file, "short")
	p.signals <- syscall.SIGHUP
	if line := p.wait("admin.tokens_weak"); line["flag"] != "--admin-token-file" || line["text"] != "tokens of less than 16 characters, or of less than 6 different ones, might be guessed: line 1" {
		t.Errorf("%v", line)
	}
	p.want("short", http.StatusOK)
	p.signals <- syscall.SIGTERM
	if status := <-p.status; status != 0 {
		t.Errorf("exit status %d", status)
	}
}

// A reader of the events must get the last event, and then a clean end of the stream.
func TestEventStreamEndsCleanlyAtShutdown(t *testing.T) {
	p := begin(t)
	stream := p.ask("GET", "/api/v1/events", "")
	p.ask("POST", "/api/v1/drain", "") // SIGTERM must end the process all the same
	p.signals <- syscall.SIGTERM
	if status := <-p.status; status != 0 {
		t.Errorf("exit status %d", status)
	}
	if got, err := io.ReadAll(stream.Body); err != nil || !strings.HasPrefix(string(got), ":") {
		t.Errorf("%q, %v", got, err)
	}
}
