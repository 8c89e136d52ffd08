package admin

import (
	"net/http"
	"time"
)

// A ClusterStatus describes the cluster as one node sees it.
type ClusterStatus struct {
	Name   string       `json:"name"`
	Engine EngineStatus `json:"engine"`
}

// An EngineStatus describes a node's connection to NATS.
type EngineStatus struct {
	Up       bool      `json:"up"`
	Servers  int       `json:"servers"`
	Replicas int       `json:"replicas"`
	RTT      float64   `json:"rtt_ms"`
	Since    time.Time `json:"since"` // when Up changed last
}

func (a *api) listNodes(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, struct {
		Nodes []Node `json:"nodes"`
	}{a.Cluster.Nodes()})
}

func (a *api) clusterStatus(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, a.Cluster.Status())
}
