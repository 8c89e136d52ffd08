package admin

import (
	"net/http"
	"time"

	"reseat/gateway/cluster"
)

// A shownNode is a node of the cluster as the API shows it.
type shownNode struct {
	Name         string `json:"name"` // for people: two nodes may have the same
	ID           string `json:"id"`   // 8 hex digits
	State        string `json:"state"`
	Version      string `json:"version"`
	Address      string `json:"address"` // of its node listener
	Sessions     int    `json:"sessions"`
	HeartbeatAge int64  `json:"heartbeat_age_ms"` // 0 for this node
	ForwardsIn   int    `json:"forwards_in"`
	ForwardsOut  int    `json:"forwards_out"`
}

func shown(nodes []cluster.Node) (list []shownNode) {
	for _, n := range nodes {
		list = append(list, shownNode{n.Name, n.ID, n.State.String(), n.Version, n.Address, n.Sessions, n.HeartbeatAge.Milliseconds(), n.ForwardsIn, n.ForwardsOut})
	}
	return list
}

// An engineStatus describes a node's connection to NATS.
type engineStatus struct {
	Up       bool      `json:"up"`
	Servers  int       `json:"servers"`
	Replicas int       `json:"replicas"`
	RTT      float64   `json:"rtt_ms"`
	Since    time.Time `json:"since"` // when Up changed last
}

func (a *api) engine() *engineStatus {
	st := a.Cluster.Engine()
	return &engineStatus{st.Up, st.Servers, st.Replicas, float64(st.RTT.Microseconds()) / 1000, st.Since.UTC()}
}

func (a *api) listNodes(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, struct {
		Nodes []shownNode `json:"nodes"`
	}{shown(a.Cluster.Nodes())})
}

// clusterStatus describes the cluster as this node sees it.
func (a *api) clusterStatus(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, struct {
		Name   string        `json:"name"`
		Engine *engineStatus `json:"engine"`
	}{a.Cluster.Hello().Cluster, a.engine()})
}
