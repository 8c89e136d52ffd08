package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"reseat/gateway/internal/test/wstest"
)

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
				if got, pages := at.walkAll(fmt.Sprint("?limit=", limit)); !slices.Equal(got, want) || pages > 1+9/limit+1 {
					t.Errorf("at node %d, pages of %d: %d pages, %v, want %v", i, limit, pages, got, want)
				}
			}
		}
		page := nodes[1].clusterList("?limit=6")
		if first, last := page.Sessions[0], page.Sessions[5]; first.Node != "ann" || last.Node != "cid" || page.Next != "00000003-1" || len(page.Missing) != 0 {
			t.Errorf("%+v", page)
		}
	})
}

func TestPageStopsAtItsLastSessionsNode(t *testing.T) {
	inTown(t, three, func(t *testing.T, nodes []*place) {
		populate(nodes, 2, 2, 2)
		before := nodes[2].asks
		nodes[0].clusterList("?limit=3")
		if nodes[1].asks != 1 || nodes[2].asks != before {
			t.Errorf("the nodes were asked %d and %d times", nodes[1].asks, nodes[2].asks)
		}
	})
	many := strings.Split("a b c d e f g h", " ")
	inTown(t, many, func(t *testing.T, nodes []*place) {
		want := idsOf(populate(nodes, 0, 0, 0, 0, 0, 0, 1, 1)...)
		page := nodes[0].clusterList("")
		if len(page.Sessions) != 0 || page.Next != "00000005-0" || nodes[4].asks != 0 {
			t.Errorf("after %d nodes: %+v", maxWalk, page)
		}
		if got, _ := nodes[0].walkAll("?limit=7"); !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
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

// Neither sessions nor nodes that come or go between two pages move others out of the list,
// or into it twice.
func TestWalkIsStableWhileNodesComeAndGo(t *testing.T) {
	inTown(t, three, func(t *testing.T, nodes []*place) {
		all := populate(nodes, 2, 2, 2)
		ids := idsOf(all...)
		first := nodes[0].clusterList("?limit=3") // stops within the second node
		nodes[0].wantStatus("DELETE", path(all[2]), http.StatusNoContent)
		nodes[0].town.add("00000000", "new-first").play("")
		late, _ := nodes[0].town.add("00000009", "new-last").play("")
		nodes[0].wantClusterList("?limit=3&cursor="+first.Next, append(slices.Clone(ids[3:]), late.Hello.Session)[:3]...)
		nodes[1].set(func(n *place) { n.gone = true })
		nodes[0].wantClusterList("?limit=3&cursor="+first.Next, ids[4], ids[5], late.Hello.Session)
	})
}

func (w *world) wantClusterList(query string, ids ...string) {
	w.t.Helper()
	var got []string
	for _, s := range w.clusterList(query).Sessions {
		got = append(got, s.ID)
	}
	if !slices.Equal(got, ids) {
		w.t.Errorf("list%s: %v, want %v", query, got, ids)
	}
}

func TestListNamesNodesThatDoNotAnswer(t *testing.T) {
	inTown(t, three, func(t *testing.T, nodes []*place) {
		ids := idsOf(populate(nodes, 1, 1, 1)...)
		nodes[1].set(func(n *place) { n.down = true })
		for _, query := range []string{"", "?group=g0"} {
			page := nodes[0].clusterList(query)
			if len(page.Sessions) != 2 || page.Sessions[0].ID != ids[0] || page.Sessions[1].ID != ids[2] || !slices.Equal(page.Missing, []string{"bob"}) {
				t.Errorf("list%s: %+v", query, page)
			}
		}
	})
}

// A page waits for one silent node, and then for all others together.
func TestPageOfSilentNodesIsNotLate(t *testing.T) {
	inTown(t, []string{"ann", "bob", "cid", "dan", "eve", "fay"}, func(t *testing.T, nodes []*place) {
		p, _ := nodes[5].play("")
		for _, n := range nodes[:4] {
			n.set(func(n *place) { n.down = true })
		}
		began := time.Now()
		page := nodes[4].clusterList("")
		if d := time.Since(began); d != 2*askTimeout || len(page.Missing) != 4 || page.Next == "" {
			t.Errorf("%v, without %v, next %q", d, page.Missing, page.Next)
		}
		rest := nodes[4].clusterList("?cursor=" + page.Next)
		if len(rest.Missing) > 0 || len(rest.Sessions) != 1 || rest.Sessions[0].ID != p.Hello.Session {
			t.Errorf("%+v", rest)
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
