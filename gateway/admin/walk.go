package admin

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"reseat/gateway/cluster"
	"reseat/gateway/registry"
)

// maxWalk is the max number of nodes that a page asks, one after another.
const maxWalk = 4

// A nodePage is a page of one node's sessions. Those of other nodes are passed on verbatim.
type nodePage struct {
	Sessions []json.RawMessage `json:"sessions"`
	Next     string            `json:"next"`
}

// listAll lists the sessions of all nodes, by the nodes' ids and on each node in the order
// of their creation. A cursor is a node's id and a position there, so that a page costs few
// nodes, and neither sessions nor nodes that come or go move others out of the list.
func (a *api) listAll(w http.ResponseWriter, r *http.Request) {
	f, err := filterOfAll(r)
	from, after := "", uint64(0)
	if s := r.URL.Query().Get("cursor"); err == nil && s != "" {
		if from, after, err = parseCursor(s); err != nil {
			err = badCursor()
		}
	}
	if err != nil {
		refuse(w, err)
		return
	}
	walk := walk{a: a, r: r, filter: f, nodes: a.nodes()}
	walk.nodes = slices.DeleteFunc(walk.nodes, func(n Node) bool { return n.ID < from })
	if len(walk.nodes) > 0 && walk.nodes[0].ID == from {
		walk.filter.After = after
	}
	list, next := walk.page()
	answer(w, http.StatusOK, struct {
		Sessions []json.RawMessage `json:"sessions"`
		Next     string            `json:"next"`
		Missing  []string          `json:"nodes_missing"`
	}{list, next, names(walk.missing)})
}

// parseCursor splits a cursor into a node's id and a position among its sessions.
func parseCursor(s string) (node string, after uint64, err error) {
	node, at, _ := strings.Cut(s, "-")
	if len(node) != cluster.IDLen || !hexDigits(node) {
		return "", 0, strconv.ErrSyntax
	}
	after, err = strconv.ParseUint(at, 10, 64)
	return node, after, err
}

// A walk gathers one page of sessions from one node after another.
type walk struct {
	a       *api
	r       *http.Request
	filter  registry.Filter // After is the position on the first node
	nodes   []Node          // those that are left
	missing []Node          // those that did not answer

	early map[string]nodeAnswer // first answers of other nodes, by id, where all are asked at once
}

// page returns the page, and the cursor of the next, "" after the last.
func (k *walk) page() (list []json.RawMessage, next string) {
	list = []json.RawMessage{}
	maxNodes := maxWalk
	if k.filter.Player != "" || k.filter.Group != "" {
		maxNodes = len(k.nodes) // few sessions on many nodes
		k.askEarly(k.nodes)
	}
	limit := k.filter.Limit
	for n := 0; len(k.nodes) > 0; n++ {
		node := k.nodes[0]
		if k.filter.Limit = limit - len(list); k.filter.Limit == 0 || n == maxNodes {
			return list, node.ID + "-0"
		}
		page, ok := k.ask(node)
		if !ok {
			k.missing = append(k.missing, node)
			k.afterSilence(maxNodes - n - 1)
		}
		list = append(list, page.Sessions...)
		if page.Next != "" {
			return list, node.ID + "-" + page.Next
		}
		k.nodes, k.filter.After = k.nodes[1:], 0
	}
	return list, ""
}

// afterSilence asks the next nodes of a page at once, up to n of them, after one that did not answer:
// others may be silent with it, and a page waits for all of them for as long as for one.
func (k *walk) afterSilence(n int) {
	if k.early == nil {
		k.filter.After = 0
		k.askEarly(k.nodes[1:min(1+n, len(k.nodes))])
	}
}

// askEarly asks all other nodes of a list at once, except the first if it is not asked from its start.
func (k *walk) askEarly(nodes []Node) {
	after, self := k.filter.After, k.a.cluster.Self().ID
	others := slices.Clone(nodes)
	if after > 0 {
		others = others[1:]
	}
	others = slices.DeleteFunc(others, func(n Node) bool { return n.ID == self })
	k.early, k.filter.After = make(map[string]nodeAnswer), 0
	for _, answer := range k.a.ask(k.r, others, http.MethodGet, "/sessions", k.query()) {
		k.early[answer.node.ID] = answer
	}
	k.filter.After = after
}

// ask returns a page of a node's sessions.
func (k *walk) ask(n Node) (page nodePage, ok bool) {
	if n.ID == k.a.cluster.Self().ID {
		return k.own(), true
	}
	if answer, asked := k.early[n.ID]; asked {
		if page, ok = parsePage(answer); !ok || len(page.Sessions) <= k.filter.Limit {
			return page, ok
		}
	}
	return parsePage(k.a.ask(k.r, []Node{n}, http.MethodGet, "/sessions", k.query())[0])
}

func parsePage(answer nodeAnswer) (page nodePage, ok bool) {
	ok = answer.status == http.StatusOK && json.Unmarshal(answer.body, &page) == nil
	return page, ok
}

// own is a page of this node's sessions.
func (k *walk) own() (page nodePage) {
	list, next := k.a.sessions(k.filter)
	for i := range list {
		raw, _ := json.Marshal(&list[i])
		page.Sessions = append(page.Sessions, raw)
	}
	if next > 0 {
		page.Next = strconv.FormatUint(next, 10)
	}
	return page
}

// query asks another node for k's next page.
func (k *walk) query() string {
	f := &k.filter
	q := url.Values{"limit": {strconv.Itoa(f.Limit)}, "cursor": {strconv.FormatUint(f.After, 10)}}
	for name, value := range map[string]string{"group": f.Group, "player": f.Player, "state": f.State} {
		if value != "" {
			q.Set(name, value)
		}
	}
	return q.Encode()
}
