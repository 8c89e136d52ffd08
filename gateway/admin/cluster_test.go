package admin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
	"reseat/gateway/cluster"
	"reseat/gateway/events"
	"reseat/gateway/front"
	"reseat/gateway/internal/test/clustertest"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/owner"
	"reseat/gateway/registry"
	"reseat/tokens"
)

// A town is a cluster in memory: worlds that are nodes of each other.
type town struct {
	*testing.T
	nodes []*place
	book  *book              // the log
	seats *clustertest.Seats // nil: no session is durable
	keys  *tokens.Keys       // of all nodes, with seats

	mu sync.Mutex // guards the places' fields below theirs
}

// A place is one node of a town.
type place struct {
	*world
	town *town
	node cluster.Node
	ln   *wstest.Listener
	asks int // requests that other nodes have sent

	down, gone bool // it does not answer; it is known to have ended
	deaf       bool // its connection to the log is lost
	lost       func(cluster.Node)
	up         func()

	seats *cluster.Seats // nil without durable sessions
}

// errNodeDown is how a node that is down answers.
var errNodeDown = errors.New("connection refused")

// inTown runs test with nodes of these names. The id of the first is 00000001.
func inTown(t *testing.T, names []string, test func(t *testing.T, nodes []*place), changes ...change) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newTown(t).fill(names, changes...)) })
}

func newTown(t *testing.T) *town { return &town{T: t, book: newBook()} }

// fill adds nodes, and waits until all publish and take events.
func (all *town) fill(names []string, changes ...change) []*place {
	for i, name := range names {
		all.add(fmt.Sprintf("%08x", i+1), name, changes...)
	}
	synctest.Wait()
	return all.nodes
}

// add makes one more node.
func (all *town) add(id, name string, changes ...change) *place {
	p := &place{town: all, node: cluster.Node{ID: id, Name: name, State: cluster.StateUp, Version: "v1"}, ln: wstest.NewListener(4 << 10)}
	if all.seats != nil {
		changes = append(changes, p.withSeats())
	}
	p.world = newWorld(all.T, append(changes, func(c *gateway.Config, o *Options) {
		o.Cluster = p
		if c.Cluster == nil {
			c.Cluster = placeID(id)
		}
	})...)
	h := p.admin.(*Handler)
	ctx, cancel := context.WithCancel(context.Background())
	go h.Run(ctx)
	server := &http.Server{Handler: h.NodeHandler()}
	go server.Serve(p.ln)
	all.Cleanup(func() { cancel(); server.Close() })
	all.mu.Lock()
	defer all.mu.Unlock()
	all.nodes = append(all.nodes, p)
	return p
}

// set changes a place's fields.
func (p *place) set(change func(*place)) {
	p.town.mu.Lock()
	defer p.town.mu.Unlock()
	change(p)
}

// Nodes implements Cluster.
func (p *place) Nodes() []cluster.Node {
	p.town.mu.Lock()
	defer p.town.mu.Unlock()
	list := []cluster.Node{p.node}
	for _, o := range p.town.nodes {
		if o != p && !o.gone {
			list = append(list, o.node)
		}
	}
	return list
}

// Hello implements Cluster.
func (p *place) Hello() cluster.Hello { return cluster.Hello{Cluster: "town"} }

// Engine implements Cluster.
func (p *place) Engine() cluster.EngineStatus {
	return cluster.EngineStatus{Up: true, Servers: 3, Replicas: 3, RTT: 200 * time.Microsecond, Since: time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)}
}

func (p *place) find(id string) *place {
	p.town.mu.Lock()
	defer p.town.mu.Unlock()
	for _, o := range p.town.nodes {
		if o.node.ID == id {
			return o
		}
	}
	return nil
}

// RoundTrip implements Cluster. A node that is down never answers.
func (p *place) RoundTrip(r *http.Request) (*http.Response, error) {
	to := p.find(r.URL.Host)
	if to == nil {
		return nil, errNodeDown
	}
	var down, gone bool
	to.set(func(o *place) { o.asks++; down, gone = o.down, o.gone })
	switch {
	case gone:
		return nil, errNodeDown
	case down:
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	tr := &http.Transport{DisableKeepAlives: true, DialTLSContext: func(context.Context, string, string) (net.Conn, error) { return to.ln.Dial() }}
	return tr.RoundTrip(r)
}

// Gone implements Cluster.
func (p *place) Gone(_ context.Context, node string) (gone bool) {
	if to := p.find(node); to != nil {
		to.set(func(o *place) { gone = o.gone })
	}
	return gone
}

// hear loses or restores a node's connection to the log.
func (p *place) hear(on bool) {
	synctest.Wait()
	var up func()
	p.set(func(p *place) { p.deaf, up = !on, p.up })
	if on {
		up()
	}
}

// OnEngineUp implements Cluster.
func (p *place) OnEngineUp(f func()) { p.set(func(p *place) { p.up = f }) }

// OnLost implements Cluster.
func (p *place) OnLost(f func(cluster.Node)) { p.set(func(p *place) { p.lost = f }) }

// Log implements Cluster.
func (p *place) Log() events.Log { return p.town.book.at(p) }

// Seal implements Cluster.
func (p *place) Seal(at string, message []byte) ([]byte, error) {
	return append([]byte(at), message...), nil
}

// Open implements Cluster.
func (p *place) Open(at string, sealed []byte) ([]byte, error) {
	message, ok := bytes.CutPrefix(sealed, []byte(at))
	if !ok {
		return nil, errors.New("it is not sealed")
	}
	return message, nil
}

// placeID is a node as its gateway sees it: clients that come back elsewhere are not tested
// here.
type placeID string

func (id placeID) ID() string { return string(id) }

func (id placeID) Dial(context.Context, string) (net.Conn, error) { return nil, errNodeDown }

func (id placeID) Judge(context.Context, string) cluster.Judgement { return cluster.Judgement{} }

var three = []string{"ann", "bob", "cid"}

func TestCallsForSessionReachItsNode(t *testing.T) {
	inTown(t, three, func(t *testing.T, nodes []*place) {
		p, game := nodes[0].play("red")
		at := nodes[2]
		at.wantDescribed(p, "node", "ann", "id", p.Hello.Session, "group", "red")
		at.wantObject("PATCH", path(p), `{"grace":"5m"}`, "grace", "5m", "node", "ann")
		at.wantRefused("PATCH", path(p), `{"grace":5}`, http.StatusBadRequest, "grace")
		if n := len(at.object("GET", path(p)+"/history", "", http.StatusOK)["events"].([]any)); n != 2 {
			t.Errorf("%d events", n)
		}
		at.wantStatus("POST", path(p)+"/disconnect", http.StatusNoContent)
		p.WantControl("grace")
		p.WantEnd()
		at.wantProblem("POST", path(p)+"/disconnect", http.StatusConflict, "attached")
		at.wantStatus("DELETE", path(p)+"?code=4001&reason=kicked", http.StatusNoContent)
		if got := game.WantClose(4001); got != "kicked" {
			t.Errorf("the game server got %q", got)
		}
		at.wantProblem("DELETE", path(p), http.StatusConflict, "ended")
		at.wantDescribed(p, "by", "loopback", "node", "ann")
		if nodes[1].asks != 0 {
			t.Errorf("a node that has nothing to do with it was asked %d times", nodes[1].asks)
		}
	})
}

// The owner's audit log names the caller as the node that was asked knows them.
func TestForwardedCallIsLoggedWithItsCaller(t *testing.T) {
	inTown(t, three[:2], func(t *testing.T, nodes []*place) {
		p, _ := nodes[0].play("")
		nodes[1].send("DELETE", path(p), "", "Authorization: Bearer "+adminToken)
		for i, from := range []any{"00000002", nil} {
			lines := nodes[i].lines("admin.write")
			if len(lines) != 1 {
				t.Fatalf("node %d: %v", i, lines)
			}
			if l := lines[0]; l["who"] != "admin-token line 1" || l["path"] != path(p) || l["session"] != p.Hello.Session || l["status"] != 204.0 || l["peer"] != "192.0.2.1:1234" || l["from_node"] != from {
				t.Errorf("node %d: %v", i, l)
			}
		}
		if log := nodes[0].log.String(); strings.Contains(log, adminToken) {
			t.Error("the token is in the log")
		}
	}, withTokens(t))
}

func TestDataConditionsReachItsNode(t *testing.T) {
	inTown(t, three[:2], func(t *testing.T, nodes []*place) {
		p, _ := nodes[0].play("")
		here, there, data := nodes[0], nodes[1], path(p)+"/data"
		there.wantProblem("GET", data, http.StatusNotFound, "no data")
		first := there.send("PUT", data, "a\x00\xff", "If-None-Match: *")
		tag := first.Header().Get("ETag")
		if first.Code != http.StatusNoContent || tag == "" {
			t.Fatalf("%d %v", first.Code, first.Header())
		}
		for _, w := range []*place{here, there} {
			if got := w.call("GET", data); got.Body.String() != "a\x00\xff" || got.Header().Get("ETag") != tag || got.Header().Get("Content-Type") != "application/octet-stream" || len(got.Header()["X-Content-Type-Options"]) != 1 {
				t.Errorf("%q, %v", got.Body, got.Header())
			}
			if got := w.send("GET", data, "", "If-None-Match: "+tag); got.Code != http.StatusNotModified {
				t.Errorf("with the tag that it has: %d, want 304", got.Code)
			}
		}
		there.wantRefused("PUT", data, "b", http.StatusPreconditionFailed, "condition", "If-None-Match: *")
		if got := there.send("PUT", data, "b", `If-Match: "zz"`, "If-Match: "+tag); got.Code != http.StatusNoContent {
			t.Errorf("%d %s", got.Code, got.Body)
		}
		here.wantRefused("PUT", data, "c", http.StatusPreconditionFailed, "condition", "If-Match: "+tag)
		there.wantRefused("PUT", data, strings.Repeat("x", gateway.MaxData+1), http.StatusRequestEntityTooLarge, "at most")
	})
}

func TestUnknownSessionIs404OnlyIfItsNodeSaysSo(t *testing.T) {
	inTown(t, three, func(t *testing.T, nodes []*place) {
		p, _ := nodes[0].play("")
		at, rest := nodes[2], strings.Repeat("0", registry.SessionIDLen)
		for _, id := range []string{"x", nodes[0].node.ID + rest, at.node.ID + rest, rest} {
			at.wantProblem("GET", sessions+"/"+id, http.StatusNotFound, "no such session")
		}
		nodes[0].set(func(n *place) { n.down = true })
		calls := []string{"GET ", "PATCH ", "DELETE ", "GET /history", "POST /disconnect", "GET /data", "PUT /data"}
		for _, c := range calls {
			method, end, _ := strings.Cut(c, " ")
			body := map[string]string{"PATCH": `{}`, "PUT": "x"}[method]
			began := time.Now()
			at.wantRefused(method, path(p)+end, body, http.StatusBadGateway, "node ann does not answer")
			if d := time.Since(began); d != passTimeout {
				t.Errorf("%s: given up after %v", c, d)
			}
		}
		at.wantProblem("GET", sessions+"/"+rest, http.StatusBadGateway, "do not answer") // nobody knows who has it
		at.wantProblem("GET", sessions+"/"+"99999999"+rest, http.StatusBadGateway, "99999999")
		nodes[0].set(func(n *place) { n.gone = true })
		at.wantProblem("GET", path(p), http.StatusNotFound, "its node was lost")
	})
}

// A session from before its node joined the cluster has an id without its node's.
func TestSessionWithShortIDIsFoundByAskingAllNodes(t *testing.T) {
	inTown(t, three, func(t *testing.T, nodes []*place) {
		old := newWorld(t) // not in the cluster
		p, _ := old.play("")
		h := New(old.gw, Options{Cluster: nodes[1], Log: newLog(old.log)})
		server := &http.Server{Handler: h.NodeHandler()}
		ln := wstest.NewListener(4 << 10)
		go server.Serve(ln)
		t.Cleanup(func() { server.Close() })
		nodes[1].ln = ln
		if got := nodes[0].describe(p); len(p.Hello.Session) != registry.SessionIDLen || got["id"] != p.Hello.Session || got["node"] != "bob" {
			t.Errorf("%v", got)
		}
		nodes[0].wantStatus("DELETE", path(p), http.StatusNoContent)
	})
}

func TestQueryNamesOneNode(t *testing.T) {
	inTown(t, three, func(t *testing.T, nodes []*place) {
		p, _ := nodes[0].play("")
		q, _ := nodes[1].play("")
		at := nodes[1]
		for _, name := range []string{"ann", "00000001"} {
			at.wantList("?node="+name, p)
		}
		for _, name := range []string{"self", "bob", "00000002"} {
			at.wantList("?node="+name, q)
		}
		at.wantProblem("GET", path(p)+"?node=self", http.StatusNotFound, "no such session")
		at.wantProblem("GET", path(p)+"?node=cid", http.StatusNotFound, "no such session")
		at.wantProblem("GET", sessions+"?node=dan", http.StatusNotFound, "no node")
		at.wantProblem("GET", "/api/v1/drain?node=dan", http.StatusNotFound, "no node")
		made := at.object("POST", sessions+"?node=cid", `{"path":"/match/7"}`, http.StatusCreated)
		if id := made["id"].(string); !strings.HasPrefix(id, "00000003") {
			t.Errorf("made at another node: %s", id)
		}
		if id := at.object("POST", sessions, `{"path":"/match/7"}`, http.StatusCreated)["id"].(string); !strings.HasPrefix(id, "00000002") {
			t.Errorf("without a name it is made at %s", id)
		}
		nodes[2].set(func(n *place) { n.down = true })
		at.wantProblem("GET", "/api/v1/drain?node=cid", http.StatusBadGateway, "node cid does not answer")
	})
	inTown(t, []string{"twin", "twin", "cid"}, func(t *testing.T, nodes []*place) {
		nodes[2].wantProblem("GET", sessions+"?node=twin", http.StatusConflict, "00000001, 00000002")
		nodes[2].wantList("?node=00000001")
	})
}

// Without a cluster the query is like any unknown one.
func TestNodeInQueryIsIgnoredWithoutCluster(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, _ := w.play("")
		w.wantList("?node=nobody", p)
		if _, found := w.describe(p)["node"]; found {
			t.Error("a session shows a node")
		}
		rec := newRequest(w.admin.(*Handler).NodeHandler(), "GET", "/node/v1/api/sessions", "Reseat-Node-From: 00000001", "Reseat-Node-Caller: x")
		wantProblem(t, rec, http.StatusNotFound, "no such resource")
	})
}

func TestNodeHandlerPassesNothingOn(t *testing.T) {
	inTown(t, three[:2], func(t *testing.T, nodes []*place) {
		p, _ := nodes[1].play("")
		h := nodes[0].admin.(*Handler).NodeHandler()
		as := []string{"Reseat-Node-From: 00000002", "Reseat-Node-Caller: loopback"}
		for target, status := range map[string]int{
			"/sessions/" + p.Hello.Session: 404, "/sessions/" + p.Hello.Session + "?node=bob": 404, "/drain?node=bob": 200, "/overview?node=bob": 200, "/groups/red/end": 405, "/nothing": 404,
		} {
			if rec := newRequest(h, "GET", nodePath+target, as...); rec.Code != status || rec.Header().Get(nodeHeader) != "00000001" {
				t.Errorf("%s: %d %s", target, rec.Code, rec.Body)
			}
		}
		if n := nodes[1].asks; n > 0 {
			t.Errorf("the other node was asked %d times", n)
		}
		for _, headers := range [][]string{nil, as[:1], as[1:], {as[0], "Reseat-Node-Caller: a\tb"}} {
			wantProblem(t, newRequest(h, "GET", nodePath+"/sessions", headers...), http.StatusBadRequest, "another node")
		}
		wantProblem(t, newRequest(h, "GET", nodePath+"/sessions", append(as, front.ViaHeader+": x")...), http.StatusLoopDetected, "forwarded")
		for _, target := range []string{"/metrics", "/node/v1/hello", "/", "/api/v1/sessions", "/node/v1/api/../metrics"} {
			wantProblem(t, newRequest(h, "GET", target, as...), http.StatusNotFound, "no such resource")
		}
	})
}

// A name in the query that is unknown, ambiguous or of a node that does not answer is
// refused in the same way by every call. What answers at a node's address may be another node, an
// older version, or no node.
func TestEveryCallRefusesNodesThatCannotAnswer(t *testing.T) {
	inTown(t, []string{"ann", "twin", "twin", "dun"}, func(t *testing.T, nodes []*place) {
		p, _ := nodes[0].play("")
		nodes[3].set(func(n *place) { n.down = true })
		for at, item := range described.Paths.Map() {
			if !strings.HasPrefix(at, apiPath) || strings.HasSuffix(at, ".json") || strings.Contains(at, "/nodes/") {
				continue
			}
			target := strings.NewReplacer("{id}", p.Hello.Session, "{group}", "red").Replace(at)
			for method := range item.Operations() {
				for name, status := range map[string]int{"nobody": http.StatusNotFound, "twin": http.StatusConflict, "dun": http.StatusBadGateway} {
					if slow(httptest.NewRequest(method, target, nil)) && name == "dun" {
						continue // these wait for as long as their caller
					}
					nodes[0].wantRefused(method, target+"?node="+name, "", status, "node")
				}
			}
		}
		nodes[3].ln = nodes[1].ln // another node answers there
		nodes[3].set(func(n *place) { n.down = false })
		nodes[0].wantProblem("POST", sessions+"?node=dun", http.StatusBadGateway, "node dun does not answer")
		if !t.Failed() { // a stream would have no end
			nodes[0].wantProblem("GET", "/api/v1/events?node=dun", http.StatusBadGateway, "node dun does not answer")
		}
	})
}

func (placeID) Takers(string) []string { return nil }

func (placeID) HandOff(context.Context, string, *owner.Handoff) error { return errNodeDown }
