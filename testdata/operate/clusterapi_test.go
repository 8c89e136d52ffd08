package operate

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
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
	return g.listen("?last=1", "").next
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
	syscall.Kill(c.nodes[0].cmd.Process.Pid, syscall.SIGUSR2)
	pid := int(c.nodes[0].says("upgrade.begun")["pid"].(float64))
	t.Cleanup(func() { syscall.Kill(pid, syscall.SIGKILL) })
	c.nodes[0].says("upgrade.committed")
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
		g.listen("", gap).want(append([]string{"gap"}, all...)...) // that's id means nothing elsewhere
	}
	fresh := start(t, append(c.flags, "--node-name=n3")...)
	c.wantNodes(fresh, "up", 4)
	fresh.listen("", l.id).want(append([]string{"gap"}, all...)...)
}

// A node that was killed is found out though nobody asks for its sessions: the log and the list of nodes say
// how many it had, and readers of events are told.
func TestKilledNodeIsFoundOut(t *testing.T) {
	c := newCluster(t, 3)
	c.join(0)
	c.join(0)
	eventually(t, "the others know of its sessions", func() bool { return strings.Contains(string(c.nodes[1].get("/api/v1/nodes")), `"sessions":2`) })
	streams := []*listener{c.nodes[1].listen("", ""), c.nodes[2].listen("", "")}
	c.nodes[0].cmd.Process.Kill()
	for i, g := range c.nodes[1:] {
		c.wantNodes(g, "gone", 1)
		if line := g.says("node.gone"); line["sessions"] != 2.0 || line["name"] != "n0" {
			t.Errorf("%v", line)
		}
		streams[i].want("gap n0")
		var list struct {
			Nodes []struct {
				Name, State string
				Sessions    int
			}
		}
		if err := json.Unmarshal(g.get("/api/v1/nodes"), &list); err != nil {
			t.Fatal(err)
		}
		for _, n := range list.Nodes {
			if n.Name == "n0" && (n.State != "gone" || n.Sessions != 2) {
				t.Errorf("%+v", n)
			}
		}
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

// A reply is an answer of the control API.
type reply struct {
	status int
	body   string
	header http.Header
}

// ask makes a call with a body and headers.
func (g *gateway) ask(method, path, body string, headers ...string) reply {
	g.t.Helper()
	r, err := http.NewRequest(method, g.admin+path, strings.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return reply{resp.StatusCode, string(b), resp.Header}
}

// want checks the status, and that the body contains something.
func (r reply) want(t *testing.T, what string, status int, contains string) reply {
	t.Helper()
	if r.status != status || !strings.Contains(r.body, contains) {
		t.Errorf("%s: %d %s, want %d with %s", what, r.status, r.body, status, contains)
	}
	return r
}

// A session is read and changed through any node as at its own.
func TestOneSessionIsChangedThroughAnotherNode(t *testing.T) {
	c := newCluster(t, 3, "--grace=1m")
	p := c.join(0)
	at, own := c.nodes[1], c.nodes[0]
	path := "/api/v1/sessions/" + p.session
	at.ask("PATCH", path, `{"grace":"5m","group":"red"}`).want(t, "a change", 200, `"grace":"5m"`)
	own.ask("GET", path, "").want(t, "at its node", 200, `"group":"red"`)
	at.ask("PATCH", path, `{"grace":5}`).want(t, "a bad change", 400, "grace")
	tag := at.ask("PUT", path+"/data", "a").want(t, "data", 204, "").header.Get("ETag")
	c.nodes[2].ask("PUT", path+"/data", "b", "If-Match: "+tag).want(t, "data with its tag", 204, "")
	at.ask("PUT", path+"/data", "c", "If-Match: "+tag).want(t, "data with an old tag", 412, "")
	c.nodes[2].ask("GET", path+"/data", "").want(t, "data", 200, "b")
	at.ask("PATCH", path+"?node=self", `{}`).want(t, "the session at a node that has not got it", 404, "no such session")
	at.ask("PATCH", path+"?node=n0", `{}`).want(t, "with the name of its node", 200, p.session)
	at.ask("POST", path+"/disconnect", "").want(t, "a cut", 204, "")
	p.resume()
	at.ask("DELETE", path+"?code=4001&reason=kicked", "").want(t, "the end", 204, "")
	at.ask("DELETE", path, "").want(t, "the end again", 409, "ended")
	at.ask("GET", path, "").want(t, "an ended one", 200, `"kicked"`)
	at.ask("GET", "/api/v1/sessions?state=ended", "").want(t, "the ended ones", 200, p.session)
	own.cmd.Process.Kill()
	eventually(t, "it is gone with its node", func() bool { return at.call("GET", path) == 404 })
	at.ask("DELETE", path, "").want(t, "the end of a lost one", 404, "its node was lost")
}

// Groups are changed on all nodes. A change that a node has missed can be repeated.
func TestGroupsAreChangedOnAllNodes(t *testing.T) {
	c := newCluster(t, 3, "--grace=1m")
	var all []*player
	for i := range 3 {
		p := c.join(i)
		c.nodes[0].ask("PATCH", "/api/v1/sessions/"+p.session, `{"group":"red"}`).want(t, "a group", 200, "red")
		all = append(all, p)
	}
	at := c.nodes[1]
	at.ask("POST", "/api/v1/groups/red/start", "").want(t, "the start", 200, `{"sessions":3,"nodes_missing":[]}`)
	at.ask("POST", "/api/v1/groups/red/start", "").want(t, "the start again", 200, `{"sessions":3,"nodes_missing":[]}`)
	pid := c.nodes[2].cmd.Process.Pid
	syscall.Kill(pid, syscall.SIGSTOP)
	t.Cleanup(func() { syscall.Kill(pid, syscall.SIGCONT) })
	at.ask("POST", "/api/v1/groups/red/end", "").want(t, "the end without a node", 502, `"sessions":2,"nodes_missing":["n2"]`)
	at.ask("GET", "/api/v1/sessions?group=red", "").want(t, "the group without a node", 200, `"nodes_missing":["n2"]`)
	syscall.Kill(pid, syscall.SIGCONT)
	eventually(t, "all nodes do it", func() bool {
		r := at.ask("POST", "/api/v1/groups/red/end", "")
		return r.status == 200 && r.body == `{"sessions":3,"nodes_missing":[]}`+"\n"
	})
	for _, p := range all { // they were attached: none has ended
		at.ask("GET", "/api/v1/sessions/"+p.session, "").want(t, "a session", 200, `"started":false`)
	}
}

// A node is drained through another one, by its name or id, as often as one likes.
func TestNodeIsDrainedThroughAnother(t *testing.T) {
	c := newCluster(t, 2, "--drain=1m")
	p := c.join(0)
	at, id := c.nodes[1], p.session[:8]
	for _, name := range []string{"n0", id} {
		at.ask("GET", "/api/v1/nodes/"+name+"/drain", "").want(t, "no drain", 200, `"draining":false`)
		for range 2 {
			at.ask("POST", "/api/v1/nodes/"+name+"/drain", "").want(t, "a drain", 200, `"draining":true`)
		}
		at.ask("GET", "/api/v1/nodes/"+name+"/drain", "").want(t, "the drain", 200, `"draining":true`)
		c.wantNodes(at, "draining", 1)
		at.ask("GET", "/api/v1/drain", "").want(t, "the drain of this one", 200, `"draining":false`)
		for range 2 {
			at.ask("DELETE", "/api/v1/nodes/"+name+"/drain", "").want(t, "its end", 200, `"draining":false`)
		}
		c.wantNodes(at, "up", 2)
	}
	at.ask("POST", "/api/v1/nodes/n7/drain", "").want(t, "an unknown node", 404, "no node")
	pid := c.nodes[0].cmd.Process.Pid
	syscall.Kill(pid, syscall.SIGSTOP)
	t.Cleanup(func() { syscall.Kill(pid, syscall.SIGCONT) })
	at.ask("POST", "/api/v1/nodes/n0/drain", "").want(t, "a node that stands still", 502, "n0 does not answer")
}

// Pages of a list have each session once that is there all the time, whatever else comes and goes.
func TestListIsWholeWhileSessionsAndNodesComeAndGo(t *testing.T) {
	c := newCluster(t, 3, "--grace=0")
	stays := make(map[string]int)
	for i := range 12 {
		stays[c.join(i%2).session] = 0
	}
	lost := c.join(2)
	done, churned := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(churned)
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			p := &player{t: t, url: "ws://" + c.nodes[i%2].addr, from: "127.0.0.1"}
			if p.connect() == nil {
				p.conn.CloseNow()
			}
		}
	}()
	walk := func(each func()) (seen map[string]int, missing []string) {
		seen = make(map[string]int)
		for cursor := ""; ; {
			var page struct {
				Sessions []placed
				Next     string
				Missing  []string `json:"nodes_missing"`
			}
			r := c.nodes[0].ask("GET", "/api/v1/sessions?limit=3&state=attached&cursor="+cursor, "").want(t, "a page", 200, "sessions")
			if err := json.Unmarshal([]byte(r.body), &page); err != nil || len(page.Sessions) > 3 {
				t.Fatal(r.body, err)
			}
			missing = append(missing, page.Missing...)
			for _, s := range page.Sessions {
				if seen[s.ID]++; seen[s.ID] > 1 {
					t.Errorf("%s is listed %d times", s.ID, seen[s.ID])
				}
			}
			if cursor = page.Next; cursor == "" {
				return seen, missing
			}
			each()
		}
	}
	for round := range 3 {
		kill := sync.OnceFunc(func() { c.nodes[2].cmd.Process.Kill() })
		seen, _ := walk(func() {
			if round == 1 {
				kill()
			}
		})
		for id := range stays {
			if seen[id] != 1 {
				t.Errorf("round %d: %s is listed %d times", round, id, seen[id])
			}
		}
		if round == 0 && seen[lost.session] != 1 {
			t.Error("the session of the third node is not listed")
		}
	}
	close(done)
	<-churned
	pid := c.nodes[1].cmd.Process.Pid
	t.Cleanup(func() { syscall.Kill(pid, syscall.SIGCONT) })
	syscall.Kill(pid, syscall.SIGSTOP)
	if _, missing := walk(func() {}); !slices.Contains(missing, "n1") {
		t.Errorf("a node stands still: missing %v", missing)
	}
}
