package server

import (
	"context"
	"net/http"
	"time"

	"reseat/gateway/admin"
	"reseat/gateway/cluster"
	"reseat/gateway/demo"
	"reseat/gateway/events"
	"reseat/gateway/policy"
)

const (
	apiPath    = "/node/v1/api/"
	eventsRoot = "ev." // of the subjects of events; a node's id follows
)

// peers is a node's cluster as its control API sees it.
type peers struct {
	*member
	http.RoundTripper               // to the nodes
	longest           time.Duration // the longest grace period of all routes: a call names a session, not its route
}

func newPeers(n *member, routes []policy.Route) *peers {
	t := n.Transport()
	t.ResponseHeaderTimeout = 0 // the API has its own limits, and none for a first dial
	p := &peers{member: n, RoundTripper: t}
	for _, r := range routes {
		p.longest = max(p.longest, r.Policy.Grace)
		if before := r.Policy.GraceBeforeStart; before != nil {
			p.longest = max(p.longest, *before)
		}
	}
	return p
}

func nodeOf(n *cluster.Node) admin.Node {
	return admin.Node{
		Name: n.Name, ID: n.ID, State: n.State.String(), Version: n.Version, Address: n.Address,
		Sessions: n.Sessions, HeartbeatAge: n.HeartbeatAge.Milliseconds(), ForwardsIn: n.ForwardsIn, ForwardsOut: n.ForwardsOut,
	}
}

// Nodes implements admin.Cluster.
func (p *peers) Nodes() (list []admin.Node) {
	for _, n := range p.Cluster.Nodes() {
		list = append(list, nodeOf(&n))
	}
	return list
}

// Status implements admin.Cluster.
func (p *peers) Status() admin.ClusterStatus {
	st := p.Cluster.Engine()
	return admin.ClusterStatus{Name: p.name, Engine: admin.EngineStatus{
		Up: st.Up, Servers: st.Servers, Replicas: st.Replicas, RTT: float64(st.RTT.Microseconds()) / 1000, Since: st.Since.UTC(),
	}}
}

// Gone implements admin.Cluster. A node that nobody has ever heard of has no session that a call could reach.
func (p *peers) Gone(ctx context.Context, id string) bool {
	return p.Cluster.IsStrange(id) || p.Cluster.Judge(ctx, id).EndsSessions(p.longest)
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

// Seal implements admin.Cluster.
func (p *peers) Seal(message []byte) ([]byte, error) {
	return p.Cluster.Seal(eventsRoot+p.ID(), message)
}

// Open implements admin.Cluster.
func (p *peers) Open(node string, sealed []byte) ([]byte, error) {
	return p.Cluster.Open(eventsRoot+node, sealed)
}

// Log implements admin.Cluster.
func (p *peers) Log() events.Log { return p.engine }

// OnLost implements admin.Cluster.
func (p *peers) OnLost(f func(admin.Node)) { p.Cluster.OnLost(func(n cluster.Node) { f(nodeOf(&n)) }) }
