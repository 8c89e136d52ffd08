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

// maxWalk is the max number of nodes that a page asks, all at once. A filter by player or group asks all nodes: they
// have few such sessions.
const maxWalk = 4

// A nodePage is a page of one node's sessions. Those of other nodes are passed on verbatim.
type nodePage struct {
	Sessions []json.RawMessage `json:"sessions"`
	Next     string            `json:"next"`
}

// listAll lists the sessions of all nodes, by the nodes' ids and on each node in the order
// of their creation. A cursor is a node's id and a position there, so that a page costs few
// nodes, and neither sessions nor nodes that come or go move others out of the list. A page ends before
// a node whose sessions do not all fit, unless it has no others.
func (a *api) listAll(w http.ResponseWriter, r *http.Request) {
	f, err := filterOfAll(r)
	from := ""
	if s := r.URL.Query().Get("cursor"); err == nil && s != "" {
		if from, f.After, err = parseCursor(s); err != nil {
			err = badCursor()
		}
	}
	if err != nil {
		refuse(w, err)
		return
	}
	left := slices.DeleteFunc(a.nodes(), func(n cluster.Node) bool { return n.ID < from })
	if len(left) == 0 || left[0].ID != from {
		f.After = 0
	}
	asked := left
	switch {
	case f.After > 0:
		asked = left[:1]
	case f.Player == "" && f.Group == "":
		asked = left[:min(maxWalk, len(left))]
	}
	list, missing, next := []json.RawMessage{}, []cluster.Node{}, ""
	if len(asked) < len(left) {
		next = left[len(asked)].ID + "-0"
	}
	for i, page := range a.pages(r, f, asked) {
		if page == nil {
			missing = append(missing, asked[i])
			continue
		}
		if len(list)+len(page.Sessions) > f.Limit {
			next = asked[i].ID + "-0"
			break
		}
		list = append(list, page.Sessions...)
		if page.Next != "" {
			next = asked[i].ID + "-" + page.Next
			break
		}
	}
	answer(w, http.StatusOK, struct {
		Sessions []json.RawMessage `json:"sessions"`
		Next     string            `json:"next"`
		Missing  []string          `json:"nodes_missing"`
	}{list, next, names(missing)})
}

// pages returns a page of each of the nodes, nil for one that did not answer.
func (a *api) pages(r *http.Request, f registry.Filter, nodes []cluster.Node) []*nodePage {
	own := slices.IndexFunc(nodes, func(n cluster.Node) bool { return n.ID == a.self().ID })
	if own >= 0 {
		nodes = slices.Delete(slices.Clone(nodes), own, own+1)
	}
	list, _ := askEach[nodePage](a, r, nodes, http.MethodGet, "/sessions", pageQuery(f))
	if own < 0 {
		return list
	}
	page := new(nodePage)
	sessions, next := a.sessions(f)
	for i := range sessions {
		raw, _ := json.Marshal(&sessions[i])
		page.Sessions = append(page.Sessions, raw)
	}
	if next > 0 {
		page.Next = strconv.FormatUint(next, 10)
	}
	return slices.Insert(list, own, page)
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

// pageQuery asks another node for a page.
func pageQuery(f registry.Filter) string {
	q := url.Values{"limit": {strconv.Itoa(f.Limit)}, "cursor": {strconv.FormatUint(f.After, 10)}}
	for name, value := range map[string]string{"group": f.Group, "player": f.Player, "state": f.State} {
		if value != "" {
			q.Set(name, value)
		}
	}
	return q.Encode()
}
