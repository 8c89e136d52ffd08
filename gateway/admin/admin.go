// Package admin serves the admin address: the control API and its event stream, the
// dashboard, metrics, health and profiles. docs/control-api.md describes it.
//
// openapi.json describes every answer of the API. The tests compare it with the routes
// below and with real answers.
package admin

import (
	"context"
	_ "embed"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"reseat/gateway"
	"reseat/gateway/control"
	"reseat/gateway/faults"
	"reseat/gateway/front"
	"reseat/gateway/gate"
	"reseat/gateway/upgrade"
	"reseat/gateway/watch"
)

// Options configure the handler of the admin address.
type Options struct {
	// Credentials are required of every caller, except for health. With nil no token is
	// required: then the address must be a loopback one, and requests that a foreign page
	// in a browser on this machine could send are refused.
	Credentials *Credentials
	// Recorder holds the samples that an overview shows. Nil: no samples.
	Recorder *Recorder
	// Host, Version and Listen (the client address) identify the gateway in an overview.
	Host, Version, Listen string
	// Log gets a line for each write. Nil means slog.Default.
	Log *slog.Logger
	// Upgrade describes the last upgrade. Nil: there was none.
	Upgrade func() upgrade.Status
	// Cluster reaches the other nodes. Nil: there are none, and the API speaks for this
	// process alone.
	Cluster Cluster
	// Faults makes connections fail. Nil without --dev: calls for it are refused.
	Faults *faults.Lines
}

// A Handler serves the admin address.
type Handler struct {
	*chi.Mux
	a *api
}

type api struct {
	Options
	g       *gateway.Gateway
	refused *watch.LimitedLog // an attacker must not fill the log
	streams streams
	routes  *chi.Mux
	heard   figures
	feed    *feed // the events of all nodes; nil without a cluster
}

//go:embed openapi.json
var openAPI []byte

// New returns the handler of the admin address.
func New(g *gateway.Gateway, o Options) *Handler {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Upgrade == nil {
		o.Upgrade = func() upgrade.Status { return upgrade.Status{State: upgrade.None} }
	}
	a := &api{Options: o, g: g, refused: watch.NewLimitedLog(o.Log, 5, 20, g.Watch().Metrics.Unlogged), streams: streams{of: make(map[string]int)}, routes: chi.NewMux()}
	if o.Cluster != nil {
		a.feed = newFeed(a)
	}
	mux := a.routes
	mux.Use(a.recoverPanic, middleware.GetHead)
	mux.Get("/healthz", func(w http.ResponseWriter, _ *http.Request) { text(w, http.StatusOK, "ok") })
	mux.Get("/readyz", a.ready)
	mux.Group(a.guarded)
	return &Handler{mux, a}
}

// guarded registers the routes behind the guard. Unknown paths are behind it as well, so
// that a caller without a token cannot tell them apart.
func (a *api) guarded(r chi.Router) {
	r.Use(a.refuseForwarded, a.authorize, a.audit, a.enter, a.steer)
	r.Method(http.MethodGet, "/metrics", promhttp.HandlerFor(a.g.Watch().Metrics.Registry, promhttp.HandlerOpts{}))
	a.apiRoutes(r)
	page := dashboard()
	r.Get("/", page)
	r.Get(dashboardFiles+"{file}", page)
	r.Get(dashboardFiles+"vendor/{file}", page)
	r.Get("/debug/pprof/", pprof.Index)
	r.Get("/debug/pprof/{profile}", profile)
	r.Post("/debug/pprof/symbol", pprof.Symbol)
	r.NotFound(notFound)
	r.MethodNotAllowed(a.notAllowed)
}

func notFound(w http.ResponseWriter, _ *http.Request) {
	problem(w, http.StatusNotFound, "no such resource")
}

// enter refuses calls of the API while the sessions are frozen for an upgrade, and once they
// are handed over. An event stream ends by itself.
func (a *api) enter(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/api/") || strings.HasSuffix(r.URL.Path, "/events") {
			next.ServeHTTP(w, r)
			return
		}
		v := a.g.Enter()
		if v == nil {
			w.Header().Set("Retry-After", "1")
			problem(w, http.StatusServiceUnavailable, "an upgrade is under way")
			return
		}
		defer v.Leave()
		callOf(r).visit = v
		next.ServeHTTP(w, r)
	})
}

// A call is what is known of a request.
type call struct {
	caller
	alone   bool        // it concerns this node alone: another node has sent it, or the caller wants no other
	visit   *gate.Visit // nil if it acts on no sessions
	created string      // id of the session that it has created
}

type callKey struct{}

// withCall returns r as a call of who.
func withCall(r *http.Request, who caller) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), callKey{}, &call{caller: who}))
}

// callOf returns the call that a request behind the guard makes.
func callOf(r *http.Request) *call { return r.Context().Value(callKey{}).(*call) }

// refuseForwarded refuses requests that a gateway forwarded from its client address. A
// route whose upstream is the admin address would otherwise open it to every client.
func (a *api) refuseForwarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header[front.ViaHeader] != nil {
			problem(w, http.StatusLoopDetected, "a gateway forwarded this request: its --upstream points at this admin address")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// apiPath begins the paths of the API.
const apiPath = "/api/v1"

// apiRoutes registers all routes on one router, without subrouters: only then can it tell
// which methods a path has.
func (a *api) apiRoutes(r chi.Router) {
	const v1, session = apiPath, apiPath + "/sessions/{id}"
	r.Get(v1+"/openapi.json", a.openAPI)
	r.Get(v1+"/events", a.events)
	r.Get(v1+"/sessions", a.list)
	r.Post(v1+"/sessions", a.create)
	r.Get(v1+"/overview", a.overview)
	r.Get(v1+"/refusals", a.refusals)
	r.Get(v1+"/upgrade", a.upgradeState)
	r.Get(session, a.owned(a.get))
	r.Get(session+"/history", a.owned(a.history))
	r.Patch(session, a.owned(a.patch))
	r.Delete(session, a.owned(a.end))
	r.Post(session+"/disconnect", a.owned(a.disconnect))
	r.Post(session+"/faults", a.owned(a.fault))
	r.Delete(session+"/faults", a.owned(a.clearFaults))
	r.Get(session+"/data", a.owned(a.data))
	r.Put(session+"/data", a.owned(a.setData))
	r.Post(v1+"/groups/{group}/start", a.group(func(c *control.Control, group, _ string) int { return c.StartGroup(group) }))
	r.Post(v1+"/groups/{group}/end", a.group((*control.Control).EndGroup))
	r.Get(v1+"/drain", a.drain)
	r.Post(v1+"/drain", a.beginDrain)
	r.Delete(v1+"/drain", a.cancelDrain)
	if a.Cluster != nil {
		r.Get(v1+"/nodes", a.listNodes)
		r.Get(v1+"/cluster", a.clusterStatus)
		r.Get(v1+"/nodes/{name}/drain", a.nodeDrain(a.drain))
		r.Post(v1+"/nodes/{name}/drain", a.nodeDrain(a.beginDrain))
		r.Delete(v1+"/nodes/{name}/drain", a.nodeDrain(a.cancelDrain))
	}
}

func (a *api) ready(w http.ResponseWriter, r *http.Request) {
	if a.g.Draining() {
		status := http.StatusServiceUnavailable
		if r.URL.Query().Get("draining") == "404" { // for HAProxy's disable-on-404, which cuts nobody
			status = http.StatusNotFound
		}
		text(w, status, "draining")
		return
	}
	text(w, http.StatusOK, "ok")
}

func (a *api) openAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Write(openAPI)
}

// methods are all methods that a resource may have.
var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// notAllowed answers 405 with the methods that the resource has: RFC 9110 section 15.5.6.
func (a *api) notAllowed(w http.ResponseWriter, r *http.Request) {
	path := r.URL.RawPath
	if path == "" {
		path = r.URL.Path
	}
	var allowed []string
	for _, m := range methods {
		as := m
		if m == http.MethodHead {
			as = http.MethodGet // every GET is a HEAD too
		}
		if a.routes.Match(chi.NewRouteContext(), as, path) {
			allowed = append(allowed, m)
		}
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	problem(w, http.StatusMethodNotAllowed, "method not allowed for this resource")
}
