package admin

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"reseat/gateway/cluster"
	"reseat/gateway/events"
	"reseat/gateway/front"
)

// A Cluster reaches the other nodes for the control API. Its methods may be called from
// any goroutine.
type Cluster interface {
	// Nodes lists all nodes, also those that are gone: this one first, the others by name.
	Nodes() []cluster.Node
	// Hello describes this node and names the cluster, Engine describes its engine.
	Hello() cluster.Hello
	Engine() cluster.EngineStatus
	// RoundTrip sends a request to the node listener of the node whose id is the host of its URL, which
	// serves Handler.NodeHandler there. The error says why the node could not be reached or did not answer.
	http.RoundTripper
	// Gone reports whether a node is known to have ended, and its sessions with it. It is
	// asked about nodes that did not answer, or that Nodes does not list.
	Gone(ctx context.Context, node string) bool
	// OnLost calls f with each node that has ended unannounced, and its sessions. f does not block.
	OnLost(f func(cluster.Node))
	// OnEngineUp calls f whenever this node is connected to the engine again. f does not block.
	OnEngineUp(f func())
	// Log keeps the events of all nodes.
	Log() events.Log
	// Seal returns a message for a place that only nodes can read, and only this one can have published.
	Seal(place string, message []byte) ([]byte, error)
	// Open returns what a node has sealed for a place.
	Open(place string, sealed []byte) (message []byte, err error)
}

// ownNode is the name of the node that is asked, in a query.
const ownNode = "self"

// alone reports whether r concerns this node alone.
func (a *api) alone(r *http.Request) bool { return a.Cluster == nil || callOf(r).alone }

// nodeName is this node's name, "" outside a cluster.
func (a *api) nodeName() string {
	if a.Cluster == nil {
		return ""
	}
	return a.self().Name
}

// self describes this node.
func (a *api) self() cluster.Node { return a.Cluster.Nodes()[0] }

// others lists the other nodes, except those that are gone, by name.
func (a *api) others() []cluster.Node { return a.present()[1:] }

// present lists all nodes that are not gone, this one first, the others by name.
func (a *api) present() []cluster.Node {
	return slices.DeleteFunc(a.Cluster.Nodes(), func(n cluster.Node) bool { return n.State == cluster.StateGone })
}

// nodes lists all nodes by id.
func (a *api) nodes() []cluster.Node {
	return slices.SortedFunc(slices.Values(a.present()), func(x, y cluster.Node) int { return cmp.Compare(x.ID, y.ID) })
}

// findNode returns the node with an id, or with a name that no other node has.
func (a *api) findNode(name string) (cluster.Node, error) {
	if name == ownNode {
		return a.self(), nil
	}
	var found []cluster.Node
	var ids []string
	for _, n := range a.nodes() {
		if n.ID == name {
			return n, nil
		}
		if n.Name == name {
			found, ids = append(found, n), append(ids, n.ID)
		}
	}
	switch len(found) {
	case 0:
		return cluster.Node{}, &fault{http.StatusNotFound, fmt.Sprintf("no node %.100q is known", name)}
	case 1:
		return found[0], nil
	}
	return cluster.Node{}, &fault{http.StatusConflict, fmt.Sprintf("several nodes are named %.100q: use an id, one of %s", name, strings.Join(ids, ", "))}
}

// byID returns another node.
func (a *api) byID(id string) (cluster.Node, bool) {
	others := a.others()
	i := slices.IndexFunc(others, func(n cluster.Node) bool { return n.ID == id })
	if i < 0 {
		return cluster.Node{}, false
	}
	return others[i], true
}

// steer passes requests that name a node in their query to that node.
func (a *api) steer(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.URL.Query().Get("node")
		if a.alone(r) || name == "" || !strings.HasPrefix(r.URL.Path, apiPath+"/") {
			next.ServeHTTP(w, r)
			return
		}
		a.atNode(w, r, name, pathIn(r), func() {
			callOf(r).alone = true
			next.ServeHTTP(w, r)
		})
	})
}

// atNode has a node serve a call, by its id or name: here serves it if that is this one.
func (a *api) atNode(w http.ResponseWriter, r *http.Request, name, path string, here func()) {
	node, err := a.findNode(name)
	switch {
	case err != nil:
		refuse(w, err)
	case node.ID == a.self().ID:
		here()
	default:
		a.pass(w, r, node, path)
	}
}

// passToHolder asks all nodes which one has the session, and passes the call to it. The id
// does not say it: the session is from before its node joined the cluster.
func (a *api) passToHolder(w http.ResponseWriter, r *http.Request) {
	node, missing := a.findHolder(r)
	switch {
	case node.ID != "":
		a.pass(w, r, node, pathIn(r))
	case missing == nil:
		problem(w, http.StatusNotFound, noSession)
	default:
		details{Status: http.StatusBadGateway, Detail: "nodes that may have the session do not answer", Missing: names(missing)}.write(w)
	}
}

// findHolder asks all nodes which one has the session, or remembers how it ended.
func (a *api) findHolder(r *http.Request) (node cluster.Node, missing []cluster.Node) {
	for _, n := range a.ask(r, a.others(), http.MethodGet, "/sessions/"+id(r), "") {
		switch n.status {
		case http.StatusOK:
			return n.node, nil
		case http.StatusNotFound:
		default:
			missing = append(missing, n.node)
		}
	}
	return cluster.Node{}, missing
}

// unreachable answers a call for a node that did not answer.
func (a *api) unreachable(w http.ResponseWriter, r *http.Request, node cluster.Node) {
	if id(r) != "" && a.Cluster.Gone(r.Context(), node.ID) {
		problem(w, http.StatusNotFound, noSession+": its node was lost")
		return
	}
	name := cmp.Or(node.Name, node.ID)
	details{Status: http.StatusBadGateway, Detail: fmt.Sprintf("node %s does not answer", front.Clip(name)), Missing: []string{name}}.write(w)
}

func names(nodes []cluster.Node) []string {
	list := make([]string, 0, len(nodes))
	for _, n := range nodes {
		list = append(list, n.Name)
	}
	slices.Sort(list)
	return list
}

func hexDigits(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return (r < '0' || r > '9') && (r < 'a' || r > 'f') })
}
