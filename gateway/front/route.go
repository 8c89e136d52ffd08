package front

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/go-chi/chi/v5"

	"reseat/gateway/policy"
	"reseat/gateway/registry"
	"reseat/gateway/replay"
	"reseat/upstream"
)

// errTwoRoutes refuses a path that matches one route for a game server that knows
// parameters of path segments ("/ranked;v=1/7"), and another route for one that does not.
var errTwoRoutes = errors.New("parameters (;) that may change which route it matches")

// A Table finds the route of a path.
type Table struct {
	mux    *chi.Mux          // matches paths to patterns
	routes map[string]*Route // by pattern
}

// NewTable returns an empty Table.
func NewTable() *Table {
	return &Table{mux: chi.NewMux(), routes: make(map[string]*Route)}
}

// Route returns the route with a pattern, nil if there is none.
func (t *Table) Route(pattern string) *Route { return t.routes[pattern] }

// All yields all routes, in no order, also those that paths do not match any more.
func (t *Table) All() iter.Seq[*Route] { return maps.Values(t.routes) }

// Add adds a route before the first request. It fails if chi refuses the pattern, or if another route has the same
// one.
func (t *Table) Add(rt *Route) (err error) {
	defer func() {
		if v := recover(); v != nil { // chi has no other way to refuse a pattern
			err = fmt.Errorf("route %q: %v", rt.Pattern, v)
		}
	}()
	if t.routes[rt.Pattern] != nil {
		return fmt.Errorf("route %q: given twice", rt.Pattern)
	}
	t.mux.Handle(rt.Pattern, http.NotFoundHandler()) // only matches, serves nothing
	t.routes[rt.Pattern] = rt
	return nil
}

// Inherit adds a route that no path matches: for the sessions of a predecessor, on a route that
// the settings do not have any more.
func (t *Table) Inherit(rt *Route) { t.routes[rt.Pattern] = rt }

// Match returns the route of a path, nil if none matches, and the path's normal form. The
// error says why a path is ambiguous; its clients get 400.
func (t *Table) Match(raw string) (*Route, upstream.Path, error) {
	path, err := upstream.NormalPath(raw)
	if err != nil {
		return nil, path, err
	}
	rt := t.routeOf(path.Decoded)
	if bare, other := path.WithoutParams(); other && t.routeOf(bare) != rt {
		return nil, path, errTwoRoutes
	}
	return rt, path, nil
}

// routeOf returns the route whose pattern a decoded path matches, nil if none does.
func (t *Table) routeOf(path string) *Route {
	ctx := routeContexts.Get().(*chi.Context)
	defer routeContexts.Put(ctx)
	ctx.Reset()
	if !t.mux.Match(ctx, http.MethodGet, path) {
		return nil
	}
	return t.routes[ctx.RoutePattern()]
}

// routeContexts pools the contexts of routeOf.
var routeContexts = sync.Pool{New: func() any { return chi.NewRouteContext() }}

// Counts holds the counters of one route.
type Counts struct {
	Created, Detached, Resumed, Refused, Ended atomic.Uint64

	// Keepalive is the flag that sends what clients send at a steady pace; nil: none was noticed.
	Keepalive atomic.Pointer[string]
	// Newest is the flag for what looks like states to them; nil: nothing does.
	Newest atomic.Pointer[string]
}

// Load returns all counts.
func (c *Counts) Load() (n [5]uint64) {
	for i, own := range c.all() {
		n[i] = own.Load()
	}
	return n
}

// Add adds counts that Load returned.
func (c *Counts) Add(n [5]uint64) {
	for i, own := range c.all() {
		own.Add(n[i])
	}
}

func (c *Counts) all() [5]*atomic.Uint64 {
	return [5]*atomic.Uint64{&c.Created, &c.Detached, &c.Resumed, &c.Refused, &c.Ended}
}

// A Route is a policy.Route that is ready to serve.
type Route struct {
	policy.Route
	Terms  *registry.Terms // of new sessions
	Proxy  *upstream.Proxy // nil if ordinary requests are off
	Counts *Counts
}

// NewRoute returns a Route without a proxy.
func NewRoute(r policy.Route) *Route {
	return &Route{Route: r, Terms: &registry.Terms{Policy: r.Policy}, Counts: new(Counts)}
}

// Realm is the login realm of the route's players, nil if it requires no login.
func (rt *Route) Realm() any {
	if rt.Policy.Login == nil {
		return nil
	}
	return rt.Policy.Login.Realm()
}

// Restore registers a session of rt that another process, or another node, has had.
func (rt *Route) Restore(reg *registry.Registry, s *registry.State, terms *registry.Terms, store *replay.Store) (*registry.Record, error) {
	target := rt.Upstream
	if s.Target != "" {
		var err error
		if target.URL, err = upstream.ParseTarget(s.Target); err != nil {
			return nil, fmt.Errorf("session %s: %w", s.ID, err)
		}
	}
	return reg.Restore(s, target, terms, rt.Realm(), store), nil
}
