//go:build linux

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync/atomic"
	"time"
)

// A linkFault is a failure of the link between clients and the gateway that affects all
// connections at once, below TCP: neither end gets an error.
type linkFault int

const (
	linkDown linkFault = iota // nothing passes, not to the game servers either
	linkFrom                  // nothing from the gateway reaches a client
	linkTo                    // nothing reaches the gateway
	linkOld                   // as linkFrom, for existing connections; new ones work
	linkFaults
)

var linkFaultNames = [linkFaults]string{"down", "silent from the gateway", "silent towards it", "silent from it for old connections"}

// flap breaks the link to the gateway now and then, in all ways in turn.
func (r *run) flap(ctx context.Context) {
	if r.links == nil {
		return
	}
	for i := 0; sleep(ctx, r.cfg.Grace/2); i++ {
		fault := linkFault(i % int(linkFaults))
		undo := r.links.fail(fault)
		r.strikeAll(fault)
		sleep(context.Background(), time.Duration(4+i%3*4)*r.cfg.Answer/4)
		undo()
		r.count.flaps[fault].Add(1)
	}
	if err := r.links.err; err != nil {
		r.faults = append(r.faults, err.Error())
	}
}

// strikeAll records that all connections fall silent.
func (r *run) strikeAll(fault linkFault) {
	for _, p := range r.players {
		p.mu.Lock()
		attempt := p.attempts
		p.mu.Unlock()
		p.strike(attempt, fault == linkDown || fault == linkTo, true)
		p.note("the link is %s", linkFaultNames[fault])
	}
}

// A namespace is a network namespace with a link to this one.
type namespace struct {
	name, link, inside, outside string
	block                       string
	epoch                       atomic.Int64 // which of the client addresses are in use
	err                         error
}

const (
	firstLocal = 3 // client addresses within the block start here
	locals     = 10
)

// newNamespace makes one; this requires root and ip(8).
func newNamespace() (*namespace, error) {
	pid := os.Getpid()
	n := &namespace{name: fmt.Sprintf("reseat-chaos-%d", pid), link: fmt.Sprintf("rc%d", pid%1000000), block: fmt.Sprintf("10.213.%d.", pid%256)}
	n.outside, n.inside = n.block+"1", n.block+"2"
	commands := [][]string{
		{"netns", "add", n.name},
		{"link", "add", n.link + "o", "type", "veth", "peer", "name", n.link + "i", "netns", n.name},
		{"addr", "add", n.outside + "/28", "dev", n.link + "o"},
		{"link", "set", n.link + "o", "up"},
		{"-n", n.name, "addr", "add", n.inside + "/28", "dev", n.link + "i"},
		{"-n", n.name, "link", "set", "lo", "up"},
		{"-n", n.name, "link", "set", n.link + "i", "up"},
	}
	for i := range locals {
		commands = append(commands, []string{"addr", "add", n.from(i) + "/28", "dev", n.link + "o"})
	}
	for _, args := range commands {
		if n.ip(args...); n.err != nil {
			n.remove()
			return nil, fmt.Errorf("no network namespace here (it takes root and ip): %w", n.err)
		}
	}
	return n, nil
}

// ip runs ip(8), and keeps its first error.
func (n *namespace) ip(args ...string) {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil && n.err == nil {
		n.err = fmt.Errorf("ip %v: %w: %s", args, err, out)
	}
}

// from returns one of the client addresses.
func (n *namespace) from(i int) string { return fmt.Sprint(n.block, firstLocal+i%locals) }

// local returns the address for a new connection.
func (n *namespace) local() net.Addr {
	return &net.TCPAddr{IP: net.ParseIP(n.from(int(n.epoch.Load())))}
}

func (n *namespace) prefix() []string { return []string{"ip", "netns", "exec", n.name} }

// nowhere is an unused hardware address: packets sent to it are dropped without an
// error.
const nowhere = "02:00:00:00:00:01"

// fail breaks the link; undo repairs it.
func (n *namespace) fail(f linkFault) (undo func()) {
	gateway, clients := n.link+"i", n.link+"o"
	switch f {
	case linkDown: // at the gateway's end, so that routes outside stay
		n.ip("-n", n.name, "link", "set", gateway, "down")
		return func() { n.ip("-n", n.name, "link", "set", gateway, "up") }
	case linkTo:
		n.ip("neigh", "replace", n.inside, "lladdr", nowhere, "dev", clients, "nud", "permanent")
		return func() { n.ip("neigh", "del", n.inside, "dev", clients) }
	}
	var muted []string
	if f == linkOld {
		muted = append(muted, n.from(int(n.epoch.Add(1)-1)))
	} else {
		for i := range locals {
			muted = append(muted, n.from(i))
		}
	}
	for _, a := range muted {
		n.ip("-n", n.name, "neigh", "replace", a, "lladdr", nowhere, "dev", gateway, "nud", "permanent")
	}
	return func() {
		for _, a := range muted {
			n.ip("-n", n.name, "neigh", "del", a, "dev", gateway)
		}
	}
}

func (n *namespace) remove() {
	exec.Command("ip", "link", "del", n.link+"o").Run()
	exec.Command("ip", "netns", "del", n.name).Run()
}
