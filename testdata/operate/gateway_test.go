// Package operate runs bin/reseat as operators do: behind nginx, HAProxy and
// Caddy, and with the files of docs/deploy, docs/grafana and docs/prometheus.
// make test-operate runs it.
package operate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

const (
	ownBuild = "../../bin/reseat"
	docs     = "../../docs/"
)

// program is the program under test: bin/reseat, or RESEAT_BIN.
var program = cmp.Or(os.Getenv("RESEAT_BIN"), ownBuild)

// A gateway is a running bin/reseat.
type gateway struct {
	t     *testing.T
	cmd   *exec.Cmd
	log   *journal
	addr  string // where clients connect
	admin string // URL of the admin address
}

// start runs a gateway until the test ends.
func start(t *testing.T, args ...string) *gateway {
	t.Helper()
	return startWith(t, 0, args...)
}

// startWith runs one with a descriptor limit; 0: that of this process.
func startWith(t *testing.T, descriptors int, args ...string) *gateway {
	t.Helper()
	for _, flag := range []string{"--listen=127.0.0.1:0", "--admin=127.0.0.1:0", "--log-format=json", "--drain=0s"} {
		name, _, _ := strings.Cut(flag, "=")
		if !slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, name+"=") }) { // each only once
			args = append(args, flag)
		}
	}
	g := &gateway{t: t, cmd: exec.Command(program, args...), log: newJournal()}
	if descriptors > 0 {
		g.cmd = exec.Command("sh", append([]string{"-c", fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, descriptors), program}, args...)...)
	}
	out, err := g.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go g.log.read(out)
	t.Cleanup(g.stop)
	g.addr = g.says("listen.clients")["addr"].(string)
	g.admin = g.says("listen.admin")["http"].(string)
	return g
}

func (g *gateway) url() string { return "ws://" + g.addr }

// player returns a player who has not connected yet.
func (g *gateway) player() *player { return &player{t: g.t, url: g.url()} }

// join begins a session.
func (g *gateway) join() *player {
	g.t.Helper()
	return g.player().join(g.t)
}

// says waits for a log line with one of these messages.
func (g *gateway) says(msg ...string) map[string]any {
	g.t.Helper()
	for line := range g.log.lines {
		s, _ := line["msg"].(string)
		if slices.Contains(msg, s) {
			return line
		}
		if strings.HasPrefix(s, "reseat: ") || strings.Contains(s, "DATA RACE") {
			g.t.Fatal(s)
		}
	}
	g.t.Fatalf("the gateway has ended and never said %q", msg)
	return nil
}

// stop ends the gateway, immediately even during a drain.
func (g *gateway) stop() {
	g.cmd.Process.Kill()
	for line := range g.log.lines {
		if g.t.Failed() {
			g.t.Log(line)
		}
	}
	g.cmd.Wait()
}

// get returns the body of a path of the admin address, which must be 200.
func (g *gateway) get(path string) []byte {
	g.t.Helper()
	r := g.ask("GET", path, "")
	if r.status != http.StatusOK {
		g.t.Fatalf("%s: %d %s, want 200", path, r.status, r.body)
	}
	return []byte(r.body)
}

// A reply is an answer of the control API.
type reply struct {
	status int
	body   string
}

// ask makes a call with a body.
func (g *gateway) ask(method, path, body string) reply {
	g.t.Helper()
	r, err := http.NewRequest(method, g.admin+path, strings.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return reply{resp.StatusCode, string(b)}
}

// want checks the status, and that the body contains something.
func (r reply) want(t *testing.T, what string, status int, contains string) reply {
	t.Helper()
	if r.status != status || !strings.Contains(r.body, contains) {
		t.Errorf("%s: %d %s, want %d with %s", what, r.status, r.body, status, contains)
	}
	return r
}

// A seen is a session in the control API.
type seen struct{ ID, State, Peer string }

func (g *gateway) sessions() []seen {
	g.t.Helper()
	var list struct{ Sessions []seen }
	if err := json.Unmarshal(g.get("/api/v1/sessions?limit=1000"), &list); err != nil {
		g.t.Fatal(err)
	}
	return list.Sessions
}

// A shell is a command of a page or a manifest, and the processes that it starts, all of which end with the test.
type shell struct {
	*exec.Cmd
	ended chan struct{}
	err   error // once it has ended
}

func startShell(t *testing.T, dir string, command ...string) *shell {
	t.Helper()
	s := &shell{Cmd: exec.Command(command[0], command[1:]...), ended: make(chan struct{})}
	s.Dir, s.Stdout, s.Stderr, s.SysProcAttr = dir, os.Stderr, os.Stderr, &syscall.SysProcAttr{Setpgid: true} // no pipe, whose end others may hold
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { s.err = s.Wait(); close(s.ended) }()
	t.Cleanup(func() {
		syscall.Kill(-s.Process.Pid, syscall.SIGKILL)
		<-s.ended
	})
	return s
}

// absent skips a test for what the machine lacks. make proof says so at its end.
func absent(t *testing.T, what string) {
	t.Helper()
	if f, err := os.OpenFile("../../bin/absent", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644); err == nil {
		fmt.Fprintf(f, "NOT TESTED: %s: %s\n", t.Name(), what)
		f.Close()
	}
	t.Skip(what)
}

// freePort returns an unused port, another one each time. It is below those that the system gives
// to connections, so that it is still free when a process listens there, and does again.
func freePort(t *testing.T) string {
	t.Helper()
	for {
		if port := 10000 + int(lastPort.Add(1)%10000); !inUse(port) {
			return fmt.Sprint(port)
		}
	}
}

var lastPort atomic.Uint32

func init() { lastPort.Store(rand.Uint32N(10000)) } // other processes begin elsewhere

// file reads a file of docs.
func file(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(docs, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// replaced returns text with each old string, which must occur, replaced.
func replaced(t *testing.T, text string, pairs ...string) string {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			t.Fatalf("there is no %q in\n%s", pairs[i], text)
		}
		text = strings.ReplaceAll(text, pairs[i], pairs[i+1])
	}
	return text
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}
