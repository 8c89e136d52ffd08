//go:build linux

package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/sys/unix"

	"reseat/gateway/admin"
	"reseat/gateway/handover"
	"reseat/gateway/internal/test/freeport"
	"reseat/gateway/internal/test/testcert"
	"reseat/gateway/session"
)

var (
	killRounds  = flag.Int("kill-rounds", 12, "upgrades during which a process is killed")
	stopRounds  = flag.Int("stop-rounds", 4, "upgrades during which a process is stopped for a while")
	killPlayers = flag.Int("kill-players", 4, "players in each of them")
)

// patience bounds each wait, so that a test ends. Nothing is asserted about it.
const patience = time.Minute

// A node is the program in a process of its own, and later its successors.
type node struct {
	t      *testing.T
	cmd    *exec.Cmd
	args   []string
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
	s := &stage{t: t, dir: t.TempDir(), game: &echo{slow: make(chan struct{})}}
	s.game.Server = httptest.NewServer(http.HandlerFunc(s.game.serve))
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

func (g *echo) serve(w http.ResponseWriter, r *http.Request) {
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

// spawn starts a process.
func (s *stage) spawn(more ...string) *node {
	s.t.Helper()
	n := &node{t: s.t, args: override(s.flags, more...), news: make(chan struct{}), exited: make(chan struct{}), silent: make(chan struct{})}
	n.cmd = exec.Command(s.binary, n.args...)
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
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
		syscall.Kill(-n.cmd.Process.Pid, syscall.SIGKILL) // this process and its successors
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

// until waits until try succeeds.
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
	return n.waitFor(mark, func(line map[string]any) bool {
		s, _ := line["msg"].(string)
		return slices.ContainsFunc(begins, func(b string) bool { return strings.HasPrefix(s, b) })
	})
}

// said reports whether there was a line with this message.
func (n *node) said(msg string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.ContainsFunc(n.lines, func(line map[string]any) bool { return line["msg"] == msg })
}

// waitFor waits for a line after a mark.
func (n *node) waitFor(mark int, wanted func(line map[string]any) bool) map[string]any {
	n.t.Helper()
	limit := time.After(patience)
	for {
		n.mu.Lock()
		for _, line := range n.lines[mark:] {
			if wanted(line) {
				n.mu.Unlock()
				return line
			}
		}
		mark = len(n.lines)
		news := n.news
		n.mu.Unlock()
		select {
		case <-news:
		case <-limit:
			n.t.Fatal("the line that the test waits for does not come")
		}
	}
}

// ask keeps no connections, which would count as descriptors.
var ask = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func (n *node) status() (u admin.Upgrade) {
	n.t.Helper()
	resp, err := ask.Get(n.admin + "/api/v1/upgrade")
	if err != nil {
		n.t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&u); err != nil {
		n.t.Fatal(err)
	}
	return u
}

// results are the upgrades by result, of the metrics.
func (n *node) results() map[string]float64 {
	n.t.Helper()
	return n.metrics("reseat_upgrades_total")
}

// metric is a metric's value with this label.
func (n *node) metric(name, label string) float64 {
	n.t.Helper()
	return n.metrics(name)[label]
}

// metrics are a metric's values by label.
func (n *node) metrics(name string) map[string]float64 {
	n.t.Helper()
	resp, err := ask.Get(n.admin + "/metrics")
	if err != nil {
		n.t.Fatal(err)
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		n.t.Fatal(err)
	}
	all := map[string]float64{}
	for _, m := range families[name].GetMetric() {
		all[m.Label[0].GetValue()] = m.Counter.GetValue()
	}
	return all
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
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		n := descriptors(t, pid)
		if n <= most {
			return
		}
		if time.Now().After(end) {
			list, _ := exec.Command("ls", "-l", fmt.Sprintf("/proc/%d/fd", pid)).Output()
			t.Fatalf("%d descriptors, want at most %d\n%s", n, most, list)
		}
	}
}

// Players send numbered messages, and each waits for its echo before the next: a
// message that is lost, repeated or out of order is noticed at once.
type players struct {
	t     *testing.T
	list  []*lockstep
	ended sync.WaitGroup
}

type lockstep struct {
	conn  *websocket.Conn
	pause time.Duration // between an echo and the next message
	count atomic.Int64  // echoes received
	moved atomic.Bool   // the client was asked to move
	err   atomic.Pointer[error]
}

// play connects n players, every other one resumable.
func (s *stage) play(n *node, count int) *players {
	s.t.Helper()
	p := &players{t: s.t}
	ctx, stop := context.WithCancel(context.Background())
	s.t.Cleanup(func() {
		stop()
		p.ended.Wait()
	})
	for i := range count {
		var o websocket.DialOptions
		if i%2 == 1 {
			o.Subprotocols = []string{"reseat.v1"}
		}
		scheme := "ws"
		if s.pair != nil {
			scheme = "wss"
			o.HTTPClient = &http.Client{Transport: &http.Transport{TLSClientConfig: s.pair.Client(), DisableKeepAlives: true}}
		}
		c, _, err := websocket.Dial(s.t.Context(), scheme+"://"+n.addr+"/match/7", &o)
		if err != nil {
			s.t.Fatal(err)
		}
		one := &lockstep{conn: c, pause: max(2*time.Millisecond, time.Duration(count)*100*time.Microsecond)}
		p.list = append(p.list, one)
		p.ended.Go(func() {
			err := one.run(ctx)
			one.err.Store(&err)
			c.CloseNow()
		})
	}
	p.goOn()
	return p
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
		time.Sleep(l.pause)
	}
}

var errMixedUp = errors.New("lost, repeated or out of order")

// goOn asserts that every player still plays.
func (p *players) goOn() {
	p.t.Helper()
	before := make([]int64, len(p.list))
	for i, l := range p.list {
		before[i] = l.count.Load()
	}
	for i, l := range p.list {
		from := before[i]
		for end := time.Now().Add(patience); l.count.Load() < from+3; time.Sleep(time.Millisecond) {
			if err := l.err.Load(); err != nil {
				p.t.Fatalf("player %d: %v", i, *err)
			}
			if time.Now().After(end) {
				p.t.Fatalf("player %d: no echo after %d", i, from)
			}
		}
	}
}

// noticed waits until every player's connection has ended, and asserts that nothing was mixed up
// before.
func (p *players) noticed() {
	p.t.Helper()
	for i, l := range p.list {
		for end := time.Now().Add(patience); l.err.Load() == nil; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				p.t.Fatalf("player %d is still connected to nobody", i)
			}
		}
		if err := *l.err.Load(); errors.Is(err, errMixedUp) {
			p.t.Errorf("player %d: %v", i, err)
		}
	}
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
	if err := f.SendJSON(handover.Hello, nil, hello{Version: "v9", Formats: formats, PID: 1}); err != nil {
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
	for {
		m, err := f.Receive()
		if err != nil {
			f.t.Fatal(err)
		}
		m.Close()
		switch m.Kind {
		case k:
			return
		case handover.Abort:
			f.t.Fatalf("aborted: %s", m.Body)
		case handover.Sessions:
			f.say(handover.Ack)
		}
	}
}

// wantAbort asserts that the process aborts, and says why.
func (f *fake) wantAbort(why string) {
	f.t.Helper()
	for {
		m, err := f.Receive()
		if err != nil {
			f.t.Fatalf("%v, want an Abort", err)
		}
		m.Close()
		if m.Kind == handover.Abort {
			if !strings.Contains(string(m.Body), why) {
				f.t.Errorf("aborted with %q, want %q", m.Body, why)
			}
			return
		}
	}
}

// Whatever a successor does, the process goes on as if nothing had happened until it commits.
func TestUpgradeThatFailsChangesNothing(t *testing.T) {
	s := newStage(t)
	n := s.start("--upgrade-socket="+s.socket, "--upgrade-timeout=4s")
	p := s.play(n, 6)
	pid := n.cmd.Process.Pid
	most := descriptors(t, pid)
	want := map[string]float64{upgradeOK: 0, upgradeRefused: 0, upgradeAborted: 0}
	if u := n.status(); u.State != upgradeNone {
		t.Errorf("state %q before any upgrade", u.State)
	}
	for _, try := range []struct {
		name string
		do   func(f *fake)
		want string // of the error in GET /upgrade
	}{
		{"leaves at once", func(f *fake) { f.Close() }, "start: the new process did not come up: it has exited"},
		{"never says hello", func(f *fake) { f.wantAbort("timeout") }, "start: the new process did not come up: timeout"},
		{"speaks HTTP", func(f *fake) {
			fd, err := f.Duplicate()
			if err == nil {
				defer unix.Close(fd)
				_, err = unix.Write(fd, []byte("GET / HTTP/1.1\r\n\r\n"))
			}
			if err != nil {
				f.t.Fatal(err)
			}
			f.wantAbort("does not speak this protocol")
		}, "does not speak this protocol"},
		{"says something else", func(f *fake) {
			f.say(handover.Ready)
			f.wantAbort(fmt.Sprintf("message %d, want %d", handover.Ready, handover.Hello))
		}, "start: "},
		{"reads another format", func(f *fake) { f.hello(99); f.wantAbort("reads no format that this one writes") }, "start: the new process (v9) reads no format"},
		{"exits after HELLO", func(f *fake) { f.offered(); f.Close() }, "offer: the new process did not accept: it has exited"},
		{"hangs after HELLO", func(f *fake) { f.offered(); f.wantAbort("timeout") }, "offer: the new process did not accept: timeout"},
		{"refuses the offer", func(f *fake) { f.offered(); f.SendAbort(errors.New("too small a limit")) }, "offer: the new process did not accept: too small a limit"},
		{"exits after ACCEPT", func(f *fake) { f.accepted(); f.Close() }, ""},
		{"exits between the sessions", func(f *fake) {
			f.accepted()
			f.until(handover.Events)
			m, err := f.Expect(handover.Sessions)
			if err != nil {
				f.t.Fatal(err)
			}
			m.Close()
			f.Close()
		}, ": it has exited"},
		{"hangs between the sessions", func(f *fake) {
			f.accepted()
			f.until(handover.Events)
			m, err := f.Expect(handover.Sessions)
			if err != nil {
				f.t.Fatal(err)
			}
			defer m.Close()
			f.wantAbort("timeout")
		}, "ready: the new process could not take over: timeout"},
		{"is ready too soon", func(f *fake) {
			f.accepted()
			f.say(handover.Ready)
			f.wantAbort(fmt.Sprintf("message %d, want %d", handover.Ready, handover.Ack))
		}, "ready: the new process could not take over"},
		{"exits before READY", func(f *fake) { f.rested(); f.Close() }, "ready: the new process could not take over: it has exited"},
		{"hangs before READY", func(f *fake) { f.rested(); f.wantAbort("timeout") }, "ready: the new process could not take over: timeout"},
		{"aborts before READY", func(f *fake) { f.rested(); f.SendAbort(errors.New("no route")) }, "ready: the new process could not take over: no route"},
		{"exits between READY and COMMIT", func(f *fake) {
			f.rested()
			fd, err := f.Duplicate()
			if err == nil {
				defer unix.Close(fd)
				err = unix.Shutdown(fd, unix.SHUT_RD) // COMMIT cannot be sent any more
			}
			if err != nil {
				f.t.Fatal(err)
			}
			f.say(handover.Ready)
			f.Close()
		}, "commit: the new process left: it has exited"},
	} {
		t.Run(try.name, func(t *testing.T) {
			mark := n.mark()
			f := s.fake()
			f.t = t
			try.do(f)
			n.wait(mark, "upgrade.aborted")
			want[upgradeAborted]++
			f.Close()
			p.goOn()
			if u := n.status(); u.State != upgradeAborted || !strings.Contains(u.Error, try.want) {
				t.Errorf("%+v, want aborted with %q", u, try.want)
			}
			if got := n.results(); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("results %v, want %v", got, want)
			}
			settled(t, pid, most)
		})
	}
	t.Run("second one at once", func(t *testing.T) {
		mark := n.mark()
		first := s.fake()
		first.offered()
		second := s.fake()
		second.t = t
		second.wantAbort("another upgrade is under way")
		n.wait(mark, "upgrade.refused")
		if u := n.status(); u.State != upgradeRunning {
			t.Errorf("state %q", u.State)
		}
		first.Close()
		n.wait(mark, "upgrade.aborted")
		want[upgradeRefused]++
		want[upgradeAborted]++
		if got := n.results(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("results %v, want %v", got, want)
		}
		second.Close()
		p.goOn()
		settled(t, pid, most)
	})
	t.Run("and then one succeeds", func(t *testing.T) {
		next := s.start("--takeover="+s.socket, "--upgrade-socket="+s.socket)
		<-n.exited
		p.goOn()
		want[upgradeOK]++
		if got := next.results(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("results %v, want %v", got, want)
		}
		if u := next.status(); u.State != upgradeOK || u.Sessions.Moved != 6 {
			t.Errorf("%+v, want 6 that moved", u)
		}
		if got := s.game.joined.Load(); got != 6 {
			t.Errorf("the game server had %d connections, want 6", got)
		}
		settled(t, next.cmd.Process.Pid, most+1)
	})
}

// upgrade upgrades by SIGUSR2, and returns the new process's number.
func (n *node) upgrade(pid int) int {
	n.t.Helper()
	for {
		mark := n.mark()
		syscall.Kill(pid, syscall.SIGUSR2)
		line := n.wait(mark, "upgrade.begun", "upgrade.refused")
		if line["msg"] == "upgrade.refused" { // the one before is not quite done
			time.Sleep(20 * time.Millisecond)
			continue
		}
		n.wait(mark, "listen.clients")
		n.wait(mark, "upgrade.done")
		return int(line["pid"].(float64))
	}
}

func TestManyUpgradesLeakNothing(t *testing.T) {
	s := newStage(t)
	n := s.start()
	p := s.play(n, 6)
	pid := n.upgrade(n.cmd.Process.Pid)
	most, memory := descriptors(t, pid), resident(t, pid)
	for range 9 {
		old := pid
		pid = n.upgrade(pid)
		p.goOn()
		if err := syscall.Kill(old, 0); err == nil && !gone(old) {
			t.Errorf("process %d still runs", old)
		}
	}
	settled(t, pid, most)
	if got := resident(t, pid); got > 2*memory {
		t.Errorf("%d bytes are resident, and %d were after the first upgrade", got, memory)
	}
	if got := n.results(); got[upgradeOK] != 10 || got[upgradeAborted] != 0 {
		t.Errorf("%v", got)
	}
	if got := s.game.joined.Load(); got != 6 {
		t.Errorf("the game server had %d connections, want 6", got)
	}
}

// gone reports whether a process has exited, if nobody has waited for it. It waits for that.
func gone(pid int) bool {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(b), ") Z ") {
			return true
		}
	}
	return false
}

// resident is the memory of a process.
func resident(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	var size, pages int
	fmt.Sscan(string(b), &size, &pages)
	return pages * os.Getpagesize()
}

func TestSIGTERMDuringUpgradeAbortsItAndDrains(t *testing.T) {
	for name, at := range map[string]func(*fake){"before the freeze": (*fake).offered, "while frozen": (*fake).rested} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			n := s.start("--upgrade-socket=" + s.socket)
			p := s.play(n, 4)
			f := s.fake()
			at(f)
			n.cmd.Process.Signal(syscall.SIGTERM)
			f.wantAbort("")
			<-n.exited
			if code := n.cmd.ProcessState.ExitCode(); code != 0 {
				t.Errorf("exit status %d", code)
			}
			n.wait(0, "upgrade.aborted")
			n.wait(0, "shutdown.finished")
			p.noticed()
		})
	}
}

func TestSIGUSR2WhileDrainingIsRefused(t *testing.T) {
	s := newStage(t)
	n := s.start("--drain=1h")
	p := s.play(n, 2)
	resp, err := ask.Post(n.admin+"/api/v1/drain", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	n.cmd.Process.Signal(syscall.SIGUSR2)
	if line := n.wait(0, "upgrade.refused"); line["err"] != "the gateway is draining" {
		t.Errorf("%v", line)
	}
	if u := n.status(); u.State != upgradeRefused || u.Error != "the gateway is draining" {
		t.Errorf("%+v", u)
	}
	p.goOn()
}

func TestNewProcessWithInvalidSettingsChangesNothing(t *testing.T) {
	s := newStage(t)
	config := writeFile(t, filepath.Join(s.dir, "config"), "max-sessions = 100\n")
	n := s.start("--config=" + config)
	p := s.play(n, 2)
	most := descriptors(t, n.cmd.Process.Pid)
	writeFile(t, config, "max-sessions = many\n")
	n.cmd.Process.Signal(syscall.SIGUSR2)
	n.wait(0, "reseat: ")
	if line := n.wait(0, "upgrade.aborted"); line["step"] != "start" || !strings.HasSuffix(line["err"].(string), "it has exited") {
		t.Errorf("%v", line)
	}
	p.goOn()
	settled(t, n.cmd.Process.Pid, most)
	writeFile(t, config, "max-sessions = 200\n")
	n.upgrade(n.cmd.Process.Pid)
	p.goOn()
}

// systemd would take the end of the main process for the end of the unit.
func TestOldProcessExitsOnlyOnceNewOneServes(t *testing.T) {
	s := newStage(t)
	n := s.start("--upgrade-socket=" + s.socket)
	f := s.fake()
	f.rested()
	f.say(handover.Ready)
	f.until(handover.Done)
	f.SetDeadline(time.Now().Add(300 * time.Millisecond)) // without the wait it exits within 10 ms
	if m, err := f.Receive(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%+v, %v: it has exited before the new process served", m, err)
	}
	f.SetDeadline(time.Now().Add(patience))
	f.say(handover.Serving)
	<-n.exited
}

func TestTakeoverOfNobodyIsAnOrdinaryStart(t *testing.T) {
	s := newStage(t)
	n := s.start("--takeover="+s.socket, "--upgrade-socket="+s.socket)
	s.play(n, 2)
	if u := n.status(); u.State != upgradeNone {
		t.Errorf("%+v", u)
	}
}

// An older process may exit, and its channel be closed, between the moment that an offer has its
// descriptor and the moment that it is sent.
func TestOfferKeepsChannelOfProcessThatExits(t *testing.T) {
	exited, other, err := handover.Pair()
	if err != nil {
		t.Fatal(err)
	}
	other.Close()
	exited.Close()
	ch, far, err := handover.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	fds := (&upgrader{older: []*handover.Conn{exited, ch}}).olderChannels()
	defer closeAll(fds)
	ch.Close()
	if len(fds) != 1 {
		t.Fatalf("%d descriptors, want 1", len(fds))
	}
	if _, err := unix.Write(fds[0], []byte("x")); err != nil {
		t.Fatal(err)
	}
	var b [1]byte
	if n, err := unix.Read(int(far.Fd()), b[:]); n != 1 || b[0] != 'x' {
		t.Errorf("%d bytes, %v", n, err)
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

func TestSuccessorOfCrashedProcessServesItsSessionsOnceItHasAll(t *testing.T) {
	s := newStage(t)
	n := s.start("--upgrade-socket=" + s.socket)
	p := s.play(n, 6)
	r, next := s.between(n)
	r.until(handover.Ready)
	n.cmd.Process.Kill()
	<-n.exited
	r.new.Close()
	next.wait(0, "upgrade.predecessor_crashed")
	p.goOn()
	if u := next.status(); u.State != upgradeOK || u.Sessions.Moved != 6 || u.FreezeMS <= 0 || u.FreezeMS > patience.Seconds()*1000 {
		t.Errorf("%+v", u)
	}
	s.play(next, 2)
}

// stop stops a process, and waits until it stands still.
func stop(t *testing.T, pid int) {
	t.Helper()
	syscall.Kill(pid, syscall.SIGSTOP)
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || time.Now().After(end) {
			t.Fatalf("the process does not stop: %s, %v", b, err)
		}
		if strings.Contains(string(b), ") T ") {
			return
		}
	}
}

// A process that is stopped while its successor waits for COMMIT must not find a second owner
// when it continues. While it is stopped nobody can know whether it will.
func TestSuccessorOfStoppedProcessWaits(t *testing.T) {
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprintf("killed=%v", killed), func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			n := s.start("--upgrade-socket=" + s.socket)
			p := s.play(n, 6)
			r, next := s.between(n)
			r.until(handover.Ready)
			stop(t, n.cmd.Process.Pid)
			if err := r.old.Send(handover.Ready, nil); err != nil {
				t.Fatal(err)
			}
			if line := next.wait(0, "upgrade.waiting"); line["pid"] != float64(n.cmd.Process.Pid) {
				t.Errorf("%v, want the process %d", line, n.cmd.Process.Pid)
			}
			if killed {
				n.cmd.Process.Kill()
				<-n.exited
				r.new.Close()
				next.wait(0, "upgrade.predecessor_crashed")
			} else {
				n.cmd.Process.Signal(syscall.SIGCONT)
				n.wait(0, "upgrade.aborted")
				<-next.exited
				if code := next.cmd.ProcessState.ExitCode(); code != 1 {
					t.Errorf("exit status %d, want 1", code)
				}
			}
			p.goOn()
			s.play(n, 1)
			if got := s.game.joined.Load(); got != 7 {
				t.Errorf("the game server had %d connections, want 7", got)
			}
		})
	}
}

// It has not got all, so it begins anew, and has nothing open of the old sessions.
func TestSuccessorOfProcessThatCrashedTooSoonStartsAnew(t *testing.T) {
	for name, at := range map[string]handover.Kind{"before the offer": handover.Offer, "before ACCEPT": handover.Accept, "before the sessions": handover.Sessions, "before the rest": handover.Rest} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			n := s.start("--upgrade-socket=" + s.socket)
			p := s.play(n, 6)
			r, next := s.between(n)
			r.until(at)
			n.cmd.Process.Kill()
			<-n.exited
			r.old.Close()
			r.new.Close()
			next.wait(0, "upgrade.failed")
			next.wait(0, "listen.clients")
			p.noticed()
			s.play(next, 2)
			if u := next.status(); u.State != upgradeNone {
				t.Errorf("%+v", u)
			}
		})
	}
}

func TestAbortedSuccessorExitsWithOneLine(t *testing.T) {
	for name, at := range map[string]handover.Kind{"offer": handover.Offer, "sessions": handover.Sessions, "commit": handover.Commit} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			n := s.start("--upgrade-socket=" + s.socket)
			p := s.play(n, 2)
			r, next := s.between(n)
			if at == handover.Commit { // which only the older process may send
				r.until(handover.Ready)
			} else {
				r.until(at)
			}
			r.new.SendAbort(errors.New("changed my mind"))
			r.old.SendAbort(errors.New("changed its mind"))
			<-next.exited
			<-next.silent
			if code := next.cmd.ProcessState.ExitCode(); code != 1 {
				t.Errorf("exit status %d, want 1", code)
			}
			next.mu.Lock()
			defer next.mu.Unlock()
			var said []string
			for _, line := range next.lines {
				if s := line["msg"].(string); strings.HasPrefix(s, "reseat: ") {
					said = append(said, s)
				}
			}
			if len(said) != 1 || !strings.Contains(said[0], "changed my mind") {
				t.Errorf("%q, want one line with the reason", said)
			}
			p.goOn()
		})
	}
}

// Whichever process is killed, at any moment of an upgrade, there is one owner afterwards. If
// the older process is killed, its successor has all sessions if it is READY, and otherwise
// begins anew. If the successor is killed before COMMIT, the older process goes on. A message is
// never lost unnoticed, and never comes twice.
func TestKilledProcessLosesNothingUnnoticed(t *testing.T) {
	ended := make(map[string]int)
	for i := range *killRounds {
		if !t.Run(fmt.Sprint(i), func(t *testing.T) { ended[killOne(t, i)]++ }) {
			break
		}
	}
	for _, how := range slices.Sorted(maps.Keys(ended)) {
		t.Logf("%4d %s", ended[how], how)
	}
}

// A moment is a random moment of an upgrade, with the process to which something happens.
type moment struct {
	s      *stage
	n      *node
	p      *players
	driver string
	after  string // this line of the log, or the successor's start
	old    bool   // it happens to the older process
	child  int    // the successor
}

func momentOfUpgrade(t *testing.T, round int, more ...string) moment {
	m := moment{s: newStage(t), driver: []string{"net", "poll"}[round%2], old: round/2%2 == 0, after: []string{"", "upgrade.begun", "upgrade.frozen"}[round/4%3]}
	m.n = m.s.start(append(more, "--driver="+m.driver)...)
	m.p = m.s.play(m.n, *killPlayers)
	m.n.cmd.Process.Signal(syscall.SIGUSR2)
	for end := time.Now().Add(patience); m.child == 0; time.Sleep(100 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatal("no successor")
		}
		m.child = childOf(m.n.cmd.Process.Pid)
	}
	if m.after == "" {
		time.Sleep(rand.N(200 * time.Millisecond)) // most of it is the successor's start
	} else {
		m.n.wait(0, m.after)
		time.Sleep(rand.N(time.Millisecond << rand.N(6)))
	}
	return m
}

// killOne kills one process during an upgrade, and reports how the upgrade ended.
func killOne(t *testing.T, round int) (how string) {
	m := momentOfUpgrade(t, round)
	s, n, p := m.s, m.n, m.p
	if m.old {
		how = "old killed: "
		n.cmd.Process.Kill()
		<-n.exited
		switch line := n.waitFor(0, func(line map[string]any) bool {
			return line["msg"] == "upgrade.failed" || line["msg"] == "upgrade.committed" && line["pid"] != nil
		}); line["msg"] {
		case "upgrade.committed":
			how += "the successor has the sessions"
			if n.said("upgrade.predecessor_crashed") {
				how += ", without COMMIT"
			}
			p.goOn()
		default:
			how += "the successor begins anew"
			p.noticed()
			served := 0
			n.waitFor(0, func(line map[string]any) bool {
				if line["msg"] == "listen.clients" {
					served++
				}
				return served == 2
			})
		}
		s.play(n, 1)
	} else {
		how = "successor killed: "
		syscall.Kill(m.child, syscall.SIGKILL)
		switch line := n.waitFor(0, func(line map[string]any) bool {
			return line["msg"] == "upgrade.aborted" || line["msg"] == "upgrade.committed" && line["pid"] == nil
		}); line["msg"] {
		case "upgrade.aborted":
			how += "the older process goes on, at " + line["step"].(string)
			p.goOn()
			if u := n.status(); u.State != upgradeAborted {
				t.Errorf("%+v", u)
			}
			s.play(n, 1)
		default:
			how += "a crash after COMMIT"
			p.noticed()
			<-n.exited
		}
	}
	if joined := s.game.joined.Load(); joined < int64(*killPlayers) || joined > int64(*killPlayers)+1 {
		t.Errorf("%d connections to the game server by %d players", joined, *killPlayers+1)
	}
	t.Logf("round %d, %s driver, after %q: %s", round, m.driver, m.after, how)
	return m.driver + ": " + how
}

// Whichever process is stopped, at any moment of an upgrade, and however long: once it
// continues there is one owner, and the players play on.
func TestStoppedProcessLosesNothing(t *testing.T) {
	for i := range *stopRounds {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			var timeout []string
			if i/4%3 == 0 { // the upgrade may be aborted before it has begun
				timeout = []string{"--upgrade-timeout=2s"}
			}
			m := momentOfUpgrade(t, i, timeout...)
			pid, what := m.child, "successor"
			if m.old {
				pid, what = m.n.cmd.Process.Pid, "older process"
			}
			stopped := rand.N(freezeLimit * 2)
			syscall.Kill(pid, syscall.SIGSTOP)
			time.Sleep(stopped)
			syscall.Kill(pid, syscall.SIGCONT)
			line := m.n.waitFor(0, func(line map[string]any) bool {
				return line["msg"] == "upgrade.aborted" || line["msg"] == "upgrade.done"
			})
			m.p.goOn()
			if line["msg"] == "upgrade.aborted" {
				if u := m.n.status(); u.State != upgradeAborted {
					t.Errorf("%+v", u)
				}
				for end := time.Now().Add(patience); childOf(m.n.cmd.Process.Pid) != 0; time.Sleep(time.Millisecond) {
					if time.Now().After(end) {
						t.Fatal("the successor does not exit")
					}
				}
			} else {
				<-m.n.exited
			}
			m.s.play(m.n, 1)
			m.p.goOn()
			if joined := m.s.game.joined.Load(); joined != int64(*killPlayers)+1 {
				t.Errorf("%d connections to the game server by %d players", joined, *killPlayers+1)
			}
			t.Logf("round %d, %s driver, %s stopped for %s after %q: %v", i, m.driver, what, stopped, m.after, line)
		})
	}
}

// childOf returns the successor that a process has started, 0 if there is none yet.
func childOf(pid int) int {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		b, _ := os.ReadFile(list)
		for _, child := range strings.Fields(string(b)) {
			// Package os forks for other reasons as well.
			if environ, _ := os.ReadFile("/proc/" + child + "/environ"); bytes.Contains(environ, []byte(upgradeEnv+"=")) {
				n, _ := strconv.Atoi(child)
				return n
			}
		}
	}
	return 0
}
