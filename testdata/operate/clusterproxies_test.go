package operate

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// front is a cluster of three behind a proxy that keeps no player where they were.
type front struct {
	*cluster
	proxy *proxy
}

func newFront(t *testing.T, make recipe) *front {
	t.Helper()
	c := newCluster(t, 3, "--trusted-proxy=127.0.0.1", "--drain=1m")
	var change []string
	for i, g := range c.nodes {
		is := g.addr
		change = append(change, fmt.Sprintf("10.0.0.%d:8080", i+1), is)
		if strings.Contains(t.Name(), "HAProxy") {
			change = append(change, is+" port 8081", is+" port "+g.admin[strings.LastIndex(g.admin, ":")+1:])
		}
	}
	return &front{c, make(t, change...)}
}

// rovers are players who resume all the time, wherever that leads.
type rovers struct {
	players []*player
	ids     []string // of their sessions, at first
	rounds  []*atomic.Int64
	busy    sync.WaitGroup
	stop    chan struct{}
}

func (f *front) rove(n int) *rovers {
	f.Helper()
	r := &rovers{stop: make(chan struct{})}
	for range n {
		p, done := f.proxy.join(f.T), new(atomic.Int64)
		r.players, r.ids, r.rounds = append(r.players, p), append(r.ids, p.session), append(r.rounds, done)
		r.busy.Go(func() {
			for {
				select {
				case <-r.stop:
					return
				default:
				}
				p.counts(3)
				p.conn.CloseNow()
				p.counts(3)
				done.Add(1)
			}
		})
	}
	return r
}

// again waits until each player has resumed some times more.
func (r *rovers) again(t *testing.T) {
	t.Helper()
	for _, n := range r.rounds {
		before := n.Load()
		eventually(t, "all resume three times more", func() bool { return n.Load() >= before+3 })
	}
}

// A drained node loses nobody: its players come back through the others, no stickiness needed. New
// players get another node.
func (f *front) drainTheFirst(tell, drained func()) {
	f.Helper()
	t := f.T
	r := f.rove(12)
	r.again(t)
	tell()
	held := 0
	for _, id := range r.ids {
		if strings.HasPrefix(id, f.nodeID(0)) {
			held++
		}
	}
	if held == 0 {
		t.Fatal("the node that is to drain has no players")
	}
	f.nodes[0].cmd.Process.Signal(syscall.SIGTERM)
	f.wantNodes(f.nodes[1], "draining", 1)
	for fresh, began := 0, time.Now(); fresh < 6; <-time.After(20 * time.Millisecond) {
		p := &player{t: t, url: f.proxy.url("/")}
		if err := p.connect(); err == nil {
			fresh++
			defer p.conn.CloseNow()
		} else if time.Since(began) > patience { // 503: the proxy has not noticed yet
			t.Fatalf("new players are refused: %v", err)
		}
	}
	drained()
	r.again(t)
	eventually(t, "the node that drains has its sessions, and no others", func() bool { return f.nodes[0].metric("reseat_sessions", "") == float64(held) })
	close(r.stop)
	r.busy.Wait()
	for _, p := range r.players {
		p.counts(3)
		p.tell("bye")
	}
	f.nodes[0].says("shutdown.finished") // long before --drain is over
	for i, p := range r.players {
		if p.session != r.ids[i] {
			t.Errorf("a player has session %s, and had %s", p.session, r.ids[i])
		}
	}
}

func TestDrainedNodeLosesNobodyBehindHAProxy(t *testing.T) {
	f := newFront(t, haproxy("haproxy-cluster.cfg"))
	var still *player // connected to the node that drains, and not disconnected by that
	f.drainTheFirst(func() {
		for still == nil || !strings.HasPrefix(still.session, f.nodeID(0)) {
			if still != nil {
				still.tell("bye")
			}
			still = f.proxy.join(t)
		}
	}, func() { // HAProxy has asked /readyz?draining=404, and leads new players elsewhere
		for range 200 {
			if _, err := still.read(); err != nil {
				t.Fatalf("a player of the node that drains was disconnected: %v", err)
			}
		}
		still.tell("bye")
	})
}

func TestDrainedNodeLosesNobodyBehindNginx(t *testing.T) {
	f := newFront(t, nginx("nginx-cluster.conf"))
	f.drainTheFirst(func() {
		text, err := os.ReadFile(f.proxy.conf)
		if err != nil {
			t.Fatal(err)
		}
		write(t, f.proxy.conf, replaced(t, string(text), "    server "+f.nodes[0].addr+" max_fails=1 fail_timeout=2s;\n", ""))
		f.proxy.reload()
	}, func() {})
}

// A node that is killed takes its own players with it, and no others: the proxies go on to the next.
func TestKilledNodeIsLeftOutByProxies(t *testing.T) {
	for name, make := range map[string]recipe{"nginx": nginx("nginx-cluster.conf"), "HAProxy": haproxy("haproxy-cluster.cfg")} {
		t.Run(name, func(t *testing.T) {
			f := newFront(t, make)
			var others []*player
			for range 8 {
				p := f.proxy.join(t)
				if id := f.nodeID(0); !strings.HasPrefix(p.session, id) {
					others = append(others, p)
				}
			}
			if len(others) == 8 || len(others) == 0 {
				t.Fatalf("%d of 8 players are at the other nodes", len(others))
			}
			f.nodes[0].cmd.Process.Kill()
			for range 5 {
				for _, p := range others {
					p.counts(2)
					p.conn.CloseNow()
					p.counts(2)
				}
			}
			for range 6 {
				f.proxy.join(t).counts(1)
			}
		})
	}
}

// nodeID is the id of a node, which begins those of its sessions.
func (f *front) nodeID(i int) string {
	f.Helper()
	var list struct{ Nodes []struct{ ID string } }
	if err := json.Unmarshal(f.nodes[i].get("/api/v1/nodes"), &list); err != nil || len(list.Nodes) == 0 {
		f.Fatal(err)
	}
	return list.Nodes[0].ID
}
