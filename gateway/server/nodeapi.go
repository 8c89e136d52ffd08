package server

import (
	"context"
	"net/http"
	"time"

	"reseat/gateway/cluster"
	"reseat/gateway/demo"
	"reseat/gateway/events"
	"reseat/gateway/policy"
)

const apiPath = "/node/v1/api/"

// peers is a node's cluster as its control API sees it.
type peers struct {
	*cluster.Cluster
	http.RoundTripper               // to the nodes
	log               events.Log    // of all nodes
	longest           time.Duration // the longest grace period of all routes: a call names a session, not its route
}

func newPeers(n *member, routes []policy.Route) *peers {
	t := n.Transport()
	t.ResponseHeaderTimeout = 0 // the API has its own limits, and none for a first dial
	p := &peers{Cluster: n.Cluster, RoundTripper: t, log: n.engine}
	for _, r := range routes {
		p.longest = max(p.longest, r.Policy.Grace)
		if before := r.Policy.GraceBeforeStart; before != nil {
			p.longest = max(p.longest, *before)
		}
	}
	return p
}

// Gone implements admin.Cluster. A node that nobody has ever heard of has no session that a call could reach.
func (p *peers) Gone(ctx context.Context, id string) bool {
	return p.IsStrange(id) || p.Judge(ctx, id).EndsSessions(p.longest)
}

// demoNodes implements demo.Cluster.
type demoNodes struct{ *member }

func (d demoNodes) Nodes() (list []demo.Node) {
	for _, n := range d.Cluster.Nodes() {
		list = append(list, demo.Node{ID: n.ID, Name: n.Name, State: n.State.String()})
	}
	return list
}

func (d demoNodes) Do(r *http.Request) (*http.Response, error) { return d.http.Do(r) }

// Log implements admin.Cluster.
func (p *peers) Log() events.Log { return p.log }
