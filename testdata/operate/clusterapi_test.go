package operate

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
)

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
		g.t.Fatalf("%+v, %v", page, err)
	}
	return page.Sessions, page.Missing
}

// call returns the status of a call of the control API.
func (g *gateway) call(method, path string) int {
	g.t.Helper()
	r, err := http.NewRequest(method, g.admin+path, nil)
	if err != nil {
		g.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		g.t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// events reads the event stream: "type node session".
func (g *gateway) events() func() string {
	g.t.Helper()
	resp, err := http.Get(g.admin + "/api/v1/events?last=1")
	if err != nil || resp.StatusCode != http.StatusOK {
		g.t.Fatal(resp, err)
	}
	g.t.Cleanup(func() { resp.Body.Close() })
	lines := bufio.NewScanner(resp.Body)
	return func() string {
		for lines.Scan() {
			var e struct{ Type, Node, Session string }
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				if err := json.Unmarshal([]byte(data), &e); err != nil {
					g.t.Fatal(err)
				}
				return strings.TrimSpace(e.Type + " " + e.Node + " " + e.Session)
			}
		}
		g.t.Fatalf("the stream has ended: %v", lines.Err())
		return ""
	}
}

// The control API of any node lists, describes and ends the sessions of all, and streams
// their events.
func TestControlAPISpeaksForTheCluster(t *testing.T) {
	c := newCluster(t, 3)
	next := c.nodes[2].events()
	var players []*player
	for i := range c.nodes {
		p := c.join(i)
		players = append(players, p)
		if got, want := next(), fmt.Sprintf("session.created n%d %s", i, p.session); got != want {
			t.Fatalf("event %q, want %q", got, want)
		}
	}
	for _, g := range c.nodes {
		list, missing := g.placed()
		if len(list) != 3 || len(missing) > 0 {
			t.Fatalf("%+v, without %v", list, missing)
		}
		for _, s := range list {
			for i, p := range players {
				if s.ID == p.session && s.Node != fmt.Sprint("n", i) {
					t.Errorf("%+v, which is at node %d", s, i)
				}
			}
		}
		var o struct {
			Totals struct{ Sessions struct{ Attached int } }
		}
		if json.Unmarshal(g.get("/api/v1/overview"), &o); o.Totals.Sessions.Attached != 3 {
			t.Errorf("%+v", o)
		}
	}
	if status := c.nodes[1].call("DELETE", "/api/v1/sessions/"+players[0].session); status != http.StatusNoContent {
		t.Errorf("a session of another node: %d", status)
	}
	if got, want := next(), "session.ended n0 "+players[0].session; got != want {
		t.Errorf("event %q, want %q", got, want)
	}
	if status := c.nodes[1].call("POST", "/api/v1/nodes/n0/drain"); status != http.StatusOK {
		t.Errorf("a drain of another node: %d", status)
	}
	c.wantNodes(c.nodes[2], "draining", 1)
	c.nats.kill()
	c.join(2)
	if got := next(); !strings.HasPrefix(got, "session.created n2") {
		t.Errorf("without NATS: event %q", got)
	}
	if list, missing := c.nodes[2].placed(); len(list) != 3 || len(missing) > 0 {
		t.Errorf("without NATS: %+v, without %v", list, missing)
	}
	c.nats.start()
	if got := next(); got != "gap" {
		t.Errorf("NATS is back: event %q, want a gap", got)
	}
}

// A node that stands still is missing, and its sessions are not unknown. Once it was killed
// they are.
func TestControlAPINamesNodesThatDoNotAnswer(t *testing.T) {
	c := newCluster(t, 2)
	p := c.join(0)
	pid := c.nodes[0].cmd.Process.Pid
	syscall.Kill(pid, syscall.SIGSTOP)
	t.Cleanup(func() { syscall.Kill(pid, syscall.SIGCONT) })
	if list, missing := c.nodes[1].placed(); len(list) != 0 || fmt.Sprint(missing) != "[n0]" {
		t.Errorf("%+v, without %v", list, missing)
	}
	if status := c.nodes[1].call("GET", "/api/v1/sessions/"+p.session); status != http.StatusBadGateway {
		t.Errorf("a session of the missing node: %d", status)
	}
	if status := c.nodes[1].call("POST", "/api/v1/groups/red/end"); status != http.StatusBadGateway {
		t.Errorf("a group: %d", status)
	}
	syscall.Kill(pid, syscall.SIGKILL)
	eventually(t, "the session is gone with its node", func() bool { return c.nodes[1].call("GET", "/api/v1/sessions/"+p.session) == http.StatusNotFound })
	if _, missing := c.nodes[1].placed(); len(missing) > 0 {
		t.Errorf("a node that is gone is missing: %v", missing)
	}
}
