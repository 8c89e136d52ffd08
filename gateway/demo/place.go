package demo

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"reseat/gateway"
	"reseat/gateway/handshake"
)

// A Place is a node's place in a cluster whose nodes all have the demo, or --dev. The page can carry on at
// another node; that of the demo shows which.
type Place struct {
	Cluster Cluster
	// URL is the address of this node for browsers.
	URL string
	// Origins are the patterns of --origin: the page of one node sends requests to others.
	Origins []string
}

// A Cluster knows and reaches the nodes.
type Cluster interface {
	// Nodes returns the nodes, this one first.
	Nodes() []Node
	// Do sends a request to the node listener of the node whose id is the host of its URL.
	Do(*http.Request) (*http.Response, error)
}

// A Node is a node as the page sees it.
type Node struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	State string `json:"state"` // as in the control API
	URL   string `json:"url"`   // "" if the node does not answer, or not to pages of this origin
}

const (
	nodesPath = "/demo/nodes"

	// NodePath begins the paths of the demo at the node listener.
	NodePath = "/node/v1/demo/"
	nodeSeen = "/node/v1" + nodesPath

	// askTime limits the answer of another node.
	askTime   = time.Second
	maxAnswer = 4 << 10

	stateGone = "gone"
)

// A seen describes a node, and one of its sessions.
type seen struct {
	URL   string `json:"url"`
	Front string `json:"front"` // the node that the session's client is connected to; "": none
}

// An overview is the answer of nodesPath.
type overview struct {
	Self  string `json:"self"`
	Owner string `json:"owner"` // the node that has the session
	Front string `json:"front"` // the node that its client is connected to; "": none, or not known
	Nodes []Node `json:"nodes"`
}

// NodeHandler serves what the other nodes ask, below NodePath.
func (p *Place) NodeHandler(g *gateway.Gateway) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != nodeSeen {
			http.NotFound(w, r)
			return
		}
		q := r.URL.Query()
		s := seen{URL: p.URL, Front: g.Owner().FrontOf(g.Control().ClientConn(q.Get("session")))}
		if !p.allows(q.Get("origin")) {
			s.URL = ""
		}
		writeJSON(w, s)
	})
}

// allows reports whether pages of an origin may connect to this node.
func (p *Place) allows(origin string) bool {
	own, err := url.Parse(p.URL)
	return err == nil && handshake.OriginAllowed(p.Origins, http.Header{"Origin": {origin}}, handshake.Target{Host: own.Host, Secure: own.Scheme == "https"})
}

// shared lets the pages of other nodes read the answers. p may be nil.
func (p *Place) shared(h http.Handler) http.Handler {
	if p == nil {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Origin")
		if handshake.OriginAllowed(p.Origins, r.Header, handshake.Target{Host: r.Host, Secure: r.TLS != nil}) {
			w.Header().Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
			w.Header().Set("Access-Control-Allow-Headers", "Content-Type")
		}
		if r.Method == http.MethodOptions {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// nodes says which nodes there are, and which of them a session is at: its id is the query's
// session. Without a cluster, p is nil, and there is no content.
func (p *Place) nodes(g *gateway.Gateway) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p == nil {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		writeJSON(w, p.overview(g, r, r.URL.Query().Get("session")))
	})
}

// Others returns the addresses of the other nodes that a page may carry on at.
func (p *Place) Others(g *gateway.Gateway, r *http.Request, session string) (list []string) {
	for _, n := range p.overview(g, r, session).Nodes[1:] {
		if n.URL != "" {
			list = append(list, n.URL)
		}
	}
	return list
}

func (p *Place) overview(g *gateway.Gateway, r *http.Request, session string) overview {
	origin := r.Header.Get("Origin")
	if origin == "" { // a page of this node
		origin = "http://" + r.Host
		if r.TLS != nil {
			origin = "https://" + r.Host
		}
	}
	nodes := p.Cluster.Nodes()
	nodes[0].URL = p.URL
	o := overview{Self: nodes[0].ID, Owner: g.Owner().NodeOf(session), Front: g.Owner().FrontOf(g.Control().ClientConn(session)), Nodes: nodes}
	var asked sync.WaitGroup
	for i := range nodes[1:] {
		n := &nodes[i+1]
		if n.State == stateGone {
			continue
		}
		asked.Go(func() {
			s := p.ask(r.Context(), n.ID, session, origin)
			n.URL = s.URL
			if n.ID == o.Owner {
				o.Front = s.Front // of one node alone
			}
		})
	}
	asked.Wait()
	return o
}

// ask returns what another node says, nothing if it does not answer.
func (p *Place) ask(ctx context.Context, node, session, origin string) (s seen) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+node+nodeSeen+"?"+url.Values{"session": {session}, "origin": {origin}}.Encode(), nil)
	if err != nil {
		return s
	}
	resp, err := p.Cluster.Do(r)
	if err != nil {
		return s
	}
	defer resp.Body.Close()
	err = json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&s)
	if err != nil || resp.StatusCode != http.StatusOK {
		return seen{}
	}
	return s
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	json.NewEncoder(w).Encode(v)
}
