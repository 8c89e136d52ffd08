//go:build linux

package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"reseat/gateway/handover"
	"reseat/gateway/internal/test/freeport"
	"reseat/gateway/internal/test/testcert"
	"reseat/gateway/session"
	"reseat/gateway/upgrade"
)

// patience bounds each wait, so that a test ends. Nothing is asserted about it.
const patience = time.Minute

// until waits until try reports nothing wrong, and fails with what it reported last.
func until(t *testing.T, try func() error) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// reaches is until a counter is at least want.
func reaches(t *testing.T, what string, n *atomic.Int64, want int) {
	t.Helper()
	until(t, func() error {
		if got := n.Load(); got < int64(want) {
			return fmt.Errorf("%s: %d, want %d", what, got, want)
		}
		return nil
	})
}

// A node is the program in a process of its own, and later its successors.
type node struct {
	t      *testing.T
	cmd    *exec.Cmd
	addr   string // where clients connect
	admin  string
	exited chan struct{}
	silent chan struct{} // closed when it, and all that it started, can say nothing more

	mu    sync.Mutex
	lines []map[string]any
	news  chan struct{} // closed at the next line
}

// A stage is what the nodes of a test have in common: a game server, addresses and files.
type stage struct {
	t      *testing.T
	dir    string
	binary string
	game   *echo
	flags  []string
	socket string
	pair   *testcert.Pair // clients connect over TLS; nil: plainly
	attr   syscall.SysProcAttr
}

// An echo is a game server that answers each message with the same, and counts its connections.
type echo struct {
	*httptest.Server
	joined atomic.Int64
	dials  atomic.Int64  // at /wait, which are answered when slow is closed
	left   atomic.Int64  // connections that have ended
	away   atomic.Int64  // connections that were closed with 1001
	slow   chan struct{} // answers to ordinary requests end when it is closed
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{t: t, dir: t.TempDir(), game: &echo{slow: make(chan struct{})}, attr: syscall.SysProcAttr{Setpgid: true}}
	s.game.Server = httptest.NewServer(s.game)
	t.Cleanup(func() {
		s.game.CloseClientConnections()
		s.game.Close()
	})
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s.binary, s.socket = filepath.Join(s.dir, ownProcess), filepath.Join(s.dir, "upgrade.sock")
	if err := os.Symlink(own, s.binary); err != nil {
		t.Fatal(err)
	}
	s.flags = []string{
		"--upstream=ws" + strings.TrimPrefix(s.game.URL, "http"), "--listen=" + freeport.Addr(), "--admin=" + freeport.Addr(),
		"--log-format=json", "--drain=0s", "--upgrade-timeout=" + patience.String(), "--grace=60s", "--heartbeat=30s",
	}
	return s
}

// secure has clients connect over TLS.
func (s *stage) secure() {
	s.pair = testcert.New(s.t, "localhost", "127.0.0.1")
	cert, key := s.pair.Write(s.dir)
	s.flags = append(s.flags, "--tls-cert="+cert, "--tls-key="+key)
}

func (g *echo) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") == "" {
		fmt.Fprintln(w, "begin")
		http.NewResponseController(w).Flush()
		select {
		case <-g.slow:
			fmt.Fprintln(w, "end")
		case <-r.Context().Done():
		}
		return
	}
	if strings.HasSuffix(r.URL.Path, "/wait") { // a dial under way
		g.dials.Add(1)
		<-g.slow
	}
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return
	}
	defer c.CloseNow()
	g.joined.Add(1)
	defer g.left.Add(1)
	for {
		kind, b, err := c.Read(r.Context())
		if websocket.CloseStatus(err) == websocket.StatusGoingAway {
			g.away.Add(1)
		}
		if err != nil || c.Write(r.Context(), kind, b) != nil {
			return
		}
	}
}

// wantJoined asserts how many connections the game server has had.
func (s *stage) wantJoined(want int64) {
	s.t.Helper()
	if got := s.game.joined.Load(); got != want {
		s.t.Errorf("the game server had %d connections, want %d", got, want)
	}
}

// spawn starts a process.
func (s *stage) spawn(more ...string) *node {
	s.t.Helper()
	n := &node{t: s.t, news: make(chan struct{}), exited: make(chan struct{}), silent: make(chan struct{})}
	n.cmd = exec.Command(s.binary, override(s.flags, more...)...)
	attr := s.attr
	n.cmd.SysProcAttr = &attr
	r, w, err := os.Pipe() // StderrPipe would be closed with the first process
	if err != nil {
		s.t.Fatal(err)
	}
	n.cmd.Stderr = w
	if err := n.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	w.Close()
	go n.read(r)
	go func() {
		n.cmd.Wait()
		close(n.exited)
	}()
	s.t.Cleanup(func() {
		syscall.Kill(-n.pid(), syscall.SIGKILL) // this process and its successors
		<-n.exited
		r.Close()
		if s.t.Failed() {
			n.mu.Lock()
			defer n.mu.Unlock()
			for _, line := range n.lines {
				s.t.Log(line)
			}
		}
	})
	return n
}

// start starts a process, and waits until it serves.
func (s *stage) start(more ...string) *node {
	s.t.Helper()
	n := s.spawn(more...)
	n.wait(0, "listen.clients")
	n.addr, n.admin = strings.TrimPrefix(s.flags[1], "--listen="), "http://"+strings.TrimPrefix(s.flags[2], "--admin=")
	until(s.t, func() error {
		resp, err := ask.Get(n.admin + "/readyz")
		if err == nil {
			resp.Body.Close()
		}
		return err
	})
	if slices.Contains(more, "--upgrade-socket="+s.socket) {
		until(s.t, func() error { return handover.Probe(s.socket) })
	}
	return n
}

// pid is that of the first process.
func (n *node) pid() int { return n.cmd.Process.Pid }

func (n *node) read(r io.Reader) {
	defer close(n.silent)
	for lines := bufio.NewScanner(r); lines.Scan(); {
		line := map[string]any{}
		if json.Unmarshal(lines.Bytes(), &line) != nil {
			line["msg"] = lines.Text()
		}
		n.mu.Lock()
		n.lines = append(n.lines, line)
		close(n.news)
		n.news = make(chan struct{})
		n.mu.Unlock()
	}
}

// mark is the number of lines so far.
func (n *node) mark() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.lines)
}

// wait waits for a line after a mark whose message begins with one of these.
func (n *node) wait(mark int, begins ...string) map[string]any {
	n.t.Helper()
	limit := time.After(patience)
	for {
		n.mu.Lock()
		lines, news := n.lines[mark:], n.news
		n.mu.Unlock()
		for _, line := range lines {
			s, _ := line["msg"].(string)
			if slices.ContainsFunc(begins, func(b string) bool { return strings.HasPrefix(s, b) }) {
				return line
			}
		}
		mark += len(lines)
		select {
		case <-news:
		case <-limit:
			n.t.Fatalf("no line %q came", begins)
		}
	}
}

// wantExit waits until the process has exited with a status.
func (n *node) wantExit(status int) {
	n.t.Helper()
	<-n.exited
	if code := n.cmd.ProcessState.ExitCode(); code != status {
		n.t.Errorf("exit status %d, want %d", code, status)
	}
}

// ask keeps no connections, which would count as descriptors.
var ask = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func (n *node) get(path string) io.Reader {
	n.t.Helper()
	resp, err := ask.Get(n.admin + path)
	if err != nil {
		n.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		n.t.Fatal(err)
	}
	return bytes.NewReader(b)
}

// drain begins to drain.
func (n *node) drain() {
	n.t.Helper()
	resp, err := ask.Post(n.admin+"/api/v1/drain", "", nil)
	if err != nil {
		n.t.Fatal(err)
	}
	resp.Body.Close()
}

// wantStatus checks what GET /upgrade says, and returns it.
func (n *node) wantStatus(state, err string) (u upgrade.Status) {
	n.t.Helper()
	if decode := json.NewDecoder(n.get("/api/v1/upgrade")).Decode(&u); decode != nil || u.State != state || !strings.Contains(u.Error, err) {
		n.t.Errorf("%+v, %v; want state %q and the error %q", u, decode, state, err)
	}
	return u
}

// metrics are a metric's values by label.
func (n *node) metrics(name string) map[string]float64 {
	n.t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(n.get("/metrics"))
	if err != nil {
		n.t.Fatal(err)
	}
	all := map[string]float64{}
	for _, m := range families[name].GetMetric() {
		all[m.Label[0].GetValue()] = m.Counter.GetValue()
	}
	return all
}

// wantResults checks the upgrades by result, of the metrics.
func (n *node) wantResults(want map[string]float64) {
	n.t.Helper()
	if got := n.metrics("reseat_upgrades_total"); fmt.Sprint(got) != fmt.Sprint(want) {
		n.t.Errorf("results %v, want %v", got, want)
	}
}

// descriptors counts those of a process.
func descriptors(t *testing.T, pid int) int {
	t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// settled waits until a process has at most this many descriptors, and again as few.
func settled(t *testing.T, pid, most int) {
	t.Helper()
	until(t, func() error {
		if n := descriptors(t, pid); n > most {
			return fmt.Errorf("%d descriptors, want at most %d", n, most)
		}
		return nil
	})
}

// gone waits until a process has exited; nobody may have waited for it.
func gone(t *testing.T, pid int) {
	t.Helper()
	until(t, func() error {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err == nil && !strings.Contains(string(b), ") Z ") {
			return fmt.Errorf("process %d still runs", pid)
		}
		return nil
	})
}

// stop stops a process, and waits until it stands still.
func stop(t *testing.T, pid int) {
	t.Helper()
	syscall.Kill(pid, syscall.SIGSTOP)
	until(t, func() error {
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err != nil || !strings.Contains(string(b), ") T ") {
			return fmt.Errorf("the process does not stop: %s, %v", b, err)
		}
		return nil
	})
}

// Players send numbered messages, and each waits for its echo before the next: a
// message that is lost, repeated or out of order is noticed at once.
type players struct {
	t     *testing.T
	list  []*lockstep
	ended sync.WaitGroup
	ctx   context.Context
}

type lockstep struct {
	conn  *websocket.Conn
	count atomic.Int64 // echoes received
	moved atomic.Bool  // the client was asked to move
	err   atomic.Pointer[error]
}

// dial opens a client's connection.
func (s *stage) dial(n *node, path string, protocols ...string) (*websocket.Conn, error) {
	o, scheme := websocket.DialOptions{Subprotocols: protocols}, "ws"
	if s.pair != nil {
		scheme = "wss"
		o.HTTPClient = &http.Client{Transport: &http.Transport{TLSClientConfig: s.pair.Client(), DisableKeepAlives: true}}
	}
	c, _, err := websocket.Dial(s.t.Context(), scheme+"://"+n.addr+path, &o)
	return c, err
}

// play connects n players, every other one resumable.
func (s *stage) play(n *node, count int) *players {
	s.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	p := &players{t: s.t, ctx: ctx}
	s.t.Cleanup(func() {
		stop()
		p.ended.Wait()
	})
	for i := range count {
		c, err := s.dial(n, "/match/7", []string{"reseat.v1"}[:i%2]...)
		if err != nil {
			s.t.Fatal(err)
		}
		p.add(c)
	}
	p.goOn()
	return p
}

func (p *players) add(c *websocket.Conn) {
	l := &lockstep{conn: c}
	p.list = append(p.list, l)
	p.ended.Go(func() {
		err := l.run(p.ctx)
		l.err.Store(&err)
		c.CloseNow()
	})
}

func (l *lockstep) run(ctx context.Context) error {
	for i := int64(0); ; i++ {
		want := fmt.Sprint("message ", i)
		if err := l.conn.Write(ctx, websocket.MessageText, []byte(want)); err != nil {
			return err
		}
		for {
			_, b, err := l.conn.Read(ctx)
			if err != nil {
				return err
			}
			if len(b) > 0 && b[0] == 0x10 { // to the client's library
				if bytes.Contains(b, []byte("move")) {
					l.moved.Store(true)
				}
				continue
			}
			if string(b) != want {
				return fmt.Errorf("%w: %q, want %q", errMixedUp, b, want)
			}
			break
		}
		l.count.Add(1)
		time.Sleep(2 * time.Millisecond) // so that many players leave the processors to the gateway
	}
}

var errMixedUp = errors.New("lost, repeated or out of order")

// goOn waits until every player has had three more echoes.
func (p *players) goOn() {
	p.t.Helper()
	before := make([]int64, len(p.list))
	for i, l := range p.list {
		before[i] = l.count.Load()
	}
	for i, l := range p.list {
		until(p.t, func() error {
			if err := l.err.Load(); err != nil {
				p.t.Fatalf("player %d: %v", i, *err)
			}
			if l.count.Load() < before[i]+3 {
				return fmt.Errorf("player %d: no echo after %d", i, before[i])
			}
			return nil
		})
	}
}

// noticed waits until every player's connection has ended, and asserts that nothing was mixed up
// before.
func (p *players) noticed() {
	p.t.Helper()
	for i, l := range p.list {
		until(p.t, func() error {
			if l.err.Load() == nil {
				return fmt.Errorf("player %d is still connected to nobody", i)
			}
			return nil
		})
		if err := *l.err.Load(); errors.Is(err, errMixedUp) {
			p.t.Errorf("player %d: %v", i, err)
		}
	}
}

// busy is how the refusal of an upgrade begins while the one before is not quite done.
const busy = "another upgrade is under way"

// upgrade upgrades by SIGUSR2, and returns the new process's number as soon as that serves: the older one may still run.
func (n *node) upgrade(pid int) (next int) {
	n.t.Helper()
	until(n.t, func() error {
		mark := n.mark()
		syscall.Kill(pid, syscall.SIGUSR2)
		line := n.wait(mark, "upgrade.begun", "upgrade.refused")
		if line["msg"] == "upgrade.begun" {
			n.wait(mark, "listen.clients")
			next = int(line["pid"].(float64))
			return nil
		}
		err := line["err"].(string)
		if !strings.HasPrefix(err, busy) && !strings.Contains(err, "still finish requests") {
			n.t.Fatal(line)
		}
		return errors.New(err) // the one before is not quite done
	})
	return next
}

// A fake is a successor that does what a test says.
type fake struct {
	*handover.Conn
	t *testing.T
}

func (s *stage) fake() *fake {
	s.t.Helper()
	ch, err := handover.Dial(s.socket)
	if err != nil {
		s.t.Fatal(err)
	}
	ch.SetDeadline(time.Now().Add(patience))
	s.t.Cleanup(func() { ch.Close() })
	return &fake{ch, s.t}
}

func (f *fake) hello(formats ...int) {
	f.t.Helper()
	if err := f.SendJSON(handover.Hello, nil, map[string]any{"Version": "v9", "Formats": formats, "PID": 1}); err != nil {
		f.t.Fatal(err)
	}
}

// offered says hello, and gets the offer.
func (f *fake) offered() {
	f.t.Helper()
	f.hello(session.Formats...)
	f.until(handover.Offer)
}

// accepted is offered, and accepts.
func (f *fake) accepted() {
	f.t.Helper()
	f.offered()
	f.say(handover.Accept)
}

// rested is accepted, and gets everything. It acknowledges each batch.
func (f *fake) rested() {
	f.t.Helper()
	f.accepted()
	f.until(handover.Rest)
}

func (f *fake) say(k handover.Kind) {
	f.t.Helper()
	if err := f.Send(k, nil); err != nil {
		f.t.Fatal(err)
	}
}

// until receives up to a message of this kind.
func (f *fake) until(k handover.Kind) {
	f.t.Helper()
	f.receive(k, true)
}

// receive receives up to a message of this kind, and returns its body.
func (f *fake) receive(k handover.Kind, acks bool) string {
	f.t.Helper()
	for {
		m, err := f.Receive()
		if err != nil {
			f.t.Fatalf("%v, want message %d", err, k)
		}
		m.Close()
		switch {
		case m.Kind == k:
			return string(m.Body)
		case m.Kind == handover.Abort:
			f.t.Fatalf("aborted: %s", m.Body)
		case m.Kind == handover.Sessions && acks:
			f.say(handover.Ack)
		}
	}
}

// wantAbort asserts that the process aborts, and says why.
func (f *fake) wantAbort(why string) {
	f.t.Helper()
	if said := f.receive(handover.Abort, false); !strings.Contains(said, why) {
		f.t.Errorf("aborted with %q, want %q", said, why)
	}
}

// A relay is between a process and its successor, and stops what a test says.
type relay struct {
	t        *testing.T
	old, new *handover.Conn
}

// between returns the relay between n and a new process.
func (s *stage) between(n *node) (*relay, *node) {
	s.t.Helper()
	path := filepath.Join(s.dir, "relay.sock")
	ln, err := handover.Listen(path, true)
	if err != nil {
		s.t.Fatal(err)
	}
	defer ln.Close()
	next := s.spawn("--takeover=" + path)
	next.addr, next.admin = n.addr, n.admin
	r := &relay{t: s.t}
	if r.new, err = ln.Accept(); err == nil {
		r.old, err = handover.Dial(s.socket)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		r.old.Close()
		r.new.Close()
	})
	return r, next
}

// until passes messages on, both ways, up to the first of this kind, which it drops. The other
// way goes on.
func (r *relay) until(k handover.Kind) {
	r.t.Helper()
	stopped := make(chan error, 2)
	for _, way := range [][2]*handover.Conn{{r.old, r.new}, {r.new, r.old}} {
		go func() {
			for {
				m, err := way[0].Receive()
				if err == nil && m.Kind != k {
					err = way[1].Send(m.Kind, m.FDs, m.Body)
				}
				m.Close()
				if err != nil || m.Kind == k {
					stopped <- err
					return
				}
			}
		}()
	}
	if err := <-stopped; err != nil {
		r.t.Fatal(err)
	}
}

// upgradeUpTo has players play at a process whose upgrade stops before a message.
func upgradeUpTo(t *testing.T, at handover.Kind, count int, more ...string) (s *stage, n *node, p *players, r *relay, next *node) {
	t.Helper()
	s = newStage(t)
	n = s.start(append(more, "--upgrade-socket="+s.socket)...)
	p = s.play(n, count)
	r, next = s.between(n)
	r.until(at)
	return s, n, p, r, next
}
