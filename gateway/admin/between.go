package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"reseat/gateway"
	"reseat/gateway/cluster"
	"reseat/gateway/front"
	"reseat/gateway/owner"
)

// This file has both ends of a request from one node's API to another's.

const (
	// nodePath begins the paths of the API at a node listener.
	nodePath = "/node/v1/api"
	// passTimeout limits the answer to a call that is passed to a node.
	passTimeout = 5 * time.Second
	// askTimeout is the same for a question that all nodes are asked.
	askTimeout = time.Second
	// maxAnswer is the max size in bytes of an answer to such a question.
	maxAnswer = 16 << 20
)

// Headers of requests between nodes.
const (
	fromHeader   = "Reseat-Node-From"   // id of the node that asks
	callerHeader = "Reseat-Node-Caller" // who asks it, as in its audit log
	peerHeader   = "Reseat-Node-Peer"   // the caller's address
	// nodeHeader is in every answer: the id of the node. An answer without it is not one of
	// this API.
	nodeHeader = "Reseat-Node-Id"
)

// passedHeaders are the headers of a caller's request that its node passes on.
var passedHeaders = []string{"Accept", "Content-Type", "If-Match", "If-None-Match", "Last-Event-Id"}

// NodeHandler returns the handler for requests of other nodes, whose paths begin with
// /node/v1/api. It asks for no token: the node listener has authenticated the node, and that
// node its caller. The answers are those of /api/v1 with ?node=self: it passes nothing on.
func (h *Handler) NodeHandler() http.Handler {
	a, mux := h.a, chi.NewMux()
	mux.Use(a.recoverPanic, middleware.GetHead)
	mux.Group(func(r chi.Router) {
		r.Use(a.refuseForwarded, a.fromNode, a.audit, a.enter)
		a.apiRoutes(r)
		r.NotFound(notFound)
		r.MethodNotAllowed(a.notAllowed)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		own := *r.URL
		rest, ok := strings.CutPrefix(own.Path, nodePath)
		if own.Path = apiPath + rest; own.RawPath != "" {
			own.RawPath = apiPath + strings.TrimPrefix(own.RawPath, nodePath)
		}
		if !ok || a.Cluster == nil {
			notFound(w, r)
			return
		}
		r = r.Clone(r.Context())
		r.URL = &own
		w.Header().Set(nodeHeader, a.self().ID)
		mux.ServeHTTP(w, r)
	})
}

// fromNode takes the caller of a request from the node that has sent it.
func (a *api) fromNode(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from, who, peer := r.Header.Get(fromHeader), r.Header.Get(callerHeader), r.Header.Get(peerHeader)
		if from == "" || who == "" || !printable(who) || !printable(from) {
			problem(w, http.StatusBadRequest, "want a request of another node, with "+fromHeader+" and "+callerHeader)
			return
		}
		r = withCall(r, caller{name: front.Clip(who), write: true, node: front.Clip(from)})
		r.RemoteAddr, callOf(r).alone = front.Clip(peer), true
		next.ServeHTTP(w, r)
	})
}

// describe sets the headers that another node needs of r's caller.
func (a *api) describe(h http.Header, r *http.Request) {
	h.Set(fromHeader, a.self().ID)
	h.Set(callerHeader, callOf(r).name)
	h.Set(peerHeader, r.RemoteAddr)
}

// pathIn is the path of a request within the API, escaped.
func pathIn(r *http.Request) string { return strings.TrimPrefix(r.URL.EscapedPath(), apiPath) }

// nodeURL is the URL of a path within the API of a node.
func nodeURL(node, path, query string) *url.URL {
	u := &url.URL{Scheme: "https", Host: node, RawQuery: query}
	u.Path, _ = url.PathUnescape(nodePath + path)
	u.RawPath = nodePath + path
	return u
}

// A nodeTransport sends requests to one node, and accepts answers of that node alone.
type nodeTransport struct {
	cluster Cluster
	node    string
}

// RoundTrip implements http.RoundTripper.
func (t nodeTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.cluster.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if by := resp.Header.Get(nodeHeader); by != t.node {
		resp.Body.Close()
		return nil, fmt.Errorf("answered %d by node %.20q, want %s", resp.StatusCode, by, t.node)
	}
	resp.Header.Del(nodeHeader)
	return resp, nil
}

// pass sends a call to another node, and its answer to the caller.
func (a *api) pass(w http.ResponseWriter, r *http.Request, node cluster.Node, path string) {
	body, err := readBody(w, r, passedBody(r))
	if err != nil {
		refuse(w, err)
		return
	}
	switch answer, _ := a.forward(w, r, body, node, path); answer {
	case owner.NotThere:
		problem(w, http.StatusNotFound, noSession)
	case owner.Lost:
		a.unreachable(w, r.WithContext(context.WithoutCancel(r.Context())), node)
	}
}

// errNotThere is the answer of a node that does not have the session.
var errNotThere = errors.New("the session is not there")

// forward sends a call to another node, and its answer to the caller, unless the node does not have the
// session or does not answer. Then movedTo is the node that has it now, if that one knows.
func (a *api) forward(w http.ResponseWriter, r *http.Request, body []byte, node cluster.Node, path string) (answer owner.Answer, movedTo string) {
	ctx, cancel := r.Context(), func() {}
	if !slow(r) {
		ctx, cancel = context.WithTimeout(ctx, passTimeout)
	}
	defer cancel()
	proxy := httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL, p.Out.Host = nodeURL(node.ID, path, otherQuery(r.URL)), ""
			p.Out.Header = make(http.Header)
			for _, name := range passedHeaders {
				if v := r.Header[name]; v != nil {
					p.Out.Header[name] = v
				}
			}
			a.describe(p.Out.Header, r)
			p.Out.Body, p.Out.ContentLength = http.NoBody, int64(len(body))
			if len(body) > 0 {
				p.Out.Body = io.NopCloser(bytes.NewReader(body))
			}
		},
		Transport: nodeTransport{a.Cluster, node.ID},
		ModifyResponse: func(resp *http.Response) error {
			moved, ok := resp.Header[owner.MovedHeader]
			if resp.Header.Del(owner.MovedHeader); ok && resp.StatusCode == http.StatusNotFound {
				movedTo = strings.Join(moved, "")
				return errNotThere
			}
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, r *http.Request, err error) {
			if answer = owner.NotThere; !errors.Is(err, errNotThere) {
				answer = owner.Lost
				a.Log.Warn("admin.node_unreachable", "node", node.ID, "name", node.Name, "method", front.Clip(r.Method), "path", front.Clip(path), "err", err)
			}
		},
		ErrorLog: log.New(io.Discard, "", 0),
	}
	if strings.HasSuffix(r.URL.Path, "/events") {
		w = streamWriter{w}
	}
	answer = owner.Served
	callOf(r).visit.Away(func() { proxy.ServeHTTP(w, r.WithContext(ctx)) })
	return answer, movedTo
}

// A streamWriter closes the connection of a reader that does not take what is written.
type streamWriter struct{ http.ResponseWriter }

func (w streamWriter) Write(b []byte) (int, error) {
	http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(streamWriteTimeout))
	return w.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (w streamWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// passedBody is the max size of a request's body.
func passedBody(r *http.Request) int {
	if strings.HasSuffix(r.URL.Path, "/data") {
		return gateway.MaxData
	}
	return maxJSON
}

// slow reports whether a call has no time limit: it is a stream, or it dials a game server.
func slow(r *http.Request) bool {
	return strings.HasSuffix(r.URL.Path, "/events") || r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/sessions")
}

// otherQuery is the query without the name of a node.
func otherQuery(u *url.URL) string {
	q := u.Query()
	if !q.Has("node") {
		return u.RawQuery
	}
	q.Del("node")
	return q.Encode()
}

// A nodeAnswer is one node's answer to a question that several are asked.
type nodeAnswer struct {
	node   cluster.Node
	status int // 0: it did not answer in time
	body   []byte
}

// ask sends the same request to several nodes at once, and returns all answers, in their
// order, after askTimeout at the latest.
func (a *api) ask(r *http.Request, nodes []cluster.Node, method, path, query string) []nodeAnswer {
	list := make([]nodeAnswer, len(nodes))
	callOf(r).visit.Away(func() {
		ctx, cancel := context.WithTimeout(r.Context(), askTimeout)
		defer cancel()
		var all sync.WaitGroup
		for i, n := range nodes {
			list[i].node = n
			all.Go(func() { list[i].status, list[i].body = a.askOne(ctx, r, n, method, path, query) })
		}
		all.Wait()
	})
	return list
}

// askEach is ask for answers of one type, nil where a node did not give one in time. missing are those nodes.
func askEach[T any](a *api, r *http.Request, nodes []cluster.Node, method, path, query string) (list []*T, missing []cluster.Node) {
	for _, answer := range a.ask(r, nodes, method, path, query) {
		v := new(T)
		if answer.status != http.StatusOK || json.Unmarshal(answer.body, v) != nil {
			v, missing = nil, append(missing, answer.node)
		}
		list = append(list, v)
	}
	return list, missing
}

func (a *api) askOne(ctx context.Context, r *http.Request, n cluster.Node, method, path, query string) (status int, body []byte) {
	out := (&http.Request{Method: method, URL: nodeURL(n.ID, path, query), Header: make(http.Header)}).WithContext(ctx)
	a.describe(out.Header, r)
	resp, err := nodeTransport{a.Cluster, n.ID}.RoundTrip(out)
	if err == nil {
		defer resp.Body.Close()
		if body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer)); err == nil {
			return resp.StatusCode, body
		}
	}
	a.Log.Debug("admin.node_missing", "node", n.ID, "name", n.Name, "path", front.Clip(path), "err", err)
	return 0, nil
}
