//go:build linux

package failover

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"reseat/gateway/internal/test/freeport"
	"reseat/gateway/internal/test/harness/chaos/process"
)

// A Config says what is started.
type config struct {
	bin, nats, game string // programs
	dir             string
	driver          string
	nodes, servers  int
	tick            int      // between two messages of the game to a session, in ms
	flags           []string // more of them
}

// A stage is a cluster of gateways with its NATS servers, in front of the counting game.
type stage struct {
	cfg     config
	tap     *tap
	game    *exec.Cmd
	port    string // the game's
	servers []*process.NATS
	engine  sync.Mutex // held by what happens to them
	nodes   []*node

	mu     sync.Mutex
	lines  []line
	faults []string
}

// A node is a place for a gateway. Its ports stay.
type node struct {
	number              int
	name                string
	listen, admin, peer string
	lives               int
	bad                 []string   // lines of earlier lives
	busy                sync.Mutex // held by what happens to it
	*process.Process
}

// A line is one of a gateway's log.
type line struct {
	process.Line
	node, life int
	at         time.Time
}

func newStage(ctx context.Context, cfg config) (*stage, error) {
	s := &stage{cfg: cfg}
	key := filepath.Join(cfg.dir, "key")
	if err := os.WriteFile(key, []byte(strings.Repeat("0123456789abcdef", 2)), 0o600); err != nil {
		return nil, err
	}
	s.port = fmt.Sprint(freeport.Port())
	if err := s.startGame(); err != nil {
		return nil, err
	}
	var err error
	if s.tap, err = newTap("127.0.0.1:" + s.port); err != nil {
		return nil, err
	}
	for i := range cfg.servers {
		s.servers = append(s.servers, process.NewNATS(cfg.nats, fmt.Sprint("s", i), cfg.dir, nil))
	}
	process.Join(s.servers)
	for _, n := range s.servers {
		if err := n.Start(); err != nil {
			return nil, err
		}
	}
	for i := range cfg.nodes {
		n := &node{number: i, name: fmt.Sprint("n", i), listen: freeport.Addr(), admin: freeport.Addr(), peer: freeport.Addr()}
		s.nodes = append(s.nodes, n)
		if err := s.start(n); err != nil {
			return nil, err
		}
	}
	if what := awaits(ctx, time.Minute, s.joined); what != "" {
		return nil, errors.New(what)
	}
	return s, nil
}

// startGame starts the counting game, and waits until it listens.
func (s *stage) startGame() error {
	s.game = exec.Command(s.cfg.game)
	s.game.Env = append(os.Environ(), "PORT="+s.port, "TICK_MS="+strconv.Itoa(s.cfg.tick), "WAIT_MS=15000") // a busy machine reads late
	s.game.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	log, err := os.OpenFile(filepath.Join(s.cfg.dir, "game.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	s.game.Stderr = log
	out, err := s.game.StdoutPipe()
	if err != nil {
		return err
	}
	if err := s.game.Start(); err != nil {
		return err
	}
	_, err = bufio.NewReader(out).ReadString('\n')
	return err
}

func (s *stage) killGame() {
	s.game.Process.Kill()
	s.game.Wait()
}

// start starts a gateway at its place.
func (s *stage) start(n *node) error {
	flags := append([]string{"--listen=" + n.listen, "--admin=" + n.admin, "--node-listen=" + n.peer, "--node-name=" + n.name, "--upstream=ws://" + s.tap.ln.Addr().String(),
		"--driver=" + s.driver(n), "--durable=on", "--disconnect=hard", "--grace=20s", "--heartbeat=2s", "--answer-timeout=1s", "--drain=20s", "--log-format=json",
		"--token-key-file=" + filepath.Join(s.cfg.dir, "key")}, s.cfg.flags...)
	for _, o := range s.servers {
		flags = append(flags, "--cluster=nats://"+o.Client)
	}
	var err error
	n.lives++
	life := n.lives
	if n.Process != nil {
		n.bad = append(n.bad, n.Faults()...)
	}
	n.Process, err = process.StartTold(func(l process.Line) { s.logged(n.number, life, l) }, filepath.Join(s.cfg.dir, fmt.Sprintf("%s-%d.log", n.name, n.lives)), nil, s.cfg.bin, flags...)
	return err
}

// driver is that of the configuration; "both": now one and now the other.
func (s *stage) driver(n *node) string {
	if s.cfg.driver == "both" {
		return []string{"net", "poll"}[(n.number+n.lives)%2]
	}
	return s.cfg.driver
}

func (s *stage) logged(node, life int, l process.Line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, line{l, node, life, time.Now()})
}

// said returns the lines with this message.
func (s *stage) said(msg string) (list []line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.lines {
		if l.Msg == msg {
			list = append(list, l)
		}
	}
	return list
}

// faulty returns what was wrong with the processes themselves.
func (s *stage) faulty() (list []string) {
	s.mu.Lock()
	list = append(list, s.faults...)
	s.mu.Unlock()
	for _, n := range s.nodes {
		for _, line := range append(n.bad, n.Faults()...) {
			if !strings.Contains(line, `"msg":"engine.lost"`) && !strings.Contains(line, `"msg":"cluster.not_joined"`) {
				list = append(list, "log of "+n.name+": "+line)
			}
		}
	}
	return list
}

func (s *stage) close() {
	for _, n := range s.nodes {
		if n.Process != nil {
			n.Kill()
		}
	}
	for _, n := range s.servers {
		n.Kill()
	}
	s.killGame()
	if s.tap != nil {
		s.tap.close()
	}
}

// fronts are the addresses of all gateways.
func (s *stage) fronts() (list []string) {
	for _, n := range s.nodes {
		list = append(list, n.listen)
	}
	return list
}

// metrics returns a gateway's, by name and labels.
func (n *node) metrics() map[string]float64 {
	all := map[string]float64{}
	client := http.Client{Timeout: 2 * time.Second}
	resp, err := client.Get("http://" + n.admin + "/metrics")
	if err != nil {
		return all
	}
	defer resp.Body.Close()
	for sc := bufio.NewScanner(resp.Body); sc.Scan(); {
		var name string
		var v float64
		if _, err := fmt.Sscan(sc.Text(), &name, &v); err == nil {
			all[name] = v
		}
	}
	return all
}

// joined returns which gateway does not know all others, "" if all do.
func (s *stage) joined() string {
	for _, n := range s.nodes {
		m := n.metrics()
		if up := m[`reseat_cluster_nodes{state="up"}`]; up != float64(len(s.nodes)) || m["reseat_cluster_engine_up"] != 1 {
			return fmt.Sprintf("%s knows %v living nodes, and NATS is %v", n.name, up, m["reseat_cluster_engine_up"])
		}
	}
	return ""
}

// awaits returns what is missing after the limit, "" once nothing is.
func awaits(ctx context.Context, limit time.Duration, missing func() string) (what string) {
	for until := time.Now().Add(limit); ; sleep(ctx, 50*time.Millisecond) {
		if what = missing(); what == "" || time.Now().After(until) || ctx.Err() != nil {
			return what
		}
	}
}

// A report is what the game says of a session.
type report struct {
	Session                                string
	Epoch, Received, Sent, Lost            uint64
	Sum                                    int64
	Applied                                []int64
	Connections, Refused, Repeats, Resyncs int
}

func (s *stage) reports() map[string]report {
	all := map[string]report{}
	resp, err := http.Get("http://127.0.0.1:" + s.port + "/report")
	if err != nil {
		return all
	}
	defer resp.Body.Close()
	var list struct{ Sessions []report }
	json.NewDecoder(resp.Body).Decode(&list)
	for _, r := range list.Sessions {
		all[r.Session] = r
	}
	return all
}
