package operate

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// shBlocks are the sh blocks of docs/cluster.md under a heading.
func shBlocks(t *testing.T, heading string) (list []string) {
	t.Helper()
	_, section, ok := strings.Cut(file(t, "cluster.md"), "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("the page has no section %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	for _, m := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(section, -1) {
		list = append(list, m[1])
	}
	return list
}

// natsCluster is three NATS servers, started by the commands of the page.
type natsCluster struct {
	t       *testing.T
	dir     string
	clients []string // ports
	monitor []string
	restart string // the page's commands to restart all
}

func startNATSCluster(t *testing.T) (n *natsCluster, check []string) {
	t.Helper()
	blocks := shBlocks(t, "NATS for production")
	if len(blocks) != 2 {
		t.Fatalf("%d blocks of commands, want those to start and to restart", len(blocks))
	}
	first, begin, _ := strings.Cut(blocks[0], "\n")
	if first != "make build bin/nats-server" {
		t.Fatalf("the page begins with %q", first)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	n = &natsCluster{t: t, dir: t.TempDir(), restart: blocks[1]}
	for _, name := range []string{"bin", "docs"} {
		if err := os.Symlink(filepath.Join(root, name), filepath.Join(n.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	var routes []string
	for range 3 {
		n.clients, n.monitor, routes = append(n.clients, freePort(t)), append(n.monitor, freePort(t)), append(routes, freePort(t))
	}
	pairs := []string{"go run ", "go run -C " + root + " ", "/tmp/reseat-nats-", filepath.Join(n.dir, "store-"),
		"-p 422$i", "-p ${clients[$i]}", "822$i", "${monitors[$i]}", "622$i", "${routes[$i]}"}
	for i := range 3 {
		pairs = append(pairs, fmt.Sprint("127.0.0.1:422", i+1), "127.0.0.1:"+n.clients[i], fmt.Sprint("127.0.0.1:622", i+1), "127.0.0.1:"+routes[i])
	}
	// Each server runs below a shell that starts it again once it has ended, as systemd does, and
	// whose parent is the test: the servers end with it.
	begin = replaced(t, begin, pairs...)
	begin = regexp.MustCompile(`(?s)(bin/nats-server .*?) &\n`).ReplaceAllString(begin, "supervise $$i $1 &\n")
	script := fmt.Sprintf(`set -e
clients=(x %s) monitors=(x %s) routes=(x %s)
supervise() {
	local i=$1; shift
	while :; do "$@" 2>>nats-$i.log & echo $! >nats-$i.pid; wait $! || true; done
}
%s
touch started
wait`, strings.Join(n.clients, " "), strings.Join(n.monitor, " "), strings.Join(routes, " "), strings.Replace(begin, "\nbin/reseat check", "\ntouch checked; bin/reseat check >findings", 1))
	t.Cleanup(func() {
		for i := 1; i <= 3 && t.Failed(); i++ {
			said, _ := os.ReadFile(filepath.Join(n.dir, fmt.Sprint("nats-", i, ".log")))
			t.Logf("server %d: %s", i, said)
		}
	})
	run := startShell(t, n.dir, "bash", "-c", script)
	eventually(t, "the page's commands have run", func() bool {
		select {
		case <-run.ended:
			findings, _ := os.ReadFile(filepath.Join(n.dir, "findings"))
			t.Fatalf("they ended: %v\n%s", run.err, findings)
		default:
		}
		_, err := os.Stat(filepath.Join(n.dir, "started"))
		return err == nil
	})
	findings, err := os.ReadFile(filepath.Join(n.dir, "findings"))
	if err != nil {
		t.Fatal(err)
	}
	return n, strings.Split(strings.TrimSuffix(string(findings), "\n"), "\n")
}

// flags are those of a gateway, as reseat check has them on the page.
func (n *natsCluster) flags() (list []string) {
	for _, port := range n.clients {
		list = append(list, "--cluster=nats://127.0.0.1:"+port)
	}
	return append(list, "--cluster-creds="+filepath.Join(n.dir, "nodes.seed"), "--token-key-file="+filepath.Join(n.dir, "token.key"))
}

// roll runs the page's commands that restart all servers. Here ssh and systemctl are stubs: each server
// is a process of this machine, which its shell starts again.
func (n *natsCluster) roll() error {
	bin := filepath.Join(n.dir, "stubs")
	if err := os.Mkdir(bin, 0o755); err != nil {
		return err
	}
	ssh := fmt.Sprintf(`#!/usr/bin/env bash
ports=(x %s)
export I=${1#nats-}
exec sh -c "${2//8222/${ports[$I]}}"
`, strings.Join(n.monitor, " "))
	systemctl := `#!/bin/sh
[ "$1 $2" = "restart nats-server" ] || exit 1
was=$(cat nats-$I.pid)
kill -TERM $was
while kill -0 $was 2>/dev/null || [ "$(cat nats-$I.pid)" = $was ]; do sleep 0.05; done
echo $I >>restarted
`
	for name, text := range map[string]string{"ssh": ssh, "systemctl": systemctl} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o755); err != nil {
			return err
		}
	}
	cmd := exec.Command("bash", "-c", n.restart)
	cmd.Dir, cmd.Env = n.dir, append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	restarted, err := os.ReadFile(filepath.Join(n.dir, "restarted"))
	if err == nil && string(restarted) != "1\n2\n3\n" {
		err = fmt.Errorf("restarted were %q", restarted)
	}
	return err
}

// Three NATS servers with the documented configuration serve a cluster, and may be restarted one
// after another as documented: players resume meanwhile, new nodes join, and nothing is lost.
func TestNATSForProductionByTheCommandsOfItsPage(t *testing.T) {
	n, findings := startNATSCluster(t)
	var want []string
	for _, port := range n.clients {
		want = append(want, "ok    --cluster nats://127.0.0.1:"+port+": NATS 2.")
	}
	wantFindings(t, findings, append(want, "ok    buckets reseat_nodes and reseat_players: not there yet: the first node makes them, with up to 3 replicas", "ok    NATS user: has all rights that a node needs")...)
	game := newGame(t, 0)
	c := &cluster{T: t, game: game}
	node := func() *gateway {
		return start(t, append(n.flags(), "--upstream="+game.url(), fmt.Sprint("--node-name=n", len(c.nodes)), "--node-listen=127.0.0.1:0")...)
	}
	for range 3 {
		c.nodes = append(c.nodes, node())
	}
	for _, g := range c.nodes {
		c.wantNodes(g, "up", 3)
	}
	stop := make(chan struct{})
	var rounds [3]atomic.Int64
	var busy sync.WaitGroup
	for i := range rounds {
		p := c.join(i)
		busy.Go(func() {
			for said := 0; ; said++ {
				select {
				case <-stop:
					return
				default:
				}
				p.say(fmt.Sprint(said))
				if got := p.next(); got != fmt.Sprint(said) {
					t.Errorf("the game answered %q to %d", got, said)
					return
				}
				p.at(c.nodes[said%3]).resume()
				rounds[i].Add(1)
			}
		})
	}
	err := n.roll()
	before := [3]int64{rounds[0].Load(), rounds[1].Load(), rounds[2].Load()}
	eventually(t, "all players resume after that too", func() bool {
		return !slices.ContainsFunc([]int{0, 1, 2}, func(i int) bool { return rounds[i].Load() < before[i]+3 })
	})
	close(stop)
	busy.Wait()
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range c.nodes {
		eventually(t, "NATS is back", func() bool { return g.metric("reseat_cluster_engine_up", "") == 1 })
		for _, state := range []string{"silent", "gone"} {
			if lost := g.metric("reseat_cluster_nodes", state); lost != 0 {
				t.Errorf("%v nodes are %s", lost, state)
			}
		}
	}
	c.nodes = append(c.nodes, node())
	for _, g := range c.nodes {
		c.wantNodes(g, "up", 4)
	}
	if len(game.joined()) != 3 {
		t.Errorf("the game server had %d connections for 3 players", len(game.joined()))
	}
	lines, status := checked(t, append(n.flags(), "--demo", "--node-listen=127.0.0.1:0")...)
	if status != 0 {
		t.Errorf("status %d", status)
	}
	wantFindings(t, lines, "ok    buckets reseat_nodes and reseat_players: 3 replicas", "ok    clock: ", "ok    node n0 at ", "ok    node n1 at ", "ok    node n2 at ", "ok    node n3 at ")
}
