//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"
)

// linkFaults are failures of the link between clients and the gateway that affect all
// connections at once, below TCP: neither end gets an error.
var linkFaults = [...]string{"down", "silent from the gateway", "silent towards it"}

// flap breaks the link to the gateway now and then, in all ways in turn.
func (r *run) flap(ctx context.Context) {
	if r.links == nil {
		return
	}
	for i := 0; sleep(ctx, r.cfg.Expiry/2); i++ {
		undo := r.links.fail(i % len(linkFaults))
		for _, p := range r.players {
			p.mu.Lock()
			p.struck[p.attempts] = true
			p.noteLocked("the link is %s", linkFaults[i%len(linkFaults)])
			p.mu.Unlock()
		}
		sleep(context.Background(), time.Duration(4+i%3*4)*r.cfg.Answer/4)
		undo()
		r.count.flaps.Add(1)
	}
	if err := r.links.err; err != nil {
		r.fault("%v", err)
	}
}

// A namespace is a network namespace with a link to this one.
type namespace struct {
	name, link, inside, outside string
	err                         error
}

// newNamespace makes one; this requires root and ip(8).
func newNamespace() (*namespace, error) {
	pid := os.Getpid()
	n := &namespace{name: fmt.Sprintf("reseat-chaos-%d", pid), link: fmt.Sprintf("rc%d", pid%1000000), outside: fmt.Sprintf("10.213.%d.1", pid%256), inside: fmt.Sprintf("10.213.%d.2", pid%256)}
	for _, args := range [][]string{
		{"netns", "add", n.name},
		{"link", "add", n.link + "o", "type", "veth", "peer", "name", n.link + "i", "netns", n.name},
		{"addr", "add", n.outside + "/28", "dev", n.link + "o"},
		{"link", "set", n.link + "o", "up"},
		{"-n", n.name, "addr", "add", n.inside + "/28", "dev", n.link + "i"},
		{"-n", n.name, "link", "set", "lo", "up"},
		{"-n", n.name, "link", "set", n.link + "i", "up"},
	} {
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

func (n *namespace) prefix() []string { return []string{"ip", "netns", "exec", n.name} }

// nowhere is an unused hardware address: packets sent to it are dropped without an
// error.
const nowhere = "02:00:00:00:00:01"

// fail breaks the link in one of linkFaults' ways; undo repairs it.
func (n *namespace) fail(way int) (undo func()) {
	switch way {
	case 0: // at the gateway's end, so that routes outside stay
		n.ip("-n", n.name, "link", "set", n.link+"i", "down")
		return func() { n.ip("-n", n.name, "link", "set", n.link+"i", "up") }
	case 1:
		return n.mute(n.outside, n.link+"i", "-n", n.name)
	}
	return n.mute(n.inside, n.link+"o")
}

// mute loses what is sent to an address through a device.
func (n *namespace) mute(to, device string, where ...string) (undo func()) {
	n.ip(append(where, "neigh", "replace", to, "lladdr", nowhere, "dev", device, "nud", "permanent")...)
	return func() { n.ip(append(where, "neigh", "del", to, "dev", device)...) }
}

func (n *namespace) remove() {
	exec.Command("ip", "link", "del", n.link+"o").Run()
	exec.Command("ip", "netns", "del", n.name).Run()
}
