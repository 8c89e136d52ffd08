//go:build unix

package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"reseat/upstream/demo"
)

const (
	// drain is how long the players of a stopped node play on.
	drain = "1m"
	// startTime limits the start of one step, and pollTime is the time between two looks at it.
	startTime = 30 * time.Second
	pollTime  = 50 * time.Millisecond
)

// A cluster is what runs.
type cluster struct {
	dir      string // for the key, NATS's store and the logs
	port     int    // the first one
	nats     *child
	nodes    []*child
	game     http.Server
	stopGame context.CancelFunc
	signals  <-chan os.Signal
	ended    chan *child // children that have ended
	all      sync.WaitGroup
}

// A child is a process that this one has started.
type child struct {
	name string
	cmd  *exec.Cmd
	log  string // file name
}

// start starts the game and all processes.
func (c *cluster) start(bin, nats string) (err error) {
	game, err := c.startGame()
	if err != nil {
		return err
	}
	key := filepath.Join(c.dir, "token.key")
	secret := make([]byte, 32)
	rand.Read(secret)
	if err := os.WriteFile(key, secret, 0o600); err != nil {
		return err
	}
	natsAddr := c.addr(natsPort)
	if c.nats, err = c.run("nats", nats, "-a", loopback, "-p", fmt.Sprint(c.port+natsPort), "-js", "-sd", filepath.Join(c.dir, "nats")); err != nil {
		return err
	}
	if err := c.await(func() error { return listens(natsAddr) }); err != nil {
		return err
	}
	args := []string{
		"--demo", "--route", "/demo/play=ws://" + game + ";upstream-lost=redial", "--token-key-file", key, "--cluster", "nats://" + natsAddr, "--drain", drain, "--log-format", "text",
	}
	for i := range nodes {
		for _, host := range []string{loopback, "localhost"} {
			args = append(args, "--origin", fmt.Sprint("http://", host, ":", c.port+i)) // the pages of the other nodes
		}
	}
	for i := range nodes {
		name := fmt.Sprint("n", i+1)
		own := []string{"--node-name", name, "--listen", c.addr(i), "--admin", c.addr(i + adminPorts), "--node-listen", c.addr(i + nodePorts)}
		node, err := c.run(name, bin, append(own, args...)...)
		if err != nil {
			return err
		}
		c.nodes = append(c.nodes, node)
	}
	return c.await(c.complete)
}

// addr is the address with a port, counted from the first one.
func (c *cluster) addr(port int) string { return fmt.Sprint(loopback, ":", c.port+port) }

// startGame starts the game server and returns its address.
func (c *cluster) startGame() (addr string, err error) {
	ln, err := net.Listen("tcp", loopback+":0")
	if err != nil {
		return "", fmt.Errorf("start the game: %w", err)
	}
	game := demo.NewServer(demo.Config{})
	ctx, stop := context.WithCancel(context.Background())
	c.game, c.stopGame = http.Server{Handler: game, ReadHeaderTimeout: 5 * time.Second}, stop
	c.all.Go(func() { game.Run(ctx) })
	c.all.Go(func() { c.game.Serve(ln) })
	return ln.Addr().String(), nil
}

// run starts a program.
func (c *cluster) run(name, program string, args ...string) (*child, error) {
	p := &child{name: name, cmd: exec.Command(program, args...), log: filepath.Join(c.dir, name+".log")}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = ownGroup() // Ctrl-C goes to this process alone
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "RESEAT_") { // a setting
			p.cmd.Env = append(p.cmd.Env, e)
		}
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	c.all.Go(func() {
		p.cmd.Wait()
		c.ended <- p
	})
	return p, nil
}

// lastWords is the end of the log.
func (p *child) lastWords() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	text = text[max(0, len(text)-2000):]
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}

// next waits for a child to end. Its error is errInterrupted.
func (c *cluster) next() (*child, error) {
	select {
	case <-c.signals:
		return nil, errInterrupted
	case p := <-c.ended:
		return p, nil
	}
}

// await waits until ready returns nil, while all children run.
func (c *cluster) await(ready func() error) error {
	late := time.After(startTime)
	for {
		err := ready()
		if err == nil {
			return nil
		}
		select {
		case <-c.signals:
			return errInterrupted
		case p := <-c.ended:
			return fmt.Errorf("%s has ended (%s): %s", p.name, p.cmd.ProcessState, p.lastWords())
		case <-late:
			return err
		case <-time.After(pollTime):
		}
	}
}

func listens(addr string) error {
	conn, err := net.Dial("tcp", addr)
	if err == nil {
		conn.Close()
	}
	return err
}

// complete fails until each node sees all of them.
func (c *cluster) complete() error {
	for i, n := range c.nodes {
		resp, err := http.Get(c.nodesURL(i))
		if err != nil {
			return err
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			return err
		}
		if strings.Count(string(b), `"state":"up"`) != nodes {
			return fmt.Errorf("%s does not see the others: %s", n.name, n.lastWords())
		}
	}
	return nil
}

func (c *cluster) nodesURL(i int) string { return "http://" + c.addr(i+adminPorts) + "/api/v1/nodes" }

// announce says what can be tried.
func (c *cluster) announce() {
	fmt.Print("\nA cluster of three nodes, with one game. Open the pages, and carry on at another node:\n\n")
	fmt.Printf("       %-26s %-16s %s\n", "page", "kill the node", "stop it: its players play on for "+drain)
	for i, n := range c.nodes {
		pid := n.cmd.Process.Pid
		fmt.Printf("  %-4s %-26s %-16s %s\n", n.name, "http://"+c.addr(i)+"/", fmt.Sprint("kill -9 ", pid), fmt.Sprint("kill ", pid))
	}
	fmt.Printf("  nats %-26s %s\n\n", "", fmt.Sprint("kill -9 ", c.nats.cmd.Process.Pid))
	fmt.Printf("The nodes, as n1 sees them:  curl -s %s\n", c.nodesURL(0))
	fmt.Printf("The dashboard of n1:         http://%s/\n", c.addr(adminPorts))
	fmt.Printf("Logs:                        %s\n", filepath.Join(c.dir, "*.log"))
	fmt.Print("\nCtrl-C ends everything.\n\n")
}

// obituary says that a child has ended, and what that means. left nodes are left.
func (c *cluster) obituary(p *child, left int) string {
	how := p.cmd.ProcessState.String()
	switch {
	case p == c.nats:
		return fmt.Sprintf("nats has ended (%s). Players play on, and come back at any node.", how)
	case p.cmd.ProcessState.Success():
		return fmt.Sprintf("%s has stopped, without players. %d of %d nodes go on.", p.name, left, nodes)
	default:
		return fmt.Sprintf("%s has ended (%s), and its players' sessions with it. %d of %d nodes go on.", p.name, how, left, nodes)
	}
}

// end ends all that was started, and waits for it.
func (c *cluster) end() {
	for _, p := range append(c.nodes, c.nats) {
		if p != nil {
			p.cmd.Process.Kill()
		}
	}
	if c.stopGame != nil {
		c.stopGame()
		c.game.Close()
	}
	c.all.Wait()
	os.RemoveAll(c.dir)
	fmt.Println("\nAll processes of the cluster have ended.")
}
