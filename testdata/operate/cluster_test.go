package operate

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// natsServer is built by make, from the module that .ci/go-tools.mod names.
const natsServer = "../../bin/nats-server"

// A natsd is a running NATS server.
type natsd struct {
	t    *testing.T
	port string
	dir  string
	more []string // arguments
	cmd  *exec.Cmd
}

func startNATS(t *testing.T) *natsd {
	t.Helper()
	n := &natsd{t: t, port: freePort(t), dir: t.TempDir()}
	n.start()
	t.Cleanup(n.kill)
	return n
}

// startNATSWith starts one with a configuration, and waits until it listens.
func startNATSWith(t *testing.T, config string) *natsd {
	t.Helper()
	n := &natsd{t: t, port: freePort(t), dir: t.TempDir(), more: []string{"-c", write(t, filepath.Join(t.TempDir(), "nats.conf"), config)}}
	n.start()
	t.Cleanup(n.kill)
	eventually(t, "NATS listens", func() bool { return listens("127.0.0.1:" + n.port) })
	return n
}

func (n *natsd) url() string { return "nats://127.0.0.1:" + n.port }

func (n *natsd) start() {
	n.t.Helper()
	n.cmd = exec.Command(natsServer, "-a", "127.0.0.1", "-p", n.port, "-js", "-sd", n.dir)
	n.cmd.Args = append(n.cmd.Args, n.more...)
	if err := n.cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
}

func (n *natsd) kill() {
	n.cmd.Process.Kill()
	n.cmd.Wait()
}

// A cluster is gateways that share a game.
type cluster struct {
	*testing.T
	nats  *natsd
	game  *game
	nodes []*gateway
	flags []string // of each node, but for its name
}

func newCluster(t *testing.T, n int, flags ...string) *cluster {
	t.Helper()
	return newClusterOn(t, startNATS(t), n, flags...)
}

func newClusterOn(t *testing.T, nats *natsd, n int, flags ...string) *cluster {
	t.Helper()
	c := &cluster{T: t, nats: nats, game: newGame(t, 5*time.Millisecond)}
	key := tokenKey(t)
	c.flags = append([]string{"--upstream=" + c.game.url(), "--token-key-file=" + key, "--cluster=" + c.nats.url(), "--node-listen=127.0.0.1:0", "--log-level=debug"}, flags...)
	for i := range n {
		c.nodes = append(c.nodes, start(t, append(slices.Clone(c.flags), fmt.Sprint("--node-name=n", i))...))
	}
	for _, g := range c.nodes {
		c.wantNodes(g, "up", n)
	}
	return c
}

// wantNodes waits until a node knows so many others, and itself, in a state.
func (c *cluster) wantNodes(g *gateway, state string, n int) {
	c.Helper()
	eventually(c.T, fmt.Sprintf("%d nodes are %s", n, state), func() bool { return g.metric("reseat_cluster_nodes", state) == float64(n) })
}

// join begins a session at a node. The game counts to each player.
func (c *cluster) join(node int) *player {
	c.Helper()
	return (&player{url: c.nodes[node].url()}).join(c.T)
}

// at is where p resumes from now on.
func (p *player) at(g *gateway) *player {
	p.url = g.url()
	return p
}

// refusal resumes once, and returns the close.
func (p *player) refusal() *closing {
	p.t.Helper()
	p.conn.CloseNow()
	err := p.connect()
	c := new(closing)
	if !errors.As(err, &c) {
		p.t.Fatalf("%v, want a close", err)
	}
	return c
}

// The backend of docs/cluster.md leads each resume to the node of its session. One without a
// route, or with another node's, is passed on.
func TestProxyLeadsResumesToTheirNodesByRoute(t *testing.T) {
	c := newCluster(t, 3, "--trusted-proxy=127.0.0.1")
	_, backend, _ := strings.Cut(file(t, "cluster.md"), "```haproxy\n")
	backend, _, ok := strings.Cut(backend, "```")
	was := file(t, "deploy/haproxy-several.cfg")
	if !ok || !strings.Contains(was, "\nbackend reseat\n") {
		t.Fatal("there is no backend")
	}
	change := []string{was[strings.Index(was, "\nbackend reseat\n"):], "\n" + backend}
	for i, g := range c.nodes[1:] { // n1 and n2
		name := fmt.Sprint("server n", i+1, " ")
		change = append(change, fmt.Sprintf("%s10.0.0.%d:8080", name, i+1), name+g.addr+" port "+g.admin[strings.LastIndex(g.admin, ":")+1:])
	}
	px := haproxy("haproxy-several.cfg")(t, change...)
	forwarded := func() (n float64) {
		for _, g := range c.nodes {
			n += g.metric("reseat_forwards_total", "in")
		}
		return n
	}
	var players []*player
	for i := range 6 {
		p := c.join(1 + i%2)
		if want := fmt.Sprint("n", 1+i%2); p.route != want {
			t.Errorf("route %q, want %q", p.route, want)
		}
		p.url = px.url("/")
		players = append(players, p)
	}
	resume := func(times int) {
		t.Helper()
		for range times {
			for _, p := range players {
				p.counts(2)
				p.resume()
			}
		}
	}
	resume(10)
	if n := forwarded(); n > 0 {
		t.Errorf("%v of 60 resumes came to another node", n)
	}
	wrong := players[0]
	wrong.route = "n2" // a lie, or a mistake
	wrong.resume()
	if n := forwarded(); n != 1 || wrong.route != "n1" {
		t.Errorf("%v resumes were passed on, want that with another node's route; then %q", n, wrong.route)
	}
	for range 20 {
		wrong.counts(2)
		wrong.route = ""
		wrong.resume()
	}
	if forwarded() == 1 {
		t.Error("20 resumes without a route came to their node")
	}
	c.nodes[1].cmd.Process.Kill() // the proxy notices, and leads n1's players to n2, which knows
	eventually(t, "the proxy leads to the other node", func() bool {
		r := new(closing)
		players[2].conn.CloseNow()
		return errors.As(players[2].connect(), &r) && r.Code == 4404 && !r.Retry
	})
	players[1].resume() // of n2
	players[1].counts(2)
}

// Without NATS players play on, come back at any node, and begin new sessions. So they do at a node that begins
// meanwhile, and joins later.
func TestNATSIsNotNeededToPlay(t *testing.T) {
	c := newCluster(t, 2)
	p := c.join(0)
	p.counts(2)
	c.nats.kill()
	eventually(t, "the node knows that NATS is away", func() bool { return c.nodes[1].metric("reseat_cluster_engine_up", "") == 0 })
	p.at(c.nodes[1]).resume()
	p.counts(2)
	c.join(1).counts(2)
	late := start(t, append(slices.Clone(c.flags), "--node-name=late")...)
	alone := late.join()
	alone.counts(2)
	c.nodes[1].get("/readyz") // must be 200: or a load balancer would take out every node at once
	os.RemoveAll(c.nats.dir)  // it comes back empty
	c.nats.start()
	for _, g := range append(c.nodes, late) {
		eventually(t, "NATS is back", func() bool { return g.metric("reseat_cluster_engine_up", "") == 1 })
		c.wantNodes(g, "up", 3)
	}
	for _, q := range []*player{p, alone} {
		q.at(c.nodes[0]).resume()
		q.counts(2)
	}
}

// upgrade replaces a node's process.
func (g *gateway) upgrade() {
	g.t.Helper()
	syscall.Kill(g.cmd.Process.Pid, syscall.SIGUSR2)
	pid := int(g.says("upgrade.begun")["pid"].(float64))
	g.t.Cleanup(func() { syscall.Kill(pid, syscall.SIGKILL) })
	g.says("upgrade.committed")
}

// An upgrade keeps the node: its sessions are found at the new process, and that knows the other nodes even
// while NATS is away.
func TestUpgradeKeepsTheNode(t *testing.T) {
	c := newCluster(t, 2)
	p, through, other := c.join(0), c.join(0), c.join(1)
	through.counts(1)
	through.at(c.nodes[1]).resume()
	through.counts(2)
	other.counts(2)
	c.nats.kill()
	eventually(t, "the node knows that NATS is away", func() bool { return c.nodes[0].metric("reseat_cluster_engine_up", "") == 0 })
	c.nodes[0].upgrade()
	other.at(c.nodes[0]).resume()
	c.nats.start()
	c.wantNodes(c.nodes[1], "up", 2)
	p.counts(3)
	through.counts(3)
	p.at(c.nodes[1]).resume()
	for _, q := range []*player{p, other} {
		q.counts(3)
	}
	if n := len(c.game.joined()); n != 3 {
		t.Errorf("the game server had %d connections, want 3", n)
	}
}

// A process with another key may not join, and says so in one line.
func TestNodeWithOtherKeysDoesNotJoin(t *testing.T) {
	c := newCluster(t, 1)
	key := write(t, filepath.Join(t.TempDir(), "key"), strings.Repeat("another key here", 2))
	out, err := exec.Command(program, "--upstream="+c.game.url(), "--token-key-file="+key, "--cluster="+c.nats.url(), "--node-listen=127.0.0.1:0", "--listen=127.0.0.1:0", "--admin=off").CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(lines[len(lines)-1], "no node accepts its certificate") {
		t.Errorf("%v: %s", err, out)
	}
	c.wantNodes(c.nodes[0], "up", 1)
}

// The commands of docs/cluster.md start a cluster of three nodes.
func TestClusterIsTriedByTheCommandsOfItsPage(t *testing.T) {
	_, block, ok := strings.Cut(shBlocks(t, "Try it")[1], "make build bin/nats-server\n")
	if !ok {
		t.Fatal("the page does not build the programs")
	}
	dir := t.TempDir()
	bin, err := filepath.Abs("../../bin")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(bin, filepath.Join(dir, "bin")); err != nil {
		t.Fatal(err)
	}
	var ports [10]string
	for i, port := range tryPorts(t) {
		ports[i] = fmt.Sprint(port)
	}
	last := strings.LastIndex(block, "curl")
	block = replaced(t, block[:last], "nats-server -a 127.0.0.1", "nats-server -a 127.0.0.1 -p "+ports[9], "4222", ports[9], "/tmp/reseat-nats", filepath.Join(dir, "nats"),
		"808$i", "${clients[$i]}", "818$i", "${admins[$i]}", "828$i", "${nodes[$i]}")
	startShell(t, dir, "bash", "-c", fmt.Sprintf("clients=(x %s) admins=(x %s) nodes=(x %s)\n%s\nwait", strings.Join(ports[:3], " "), strings.Join(ports[3:6], " "), strings.Join(ports[6:9], " "), block))
	eventually(t, "three nodes are up", func() bool {
		resp, err := http.Get("http://127.0.0.1:" + ports[3] + "/api/v1/nodes")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		return err == nil && strings.Count(string(b), `"state":"up"`) == 3
	})
}

// A placed session is one in the control API of a cluster.
type placed struct{ ID, Node, State string }

// placed lists the sessions of all nodes, and the nodes that did not answer.
func (g *gateway) placed() (list []placed, missing []string) {
	g.t.Helper()
	var page struct {
		Sessions []placed
		Next     string
		Missing  []string `json:"nodes_missing"`
	}
	if err := json.Unmarshal(g.get("/api/v1/sessions?limit=1000"), &page); err != nil || page.Next != "" {
		g.t.Fatalf("%+v, %v, want all sessions on one page", page, err)
	}
	return page.Sessions, page.Missing
}

// A listener is a reader of an event stream.
type listener struct {
	t     *testing.T
	body  io.Closer
	lines *bufio.Scanner
	id    string // of the newest event
}

// listen opens the event stream, after an id if there is one.
func (g *gateway) listen(query, after string) *listener {
	g.t.Helper()
	r, err := http.NewRequest("GET", g.admin+"/api/v1/events"+query, nil)
	if err != nil {
		g.t.Fatal(err)
	}
	if after != "" {
		r.Header.Set("Last-Event-ID", after)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil || resp.StatusCode != http.StatusOK {
		g.t.Fatal(resp, err)
	}
	g.t.Cleanup(func() { resp.Body.Close() })
	return &listener{g.t, resp.Body, bufio.NewScanner(resp.Body), after}
}

func (l *listener) next() string {
	l.t.Helper()
	for l.lines.Scan() {
		if id, ok := strings.CutPrefix(l.lines.Text(), "id: "); ok {
			before, _ := strconv.ParseUint(l.id, 10, 64)
			if now, err := strconv.ParseUint(id, 10, 64); err != nil || now < before {
				l.t.Errorf("id %s after %s", id, l.id)
			}
			l.id = id
		}
		var e struct{ Type, Node, Session string }
		if data, ok := strings.CutPrefix(l.lines.Text(), "data: "); ok {
			if err := json.Unmarshal([]byte(data), &e); err != nil {
				l.t.Fatal(err)
			}
			return strings.TrimSpace(e.Type + " " + e.Node + " " + e.Session)
		}
	}
	l.t.Fatalf("the stream has ended: %v", l.lines.Err())
	return ""
}

func (l *listener) want(events ...string) {
	l.t.Helper()
	for _, want := range events {
		if got := l.next(); got != want {
			l.t.Fatalf("event %q, want %q", got, want)
		}
	}
}

// A reader of events continues at another node, and at a node after its upgrade. Once NATS was emptied it
// gets a gap.
func TestEventsContinueAtAnotherNodeAndAfterAnUpgrade(t *testing.T) {
	c := newCluster(t, 3)
	l, live := c.nodes[0].listen("", ""), c.nodes[2].listen("", "")
	created := func(node int) string {
		e := fmt.Sprintf("session.created n%d %s", node, c.join(node).session)
		live.want(e) // the next is stored after it
		return e
	}
	l.want(created(1))
	l.body.Close()
	var all []string
	for i := range 6 {
		all = append(all, created(i%3))
	}
	for _, g := range c.nodes {
		g.listen("", l.id).want(all...)
	}
	before := live.id
	c.nodes[0].upgrade()
	all = append(all, created(0), created(1))
	for _, g := range c.nodes {
		g.listen("", l.id).want(all...)
	}
	c.nodes[0].listen("", before).want(all[6:]...)
	c.nats.kill()
	os.RemoveAll(c.nats.dir)
	c.nats.start()
	for _, g := range c.nodes {
		eventually(t, "NATS is back", func() bool { return g.metric("reseat_cluster_engine_up", "") == 1 })
		c.wantNodes(g, "up", 3)
	}
	live.want("gap")
	gap := live.id
	all = []string{created(1), created(2)}
	for _, g := range c.nodes {
		g.listen("", gap).want(all...)
	}
	fresh := start(t, append(c.flags, "--node-name=n3")...)
	c.wantNodes(fresh, "up", 4)
	fresh.listen("", l.id).want(append([]string{"gap"}, all...)...)
}

// A session is changed through any node as at its own. A node that stands still has its sessions all the time:
// resumes get 4504 meanwhile, and the control API names the node as missing. Once it was killed, it is found out
// though nobody asks for its sessions: the log and the list of nodes say how many it had, and readers of events are
// notified. Its players get 4404 for good; those of other nodes notice nothing.
func TestStoppedNodeIsWaitedForAndKilledOneIsFoundOut(t *testing.T) {
	c := newCluster(t, 3)
	p, other, at := c.join(0), c.join(1), c.nodes[1]
	c.join(0)
	p.counts(2)
	other.counts(2)
	pid, path := c.nodes[0].cmd.Process.Pid, "/api/v1/sessions/"+p.session
	at.ask("PATCH", path, `{"group":"red"}`).want(t, "a change", 200, `"group":"red"`)
	c.nodes[2].ask("GET", path, "").want(t, "what was changed", 200, `"group":"red"`)
	syscall.Kill(pid, syscall.SIGSTOP)
	t.Cleanup(func() { syscall.Kill(pid, syscall.SIGCONT) })
	if r := p.at(at).refusal(); r.Code != 4504 || !r.Retry {
		t.Errorf("%+v, want 4504 with retry", r)
	}
	c.wantNodes(at, "silent", 1)
	if list, missing := at.placed(); len(list) != 1 || fmt.Sprint(missing) != "[n0]" {
		t.Errorf("%+v, without %v, want the session of n1, without n0", list, missing)
	}
	at.ask("GET", path, "").want(t, "a session of the missing node", 502, "")
	at.ask("POST", "/api/v1/groups/red/end", "").want(t, "a group without the node", 502, `["n0"]`)
	at.ask("POST", "/api/v1/nodes/n0/drain", "").want(t, "the drain of the missing node", 502, "n0 does not answer")
	syscall.Kill(pid, syscall.SIGCONT)
	p.resume()
	p.counts(5)
	for _, g := range c.nodes[1:] {
		c.wantNodes(g, "up", 3)
	}
	eventually(t, "the others know of its sessions", func() bool { return strings.Contains(string(at.get("/api/v1/nodes")), `"sessions":2`) })
	streams := []*listener{at.listen("", ""), c.nodes[2].listen("", "")}
	syscall.Kill(pid, syscall.SIGKILL)
	if r := p.at(c.nodes[2]).refusal(); r.Code != 4404 || r.Retry || r.Reason != "no_session: its node was lost" {
		t.Errorf("%+v, want 4404 for good", r)
	}
	for i, g := range c.nodes[1:] {
		c.wantNodes(g, "gone", 1)
		if line := g.says("node.gone"); line["sessions"] != 2.0 || line["name"] != "n0" {
			t.Errorf("%v, want n0 with 2 sessions", line)
		}
		streams[i].want("gap n0")
		g.ask("GET", "/api/v1/nodes", "").want(t, "the nodes", 200, `"state":"gone"`)
		if list, missing := g.placed(); len(list) != 1 || len(missing) > 0 {
			t.Errorf("%+v, missing %v, want the session of n1: the other node is gone", list, missing)
		}
		g.ask("GET", path, "").want(t, "the session of the lost node", 404, "")
	}
	other.at(c.nodes[2]).resume()
	other.counts(2)
}
