//go:build linux

package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"reseat/gateway/internal/test/harness/chaos/process"
	"reseat/gateway/internal/test/harness/chaos/seat"
)

// A village is three gateways, each in a network namespace of its own on one bridge. NATS and the
// game servers are outside, at one address, and clients at another.
type village struct {
	*testing.T
	id, block string // 10.214.N.
	flags     []string
	houses    []*house
	client    *http.Client
}

// A house is a namespace with a gateway, which has lines in its log about resumes.
type house struct {
	name, addr string
	gateway    *process.Process
	mu         sync.Mutex
	why        string // of the last resume that was not forwarded
	gone       string // the evidence of the last node.gone
}

func newVillage(t *testing.T) *village {
	t.Helper()
	if _, err := exec.LookPath("ip"); err != nil || os.Getuid() != 0 {
		t.Skip("no network namespaces: they take root and ip")
	}
	pid := os.Getpid()
	v := &village{T: t, id: fmt.Sprintf("rj%d", pid%100000), block: fmt.Sprintf("10.214.%d.", pid%256)}
	if out, err := exec.Command("ip", "link", "add", v.id, "type", "bridge").CombinedOutput(); err != nil {
		t.Skipf("no network namespaces here: %s", out)
	}
	t.Cleanup(func() { exec.Command("ip", "link", "del", v.id).Run() })
	v.ip("addr", "add", v.block+"1/24", "dev", v.id)
	v.ip("addr", "add", v.block+"2/24", "dev", v.id)
	v.ip("link", "set", v.id, "up")
	from := &net.Dialer{Timeout: 5 * time.Second, LocalAddr: &net.TCPAddr{IP: net.ParseIP(v.block + "2")}}
	v.client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: from.DialContext}}
	dir := t.TempDir()
	bin, err := process.BuildNATS(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	nats := process.NewNATS(bin, "s", dir, nil)
	nats.Client = v.block + "1:4222"
	if err := nats.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nats.Kill)
	ln, err := net.Listen("tcp", v.block+"1:0")
	if err != nil {
		t.Fatal(err)
	}
	game := serveGame(short(), ln)
	game.lost = func(string) bool { return false }
	t.Cleanup(func() { game.http.Close() })
	key := filepath.Join(dir, "key")
	if err := os.WriteFile(key, []byte(strings.Repeat("0123456789abcdef", 2)), 0o600); err != nil {
		t.Fatal(err)
	}
	if v.flags, err = []string{"--admin=off", "--log-format=json", "--grace=30s", "--upstream=ws://" + ln.Addr().String(), "--token-key-file=" + key, "--cluster=nats://" + nats.Client, "--cluster-plaintext=on"}, nil; err != nil {
		t.Fatal(err)
	}
	program, err := program(t.Context(), "", dir)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		h := &house{name: fmt.Sprint(v.id, "n", i), addr: fmt.Sprint(v.block, 11+i)}
		v.houses = append(v.houses, h)
		v.ip("netns", "add", h.name)
		t.Cleanup(func() {
			exec.Command("ip", "link", "del", h.name).Run()
			exec.Command("ip", "netns", "del", h.name).Run()
		})
		v.ip("link", "add", h.name, "type", "veth", "peer", "name", "e", "netns", h.name)
		v.ip("link", "set", h.name, "master", v.id, "up")
		v.ip("-n", h.name, "addr", "add", h.addr+"/24", "dev", "e")
		v.ip("-n", h.name, "link", "set", "e", "up")
		v.ip("-n", h.name, "link", "set", "lo", "up")
		v.start(h, program)
	}
	for _, front := range v.houses { // all know each other
		for _, owner := range v.houses {
			v.plays(v.join(owner), front)
		}
	}
	return v
}

func (v *village) ip(args ...string) {
	v.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		v.Fatalf("ip %v: %v: %s", args, err, out)
	}
}

func (v *village) start(h *house, program string) {
	v.Helper()
	var err error
	told := func(l process.Line) {
		h.mu.Lock()
		defer h.mu.Unlock()
		switch l.Msg {
		case "resume not forwarded":
			h.why = l.Why
		case "node.gone":
			h.gone = l.Evidence
		}
	}
	flags := append([]string{"--listen=" + h.addr + ":8080", "--node-listen=" + h.addr + ":8082", "--node-name=" + h.name}, v.flags...)
	h.gateway, err = process.StartTold(told, filepath.Join(v.TempDir(), "log"), []string{"ip", "netns", "exec", h.name}, program, flags...)
	if err != nil {
		v.Fatal(err)
	}
	v.Cleanup(h.gateway.Kill)
}

// A guest is a client that is away, with the token of its session.
type guest struct{ token string }

// join begins a session at a gateway, and leaves it.
func (v *village) join(h *house) *guest {
	v.Helper()
	g := new(guest)
	if hello, _ := v.attach(h, g); hello == nil {
		v.Fatalf("no session at %s", h.name)
	}
	return g
}

var attached int

// attach connects once: one of its results is nil.
func (v *village) attach(h *house, g *guest) (*seat.Hello, *seat.Closing) {
	v.Helper()
	ctx, cancel := context.WithTimeout(v.Context(), 20*time.Second)
	defer cancel()
	attached++
	c, _, err := seat.Dial(ctx, v.client, fmt.Sprintf("ws://%s:8080/r/%d/0", h.addr, attached), seat.Offer{Token: g.token})
	if err != nil {
		v.Fatalf("at %s: %v", h.name, err)
	}
	defer c.Drop()
	hello, closing, err := c.Hello(ctx)
	if err != nil {
		v.Fatalf("at %s: %v", h.name, err)
	}
	if hello != nil {
		g.token = hello.Token
		c.Ack(ctx, 0) // the client was heard: the session is kept for its whole grace period
		c.Say(ctx, "ping", "1")
		for {
			if m, err := c.Read(ctx); err != nil || m.Verb == "pong" {
				break
			}
		}
	}
	return hello, closing
}

// plays waits until a session can be resumed at a gateway.
func (v *village) plays(g *guest, h *house) {
	v.Helper()
	for until := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		hello, closing := v.attach(h, g)
		switch {
		case hello != nil:
			return
		case !closing.Retry || time.Now().After(until):
			v.Fatalf("at %s: %+v, because %s", h.name, closing, h.because())
		}
	}
}

func (h *house) because() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.why
}

// refused resumes at a gateway, which must refuse it with the code, for a reason in its log.
func (v *village) refused(g *guest, h *house, code int, why ...string) {
	v.Helper()
	hello, closing := v.attach(h, g)
	if hello != nil || closing.Code != code {
		v.Errorf("hello %v, %+v because %q, want %d", hello != nil, closing, h.because(), code)
		return
	}
	for until := time.Now().Add(5 * time.Second); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
		for _, w := range why { // the log line may come after the answer
			if strings.Contains(h.because(), w) {
				return
			}
		}
	}
	v.Errorf("%d because %q, want one of %q", code, h.because(), why)
}

// mute makes packets from a gateway to an address vanish.
func (v *village) mute(h *house, to string) (undo func()) {
	v.ip("-n", h.name, "neigh", "replace", to, "lladdr", nowhere, "dev", "e", "nud", "permanent")
	return func() { v.ip("-n", h.name, "neigh", "del", to, "dev", "e") }
}

// What a TCP proxy cannot show: each network says of a node what it knows, and no more.
func TestNodesAreJudgedByWhatTheirNetworkShows(t *testing.T) {
	v := newVillage(t)
	owner, front, other := v.houses[0], v.houses[1], v.houses[2]
	t.Run("the machine vanishes", func(t *testing.T) {
		guest := v.join(owner)
		v.ip("-n", owner.name, "link", "set", "e", "down")
		v.refused(guest, front, 4504, "no answer, and no heartbeat", "no answer, but it was heard")
		v.refused(guest, front, 4504, "no answer, and no heartbeat")
		v.ip("-n", owner.name, "link", "set", "e", "up")
		v.plays(guest, front)
	})
	for name, lost := range map[string]struct {
		from *house
		to   string
	}{
		"its answers are lost":       {owner, front.addr},
		"what is sent to it is lost": {front, owner.addr},
	} {
		t.Run(name, func(t *testing.T) {
			guest := v.join(owner)
			undo := v.mute(lost.from, lost.to)
			v.refused(guest, front, 4504, "no answer, but it was heard")
			v.plays(guest, other)
			undo()
			v.plays(guest, front)
		})
	}
	t.Run("no route to it", func(t *testing.T) {
		guest := v.join(owner)
		v.ip("-n", front.name, "route", "add", "unreachable", owner.addr+"/32")
		v.refused(guest, front, 4504, "no answer, but it was heard")
		v.ip("-n", front.name, "route", "del", "unreachable", owner.addr+"/32")
		v.plays(guest, front)
	})
	t.Run("the front is cut off from all but its clients", func(t *testing.T) {
		guest := v.join(owner)
		var undo []func()
		for _, to := range []string{owner.addr, other.addr, v.block + "1"} {
			undo = append(undo, v.mute(front, to))
		}
		for range 2 {
			v.refused(guest, front, 4504, "heartbeats cannot be heard", "most other nodes are not heard", "no answer, but it was heard")
		}
		for _, f := range undo {
			f()
		}
		v.plays(guest, front)
	})
	t.Run("its process is killed", func(t *testing.T) {
		guest, stays := v.join(owner), v.join(other)
		owner.gateway.Kill()
		for until := time.Now().Add(20 * time.Second); ; time.Sleep(300 * time.Millisecond) {
			if _, closing := v.attach(front, guest); closing.Code == 4404 || time.Now().After(until) {
				break // a judgement from before is used for a second
			}
		}
		v.refused(guest, front, 4404, "refuses connections")
		v.plays(stays, front)
	})
	for _, h := range []*house{front, other} {
		h.mu.Lock()
		if h.gone != "" && !strings.Contains(h.gone, "refuses connections") {
			t.Errorf("%s takes a node for gone: %s", h.name, h.gone)
		}
		h.mu.Unlock()
	}
}
