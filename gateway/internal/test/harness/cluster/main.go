//go:build unix

// Command cluster starts a cluster to try: a NATS server, three gateways with the demo's page,
// and one game for all of them, on loopback. It ends what it has started when it ends.
package main

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime"
	"syscall"
)

const (
	nodes    = 3
	loopback = "127.0.0.1"

	// Node i has the first port plus i, and the ports these after it. NATS has one more.
	adminPorts = 100
	nodePorts  = 200
	natsPort   = 300
)

func init() {
	runtime.LockOSThread() // children end with the thread that started them: see attr_linux.go
}

func main() {
	bin := flag.String("bin", "bin/reseat", "the gateway's program")
	nats := flag.String("nats", "bin/nats-server", "the NATS server's program")
	port := flag.Int("port", 8081, "the first of ten ports: this one and the two after it, and those 100, 200 and 300 after it")
	flag.Parse()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	if err := run(*bin, *nats, *port, signals); err != nil && !errors.Is(err, errInterrupted) {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

// errInterrupted is not reported.
var errInterrupted = errors.New("interrupted")

// run runs a cluster until a signal, or until no node is left.
func run(bin, nats string, port int, signals <-chan os.Signal) error {
	if port < 1 || port+natsPort > 65535 {
		return fmt.Errorf("the first port: %d, want 1 to %d", port, 65535-natsPort)
	}
	if err := checkPorts(port); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "reseat-cluster-")
	if err != nil {
		return err
	}
	c := &cluster{dir: dir, port: port, signals: signals, ended: make(chan *child, nodes+1)}
	defer c.end()
	if err := c.start(bin, nats); err != nil {
		return err
	}
	c.announce()
	for left := nodes; left > 0; {
		p, err := c.next()
		if err != nil {
			return err
		}
		if p != c.nats {
			left--
		}
		fmt.Println(c.obituary(p, left))
	}
	return errors.New("no node is left")
}

// checkPorts fails if another program listens on one of the ports.
func checkPorts(first int) error {
	ports := []int{first + natsPort}
	for i := range nodes {
		ports = append(ports, first+i, first+i+adminPorts, first+i+nodePorts)
	}
	for _, port := range ports {
		ln, err := net.Listen("tcp", fmt.Sprint(loopback, ":", port))
		if err != nil {
			return fmt.Errorf("%w; choose other ports, such as: make cluster PORT=%d", err, first%50000+10000)
		}
		ln.Close()
	}
	return nil
}
