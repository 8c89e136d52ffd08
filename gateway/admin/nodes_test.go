package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reseat/gateway"
	"reseat/gateway/cluster"
	"reseat/gateway/internal/test/clustertest"
	"reseat/gateway/internal/test/wstest"
	"reseat/gateway/owner"
	"reseat/gateway/transport"
	"reseat/gateway/watch"
	"reseat/tokens"
)

func TestGroupCallsReachAllNodes(t *testing.T) {
	inTown(t, three, func(t *testing.T, nodes []*place) {
		var players []*wstest.Player
		for _, n := range nodes {
			p, _ := n.play("red/1")
			players = append(players, p)
		}
		players[2].Drop()
		m := nodes[0].object("POST", "/api/v1/groups/red%2F1/start", "", http.StatusOK)
		if m["sessions"] != 3.0 || fmt.Sprint(m["nodes_missing"]) != "[]" {
			t.Errorf("%v", m)
		}
		for _, p := range players {
			if nodes[1].describe(p)["started"] != true {
				t.Error("a session is not started")
			}
		}
		nodes[0].wantObject("POST", "/api/v1/groups/red%2F1/end", "", "sessions", 3.0)
		nodes[1].wantDescribed(players[2], "state", "ended", "by", "loopback")
	})
}

// A change that has missed a node says what was done, and is repeated.
func TestGroupCallThatMissedANodeIs502(t *testing.T) {
	inTown(t, three, func(t *testing.T, nodes []*place) {
		for _, n := range nodes {
			n.play("red")
		}
		nodes[1].set(func(n *place) { n.down = true })
		for _, call := range []string{"start", "end"} {
			began := time.Now()
			rec := nodes[0].call("POST", "/api/v1/groups/red/"+call)
			wantProblem(t, rec, http.StatusBadGateway, "repeat")
			var d details
			if json.Unmarshal(rec.Body.Bytes(), &d); *d.Sessions != 2 || !slices.Equal(d.Missing, []string{"bob"}) || time.Since(began) != askTimeout {
				t.Errorf("%s after %v", rec.Body, time.Since(began))
			}
		}
		nodes[1].set(func(n *place) { n.down = false })
		nodes[0].object("POST", "/api/v1/groups/red/end", "", http.StatusOK)
	})
}

func TestGroupCallOfOneNodeStaysThere(t *testing.T) {
	inTown(t, three[:2], func(t *testing.T, nodes []*place) {
		p, _ := nodes[0].play("red")
		q, _ := nodes[1].play("red")
		m := nodes[0].object("POST", "/api/v1/groups/red/start?node=bob", "", http.StatusOK)
		if m["sessions"] != 1.0 || nodes[0].describe(p)["started"] == true || nodes[0].describe(q)["started"] != true {
			t.Errorf("%v", m)
		}
	})
}

func TestRefusalsOfAllNodesAreListed(t *testing.T) {
	inTown(t, three, func(t *testing.T, nodes []*place) {
		for i := range 6 {
			nodes[i%2].Handshake(fmt.Sprint("/match/", i), nil, "Origin: https://elsewhere.example\r\n")
			time.Sleep(time.Second)
		}
		nodes[2].set(func(n *place) { n.down = true })
		var page refusalPage
		json.Unmarshal(nodes[0].call("GET", "/api/v1/refusals").Body.Bytes(), &page)
		var got []string
		for _, r := range page.Refusals {
			got = append(got, r.Path+" "+r.Node)
		}
		if want := "/match/5 bob, /match/4 ann, /match/3 bob, /match/2 ann, /match/1 bob, /match/0 ann"; strings.Join(got, ", ") != want || !slices.Equal(page.Missing, []string{"cid"}) {
			t.Errorf("%v, without %v, want %s", got, page.Missing, want)
		}
		for range maxRefusals {
			nodes[1].Handshake("/match/9", nil, "Origin: https://elsewhere.example\r\n")
		}
		json.Unmarshal(nodes[0].call("GET", "/api/v1/refusals").Body.Bytes(), &page)
		if len(page.Refusals) != maxRefusals {
			t.Errorf("%d are listed", len(page.Refusals))
		}
	})
}

func TestOverviewSumsNodes(t *testing.T) {
	inTown(t, three, func(t *testing.T, nodes []*place) {
		all := populate(nodes, 3, 2, 1)
		all[0].Drop()
		all[4].Drop()
		nodes[2].wantStatus("DELETE", path(all[5]), http.StatusNoContent)
		nodes[2].Handshake("/match/1", nil, "Origin: https://elsewhere.example\r\n")
		synctest.Wait()
		for _, at := range nodes {
			o := at.overviewOf("")
			want := watch.StateCounts{Attached: 3, Detached: 2}
			if o.Totals.Sessions != want || o.Totals.Created != 6 || o.Totals.Ended != 1 || o.EndedBy["ended"] != 1 || o.Matching != 5 || len(o.Sessions) != 5 || o.Refusals != 1 || o.BufferMaxBytes != 3*at.overviewOf("?node=self").BufferMaxBytes {
				t.Errorf("at %s: %+v", at.node.Name, o)
			}
			if r := o.Routes; len(r) != 1 || r[0].Sessions != want || r[0].Created != 6 || r[0].Ended != 1 {
				t.Errorf("routes %+v", r)
			}
			if len(o.Nodes) != 3 || o.Nodes[0].Name != at.node.Name || o.Missing == nil || len(o.Missing) > 0 {
				t.Errorf("nodes %+v, without %v", o.Nodes, o.Missing)
			}
			if o := at.overviewOf("?node=bob"); o.Matching != 2 || o.Totals.Created != 2 || o.Nodes != nil {
				t.Errorf("of one node: %+v", o)
			}
		}
	})
}

// A cluster has a limit if each node has one.
func TestLimitOfClusterIsTheSumOfAllNodes(t *testing.T) {
	for want, limits := range map[int][]int{12: {5, 7}, 0: {5, 0}} {
		inTown(t, three[:2], func(t *testing.T, nodes []*place) {
			for _, at := range nodes {
				if got := at.overviewOf("").MaxSessions; got != want {
					t.Errorf("at %s: %d, want %d", at.node.Name, got, want)
				}
			}
		}, func(c *gateway.Config, _ *Options) { c.MaxSessions, limits = limits[0], limits[1:] })
	}
}

// The window of a cluster's overview is that of a sorted list of all sessions.
func TestOverviewMergesSortedSessions(t *testing.T) {
	inTown(t, three, func(t *testing.T, nodes []*place) {
		grace := map[string]string{"a": "80s", "b": "20s", "c": "50s", "d": "30s", "e": "60s", "f": "40s", "g": "70s"}
		for i, name := range strings.Split("d a f c g b e", " ") {
			n := nodes[i%3]
			n.object("POST", sessions, fmt.Sprintf(`{"path":"/match/7","player":%q,"grace":%q,"group":"g%s"}`, name, grace[name], name), http.StatusCreated)
			synctest.Wait()
			game := n.game.Next()
			for range 10 - i {
				game.Text("kept")
			}
			time.Sleep(time.Second)
		}
		nodes[1].play("") // has neither player nor group, and no grace period runs
		for query, want := range map[string]string{
			"":                               "d a f c g b e ?",
			"?sort=-since":                   "? e b g c f a d",
			"?sort=player":                   "a b c d e f g ?",
			"?sort=-player":                  "g f e d c b a ?",
			"?sort=-group":                   "g f e d c b a ?",
			"?sort=-buffer":                  "d a f c g b e ?",
			"?sort=grace":                    "b d f c e g a ?",
			"?sort=-grace":                   "a g e c f d b ?",
			"?sort=player&limit=2":           "a b",
			"?limit=3&offset=2":              "f c g",
			"?limit=3&offset=6":              "b e ?",
			"?limit=3&offset=9000":           "b e ?",
			"?limit=0":                       "",
			"?q=gc":                          "c",
			"?player=f":                      "f",
			"?state=attached":                "?",
			"?sort=-player&offset=5&limit=1": "b",
		} {
			nodes[2].wantShown(query, want)
		}
		for _, s := range nodes[0].overviewOf("?sort=player").Sessions[:3] {
			if want := map[string]string{"a": "bob", "b": "cid", "c": "ann"}[s.Player]; s.Node != want {
				t.Errorf("%s is at %s, want %s", s.Player, s.Node, want)
			}
		}
		for _, p := range []string{"c", "a", "b"} {
			nodes[0].wantStatus("DELETE", pathOf(nodes[0].clusterList("?player=" + p).Sessions[0].ID), http.StatusNoContent)
		}
		nodes[0].wantShown("?state=ended&sort=-since", "b c a")
	})
}

// The counts of a node that does not answer stay in the sums: a chart of them would show a
// fall and then a rise. Its sessions are not counted as present.
func TestCountsOfMissingNodeStay(t *testing.T) {
	inTown(t, three[:2], func(t *testing.T, nodes []*place) {
		populate(nodes, 1, 2)
		nodes[0].overviewOf("")
		nodes[1].set(func(n *place) { n.down = true })
		o := nodes[0].overviewOf("")
		if o.Totals.Created != 3 || o.Totals.Sessions.Attached != 1 || o.Matching != 1 || o.Routes[0].Created != 3 || o.Routes[0].Sessions.Attached != 1 || !slices.Equal(o.Missing, []string{"bob"}) {
			t.Errorf("%+v", o)
		}
		nodes[1].set(func(n *place) { n.gone = true })
		if o := nodes[0].overviewOf(""); o.Totals.Created != 1 || len(o.Nodes) != 1 || len(o.Missing) > 0 {
			t.Errorf("once it is gone: %+v", o)
		}
	})
}

func TestTotalsOfNodesAreInterpolated(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	point := func(s int, created uint64, attached int) watch.Totals {
		return watch.Totals{Time: at(s), Created: created, Sessions: watch.StateCounts{Attached: attached}}
	}
	p := peer{points: []watch.Totals{point(10, 100, 1), point(20, 200, 2), point(30, 210, 3)}, since: at(5)}
	for s, want := range map[int]watch.Totals{
		4: {}, 7: {Created: 100}, 10: point(10, 100, 1), 15: point(0, 150, 1), 18: point(0, 180, 1), 20: point(20, 200, 2), 25: point(0, 205, 2), 30: point(30, 210, 3), 40: point(0, 210, 3),
	} {
		if got := p.at(at(s)); got.Created != want.Created || got.Sessions != want.Sessions {
			t.Errorf("at %d: %+v, want %+v", s, got, want)
		}
	}
	sum := watch.Totals{RTTMedian: 10, RTTHigh: 50, Sessions: watch.StateCounts{Attached: 1}}
	addTotals(&sum, watch.Totals{RTTMedian: 40, RTTHigh: 45, Sessions: watch.StateCounts{Attached: 2}})
	addTotals(&sum, watch.Totals{Sessions: watch.StateCounts{Attached: 3}})
	if sum.RTTMedian != 30 || sum.RTTHigh != 50 || sum.Sessions.Attached != 6 {
		t.Errorf("two nodes and one add up to %+v", sum)
	}
}

func TestNodeIsDrainedByNameOrID(t *testing.T) {
	inTown(t, []string{"ann", "bob/b", "twin", "twin"}, func(t *testing.T, nodes []*place) {
		for i, name := range map[int]string{0: "ann", 1: "bob%2Fb", 2: "00000003"} {
			target := "/api/v1/nodes/" + name + "/drain"
			if m := nodes[1].object("POST", target, "", http.StatusOK); m["draining"] != true || !nodes[i].gw.Draining() {
				t.Errorf("%s: %v", name, m)
			}
			for j, n := range nodes {
				if j != i && n.gw.Draining() {
					t.Errorf("%s: node %d drains", name, j)
				}
			}
			nodes[1].wantObject("GET", target, "", "draining", true)
			if m := nodes[1].object("DELETE", target, "", http.StatusOK); m["draining"] != false || nodes[i].gw.Draining() {
				t.Errorf("%s: %v", name, m)
			}
		}
		for _, method := range []string{"GET", "POST", "DELETE"} {
			nodes[0].wantProblem(method, "/api/v1/nodes/twin/drain", http.StatusConflict, "00000003, 00000004")
			nodes[0].wantProblem(method, "/api/v1/nodes/nobody/drain", http.StatusNotFound, "no node")
			rec := newRequest(nodes[0].admin.(*Handler).NodeHandler(), method, nodePath+"/nodes/ann/drain", "Reseat-Node-From: 00000002", "Reseat-Node-Caller: loopback")
			wantProblem(t, rec, http.StatusNotFound, "")
		}
		nodes[2].set(func(n *place) { n.down = true })
		for _, method := range []string{"GET", "POST", "DELETE"} {
			nodes[0].wantProblem(method, "/api/v1/nodes/00000003/drain", http.StatusBadGateway, "node twin does not answer")
		}
	})
	inTown(t, three[:2], func(t *testing.T, nodes []*place) { // a script drains the node that it talks to
		nodes[0].object("POST", "/api/v1/drain", "", http.StatusOK)
		for at, draining := range map[string]bool{"ann": true, "bob": false} {
			nodes[1].wantObject("GET", "/api/v1/drain?node="+at, "", "draining", draining)
		}
	})
	inWorld(t, func(t *testing.T, w *world) {
		w.wantProblem("POST", "/api/v1/nodes/self/drain", http.StatusNotFound, "no such resource")
	})
}

func TestViewersMayNotChangeNodes(t *testing.T) {
	inTown(t, three[:2], func(t *testing.T, nodes []*place) {
		for _, method := range []string{"POST", "DELETE"} {
			target := "/api/v1/nodes/bob/drain"
			nodes[0].wantRefused(method, target, "", http.StatusForbidden, "viewer", "Authorization: Bearer "+viewerToken)
			nodes[0].wantRefused(method, target, "", http.StatusUnauthorized, "token")
		}
		if o := nodes[0].send("GET", "/api/v1/overview", "", "Authorization: Bearer "+viewerToken); !strings.Contains(o.Body.String(), `"write":false`) {
			t.Errorf("a viewer is shown %s, want write false", o.Body)
		}
	}, withTokens(t))
}

// The nodes and the engine are for everybody who may look at sessions, and for no foreign page.
func TestNodesAndClusterAreShown(t *testing.T) {
	inTown(t, three, func(t *testing.T, nodes []*place) {
		list := nodes[0].object("GET", "/api/v1/nodes", "", http.StatusOK)["nodes"].([]any)
		if len(list) != 3 || list[0].(map[string]any)["name"] != "ann" {
			t.Errorf("nodes %v, want three, ann first", list)
		}
		engine := nodes[0].object("GET", "/api/v1/cluster", "", http.StatusOK)["engine"].(map[string]any)
		if engine["up"] != true || engine["servers"] != 3.0 {
			t.Errorf("engine %v, want it up with 3 servers", engine)
		}
		for _, target := range []string{"/api/v1/nodes", "/api/v1/cluster", "/api/v1/nodes/bob/drain"} {
			nodes[0].wantRefused("GET", target, "", http.StatusForbidden, "", "Origin: https://evil.example")
		}
	})
	inTown(t, three[:2], func(t *testing.T, nodes []*place) {
		for _, target := range []string{"/api/v1/nodes", "/api/v1/cluster", "/api/v1/nodes/bob/drain"} {
			nodes[0].wantRefused("GET", target, "", http.StatusUnauthorized, "token")
		}
	}, withTokens(t))
}

// A clusterPage is an answer to GET /sessions of a cluster.
type clusterPage struct {
	Sessions []struct{ ID, Node string }
	Next     string
	Missing  []string `json:"nodes_missing"`
}

func (w *world) clusterList(query string) (p clusterPage) {
	w.t.Helper()
	rec := w.call("GET", sessions+query)
	if err := json.Unmarshal(rec.Body.Bytes(), &p); err != nil || rec.Code != http.StatusOK || p.Missing == nil {
		w.t.Fatalf("list%s: %d %s, %v", query, rec.Code, rec.Body, err)
	}
	return p
}

// walkAll follows next to the last page, and returns all ids and the number of pages. No page
// is longer than the query's limit.
func (w *world) walkAll(query string) (ids []string, pages int) {
	w.t.Helper()
	var limit int
	if _, err := fmt.Sscan(query[strings.Index(query, "limit=")+len("limit="):], &limit); err != nil {
		w.t.Fatal(err)
	}
	for cursor := ""; ; {
		p := w.clusterList(query + cursor)
		if len(p.Sessions) > limit {
			w.t.Errorf("list%s: a page of %d", query+cursor, len(p.Sessions))
		}
		for _, s := range p.Sessions {
			ids = append(ids, s.ID)
		}
		if pages++; p.Next == "" || pages > 100 {
			return ids, pages
		}
		cursor = "&cursor=" + p.Next
	}
}

func idsOf(players ...*wstest.Player) (ids []string) {
	for _, p := range players {
		ids = append(ids, p.Hello.Session)
	}
	return ids
}

// populate begins sessions: the number of each node's.
func populate(nodes []*place, counts ...int) (all []*wstest.Player) {
	for i, n := range counts {
		for j := range n {
			p, _ := nodes[i].play(fmt.Sprint("g", j%2))
			all = append(all, p)
		}
	}
	return all
}

func TestListWalksTheNodes(t *testing.T) {
	inTown(t, three, func(t *testing.T, nodes []*place) {
		want := idsOf(populate(nodes, 5, 0, 4)...)
		for i, at := range nodes {
			for _, limit := range []int{1, 2, 3, 4, 5, 6, 8, 9, 10, 1000} {
				if got, pages := at.walkAll(fmt.Sprint("?limit=", limit)); !slices.Equal(got, want) || pages > 9/limit+4 {
					t.Errorf("at node %d, pages of %d: %d pages, %v, want %v", i, limit, pages, got, want)
				}
			}
		}
		page := nodes[1].clusterList("?limit=6") // all of ann's, and not all of cid's would fit
		if page.Sessions[0].Node != "ann" || len(page.Sessions) != 5 || page.Next != "00000003-0" || len(page.Missing) != 0 {
			t.Errorf("%+v", page)
		}
	})
}

func TestFiltersAskAllNodes(t *testing.T) {
	many := strings.Split("a b c d e f g h", " ")
	inTown(t, many, func(t *testing.T, nodes []*place) {
		all := populate(nodes, 4, 0, 0, 0, 0, 0, 4, 4)
		odd := idsOf(all[1], all[3], all[5], all[7], all[9], all[11])
		for _, limit := range []int{1, 2, 3, 4, 5, 6, 7} {
			if got, _ := nodes[6].walkAll(fmt.Sprint("?group=g1&limit=", limit)); !slices.Equal(got, odd) {
				t.Errorf("pages of %d: %v, want %v", limit, got, odd)
			}
		}
		if page := nodes[1].clusterList("?group=g1"); len(page.Sessions) != 6 || page.Next != "" {
			t.Errorf("%+v", page)
		}
		made := nodes[7].object("POST", sessions, `{"path":"/match/7","player":"ann"}`, http.StatusCreated)
		if page := nodes[0].clusterList("?player=ann"); len(page.Sessions) != 1 || page.Sessions[0].ID != made["id"] || page.Next != "" {
			t.Errorf("%+v", page)
		}
		nodes[7].wantStatus("DELETE", pathOf(made["id"].(string)), http.StatusNoContent)
		if page := nodes[0].clusterList("?player=ann&state=ended"); len(page.Sessions) != 1 {
			t.Errorf("%+v", page)
		}
		if page := nodes[0].clusterList("?player=ann&state=detached"); len(page.Sessions) != 0 {
			t.Errorf("%+v", page)
		}
	})
}

// A page waits for all silent nodes together.
func TestPageOfSilentNodesIsNotLate(t *testing.T) {
	inTown(t, []string{"ann", "bob", "cid", "dan", "eve", "fay"}, func(t *testing.T, nodes []*place) {
		p, _ := nodes[5].play("")
		for _, n := range nodes[:4] {
			n.set(func(n *place) { n.down = true })
		}
		began := time.Now()
		page := nodes[4].clusterList("")
		if d := time.Since(began); d != askTimeout || len(page.Missing) != 4 || page.Next == "" {
			t.Errorf("%v, without %v, next %q", d, page.Missing, page.Next)
		}
		rest := nodes[4].clusterList("?cursor=" + page.Next)
		if len(rest.Missing) > 0 || len(rest.Sessions) != 1 || rest.Sessions[0].ID != p.Hello.Session {
			t.Errorf("the second page: %+v, want the session of the last node", rest)
		}
	})
}

func TestBadClusterCursorsAreRefused(t *testing.T) {
	inTown(t, three[:2], func(t *testing.T, nodes []*place) {
		for _, c := range []string{"7", "x", "-", "00000001", "00000001-", "00000001-x", "00000001--1", "0000001-1", "000000001-1", "0000000G-1", "00000001-99999999999999999999"} {
			nodes[0].wantProblem("GET", sessions+"?cursor="+c, http.StatusBadRequest, "cursor")
		}
		nodes[0].wantProblem("GET", sessions+"?limit=0", http.StatusBadRequest, "limit")
		nodes[0].wantProblem("GET", sessions+"?state=x", http.StatusBadRequest, "state")
	})
}

// inDurableTown is inTown with sessions that outlive their nodes.
func inDurableTown(t *testing.T, names []string, test func(t *testing.T, nodes []*place, seats *clustertest.Seats)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		all := newTown(t)
		all.seats = clustertest.NewSeats()
		var err error
		if all.keys, err = tokens.Load(nil, tokens.Options{}); err != nil {
			t.Fatal(err)
		}
		test(t, all.fill(names), all.seats)
	})
}

// withSeats makes a node's sessions durable.
func (p *place) withSeats() change {
	id, link := p.node.ID, p.town.seats.Link()
	p.seats = cluster.NewSeats(func() string { return id }, link, p.town.keys.Derive, slog.New(slog.DiscardHandler))
	if _, err := link.PutSeat(context.Background(), "feed"+id, nil, 0); err != nil { // contact
		p.town.Fatal(err)
	}
	return func(c *gateway.Config, _ *Options) {
		c.Keys, c.Seats, c.Driver = p.town.keys, p.seats, transport.Net
		c.Default.Durable, c.Default.Redeliver = true, true
		c.Routes[0].Policy = c.Default
		c.Cluster = neighbour{placeID(id), p.town}
	}
}

// A neighbour is a node as the gateway of another node sees it.
type neighbour struct {
	placeID
	town *town
}

// Judge implements owner.Cluster.
func (n neighbour) Judge(_ context.Context, node string) cluster.Judgement {
	v := cluster.Judgement{Verdict: cluster.Alive, Evidence: "test"}
	n.each(func(p *place) {
		if p.node.ID == node && p.gone {
			v.Verdict = cluster.Gone
		}
	})
	return v
}

// Takers implements owner.Cluster: all other nodes that live.
func (n neighbour) Takers(string) (list []string) {
	n.each(func(p *place) {
		if p.node.ID != n.ID() && !p.gone && !p.down {
			list = append(list, p.node.ID)
		}
	})
	return list
}

func (n neighbour) each(f func(*place)) {
	n.town.mu.Lock()
	defer n.town.mu.Unlock()
	for _, p := range n.town.nodes {
		f(p)
	}
}

// HandOff implements owner.Cluster.
func (n neighbour) HandOff(_ context.Context, node string, h *owner.Handoff) error {
	b, err := json.Marshal(h)
	if err != nil {
		return err
	}
	var to *place
	n.each(func(p *place) {
		if p.node.ID == node {
			to = p
		}
	})
	rec := httptest.NewRecorder()
	to.gw.Owner().ServeHandoff(rec, httptest.NewRequest(http.MethodPost, owner.HandoffPath+h.Session, strings.NewReader(string(b))))
	return owner.HandoffError(rec.Result())
}

// beginDurable begins a durable session.
func (p *place) beginDurable() (*wstest.Player, *wstest.Peer) {
	p.t.Helper()
	player := p.PlayerWith("/match/7", "Reseat-Settled: 0 0\r\n")
	if !player.Hello.Durable {
		p.t.Fatalf("hello %+v, want durable", player.Hello)
	}
	return player, p.game.Next()
}

// claim has a client whose node is lost resume here.
func (p *place) claim(c *wstest.Player) (*wstest.Player, *wstest.Peer) {
	p.t.Helper()
	q := c.At(p.Door)
	q.Peer = q.TryResume(c.Hello.Token+", reseat.settled.0.0", "0")
	m := q.WantControl("hello")
	q.Hello = c.Hello
	if err := json.Unmarshal([]byte(m.Data), &q.Hello); err != nil {
		p.t.Fatal(err)
	}
	return q, p.game.Next()
}

// lose ends a node without a word: its sessions are lost with it.
func (p *place) lose() {
	p.set(func(p *place) { p.gone = true })
}

// wantMoved checks what a node says of a session.
func (p *place) wantMoved(c *wstest.Player, node, durable, moved string, epoch float64) {
	p.t.Helper()
	p.wantDescribed(c, "node", node, "durable", durable, "moved", moved, "epoch", epoch)
}

func TestSessionSaysWhetherItIsDurable(t *testing.T) {
	inDurableTown(t, three[:2], func(t *testing.T, nodes []*place, seats *clustertest.Seats) {
		p, _ := nodes[0].beginDurable()
		nodes[1].wantMoved(p, "ann", "covered", "", 0)
		plain, _ := nodes[0].play("")
		nodes[1].wantMoved(plain, "ann", "no", "", 0)
		if got := nodes[1].object("GET", "/api/v1/overview", "", http.StatusOK)["totals"].(map[string]any)["durable"]; fmt.Sprint(got) != "map[covered:1 exposed:0]" {
			t.Errorf("the overview counts %v", got)
		}
		seats.SetAway(true)
		nodes[0].wantStatus("POST", path(p)+"/disconnect", http.StatusNoContent)
		nodes[0].object("PATCH", path(p), `{"grace":"5m"}`, http.StatusOK)
		time.Sleep(2 * time.Second)
		nodes[1].wantMoved(p, "ann", "exposed", "", 0)
		if got := nodes[1].object("GET", "/api/v1/overview", "", http.StatusOK)["totals"].(map[string]any)["durable"]; fmt.Sprint(got) != "map[covered:0 exposed:1]" {
			t.Errorf("the overview counts %v", got)
		}
		seats.SetAway(false)
		nodes[0].wantStatus("DELETE", path(plain), http.StatusNoContent)
		nodes[1].wantMoved(plain, "ann", "no", "", 0)
	})
}

func TestCallsReachSessionThatAnotherNodeHasClaimed(t *testing.T) {
	inDurableTown(t, three, func(t *testing.T, nodes []*place, _ *clustertest.Seats) {
		p, _ := nodes[0].beginDurable()
		nodes[0].send("PUT", path(p)+"/data", "seat=3")
		nodes[0].object("PATCH", path(p), `{"group":"red"}`, http.StatusOK)
		synctest.Wait()
		nodes[0].lose()
		for _, at := range nodes[1:] { // nobody has it yet
			at.wantProblem("GET", path(p), http.StatusBadGateway, "until its client comes back")
		}
		q, game := nodes[1].claim(p)
		q.Sync()
		for _, at := range nodes[1:] {
			at.wantMoved(q, "bob", "covered", "failover", 1)
		}
		at := nodes[2]
		at.wantList("?group=red", q)
		if got := at.list("").Sessions[0]; got["node"] != "bob" || got["moved"] != "failover" || got["durable"] != "covered" {
			t.Errorf("listed as %v", got)
		}
		if got := at.call("GET", path(q)+"/data"); got.Body.String() != "seat=3" {
			t.Errorf("data %q", got.Body)
		}
		var history []string
		for _, e := range at.object("GET", path(q)+"/history", "", http.StatusOK)["events"].([]any) {
			history = append(history, fmt.Sprint(e.(map[string]any)["type"], " ", e.(map[string]any)["reason"]))
		}
		if got := strings.Join(history, ","); got != "session.created ,session.moved failover,session.resumed " {
			t.Errorf("history %q", got)
		}
		at.wantObject("PATCH", path(q), `{"grace":"5m"}`, "grace", "5m", "node", "bob")
		at.wantStatus("POST", path(q)+"/disconnect", http.StatusNoContent)
		at.wantStatus("DELETE", path(q)+"?code=4001&reason=kicked", http.StatusNoContent)
		if got := game.WantClose(4001); got != "kicked" {
			t.Errorf("the game server got %q", got)
		}
		synctest.Wait()
		at.wantMoved(q, "bob", "covered", "failover", 1)
		at.wantProblem("DELETE", path(q), http.StatusConflict, "ended")
		time.Sleep(6 * time.Minute) // forgotten, and its seat says only that it has ended
		at.wantProblem("GET", path(q), http.StatusNotFound, "no such session")
	})
}

// The node that a session's id names knows where it has handed it off, and else the seat does.
func TestCallsReachSessionThatWasHandedOff(t *testing.T) {
	inDurableTown(t, three, func(t *testing.T, nodes []*place, seats *clustertest.Seats) {
		p, game := nodes[0].beginDurable()
		p.Sync()
		nodes[0].object("POST", "/api/v1/drain?node=self", "", http.StatusOK)
		game.WantClose(1001)
		game.Close(1001, "")
		synctest.Wait()
		to := nodes[1]
		if _, ok := to.gw.Control().Session(p.Hello.Session); !ok {
			to = nodes[2]
		}
		for _, at := range nodes {
			at.wantMoved(p, to.node.Name, "covered", "handoff", 1)
		}
		nodes[0].lose()
		for _, at := range nodes[1:] {
			at.wantMoved(p, to.node.Name, "covered", "handoff", 1)
		}
		seats.SetAway(true)
		other := nodes[1]
		if to == other {
			other = nodes[2]
		}
		other.wantProblem("GET", path(p), http.StatusBadGateway, "NATS cannot say")
		to.wantMoved(p, to.node.Name, "covered", "handoff", 1)
	})
}

// The event that a session has moved comes before that of its resume, at every node.
func TestStreamShowsMoveBeforeResume(t *testing.T) {
	inDurableTown(t, three, func(t *testing.T, nodes []*place, _ *clustertest.Seats) {
		l := nodes[2].serve().listen("")
		p, _ := nodes[0].beginDurable()
		p.Sync()
		p.Drop()
		synctest.Wait()
		nodes[0].lose()
		q, _ := nodes[1].claim(p)
		q.Sync()
		l.wantFrom("session.created ann", "session.detached ann", "session.moved bob", "session.resumed bob")
	})
}

// A seat may name a node a moment before the session is there, or although it never gets there.
func TestSessionThatNoNodeHasIsNotUnknown(t *testing.T) {
	inDurableTown(t, three, func(t *testing.T, nodes []*place, _ *clustertest.Seats) {
		p, _ := nodes[0].beginDurable()
		nodes[0].lose()
		seat, err := nodes[1].seats.Get(t.Context(), p.Hello.Session)
		if err != nil {
			t.Fatal(err)
		}
		seat.Owner, seat.Epoch = nodes[1].node.ID, 1
		if _, err := nodes[1].seats.Put(t.Context(), seat); err != nil {
			t.Fatal(err)
		}
		for _, at := range nodes[1:] {
			for _, c := range []string{"GET ", "PATCH ", "DELETE ", "GET /history", "POST /disconnect", "GET /data", "PUT /data"} {
				method, end, _ := strings.Cut(c, " ")
				body := map[string]string{"PATCH": `{}`, "PUT": "x"}[method]
				began := time.Now()
				at.wantRefused(method, path(p)+end, body, http.StatusBadGateway, "no node has it now")
				if d := time.Since(began); d > time.Second {
					t.Errorf("%s at %s: given up after %v", c, at.node.Name, d)
				}
			}
			at.wantProblem("GET", path(p)+"?node=self", http.StatusNotFound, "no such session")
		}
	})
}
