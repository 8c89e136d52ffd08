// Package operate runs bin/reseat as operators do: behind nginx, HAProxy and
// Caddy, and with the files of docs/deploy, docs/grafana and docs/prometheus.
// make test-operate runs it.
package operate

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
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

// A journal is a gateway's log. It stores every line until it is read: thousands of
// sessions write thousands of lines between two reads.
type journal struct {
	mu    sync.Mutex
	more  *sync.Cond // a line has been added, or the log has ended
	kept  []map[string]any
	ended bool
}

func newJournal() *journal {
	j := new(journal)
	j.more = sync.NewCond(&j.mu)
	return j
}

// read stores the log, up to its end.
func (j *journal) read(out io.Reader) {
	for s := bufio.NewScanner(out); s.Scan(); {
		line := map[string]any{}
		if json.Unmarshal(s.Bytes(), &line) != nil {
			line["msg"] = s.Text()
		}
		j.mu.Lock()
		j.kept = append(j.kept, line)
		j.more.Signal()
		j.mu.Unlock()
	}
	j.mu.Lock()
	j.ended = true
	j.more.Broadcast()
	j.mu.Unlock()
}

// lines returns the lines that have not been read, and waits for further ones up to the
// end.
func (j *journal) lines(yield func(map[string]any) bool) {
	for {
		j.mu.Lock()
		for len(j.kept) == 0 && !j.ended {
			j.more.Wait()
		}
		if len(j.kept) == 0 {
			j.mu.Unlock()
			return
		}
		line := j.kept[0]
		j.kept = j.kept[1:]
		j.mu.Unlock()
		if !yield(line) {
			return
		}
	}
}

// A game is an ordinary WebSocket server, which knows nothing of Reseat. It counts to
// each player, a message every few milliseconds, until stop is closed, and records what
// each player sends.
type game struct {
	*httptest.Server
	tick time.Duration
	stop chan struct{} // closed: the count ends with a final message

	mu    sync.Mutex
	joins []*join
}

// A join is one connection to the game server.
type join struct {
	path string
	head http.Header

	mu    sync.Mutex
	heard []string // what the player has sent
	lost  error    // why the connection ended early
}

// newGame counts to each player, once per tick; zero: never.
func newGame(t *testing.T, tick time.Duration) *game {
	g := &game{tick: tick, stop: make(chan struct{})}
	g.Server = httptest.NewServer(http.HandlerFunc(g.serve))
	t.Cleanup(g.Server.CloseClientConnections)
	return g
}

func (g *game) url() string { return "ws" + strings.TrimPrefix(g.URL, "http") }

func (g *game) serve(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") == "" {
		fmt.Fprint(w, "a page of the game's")
		return
	}
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return
	}
	defer c.CloseNow()
	j := &join{path: r.URL.Path, head: r.Header}
	g.mu.Lock()
	g.joins = append(g.joins, j)
	g.mu.Unlock()
	go g.count(r.Context(), c)
	for {
		_, b, err := c.Read(r.Context())
		j.mu.Lock()
		if err != nil {
			j.lost = err
			j.mu.Unlock()
			return
		}
		j.heard = append(j.heard, string(b))
		j.mu.Unlock()
		if g.tick == 0 {
			c.Write(r.Context(), websocket.MessageText, b)
		}
	}
}

func (g *game) count(ctx context.Context, c *websocket.Conn) {
	if g.tick == 0 {
		return
	}
	every := time.NewTicker(g.tick)
	defer every.Stop()
	for n := 1; ; n++ {
		select {
		case <-g.stop:
			c.Write(ctx, websocket.MessageText, []byte("last word"))
			return
		case <-every.C:
			if c.Write(ctx, websocket.MessageText, fmt.Append(nil, n)) != nil {
				return
			}
		}
	}
}

// joined returns all connections that the game server has had.
func (g *game) joined() []*join {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]*join(nil), g.joins...)
}
