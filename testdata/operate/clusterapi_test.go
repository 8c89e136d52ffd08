package operate

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
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
